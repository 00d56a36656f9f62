"""Tests of `gradtape.loops`."""
