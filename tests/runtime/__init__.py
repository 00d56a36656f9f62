"""Tests of `gradtape.runtime`."""
