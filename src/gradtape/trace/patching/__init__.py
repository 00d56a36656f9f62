"""Patching: hooks in functions of NumPy and SciPy. Only this folder changes objects of other packages and reads bytecode.

A hooked function stays the same object, under all its names: its identity, hash, attributes and signature do not change. While there is
a recorder, its calls go to a handler first.
"""
