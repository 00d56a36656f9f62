"""Functions of `scipy.linalg` that are not supported, and why."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

from gradtape.errors import UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.kinds.registry import borrows

_GAUGE: Final = (
    "its orthogonal factors are not determined by the matrices, and what LAPACK chooses has no derivative"
)

REASONS: Final = {
    "qz": (
        _GAUGE,
        "use scipy.linalg.eig(a, b) for the eigenvalues, or scipy.linalg.schur of np.linalg.solve(b, a)",
    ),
    "ordqz": (
        _GAUGE,
        "use scipy.linalg.eig(a, b) for the eigenvalues, or scipy.linalg.schur of np.linalg.solve(b, a)",
    ),
    "cossin": (_GAUGE, "use np.linalg.svd of the blocks"),
    "clarkson_woodruff_transform": (
        "it is random",
        "compute the sketch of np.eye(n) outside the traced code, and multiply by it",
    ),
}
"""By name: the reason, and what to do instead."""


def _refusal(name: str) -> Callable[..., Any]:
    why, remedy = REASONS[name]

    def refused(*args: Any, **kwargs: Any) -> Any:
        raise UnsupportedFunctionError(
            f"scipy.linalg.{name} is not supported", where=here.site, why=why, remedy=remedy
        )

    return refused


for _name in REASONS:
    borrows(f"scipy.linalg.{_name}")(_refusal(_name))
