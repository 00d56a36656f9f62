"""The Python functions that loops and branches hold, traced once each and closed into graphs."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from gradtape.errors import ArgumentError, ConcretizationError, GradtapeError, InPlaceError, TapeError
from gradtape.ir.body import Body
from gradtape.ir.builder import emit_all, here, keep_names
from gradtape.ir.graph import Graph, Literal, Node, Site, Value, extract, next_serial
from gradtape.ir.types import aval
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import Abstract, InBody
from gradtape.trace.jit.state import any_alive, variables_made
from gradtape.trace.patching.copies import outer_variables
from gradtape.trace.source.contexts import Scope, inside
from gradtape.trace.source.sites import without_internals
from gradtape.trace.variables.variable import Variable
from gradtape.trees import tree_map

BodyInput = Value | Variable
"""What an input of a body stands for: itself, a value from outside, or the content of a variable."""


class BodyTracer:
    """Functions that are being traced: until all of them are closed into graphs, what they computed is followed."""

    def __init__(self) -> None:
        self._runs: list[TracedBody] = []

    def __enter__(self) -> BodyTracer:
        return self

    def __exit__(self, *_: object) -> None:
        for run in self._runs:
            run.finish()

    def run(
        self,
        function: Callable[..., Any],
        written: Callable[..., Any],
        tag: Abstract,
        inputs: Sequence[Value],
        *args: Any,
    ) -> TracedBody:
        """Trace a call of a function.

        Parameters
        ----------
        function : callable
            What to call.
        written : callable
            What the user wrote of it, for errors.
        tag : Abstract
            Follows what depends on `inputs`.
        inputs : sequence of Value
            What stands for the numbers in the arguments.
        *args : object
            The arguments.

        Raises
        ------
        ArgumentError
            If it makes variables and keeps them.
        InPlaceError
            If it writes to an array from outside.
        """
        traced = TracedBody(function, definition_site(written), tag, inputs)
        self._runs.append(traced)
        outside = [(name, array, array.value) for name, array in _arrays_named_in(written)]
        traced.run(*args)
        for name, array, before in outside:
            if array.value is not before:
                array.rebind(before)
                raise InPlaceError(
                    f"{tag.described} writes to {name!r}, an array from outside",
                    where=traced.site,
                    why=tag.why,
                    remedy="let the array be one of its arguments, write to that, and return it",
                )
        return traced


class TracedBody:
    """One run of a function on what has no numbers.

    Attributes
    ----------
    result : object
        What it returned.
    inputs : tuple of Value
        What its arguments were.
    nodes : list of Node
        What computes the values that `collect_nodes` was told of.
    site : object
        Where the user wrote the function.
    """

    def __init__(
        self, function: Callable[..., Any], site: Any, tag: Abstract, inputs: Sequence[Value]
    ) -> None:
        self.site = site
        self.inputs = tuple(inputs)
        self.nodes: list[Node] = []
        self.result: Any = None
        self._function = function
        self._tag = tag
        self._first_serial = 0
        self._captured: list[Value] = []
        self._initial_contents: dict[Variable, Value] = {}
        self._assigned: dict[Variable, Value] = {}

    def run(self, *args: Any) -> None:
        """Call the function."""
        before = here.site
        self._first_serial = next_serial()
        with inside(self._tag, Scope()):
            try:
                self.result = tree_map(_variable_content, self._function(*args))
            except ValueError as error:
                # NumPy hides what float(x) raised behind "setting an array element with a sequence".
                if isinstance(error.__cause__, ConcretizationError):
                    raise error.__cause__ from None
                raise
            except TypeError as error:
                if isinstance(error, GradtapeError) or ", traced)" not in str(error):
                    raise
                # NumPy asked for an integer and hides why there is none.
                raise ConcretizationError(
                    f"a function needs a number, and gets an array in {self._tag.described}: {error}",
                    where=_line_in(error),
                    why=self._tag.why,
                    remedy="shapes and other arguments that are part of the program must not depend on an iteration: make the largest "
                    "array, and select by np.where",
                ) from error
            finally:
                here.site = before
        if any_alive(variables_made(self._tag)):
            raise ArgumentError(
                f"{self._tag.described} makes variables and keeps them",
                where=self.site,
                why="it runs once in Python, however often the program runs it",
                remedy="make them outside of it",
            )
        for content in self._tag.contents.values():
            variable = content.variable()
            if content.input is not None and variable is not None:
                self._initial_contents[variable] = content.input
                if content.assigned:
                    self._assigned[variable] = content.value

    def finish(self) -> None:
        """Let what leaked out of the function be found out."""
        self._tag.finish()

    def collect_nodes(self, outputs: Sequence[Value]) -> None:
        """Find out what computes these values and those that were assigned to variables."""
        own = [*self.inputs, *self._initial_contents.values()]
        ends = [*outputs, *self._assigned.values()]
        self.nodes, self._captured = extract(ends, own, stop=self._is_outside)

    def _is_outside(self, value: Value) -> bool:
        """Return whether a value was there before the function ran.

        What the function computes belongs to its body, also where it depends on captured values alone: a branch that is not taken, and
        a loop that makes no iteration, compute none of it. What depends on numbers alone costs less inside than to pass it.
        """
        if self._tag in value.tags:
            return False
        node = value.node
        if node is not None and node.serial > self._first_serial:
            return False
        return bool(
            node is None
            or value.data is not None
            or value.tags
            or not all(isinstance(v, Literal) for v in node.inputs)
        )

    def line_of(self, value: Value) -> Any:
        """Return the line of the function that computes a value, or where the function begins."""
        if value.node is not None and self._tag in value.tags:
            return value.node.site
        return self.site

    @property
    def reads(self) -> list[BodyInput]:
        """What it takes from outside and does not assign to."""
        return [
            *self._captured,
            *[variable for variable in self._initial_contents if variable not in self._assigned],
        ]

    @property
    def assigned(self) -> list[Variable]:
        """The variables that it assigns to."""
        return list(self._assigned)

    def closed(self, inputs: Sequence[BodyInput], outputs: Sequence[Value | Variable], name: str) -> Body:
        """Return the graph with these inputs; an output that is a variable is its content at the end."""
        becomes: dict[Value, Value] = {}
        own: list[Value] = []
        contents = dict(self._initial_contents)
        for place in inputs:
            if isinstance(place, Variable):
                begin = contents.setdefault(place, Value(aval(place.shape, place.dtype)))
                own.append(begin)
            elif place in self.inputs:
                own.append(place)
            else:
                becomes[place] = Value(place.aval)
                own.append(becomes[place])
        nodes = [_remapped(node, becomes) for node in self.nodes]
        ends = [
            self._assigned.get(end, contents[end]) if isinstance(end, Variable) else end for end in outputs
        ]
        return Body(own, nodes, [becomes.get(end, end) for end in ends], name)


def _arrays_named_in(function: Callable[..., Any]) -> list[tuple[str, Handle]]:
    """Return the arrays that a function names and that are not its own; variables have contents of their own in a body."""
    return [
        (name, thing)
        for name, thing in outer_variables(function).items()
        if isinstance(thing, Handle) and not isinstance(thing, Variable)
    ]


def _line_in(error: Exception) -> Site | None:
    """Return the last line of the user's that an error passed."""
    trace = without_internals(error.__traceback__)
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return None
    code = trace.tb_frame.f_code
    return Site(code.co_filename, trace.tb_lineno, code.co_name)


