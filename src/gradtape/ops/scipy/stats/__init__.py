"""Functions of `scipy.stats`: methods of distributions, and compiled routines under its functions."""
