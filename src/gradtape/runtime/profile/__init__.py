"""Profiled kernels."""
