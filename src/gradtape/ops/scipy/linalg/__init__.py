"""`scipy.linalg` in terms of the matrix and callback rows."""
