"""Arithmetic in twice the precision: what sums, products, quotients and roots have lost by rounding, by error-free transformations.

A number is the unevaluated sum of two, high and low (T. J. Dekker, "A Floating-Point Technique for Extending the Available Precision",
1971).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Node
from gradtape.ir.op import NDArray
from gradtape.kinds.index_map import IndexMap
from gradtape.kinds.join import Join


def rounded_off(
    node: Node, operands: Sequence[NDArray], lows: Sequence[NDArray | float], result: NDArray
) -> NDArray | None:
    """Return what a node's result in a wide format lacks.

    Parameters
    ----------
    node : Node
    operands, lows : sequence of ndarray
        Its operands, and their low parts; 0.0 for what has none.
    result : ndarray
        What the format has rounded.

    Returns
    -------
    ndarray or None
        None if it is not known: for functions, and complex numbers.
    """
    if result.dtype.kind != "f":
        return None
    rule = _RULES.get(node.op.name)
    if rule is not None:
        found = rule(result, *operands, *lows)
        return None if found is None else np.asarray(found)
    if isinstance(node.op, IndexMap | Join):
        spread = [
            low + np.zeros_like(x) if x.dtype.kind == "f" else x
            for x, low in zip(operands, lows, strict=True)
        ]
        return np.asarray(node.op.evaluate(spread, node.params)[0])
    if node.op.name == "reduce_sum":
        return _sum(operands[0], lows[0], node.params["axes"], result)
    return None


def normal(high: NDArray, low: NDArray) -> tuple[NDArray, NDArray]:
    """Return the same sum with a low part that is below the last bit of the high one."""
    total = high + low
    return total, low - (total - high)


def product_error(a: NDArray, b: NDArray, product: NDArray) -> NDArray:
    """Return what a rounded product lacks."""
    (ah, al), (bh, bl) = _split(a), _split(b)
    return np.asarray(((ah * bh - product) + ah * bl + al * bh) + al * bl)


def sum_error(a: NDArray, b: NDArray, total: NDArray) -> NDArray:
    """Return what a rounded sum lacks (Knuth)."""
    virtual = total - a
    return np.asarray((a - (total - virtual)) + (b - virtual))


def _split(x: NDArray) -> tuple[NDArray, NDArray]:
    """Return two numbers of half the bits (Veltkamp)."""
    bits = np.finfo(x.dtype).nmant + 1
    factor = x.dtype.type(2.0) ** ((bits + 1) // 2) + 1
    scaled = factor * x
    high = scaled - (scaled - x)
    return high, x - high


def _sum(x: NDArray, low: NDArray | float, axes: Sequence[int], result: NDArray) -> NDArray:
    kept = [axis for axis in range(x.ndim) if axis not in axes]
    order = [*axes, *kept]
    terms = x.transpose(order).reshape(-1, *[x.shape[axis] for axis in kept])
    lows = (low + np.zeros_like(x)).transpose(order).reshape(terms.shape)
    total, rest = np.zeros_like(result), np.zeros_like(result)
    for term, own in zip(terms, lows, strict=True):
        following = total + term
        rest = rest + (sum_error(total, term, following) + own)
        total = following
    return np.asarray((total - result) + rest)


def _product(z: NDArray, a: NDArray, b: NDArray, da: Any, db: Any) -> Any:
    return product_error(a, b, z) + (a * db + b * da)


def _quotient(z: NDArray, a: NDArray, b: NDArray, da: Any, db: Any) -> Any:
    product = z * b
    rest = (a - product) - product_error(z, b, product)
    return np.where(b == 0, 0.0, (rest + (da - z * db)) / b)


def _power(z: NDArray, a: NDArray, n: NDArray, da: Any, dn: Any) -> Any:
    exponents = np.unique(n)
    if len(exponents) != 1 or exponents[0] not in (1, 2, 3, 4) or np.any(dn):
        return None
    high, low = a, da + np.zeros_like(a)
    for _ in range(int(exponents[0]) - 1):
        product = high * a
        low = _product(product, high, a, low, da)
        high = product
    return (high - z) + low


_RULES: Final[dict[str, Callable[..., Any]]] = {
    "add": lambda z, a, b, da, db: sum_error(a, b, z) + (da + db),
    "subtract": lambda z, a, b, da, db: sum_error(a, -b, z) + (da - db),
    "multiply": _product,
    "square": lambda z, a, da: _product(z, a, a, da, da),
    "divide": _quotient,
    "reciprocal": lambda z, a, da: _quotient(z, np.ones_like(a), a, 0.0, da),
    "sqrt": lambda z, a, da: np.where(z > 0, ((a - z * z) - product_error(z, z, z * z) + da) / (2 * z), 0.0),
    "negative": lambda z, a, da: -da + np.zeros_like(a),
    "absolute": lambda z, a, da: np.where(np.signbit(a), -1.0, 1.0) * da,
    "where": lambda z, c, a, b, _, da, db: np.where(c, da, db),
    "maximum": lambda z, a, b, da, db: np.where(z == a, da, db),
    "minimum": lambda z, a, b, da, db: np.where(z == a, da, db),
    "identity": lambda z, a, da: da + np.zeros_like(a),
    "convert": lambda z, a, da: da + np.zeros_like(a, z.dtype),
}
