"""Tests of `gradtape.passes`."""
