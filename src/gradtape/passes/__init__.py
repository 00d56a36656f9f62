"""Graph to graph: the pipeline and its passes."""
