"""Source locations of operations in user code, and the contexts that are active there."""
