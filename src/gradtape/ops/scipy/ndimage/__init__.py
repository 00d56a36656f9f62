"""The compiled routines of `scipy.ndimage`."""
