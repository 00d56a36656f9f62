"""Tests of `gradtape.api.export`."""
