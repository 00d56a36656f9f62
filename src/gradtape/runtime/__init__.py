"""Machine code: compiling, loading, calling, caching; and the NumPy interpreter."""
