"""Tests of `gradtape.api.control`."""
