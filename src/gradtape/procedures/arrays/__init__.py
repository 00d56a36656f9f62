"""Arrays over procedures: views, deferred expressions, loop nests, and NumPy's functions as statements."""
