"""Composites of linear algebra, Fourier transforms and polynomials."""
