"""The kinds of ops: what is true of every row of a kind."""
