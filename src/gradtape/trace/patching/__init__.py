"""Hooks in functions of NumPy and SciPy. Only this folder changes objects of other packages.

A hooked function stays the object that it was, under all names that anybody has for it: the same identity, hash, attributes and
signature. What changes is what a call of it does while somebody records.
"""
