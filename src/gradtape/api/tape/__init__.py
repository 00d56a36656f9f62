"""Tapes, accumulators, and what they are asked."""
