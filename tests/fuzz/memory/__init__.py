"""Random programs about arrays in memory: overlapping assignments, layouts, and what NumPy refuses."""
