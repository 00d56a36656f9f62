"""Tests of `gradtape.transforms.kinks`."""
