"""Tests of `gradtape.lower`."""
