"""Random NumPy programs, and their gradients in loops, compiled with LLVM's SLP vectoriser and without."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

import gradtape as gt
from gradtape.runtime.compile import engine
from gradtape.runtime.compile.kernel import kernels
from tests.fuzz.programs import Program, Refused, Ways, outcome, tuple_difference


@contextmanager
def without_slp() -> Iterator[None]:
    """Compile without the SLP vectoriser, and without code that was compiled with it."""
    choose = engine._choose_pipeline
    with gt.config.override(disk_cache=False):
        kernels.clear()
        engine._choose_pipeline = lambda *args: choose(*args)._replace(slp=False)
        try:
            yield
        finally:
            engine._choose_pipeline = choose
            kernels.clear()


def difference(program: Program) -> str | None:
    """Return how the results of a program, or its gradient in a loop, change without the SLP vectoriser."""
    function = program.function()
    ways = Ways(program, function)
    if not ways.prepare():
        return None
    calls: list[Callable[[], Any]] = [lambda: gt.jit(function)(*ways.args)]
    if ways.is_differentiable:
        which = ways.places[0]

        def loss(x: Any) -> Any:
            def step(total: Any, factor: Any) -> Any:
                args = [x * factor if k == which else arg for k, arg in enumerate(ways.args)]
                made = function(*args)
                return total + sum(np.sum(made[k].real * ways.weights[k]) for k in ways.smooth), None

            return gt.scan(step, 0.0, np.linspace(0.9, 1.1, 3))[0]

        calls.append(lambda: (gt.jit(gt.grad(loss))(ways.args[which]),))
    for call in calls:
        try:
            vectorised = outcome(call)
            with without_slp():
                plain = outcome(call)
        except (Refused, AssertionError):  # the business of tests.fuzz
            continue
        if differs := tuple_difference(vectorised, plain, ways.loose):
            return differs
    return None
