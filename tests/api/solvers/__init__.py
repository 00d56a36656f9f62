"""Tests of `gradtape.api.solvers`."""
