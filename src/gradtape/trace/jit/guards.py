"""Traces: the tags of values in a function that is traced, with its inputs, guards and variables."""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import Any

from gradtape.ir.graph import TraceTag, Value
from gradtape.ops.core.elementwise.cast import identity
from gradtape.trace.variables.content import Content
from gradtape.transforms.reroll.carries import LoopSummary
from gradtape.transforms.reroll.roll import Declined


class Guard:
    """A value that Python looked at while tracing: `value` was `expected` at `site`."""

    __slots__ = ("expected", "site", "value")

    def __init__(self, value: Value, expected: int, site: Any) -> None:
        self.value = value
        self.expected = expected
        self.site = site


class Trace(TraceTag):
    """The trace of one call of a jitted function, and the tag of the values that depend on its arguments.

    Parameters
    ----------
    described : str
        The traced function, for errors.
    remedy : str
        What the user can do instead where Python needs numbers.
    dynamic_trips : bool
        Whether loops that Python leaves because of guarded values become while loops, whose trip count may differ in each call.

    Attributes
    ----------
    branches : dict
        What ``bool(x)`` has found, by the place in the code.
    holders : pair of list
        The objects outside to which the function may write, and the arrays with their names; see `WriteWatch`.
    has_outcomes : bool
        Whether there were operations whose errors the code handles.
    translates : str
        Why functions are translated rather than run, as far as they can be; empty if they are run.
    translations : dict
        The procedures that functions have become, by the functions and the types of their arguments.
    ways : list
        What became of functions that were to be translated.
    draws : Draws or None
        The calls of random number generators, in the trace of a jitted function.
    temporary : list of weakref.ref
        Objects that the function made and that hold traced values: they must not outlive the trace.
    written : set of Value
        The arguments that the function has written to.
    differentiated : set of Value
        Those in which a transform differentiates.
    fitting : set of (Value, dtype)
        Python numbers, with integer dtypes that the program checks them to fit.
    varying : set of int
        The hidden inputs that are as arguments where Python asks for their numbers, since they change from call to call.
    has_text : bool
        Whether code has made a text of a traced value, without its numbers.
    has_general_ops : bool
        Whether an operation was traced by a formula for numbers that are not known, which is not the one that runs op by op.
    asks_memory : bool
        Whether code has read the memory layout of an argument: for strides, or whether it may be written to.
    """

    __slots__ = (
        "_seen",
        "asks_memory",
        "branches",
        "contents",
        "declined",
        "described",
        "differentiated",
        "draws",
        "dynamic_trips",
        "fitting",
        "guards",
        "has_general_ops",
        "has_outcomes",
        "has_text",
        "hidden",
        "holders",
        "inputs",
        "loops",
        "pinned",
        "remedy",
        "sites",
        "temporary",
        "translates",
        "translations",
        "varying",
        "ways",
        "written",
    )

    def __init__(self, described: str, remedy: str = "", *, dynamic_trips: bool = False) -> None:
        super().__init__()
        self.dynamic_trips = dynamic_trips
        self.has_outcomes = False
        self.asks_memory = False
        self.translates = ""
        self.translations: dict[Any, Any] = {}
        self.ways: list[Any] = []
        self.described = described
        self.remedy = remedy
        self.inputs: list[Value] = []
        self.hidden: list[Value] = []
        self.holders: tuple[list[Any], list[Any]] = [], []
        self.pinned: set[int] = set()
        self.varying: set[int] = set()
        self.has_text = False
        self.has_general_ops = False
        self.guards: list[Guard] = []
        self.sites: list[Any] = []
        self.branches: dict[Any, list[bool]] = {}
        self.loops: list[LoopSummary] = []
        self.declined: list[Declined] = []
        self.contents: dict[int, Content] = {}
        self.draws: Any = None
        self.temporary: list[weakref.ref[Any]] = []
        self.written: set[Value] = set()
        self.differentiated: set[Value] = set()
        self.fitting: set[tuple[Value, Any]] = set()
        self._seen: dict[Value, int] = {}

    def guard(self, value: Value, expected: int, site: Any) -> int:
        """Record that Python looked at a value and found `expected`; a value has at most one guard."""
        if value not in self._seen:
            self._seen[value] = expected
            self.guards.append(Guard(value, expected, site))
            self.sites.append(site)
        return self._seen[value]

    def depends_on_captures_only(self, value: Value) -> bool:
        """Return whether a value depends on hidden inputs alone: then Python may look at it, and they are checked by value from now on."""
        if not self.hidden:
            return False
        numbers = {id(one): number for number, one in enumerate(self.hidden)}
        used, seen, pending = set(), set(), [value]
        while pending:
            one = pending.pop()
            if id(one) in seen or self not in one.tags:
                continue
            seen.add(id(one))
            if id(one) in numbers:
                if numbers[id(one)] in self.varying:
                    return False
                used.add(numbers[id(one)])
                continue
            node = one.node
            if node is None or len(one.tags) != 1:
                return False
            if not any(self in given.tags for given in node.inputs):  # made of a length that varies
                return False
            pending.extend(node.inputs)
        self.pinned |= used
        return True

    def finish(self) -> None:
        """End the trace: example values are dropped, so that the use of a leaked value is an error.

        Its values refer to it, and it drops its references to them: they are freed without the cycle collector.
        """
        self.recording = False
        self.over = True
        self._computed = None  # the history of these values is the graph
        for value in self.inputs:
            value.data = None
        ahead, met = [guard.value for guard in self.guards], set(self.inputs)
        for draw in () if self.draws is None else self.draws.calls:
            draw.value.data = None
            ahead += draw.parameters
        while ahead:  # the values that were computed for guards and draws
            value = ahead.pop()
            made = value.maker()
            if made is not None and value not in met and self in value.tags:
                met.add(value)
                value.data = None
                ahead += made[1]
        self.inputs, self.hidden, self.guards, self.contents, self._seen = [], [], [], {}, {}
        self.holders = [], []
        self.written, self.differentiated, self.fitting = set(), set(), set()
        self.draws = None


