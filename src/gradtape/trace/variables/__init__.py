"""Variables: arrays that are assigned to, and the state of compiled functions."""
