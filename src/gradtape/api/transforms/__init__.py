"""Function transforms and the decorator."""