class Abstract(Trace):
    """The tag of values without numbers: one element or one iteration stands for all.

    Parameters
    ----------
    described : str
        The Python code that is traced, for errors.
    remedy : str
        What the user can do instead where Python needs numbers.
    """

    __slots__ = ()

    why = ""
    instead = ""
    leak_why = "inside it an array stands for many; it has no numbers of its own"
    leak_remedy = "return it from the function instead of storing it outside"
    write_remedy = "make the array in the function, write to that, and return it"


class Mapped(Abstract):
    """Follows what depends on an element of a mapped axis: one stands for all of them, and has no numbers.

    Attributes
    ----------
    depth : int
        The number of contexts around.
    deferred : list
        Pairs of values and a function of their arrays of all elements, which is called when the mapped function has returned.
    whole : callable or None
        ``(value) -> Value`` of all elements, the mapped axis in front; None where they are not known while one element is traced.
    element : callable or None
        ``(whole, weak) -> value``: lets a value stand for the elements of another one along its first axis. None where `whole` is.
    disagreement : Exception or None
        Is raised when the mapped function has returned: an operation fails for some elements only.
    """

    __slots__ = ("deferred", "depth", "disagreement", "element", "whole")

    def __init__(self, described: str, remedy: str = "", *, depth: int = 0) -> None:
        super().__init__(described, remedy)
        self.depth = depth
        self.deferred: list[Any] = []
        self.disagreement: Exception | None = None
        self.whole: Callable[[Value], Value] | None = None
        self.element: Callable[[Value, bool], Value] | None = None

    why = "one element stands for all elements along the mapped axis, whose values may differ"
    instead = "use np.where(condition, a, b) instead of a branch, and index arrays instead of slices that depend on values"


class InBody(Abstract):
    """The tag of values in a function that becomes the body of a loop or a branch.

    Attributes
    ----------
    check : callable or None
        ``(ok) -> bool``: lets the body check a condition, and returns the answer with which Python goes on. None where the body has no
        place for the outcome.
    is_condition : bool
        Whether it is the condition of a loop, which has no variables for the outcome: it takes its own checks, and none of bodies inside.
    """

    __slots__ = ("check", "is_condition")

    write_remedy = "let the array be one of its arguments, write to that, and return it"

    def __init__(self, described: str, remedy: str = "") -> None:
        super().__init__(described, remedy)
        self.check: Callable[[Value], bool] | None = None
        self.is_condition = False


class InLoop(InBody):
    """The tag of values in the body of a loop: one iteration stands for all.

    Parameters
    ----------
    described : str
        The function that is the body, for errors.
    leak_remedy : str
        How the user returns a value from the loop.
    """

    __slots__ = ("leak_remedy",)

    why = "the body of a loop runs once in Python for all iterations, whose values may differ"
    instead = (
        "use np.where or gt.cond in place of a branch, gt.while_loop or gt.fori_loop in place of a loop that ends on such a "
        "value, `a & b` in place of `a and b`, gt.constant(np.stack(y))[k] for a list y, and index arrays in place of slices"
    )
    leak_why = (
        "the body of a loop runs once in Python: inside it an array stands for the values of every iteration"
    )

    def __init__(self, described: str, leak_remedy: str) -> None:
        super().__init__(described)
        self.leak_remedy = leak_remedy


class InBranch(InBody):
    """The tag of values in a branch of a conditional, which may not be taken."""

    __slots__ = ()

    why = "each branch runs once in Python, before it is known which one is taken"
    instead = "nest gt.cond or gt.switch in place of the branch, or use np.where"
    leak_why = "each branch runs once in Python, taken or not: inside it an array has no numbers"
    leak_remedy = "return it from every branch"


def mapped_by(value: Value) -> Mapped | None:
    """Return the innermost `vmap` of which a value is one element, or None."""
    for tag in value.tags:
        if isinstance(tag, Mapped) and tag.recording:
            return tag
    return None


def abstract_of(value: Value) -> Abstract | None:
    """Return the innermost tag without numbers that a value carries, or None."""
    found: Abstract | None = None
    for tag in value.tags:
        if isinstance(tag, Abstract) and tag.recording:
            found = tag
    return found


def trace_of(value: Value) -> Trace | None:
    """Return the running trace that a value depends on, if any."""
    for tag in value.tags:
        if isinstance(tag, Trace) and tag.recording:
            return tag
    return None


def note_write(value: Value) -> None:
    """Note in a running trace that an argument of its function, or a copy that a transform has made of one, is written to."""
    if value.node is None or value.node.op is identity:
        for tag in value.tags:
            if isinstance(tag, Trace) and tag.recording:
                tag.written.add(value)


def is_noted(value: Value) -> bool:
    """Return whether a running trace has noted that an array with this content is written to."""
    return any(isinstance(tag, Trace) and value in tag.written for tag in value.tags)
