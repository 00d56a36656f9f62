"""Tapes and forward accumulators: gradients, Jacobians and directional derivatives of recorded code."""
