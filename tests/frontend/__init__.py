"""Tests of `gradtape.frontend`."""
