"""Kinds of routines that work on whole problems: of LAPACK, called from kernels, and of Python."""
