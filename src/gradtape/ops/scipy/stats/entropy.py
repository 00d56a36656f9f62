"""Methods of the distributions of SciPy's new infrastructure that write into arrays by masks."""

from __future__ import annotations

from typing import Any

from gradtape.kinds.arguments import as_array
from gradtape.kinds.registry import HOOKS, borrows
from gradtape.ops.core.elementwise.logic import not_equal
from gradtape.ops.core.elementwise.select import where


@borrows("scipy.stats._distribution_infrastructure.UnivariateDistribution._entropy_quadrature")
def entropy(self: Any, **params: Any) -> Any:
    """Follow the method, which integrates -p log p."""

    def integrand(x: Any, **params: Any) -> Any:
        density = as_array(HOOKS.call(self._pxf_dispatch, x, **params))
        level = as_array(HOOKS.call(self._logpxf_dispatch, x, **params))
        inside = not_equal(density, 0.0)
        return where(inside, -density * where(inside, level, 0.0), 0.0)

    return HOOKS.call(self._quadrature, integrand, params=params)
