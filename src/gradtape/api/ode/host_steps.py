"""Implicit methods with numbers, as a solver of SciPy's: its `solve_ivp` finds events and times, and compiled loops make the steps."""

from __future__ import annotations

import functools
import importlib
from collections import deque
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, Final

import numpy as np

from gradtape.api.control.loops import while_loop
from gradtape.api.control.scanning import scan
from gradtape.api.ode.problem import Problem
from gradtape.api.ode.solution import Method
from gradtape.api.tape.create import stop_gradient
from gradtape.api.transforms.jit import jit

STEPS: Final = 16
"""Steps of one call of the compiled loop."""

Statement = Callable[..., Problem]


def beginning(statement: Statement, make: Callable[[], Method]) -> Callable[..., Any]:
    """Return a compiled function of the arguments of `statement`: the state of a method at the beginning, and the initial values."""

    def begin(*arguments: Any) -> Any:
        problem = statement(*arguments)
        return make().start(problem, problem.initial_rate()), problem.y0

    return jit(begin)


def advancing(statement: Statement, make: Callable[[], Method]) -> Callable[..., Any]:
    """Return a compiled function ``advance(state, *arguments)``: some steps further, and what each of them leaves for values in it."""

    def advance(state: Any, *arguments: Any) -> Any:
        problem, method, kind = statement(*arguments), make(), type(state)
        method.start(problem, problem.initial_rate())  # the method learns its problem
        bound = stop_gradient(problem.t_bound)

        def step(state: Any, _: Any) -> tuple[Any, Any]:
            before = kind(*state)

            def goes_on(*parts: Any) -> Any:
                now = kind(*parts)
                return (now.t == before.t) & ~now.has_failed & (now.t != bound)

            after = kind(
                *while_loop(
                    goes_on, lambda *parts: tuple(method.attempt(problem, kind(*parts))), tuple(state)
                )
            )
            fields = {name: getattr(after, name) for name in method.dense}
            return tuple(after), {**fields, "y": after.y, "has_failed": after.has_failed}

        last, steps = scan(step, tuple(state), np.arange(STEPS))
        return kind(*last), steps

    return jit(advance)


@functools.cache
def stepping_solver() -> type:
    """Return a solver of SciPy's whose steps are those of a compiled method. The module of SciPy takes a while to import."""
    integrate: Any = importlib.import_module("scipy.integrate")

    class Interpolant(integrate.DenseOutput):  # type: ignore[misc]  # the module is imported late
        """The solution in a step."""

        def __init__(self, t_old: float, t: float, value: Callable[[float], Any]) -> None:
            super().__init__(t_old, t)
            self._value = value

        def _call_impl(self, t: Any) -> Any:
            if t.ndim == 0:
                return self._value(float(t))
            return np.stack([self._value(one) for one in t.tolist()], axis=1)

    class SteppingSolver(integrate.OdeSolver):  # type: ignore[misc]  # the module is imported late
        """A method, from a state on.

        Parameters
        ----------
        state : NamedTuple
        advance : callable
            ``advance(state)``, as `advancing` makes it.
        stepper : Method
        """

        def __init__(
            self,
            fun: Any,
            t0: float,
            y0: Any,
            t_bound: float,
            vectorized: bool,
            *,
            state: Any,
            advance: Any,
            stepper: Any,
        ) -> None:
            super().__init__(fun, t0, y0, t_bound, vectorized, support_complex=True)
            self._state, self._advance, self._stepper = state, advance, stepper
            self._ready: deque[SimpleNamespace] = deque()

        def _step_impl(self) -> tuple[bool, str | None]:
            if not self._ready:
                self._state, steps = self._advance(self._state)
                arrays = {name: np.asarray(array) for name, array in steps.items()}
                self._ready.extend(
                    SimpleNamespace(**{name: array[k] for name, array in arrays.items()})
                    for k in range(STEPS)
                )
            self._now = self._ready.popleft()
            if self._now.has_failed:
                return False, self.TOO_SMALL_STEP
            self.t, self.y = float(self._now.t), self._now.y
            return True, None

        def _dense_output_impl(self) -> Any:
            now, stepper = self._now, self._stepper
            return Interpolant(float(now.t_old), self.t, lambda t: stepper.interpolate(None, now, t))

    return SteppingSolver
