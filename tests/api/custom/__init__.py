"""Tests of `gradtape.api.custom`."""
