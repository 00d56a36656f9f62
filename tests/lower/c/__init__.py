"""Tests of `gradtape.lower.c`."""
