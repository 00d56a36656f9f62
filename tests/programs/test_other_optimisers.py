"""Optimisers of other packages, where they are installed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt


def test_ipopt() -> None:
    cyipopt = pytest.importorskip("cyipopt")

    def bowl(x: Any) -> Any:
        return (x[0] - 1) ** 2 + (x[1] - x[0] ** 2) ** 2

    found = cyipopt.minimize_ipopt(
        gt.jit(bowl), x0=np.zeros(2), jac=gt.grad(bowl), hess=gt.hessian(bowl), bounds=[(0.0, None)] * 2
    )
    np.testing.assert_allclose(found.x, np.ones(2), atol=1e-5)
