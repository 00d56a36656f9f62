"""The arrays that the user holds: NumPy's interface on values of the graph, views, and sparse gradients."""
