"""Tests of `gradtape.api.debug`."""
