"""The profiler: where the time of compiled functions goes, down to loops and lines."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final, Literal, TypeAlias

from gradtape.api.inspect.picture import profile_card
from gradtape.api.inspect.records import Recorder
from gradtape.api.inspect.report import FunctionFigures, figures
from gradtape.api.inspect.text import profile_text
from gradtape.api.transforms.jit import every_jitted
from gradtape.errors import ArgumentError, kind_of
from gradtape.locks import Rank, new_lock
from gradtape.runtime.compile.program import ACTIVE
from gradtape.runtime.profile.profiled_kernel import Moment, clock
from gradtape.trace.source.sites import user_site

Order: TypeAlias = Literal["total", "kernel", "interpreter", "dispatch", "trace", "compile", "calls", "moved"]

ORDERS: Final[dict[Order, str]] = {
    "total": "seconds",
    "kernel": "kernel",
    "interpreter": "interpreter",
    "dispatch": "dispatch",
    "trace": "trace",
    "compile": "compile",
    "calls": "calls",
    "moved": "moved",
}

_starting: Final = new_lock(Rank.PROFILE)


def _answer_natively() -> None:
    """Let compiled functions answer without a profiler; to do so twice does no harm."""
    ACTIVE.profiler = None
    for function in every_jitted():
        function.relink()


class Report:
    """The time that compiled functions spent, by function and loop; made by `gradtape.inspect.profile`.

    It prints itself as a table of functions, followed by the loop nests of each with the lines that they compute. In a notebook the
    nests are bars.

    Attributes
    ----------
    seconds : float
        How long the profiler looked on.
    profiling : float
        How long the profiler itself took of that, to compile kernels that time themselves. It is counted nowhere else.
    result : object
        What the function returned, where one was given to `profile`.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> f = gt.jit(lambda x: np.sum(np.exp(x)))
    >>> with gt.inspect.profile() as report:
    ...     for _ in range(3):
    ...         y = f(np.zeros(1000))
    >>> report.functions[0].calls
    3
    """

    def __init__(self) -> None:
        self.seconds = 0.0
        self.profiling = 0.0
        self.result: Any = None
        self._recorder: Recorder | None = None
        self._begin = Moment(0, 0)
        self._functions: list[FunctionFigures] = []

    def __enter__(self) -> Report:
        if self.seconds:
            raise ArgumentError(
                "this profile has been taken already",
                where=user_site(),
                remedy="make another: gt.inspect.profile()",
            )
        with _starting:
            if ACTIVE.profiler is not None:
                raise ArgumentError(
                    "a profile is being taken already",
                    where=user_site(),
                    why="the counters of a kernel belong to one profile",
                    remedy="end the other one first; under `python -m gradtape profile` the whole script is one profile",
                )
            try:
                self._recorder = self._new_recorder()
                self._begin = clock().now()
                for function in every_jitted():
                    function.release()
                ACTIVE.profiler = self._recorder
            except BaseException:  # Ctrl-C
                _answer_natively()
                raise
        return self

    def __exit__(self, *exception: object) -> None:
        self.seconds = (time.perf_counter_ns() - self._begin.nanoseconds) * 1e-9
        try:
            _answer_natively()
        except BaseException:  # Ctrl-C
            _answer_natively()
            raise
        self._functions = self._figures()
        self._recorder = None

    @property
    def functions(self) -> list[FunctionFigures]:
        """The figures of each function, and of each line that read values of a tape, sorted by time."""
        return self._functions if self._recorder is None else self._figures()

    def sorted(self, order: Order = "total") -> list[FunctionFigures]:
        """Return the functions with the greatest first.

        Parameters
        ----------
        order : {"total", "kernel", "interpreter", "dispatch", "trace", "compile", "calls", "moved"}
            By what.
        """
        if order not in ORDERS:
            raise ArgumentError(
                f"a profile cannot be sorted by {order!r}",
                where=user_site(),
                remedy=f"one of {', '.join(ORDERS)}",
            )
        return sorted(self.functions, key=lambda function: -float(getattr(function, ORDERS[order])))

    def text(self, order: Order = "total") -> str:
        """Return the printed report with the functions in another order; see `sorted`."""
        return profile_text(self.sorted(order), self._elapsed(), self.profiling)

    def to_dict(self) -> dict[str, Any]:
        """Return all figures as numbers, strings, lists and dicts, for JSON or a data frame."""
        functions = [function.to_dict() for function in self.functions]
        return {"seconds": self._elapsed(), "profiling": self.profiling, "functions": functions}

    def __str__(self) -> str:
        return self.text()

    def __repr__(self) -> str:
        return self.text()

    def _repr_html_(self) -> str:
        return profile_card(self.sorted(), self._elapsed())

    def _new_recorder(self) -> Recorder:
        return Recorder()

    def _elapsed(self) -> float:
        if self._recorder is None:
            return self.seconds
        return (time.perf_counter_ns() - self._begin.nanoseconds) * 1e-9

    def _figures(self) -> list[FunctionFigures]:
        assert self._recorder is not None
        self.profiling = self._recorder.profiling * 1e-9
        rate = clock().seconds_per_tick(self._begin)
        found = figures(list(self._recorder.records.values()), rate, clock().cost)
        return sorted(found, key=lambda function: -function.seconds)


def profile(function: Callable[..., Any] | None = None, /, *args: Any, **kwargs: Any) -> Report:
    """Measure the time of compiled functions: kernels and their loops, calls, tracing, compiling.

    Without arguments it is a context manager that profiles the block, in all threads. With a function it profiles one call.

    Parameters
    ----------
    function : callable, optional
        The function to call once.
    *args, **kwargs
        Its arguments.

    Returns
    -------
    Report
        Prints itself; `Report.to_dict` has the figures.

    Raises
    ------
    ArgumentError
        If another profile is being taken.

    Notes
    -----
    While a profile is taken, other machine code answers the calls of compiled functions: it reads the processor's clock around each
    loop nest. It is compiled when a function is first called; what that takes is in `Report.profiling` and in no other figure. Without
    a profile, compiled functions are not affected. Times within a nest cannot be measured separately; they are divided among its lines
    according to the cost of their ops.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> report = gt.inspect.profile(gt.grad(lambda x: np.sum(x**3)), np.arange(3.0))
    >>> report.result
    array([ 0.,  3., 12.])
    >>> report.functions[0].name, report.functions[0].traces
    ('grad(<lambda>)', 1)
    """
    taken = Report()
    if function is not None:
        if not callable(function):
            raise ArgumentError(
                f"profile got {kind_of(function)}, which cannot be called",
                where=user_site(),
                remedy="pass a function and its arguments, or nothing: with gt.inspect.profile() as report: ...",
            )
        with taken:
            taken.result = function(*args, **kwargs)
    return taken
