"""Kinks and jumps: where functions switch from one formula to another."""
