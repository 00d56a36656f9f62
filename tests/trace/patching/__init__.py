"""Tests of the hooks in other packages."""
