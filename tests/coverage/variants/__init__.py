"""A second sample: calls with other keywords, axes, orders, modes and positions of arguments than those of the table."""
