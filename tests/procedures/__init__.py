"""Tests of `gradtape.procedures`."""
