"""Tests of NumPy code in place of compiled routines."""
