"""Sparsity: which elements of the result of a linear map depend on which elements of its seed, by the structure of the graph."""
