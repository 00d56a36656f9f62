"""A corpus of packages of the registry: calls from their documentations, and what becomes of each when it is differentiated."""
