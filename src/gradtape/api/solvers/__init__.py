"""Functions of Python's in compiled functions, and the derivatives of what solvers return."""
