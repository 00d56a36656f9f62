"""Readable derivatives: traced programs as NumPy code with the user's names."""
