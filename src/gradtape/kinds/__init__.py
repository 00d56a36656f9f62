"""The kinds of ops, with the facts that hold for every row of a kind."""
