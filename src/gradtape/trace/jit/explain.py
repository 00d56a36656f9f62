"""Events of a jitted function that cost time, for the inspector, and its warnings, each given once."""

from __future__ import annotations

import io
import time
from collections import deque
from typing import Any, Final, NamedTuple

from gradtape.config import config
from gradtape.errors import SideEffectWarning, TraceLimitWarning, warn
from gradtape.runtime.compile.program import Program
from gradtape.trace.jit.captures.spec import A_FILE, CaptureSpec
from gradtape.trace.jit.captures.steps import Step
from gradtape.trace.jit.lookup import GuardTree, Miss
from gradtape.trace.jit.side_effects import state_to_compare

_MOST_EVENTS: Final = 1000
"""The number of events that a call site keeps."""

_ORIGINS: Final = {
    "background": "compiled if it is called often, and the NumPy interpreter answers until then",
    "compiled": "compiled by LLVM",
    "disk": "loaded from the disk cache",
    "interpreter": "not compiled, the NumPy interpreter runs it: {}",
}
"""By the origin of a kernel, its description, which may have a place for a reason."""


class Event(NamedTuple):
    """Something that made a call slower than the machine code of its function.

    Attributes
    ----------
    at : float
        When it ended, in seconds since 1970.
    kind : str
        ``signature`` (arguments of new types), ``guard`` (one did not hold), ``capture`` (something that is read from outside has changed),
        ``trace``, ``translation``, ``kernel``, ``prologue`` (results that are kept from call to call) or ``limit`` (there are too many
        traces: the call runs on the interpreter).
    text : str
        What happened.
    seconds : float
        How long it took.
    site : Site or None
        The user's line.
    remedy : str
        What to do, for a limit.
    """

    at: float
    kind: str
    text: str
    seconds: float = 0.0
    site: Any = None
    remedy: str = ""


class Explain:
    """The events and warnings of a jitted function.

    Parameters
    ----------
    name : str
        That of the function.
    """

    def __init__(self, name: str) -> None:
        self.name = name
        self.events: deque[Event] = deque(maxlen=_MOST_EVENTS)
        self._has_warned_of_changes = False
        self._has_outcomes = False
        self._effects: set[str] = set()

    def note(self, kind: str, text: str, seconds: float = 0.0, site: Any = None, remedy: str = "") -> None:
        """Add an event."""
        self.events.append(Event(time.time(), kind, text, seconds, site, remedy))

    def note_guard(self, missed: Miss) -> None:
        """Add the event of a guard that did not hold."""
        if missed.is_failure:
            self.note("guard", "an operation failed whose error the code handles")
            return
        guard = missed.specialisation.guards[missed.guard]
        self.note("guard", f"a guard expects {guard.expected} and found {missed.actual}", site=guard.site)

    def note_kernel(self, program: Program) -> None:
        """Add the event of a program that runs for the first time."""
        kernel = program.kernel_so_far
        if program.was_known:
            self.note("kernel", "found in memory: another function, or another trace, computes the same")
        else:
            self.note("kernel", _ORIGINS[kernel.origin].format(kernel.reason), kernel.seconds)

    def note_outcome(self) -> None:
        """Add the event of a call whose way follows from an error that the code handles, once."""
        if not self._has_outcomes:
            self._has_outcomes = True
            self.note(
                "limit",
                "an operation failed whose error the code handles: such calls run op by op",
                remedy="ask before the operation, as in np.linalg.eigvalsh(a)[0] > 0, or begin with what succeeds",
            )

    def warn_of_limit(self, tree: GuardTree, missed: Miss | None) -> None:
        """Warn once that there are too many traces for the captures of a tree."""
        if tree.warned:
            return
        tree.warned = True
        self._limit(
            f"it has {tree.count} traces already: calls that need another one run on the interpreter",
            f"{self.name} has {tree.count} traces for one signature; calls that need another one run on the interpreter",
            where=None if missed is None else missed.site,
            why="this branch depends on values that change between calls, and each path is traced and compiled separately",
            remedy="use np.where instead of the branch, or raise gt.config.trace_limit",
        )

    def warn_of_disagreement(self, own: Miss) -> None:
        """Warn of a branch on a number that the kernel rounds differently from NumPy."""
        self._limit(
            "a branch depends on a number that the kernel rounds differently from NumPy: calls where this matters run on the interpreter",
            f"{self.name} branches on a number that its kernel rounds differently from NumPy; calls where this matters run on the "
            "interpreter",
            where=own.site,
            why="the order of sums and the implementations of functions differ, which changes the last digits",
            remedy="use np.where in place of the branch, or compare with a tolerance",
        )

    def warn_of_changes(self, changed: Step | None) -> None:
        """Warn once of a captured value that differs from call to call."""
        if self._has_warned_of_changes:
            return
        self._has_warned_of_changes = True
        what = "a captured value" if changed is None else changed.name
        self._limit(
            f"it was traced {config.trace_limit} times because {what} changes: calls with further values run on the interpreter",
            f"{self.name} was traced {config.trace_limit} times for one signature because {what} changes; calls with further "
            "values run on the interpreter",
            why="it controls Python branches or cannot be traced, so every new value needs its own trace",
            remedy="pass it as an argument, keep it in an array or a gt.Variable, or raise gt.config.trace_limit",
        )

    def warn_of_useless_traces(self, why: str, count: int) -> None:
        """Warn of traces that no later call can use."""
        self._limit(
            f"{count} traces can never be reused: {why}",
            f"{self.name} made {count} traces that can never be reused: {why}",
            why="a trace is reused only if its captured values are unchanged",
            remedy="create the object once, outside the calls, or pass what changes as an argument; keep counters in a gt.Variable",
        )

    def _limit(self, event: str, what: str, *, where: Any = None, why: str, remedy: str) -> None:
        """Add the event of a limit, and warn of it."""
        self.note("limit", event, site=where, remedy=remedy)
        warn(TraceLimitWarning, what, where=where, why=why, remedy=remedy)

    def warn_of_effects(self, spec: CaptureSpec, states: list[tuple[Any, bytes]]) -> None:
        """Warn once of each side effect that the compiled function does not repeat; `states` are those of generators and files before."""
        reasons = dict(spec.unrepeatable)
        changed = [thing for thing, state in states if state_to_compare(thing) != state]
        if any(isinstance(thing, io.IOBase) for thing in changed):
            reasons["a file among the arguments"] = A_FILE
        if any(not isinstance(thing, io.IOBase) for thing in changed):
            reasons["a random number generator"] = (
                "it drew numbers, which the compiled function repeats in every call"
            )
        for name, why in reasons.items():
            if name in self._effects:
                continue
            self._effects.add(name)
            warn(
                SideEffectWarning,
                f"{self.name} uses {name}",
                why=f"{why}: Python runs a compiled function only once, while it is traced",
                remedy='do it outside the function; pass and return what changes, or set gt.config.effects = "run"',
            )
