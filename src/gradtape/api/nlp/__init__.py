"""Nonlinear programs: an objective, constraints and bounds, solved with sparse derivatives."""
