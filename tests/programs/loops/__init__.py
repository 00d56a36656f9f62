"""Text-book programs with scalar loops: what people write for ``numba.njit``."""
