"""Stand-ins for functions of SciPy that are written in Python: with traced arguments their rules run, with others they themselves."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from ..ir.builder import here
from ..kinds.registry import BORROWED
from .array import wrap
from .names import NAMES
from .preallocated import follows, own, own_named
from .recall import run
from .sites import user_site


def _following(name: str, rule: Callable[..., Any]) -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    def follow(function: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(function)
        def call(*args: Any, **kwargs: Any) -> Any:
            if not follows((args, tuple(kwargs.values()))):
                return function(*own(args), **own_named(kwargs))
            here.site = user_site(via=name)
            return wrap(run(rule, args, kwargs))

        return call

    return follow


for _name, _rule in BORROWED.items():
    NAMES.exchange_later(_name, _following(_name, _rule))
