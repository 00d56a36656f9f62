"""Tests of gradtape: a folder for each package of the source, and `programs`, `registry`, `fuzz` and `support`."""
