"""Tests of `gradtape.api.custom.custom_gradient`."""
