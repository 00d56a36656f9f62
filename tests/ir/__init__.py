"""Tests of `gradtape.ir`."""
