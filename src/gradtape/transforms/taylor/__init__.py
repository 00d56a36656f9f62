"""Taylor mode: power series in one variable are propagated through the nodes of a graph."""
