"""Procedures: imperative programs of loops, branches, mutable variables and arrays that are written in place."""
