"""Pending values: when they are computed, and the caches that find recordings and gradients again."""