def _variable_content(leaf: Any) -> Any:
    """Return what a variable holds now in its place."""
    return leaf.read_value() if isinstance(leaf, Variable) else leaf


def _remapped(node: Node, becomes: dict[Value, Value]) -> Node:
    """Return a node on other values; one that does not change stays itself, since rules of the user's may know its values."""
    if not any(value in becomes for value in node.inputs):
        return node
    copy = node.copy(tuple([becomes.get(value, value) for value in node.inputs]))
    before, after = node.outs, copy.outs
    keep_names(before, after)
    becomes.update(zip(before, after, strict=True))
    return copy


def apply_graph(graph: Graph, inputs: Sequence[Value]) -> list[Value]:
    """Return what a graph computes of these inputs, as if it had been recorded here."""
    becomes: dict[Value, Value] = dict(zip(graph.inputs, inputs, strict=True))
    before = here.site
    for node in graph.nodes:
        here.site = node.site
        outs = emit_all(node.op, [becomes.get(value, value) for value in node.inputs], **node.params)
        becomes.update(zip(node.outs, outs, strict=True))
    here.site = before
    return [becomes.get(value, value) for value in graph.outputs]


def definition_site(function: Callable[..., Any]) -> Any:
    """Return where a function is written; for what has no Python code, where it is used."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    return here.site if code is None else Site(code.co_filename, code.co_firstlineno, code.co_name)


def refuse_outside_derivative(
    caller: str, values: Iterable[Value], around: Sequence[InBody], remedy: str
) -> None:
    """Raise TapeError where a derivative would go through the beginning of a body.

    Parameters
    ----------
    caller, remedy : str
        Who was asked, and what to do instead, for the error.
    values : iterable of Value
        What would be differentiated, or followed.
    around : sequence of InBody
        The bodies in which the question is a matter of the body alone.
    """
    for value in values:
        for tag in value.tags:
            if isinstance(tag, InBody) and tag.recording and tag not in around:
                raise TapeError(
                    f"{caller} reaches out of {tag.described}",
                    where=here.site,
                    why="what depends on its arguments has no history before them: the derivative would be of this part alone",
                    remedy=remedy,
                )
