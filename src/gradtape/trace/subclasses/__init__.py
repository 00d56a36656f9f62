"""Traced objects of the subclasses of ndarray that packages define: quantities with units, signals with labels, fields with gradients."""
