"""Stopping at the first NaN or infinity."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Final

from gradtape.api.debug.origin import Finding, first_nonfinite, number, origin
from gradtape.api.transforms.jit import running_recorded
from gradtape.errors import NumericsError
from gradtape.ir.graph import Value, extract
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.lazy.force import compute
from gradtape.trace.lazy.instruments import CHECKS, MADE
from gradtape.trace.source.sites import user_site
from gradtape.transforms.observers import OBSERVERS, Observer, Sweep

MAX_REFERENCES: Final = 100_000
"""References to handles after which the dead ones are removed."""


class _Sweeps(Observer):
    """Checks gradients as soon as they are recorded: lazy ones may be computed after the check has ended."""

    def see(self, sweep: Sweep) -> None:
        found = [value for value in (*sweep.targets, *sweep.results) if value is not None]
        computable = [value for value in found if trace_of(value) is None]
        compute(computable)
        _check(computable)


class _Checking:
    """The users of checks, and the context of each.

    Ctrl-C may come anywhere: `begin` and `end` may be called twice.
    """

    __slots__ = ("sweeps", "users")

    def __init__(self) -> None:
        self.users: dict[object, AbstractContextManager[None]] = {}
        self.sweeps = _Sweeps()

    def begin(self, user: object) -> None:
        if user in self.users:
            return
        try:
            self.users[user] = running = running_recorded()
            running.__enter__()
            if _check not in CHECKS:
                CHECKS.append(_check)
            OBSERVERS.add(self.sweeps)
        except BaseException:
            self.end(user)
            raise

    def end(self, user: object) -> None:
        self.users.pop(user, None)  # closes the dropped generator: functions run natively again
        if not self.users:
            CHECKS[:] = [check for check in CHECKS if check is not _check]
            OBSERVERS.discard(self.sweeps)
            MADE.clear()


_checking: Final = _Checking()
_FOR_GOOD: Final = "enable_check_numerics"


@contextmanager
def check_numerics() -> Iterator[None]:
    """Raise an error at the first NaN or infinity, forward or backward, inside a `with` block.

    The check covers numbers that are printed or converted, results of jitted functions, targets and gradients, and at the end of the
    block the remaining values. From a non-finite element it goes back to the op that computed it from finite operands. Non-finite
    numbers that no result depends on (in the branch that `np.where` does not select) are not reported.

    Inside the block all code, including jitted functions, runs op by op with NumPy, and all intermediate values are kept: use it for
    debugging, not in production.

    Raises
    ------
    NumericsError
        Names the op, the element, the line, and the operands.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> with gt.debug.check_numerics():
    ...     gt.grad(lambda x: np.sum(np.sqrt(x)))(np.array([1.0, 0.0]))
    Traceback (most recent call last):
        ...
    gradtape.errors.NumericsError: divide gave inf at [1], in the derivative of sqrt
    """
    user = object()
    try:
        _checking.begin(user)
        yield
        if len(_checking.users) == 1:
            _check_last_values()
    finally:
        try:
            _checking.end(user)
        except BaseException:  # Ctrl-C
            _checking.end(user)
            raise


def enable_check_numerics() -> None:
    """Check all operations, as `check_numerics` does, until `disable_check_numerics`. Enabling twice changes nothing.

    Examples
    --------
    >>> import gradtape as gt
    >>> gt.debug.enable_check_numerics()
    >>> gt.debug.disable_check_numerics()
    """
    _checking.begin(_FOR_GOOD)


def disable_check_numerics() -> None:
    """Undo `enable_check_numerics`. Values that are still unchecked stay unchecked."""
    try:
        _checking.end(_FOR_GOOD)
    except BaseException:  # Ctrl-C
        _checking.end(_FOR_GOOD)
        raise


def _check(values: Sequence[Value]) -> None:
    if len(MADE) > MAX_REFERENCES:
        MADE[:] = [made for made in MADE if made() is not None]
    for value in values:
        if value.data is not None:
            index = first_nonfinite(value.data)
            if index is not None:
                raise _error(origin(value, index))


def _check_last_values() -> None:
    """Check the last values of the recording: those that the user holds, and that no other one which the user holds depends on."""
    held = [handle.value for made in MADE if (handle := made()) is not None]
    held = [value for value in dict.fromkeys(held) if trace_of(value) is None]
    nodes, _ = extract(held, (), stop=lambda value: False)
    used = {operand for node in nodes for operand in node.inputs}
    ends = [value for value in held if value not in used and value.node is not None]
    compute(ends)
    _check(ends)


def _error(finding: Finding) -> NumericsError:
    if finding.op == "input":
        sample = finding.samples[0]
        place = f"at {list(sample.index)}" if sample.index else "as its value"
        called = f"{finding.name!r}, an" if finding.name else "an"
        return NumericsError(
            f"{called} array of shape {finding.shape} that was not computed under the check has {number(sample.result)} {place}",
            where=user_site(),
            why="no operation produced it: it was an input, or was computed before the check began",
            remedy="clean the data (np.isfinite finds the elements), or begin the check earlier",
            finding=finding,
        )
    return NumericsError(
        finding.headline, where=finding.site, why=finding.reason, remedy=finding.remedy, finding=finding
    )
