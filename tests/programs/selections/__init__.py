"""Programs with selections, compared at kinks, ties, zeros and infinities."""
