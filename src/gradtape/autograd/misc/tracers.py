"""Functions that are traced once."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from gradtape.api.transforms.jit import jit


def const_graph(fun: Callable[..., Any], *args: Any, **kwargs: Any) -> Callable[..., Any]:
    """Return a compiled function of the arguments that are not given here."""
    return jit(lambda *rest: fun(*args, *rest, **kwargs))
