"""Tests of `gradtape.ops`."""
