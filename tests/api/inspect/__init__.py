"""Tests of `gradtape.api.inspect`."""
