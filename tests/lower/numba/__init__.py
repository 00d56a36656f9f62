"""Tests of `gradtape.lower.numba`."""
