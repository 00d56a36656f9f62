"""The machine that kernels are compiled for, and the libraries that they call."""
