"""What is measured: for each work its function, its inputs and its sizes."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from types import ModuleType
from typing import Any

import inputs
import numpy as np

SIZES = {
    "rosen": ("2", "1000000"),
    "bs": ("1000000",),
    "lse": ("10000", "100000", "1000000"),
    "gmm": ("d10_K25_n1000", "d10_K25_n10000", "d64_K50_n1000"),
    "ba": ("10000",),
    "mlp": ("784_256_10_n128",),
    "jacmlp": ("256_256_64",),
    "hesslr": ("100_n1000",),
    "pendulum": ("100", "1000", "10000"),
    "lstm": ("l2_c1024",),
    "hmm": ("K16_T500",),
    "newton": ("1", "100000"),
}
QUICK_SIZES = {
    "rosen": ("2", "1000"),
    "bs": ("1000",),
    "lse": ("1000",),
    "gmm": ("d2_K5_n1000",),
    "ba": ("7",),
    "mlp": ("7_5_3_n4",),
    "jacmlp": ("7_5_3",),
    "hesslr": ("5_n12",),
    "pendulum": ("5",),
    "lstm": ("l2_c6",),
    "hmm": ("K3_T6",),
    "newton": ("1", "100"),
}

ONE_WORDING = ("",)
# A function by one of gradtape's loops, and the same function as a plain Python loop.
WORDINGS = {
    "pendulum": ("scan", "loop"),
    "lstm": ("scan", "loop"),
    "hmm": ("scan", "loop"),
    "newton": ("while_loop", "loop"),
}
LOOPS = ("scan", "while_loop", "loop")
DERIVATIVES = {"jacmlp": "jacobian", "hesslr": "hessian"}


@dataclass(frozen=True)
class Work:
    """A function of `arguments`, to be differentiated in the first `n_differentiated` of them."""

    name: str
    size: str
    wording: str
    arguments: tuple[np.ndarray, ...]
    n_differentiated: int
    settings: dict[str, Any] = field(default_factory=dict)

    def module(self) -> ModuleType:
        """The module with the function, whose names a tool may rebind to its own."""
        return importlib.import_module(f"wordings.{self.name}")

    def function(self) -> Callable[..., Any]:
        """The function of `arguments` alone."""
        name = f"{self.name}_{self.wording}" if self.wording else self.name
        function: Callable[..., Any] = getattr(self.module(), name)
        return partial(function, **self.settings) if self.settings else function

    @property
    def argnums(self) -> int | tuple[int, ...]:
        return 0 if self.n_differentiated == 1 else tuple(range(self.n_differentiated))

    @property
    def derivative(self) -> str:
        """`gradient`, and then of the value as well, or `jacobian` or `hessian`."""
        return DERIVATIVES.get(self.name, "gradient")


def wordings(name: str) -> tuple[str, ...]:
    return WORDINGS.get(name, ONE_WORDING)


def work(name: str, size: str, wording: str | None = None) -> Work:
    """The work of that name and size; the same numbers each time. Without a wording: the last of its own."""
    arguments, n_differentiated, settings = inputs.MAKERS[name](name, size)
    return Work(
        name, size, wordings(name)[-1] if wording is None else wording, arguments, n_differentiated, settings
    )


def small(large: Work) -> Work:
    """The same with few elements."""
    return work(large.name, QUICK_SIZES[large.name][-1], large.wording)
