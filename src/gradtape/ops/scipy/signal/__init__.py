"""The compiled routines of `scipy.signal`."""
