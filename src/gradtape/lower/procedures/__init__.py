"""Procedures as LLVM functions."""
