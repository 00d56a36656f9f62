"""The functions that are measured: plain NumPy, the same text for every tool, which binds `np` to its own."""
