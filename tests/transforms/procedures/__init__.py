"""Tests of `gradtape.transforms.procedures`."""
