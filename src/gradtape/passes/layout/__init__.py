"""Passes that choose memory layouts of operands and the order of large products."""
