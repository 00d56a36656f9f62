"""`nlp` with problems of the COPS collection: known optima, and derivatives of solutions in a parameter."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.nlp import ipopt
from tests.api.nlp import cops

pytestmark = pytest.mark.skipif(
    ipopt.library() is None, reason="IPOPT is not installed (pip install gradtape[ipopt])"
)


def solve(problem: cops.Problem, **more: Any) -> Any:
    return gt.nlp(
        problem.objective,
        problem.start,
        constraints=problem.constraints(),
        bounds=problem.bounds,
        solver="ipopt",
        **more,
    )


@pytest.mark.parametrize("name", cops.OPTIMA)
def test_known_optima(name: str) -> None:
    make, size, best = cops.OPTIMA[name]
    found = solve(make(size))
    assert found.success
    assert np.isclose(found.fun, best, rtol=3e-5, atol=0.0), found.fun
    assert found.violation < 1e-6


SENSITIVE: dict[str, tuple[Callable[..., cops.Problem], int, float, Callable[[Any], Any]]] = {
    "chain": (cops.chain, 60, 4.0, lambda x: x["y"]),
    "steering": (cops.steering, 30, 100.0, lambda x: x["angle"]),
    "gas_oil": (cops.gas_oil, 20, 1.0, lambda x: x["theta"]),
    "torsion": (cops.torsion, 12, 5.0, lambda v: v),
    "bearing": (cops.bearing, 12, 0.1, lambda v: v),
}
"""Problems with sizes, a parameter, and the unknowns that are compared."""


@pytest.mark.parametrize("name", SENSITIVE)
def test_sensitivities_against_differences(name: str) -> None:
    make, size, at, part = SENSITIVE[name]

    def solution(p: Any) -> Any:
        found = solve(make(size, p), tol=1e-11)
        return np.concatenate([np.reshape(found.fun, 1), np.ravel(part(found.x))])

    step = 1e-4 * at
    plain = (solution(at + step) - solution(at - step)) / (2 * step)
    scale = np.max(np.abs(plain))
    for slope in (gt.jacobian(solution)(at), gt.jvp(solution, (at,), (1.0,))[1]):
        np.testing.assert_allclose(slope, plain, rtol=1e-4, atol=1e-5 * scale)
