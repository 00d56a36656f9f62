"""Tests of `gradtape.api.tape.tape`."""
