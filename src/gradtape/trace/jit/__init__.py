"""Jitted functions: signatures, guards, captures and traces per call site."""
