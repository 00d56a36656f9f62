"""Which public functions of NumPy and SciPy are followed: a table of typical calls, each of which is a test."""
