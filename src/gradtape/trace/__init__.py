"""From the user's NumPy code to graphs."""
