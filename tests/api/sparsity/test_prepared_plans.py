"""Plans of sparse derivatives that are prepared once: for other values, other functions of the same pattern, other processes."""

from __future__ import annotations

import pickle
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.sparsity import transform
from gradtape.errors import ArgumentError, ShapeError


def differences(x: Any) -> Any:
    return x[1:] * x[:-1] ** 2


def chain(x: Any) -> Any:
    return np.sum(differences(x) ** 2)


@pytest.mark.parametrize(
    "sparse, dense, function",
    [(gt.sparse_jacobian, gt.jacobian, differences), (gt.sparse_hessian, gt.hessian, chain)],
)
def test_a_plan_is_prepared_once(
    sparse: Any, dense: Any, function: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    plan = pickle.loads(pickle.dumps(sparse(function).plan(np.ones(30))))

    def refuse(*_: Any) -> None:
        raise AssertionError("a plan is not made again")

    monkeypatch.setattr(transform, "jacobian_plan", refuse)
    monkeypatch.setattr(transform, "hessian_plan", refuse)
    monkeypatch.setattr(transform.FlatMaps, "pattern", refuse)
    x = np.linspace(-1.0, 2.0, 30)
    for factor in (1.0, 3.0):
        prepared = sparse(lambda x, factor=factor: factor * function(x), pattern=plan)
        np.testing.assert_allclose(prepared(x).toarray(), factor * dense(function)(x), atol=1e-12)
        assert np.array_equal(prepared.plan(x).positions, plan.positions)


def test_plans_that_do_not_fit() -> None:
    plan = gt.sparse_hessian(chain).plan(np.ones(5))
    with pytest.raises(ArgumentError, match="plan of a Hessian"):
        gt.sparse_jacobian(lambda x: x**2, pattern=plan)
    with pytest.raises(ShapeError, match="shape"):
        gt.sparse_hessian(chain, pattern=plan)(np.ones(6))
