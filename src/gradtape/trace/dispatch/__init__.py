"""From NumPy's protocols to rows and composites."""
