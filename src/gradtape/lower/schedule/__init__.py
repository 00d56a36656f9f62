"""Loop nests: which exist, which are fused, in which order they run, and where their results are stored."""
