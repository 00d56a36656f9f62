"""The routines of kernels, in the Python that Numba compiles."""

from __future__ import annotations

from typing import Final

WRAP: Final = '''\
def wrap(index, extent):
    """Return the place of an index: negative ones count from the end."""
    place = index + extent if index < 0 else index
    if place < 0 or place >= extent:
        raise IndexError("index is out of bounds")
    return place'''

_GEMM: Final = '''\
def gemm(b, a, c, first, second, wide, high, deep, ld_first, ld_second, beta, ld_out):
    """Compute a product of matrices that are stored by columns: c = b @ a + beta * c, with "N" as they are, with "T" transposed."""
    b_row, b_column = (1, ld_first) if first == "N" else (ld_first, 1)
    a_row, a_column = (1, ld_second) if second == "N" else (ld_second, 1)
    for j in range(high):
        for i in range(wide):
            total = c.dtype.type(0)
            for k in range(deep):
                total += b[i * b_row + k * b_column] * a[k * a_row + j * a_column]
            place = j * ld_out + i
            c[place] = total + c[place] if beta != 0.0 else total'''

_ARGSORT: Final = '''\
def argsort(keys, out, spare, count):
    """Sort positions by their keys; equal ones stay in order."""
    out[:count] = np.argsort(keys[:count], kind="mergesort")'''

_SEARCHSORTED: Final = '''\
def searchsorted(a, v, out, count, wanted, side):
    """Find where elements belong among sorted ones."""
    for k in range(wanted):
        low, high = 0, count
        while low < high:
            middle = (low + high) // 2
            before = a[middle] <= v[k] if side == "right" else a[middle] < v[k]
            if before or (v[k] != v[k] and (a[middle] == a[middle] or side == "right")):
                low = middle + 1
            else:
                high = middle
        out[k] = low'''

ROUTINES: Final = {"gemm": _GEMM, "argsort": _ARGSORT, "searchsorted": _SEARCHSORTED}
"""Routines by name; those of LAPACK are not among them."""
