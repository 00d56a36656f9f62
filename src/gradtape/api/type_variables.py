"""Type variables of the public functions, for type checkers alone: what is passed in is named in what comes out."""

from __future__ import annotations

import typing
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from typing import Any

    import numpy as np
    from typing_extensions import ParamSpec, TypeVar, TypeVarTuple, Unpack

    # The default is that of lambdas, whose parameters have no types.
    X = TypeVar("X", bound=Any, default=Any)
    Y = TypeVar("Y", bound=Any, default=Any)
    Z = TypeVar("Z", bound=Any, default=Any)
    A = TypeVar("A", bound=Any, default=Any)
    V = TypeVar("V", bound=Any, default=Any)
    Q = ParamSpec("Q", default=...)
    Xs = TypeVarTuple("Xs", default=Unpack[tuple[Any, ...]])
    N = TypeVar("N", bound=np.ndarray[Any, Any], default=Any)
    P = ParamSpec("P", default=...)
    R_co = TypeVar("R_co", covariant=True, default=Any)
else:
    P = typing.ParamSpec("P")
    R_co = typing.TypeVar("R_co", covariant=True)
