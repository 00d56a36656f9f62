"""Errors that inputs have, and what they make of results; standard errors of fits."""
