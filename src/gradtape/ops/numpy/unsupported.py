"""Functions of NumPy that gradtape does not follow: why, and after the semicolon what to do instead."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from gradtape.kinds.registry import UNSUPPORTED


def _group(reason: str, prefix: str, names: str | Iterable[str]) -> None:
    """Enter functions that share a reason."""
    for name in names.split() if isinstance(names, str) else names:
        UNSUPPORTED[f"{prefix}.{name}"] = reason


_group(
    "dates are not numbers; call it outside of the traced code",
    "numpy",
    "isnat is_busday busday_count busday_offset",
)
_group("dates are not numbers; call it outside of the traced code", "numpy", "datetime_as_string")
_group("strings are not numbers; call it outside of the traced code", "numpy.strings", np.strings.__all__)
_group(
    "whether its result is complex depends on the numbers; use the function of that name in numpy, of "
    "x.astype(complex) where the result may be complex",
    "numpy.lib.scimath",
    np.emath.__all__,
)
_group(
    "its result is a named tuple whose shapes depend on the numbers; use np.unique with "
    "return_index, return_inverse or"
    " return_counts",
    "numpy",
    "unique_all unique_counts unique_inverse unique_values",
)
_group(
    "the number of bins in several dimensions is best found from positions; use np.digitize for each "
    "axis and np.add.at",
    "numpy",
    "histogram2d histogramdd",
)
_group(
    "leading coefficients that happen to be zero change the shape of its result; use np.convolve of "
    "the coefficients",
    "numpy",
    "polymul",
)
_group(
    "leading coefficients that happen to be zero change the shape of its result; divide step by step "
    "with indexing",
    "numpy",
    "polydiv",
)
_group(
    "it needs the eigenvalues of a matrix that is not symmetric; find a root with Newton's method",
    "numpy",
    "roots",
)
_group(
    "it solves a least-squares problem by a singular value decomposition; build np.vander(x, deg + "
    "1) and minimise the"
    " squared error, or pass plain arrays",
    "numpy",
    "polyfit",
)
_group(
    "this decomposition has no row; use solve, cholesky or eigh where they do, compute it outside of the traced code, or give it "
    "a derivative with"
    " gt.custom_gradient",
    "numpy.linalg",
    "eig eigvals tensorinv tensorsolve",
)
