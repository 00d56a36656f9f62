"""Tests of `gradtape.transforms`."""
