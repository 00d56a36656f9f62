"""Functions on clusters: data in partitions, the same function on each, and sums in a fixed order."""
