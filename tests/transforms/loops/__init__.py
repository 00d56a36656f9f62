"""Tests of `gradtape.transforms.loops`."""
