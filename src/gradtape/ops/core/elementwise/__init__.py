"""Elementwise rows: one file per family."""
