"""Rounding to whole numbers: constant piece by piece, so the derivative is 0 everywhere."""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.elementwise import Elementwise, Intrinsic, elementwise, flat

EDGES = ((0.5,), (-0.5,), (1.5,), (2.5,), (-0.0,), (4503599627370497.5,), (np.inf,), (-np.inf,), (np.nan,))
FACTS: dict[str, Any] = {
    "partials": (flat,),
    "domain": ((-9.0, 9.0),),
    "edges": EDGES,
    "slopes": (((0.5,), (0.0,)), ((2.0,), (0.0,))),
}


def _kept_for_integers(name: str) -> Elementwise:
    """Enter a rounding that leaves integers as they are (NumPy gives them no floating result)."""
    primitive = elementwise(f"{name}_real", getattr(np, name), body=Intrinsic(f"llvm.{name}"), **FACTS)

    def body(x: Value) -> Value:
        return primitive(x) if x.dtype.kind == "f" else x

    return elementwise(
        name, getattr(np, name), body=body, kinks="0 everywhere", dtype_samples="dfblBQ?", **FACTS
    )


floor = _kept_for_integers("floor")
ceil = _kept_for_integers("ceil")
trunc = _kept_for_integers("trunc")
rint = elementwise(
    "rint", np.rint, body=Intrinsic("llvm.rint"), kinks="0 everywhere", dtype_samples="dfl", **FACTS
)
