"""Tests of `gradtape.api.transforms`."""
