"""Random numbers: calls of NumPy's generators in functions that are traced or recorded."""
