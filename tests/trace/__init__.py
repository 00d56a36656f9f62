"""Tests of `gradtape.trace`."""
