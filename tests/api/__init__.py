"""Tests of `gradtape.api`."""
