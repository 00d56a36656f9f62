"""Transforms of procedures: derivatives and batches of imperative programs, as programs."""
