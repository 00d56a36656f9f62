"""Tests of `gradtape.api.tape`."""
