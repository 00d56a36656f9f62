"""Orthogonal polynomials and Legendre functions."""
