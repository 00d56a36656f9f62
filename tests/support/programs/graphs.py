"""Programs written as graphs of rows."""

from __future__ import annotations

from typing import Any

from gradtape.ir.graph import Value
from gradtape.kinds.registry import ROWS

ROW: dict[str, Any] = dict(ROWS)


def rosenbrock(x: Value) -> Value:
    n = x.shape[0] - 1
    later, here = [ROW["slice"](x, starts=(k,), shape=(n,), strides=(1,)) for k in (1, 0)]
    return ROW["reduce_sum"](100.0 * (later - here**2) ** 2 + (1.0 - here) ** 2, axes=(0,))  # type: ignore[no-any-return]


def log_sum_exp(x: Value) -> Value:
    top = ROW["reduce_max"](x, axes=(0,))
    shifted = ROW["exp"](x - ROW["expand"](top, shape=x.shape, axes=()))
    return top + ROW["log"](ROW["reduce_sum"](shifted, axes=(0,)))


def black_scholes(spot: Value, strike: Value, time: Value, rate: Value, volatility: Value) -> Value:
    width = volatility * ROW["sqrt"](time)
    d1 = (ROW["log"](spot / strike) + (rate + 0.5 * volatility * volatility) * time) / width

    def normal(z: Value) -> Value:
        return 0.5 + 0.5 * ROW["erf"](z * 0.5**0.5)

    present = strike * ROW["exp"](-rate * time)
    return ROW["reduce_sum"](spot * normal(d1) - present * normal(d1 - width), axes=(0,))  # type: ignore[no-any-return]
