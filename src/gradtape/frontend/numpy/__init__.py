"""NumPy's functions, methods and attributes on the arrays of procedures."""

from __future__ import annotations

import importlib

for _name in (
    "creation",
    "reductions",
    "elementwise",
    "selections",
    "shapes",
    "views",
    "joins",
    "histogram",
    "products",
    "ufunc_methods",
):
    importlib.import_module(f"{__name__}.{_name}")
