"""Initial value problems: SciPy's methods as loops of the graph, which are compiled and differentiated step by step."""
