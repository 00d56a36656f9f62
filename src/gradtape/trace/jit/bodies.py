"""Bodies: the Python functions of loops and branches, traced once each and closed into graphs."""

from __future__ import annotations

import functools
import weakref
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, NoReturn

import numpy as np

from gradtape.errors import (
    ArgumentError,
    ConcretizationError,
    GradtapeError,
    InPlaceError,
    SideEffectWarning,
    TapeError,
    warn,
)
from gradtape.ir.body import Body
from gradtape.ir.builder import emit_all, here, keep_names
from gradtape.ir.graph import Graph, Literal, Node, Site, Value, extract, next_serial
from gradtape.ir.types import INT64, aval
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.logic import equal, logical_and, logical_not
from gradtape.ops.core.elementwise.select import where
from gradtape.trace.array.checks import first_number, passes
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.preallocated import Preallocated, ndarray_or_none
from gradtape.trace.jit.captures.writes import watch_over
from gradtape.trace.jit.guards import Abstract, InBody
from gradtape.trace.jit.state import any_alive, variables_made
from gradtape.trace.patching.copies import outer_variables
from gradtape.trace.source.contexts import Scope, compiled_trace, contexts, inside
from gradtape.trace.source.sites import without_internals
from gradtape.trace.variables.reads import detached_read
from gradtape.trace.variables.variable import Variable
from gradtape.trees import flatten, tree_map

BodyInput = Value | Variable
"""An input of a body: an argument, a captured value, or the content of a variable."""


class BodyTracer:
    """Traces the functions of one loop or conditional; their tags are active until all of them are closed into graphs."""

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
        checks: bool = True,
    ) -> TracedBody:
        """Trace a call of a function.

        Parameters
        ----------
        function : callable
            The function to call.
        written : callable
            The user's function, for errors.
        tag : Abstract
            The tag of values that depend on `inputs`.
        inputs : sequence of Value
            The values of the arrays in the arguments.
        *args : object
            The arguments.
        checks : bool
            Whether variables that the function assigns to are outputs, so that it can check conditions.

        Raises
        ------
        ArgumentError
            If it creates variables and keeps them.
        InPlaceError
            If it writes to an array from outside.
        """
        traced = TracedBody(function, definition_site(written), tag, inputs, args, checks=checks)
        self._runs.append(traced)
        outside = [(name, array, array.value) for name, array in _arrays_named_in(written)]
        watch = watch_over(written)
        traced.run()
        for name, array, before in outside:
            if _is_restored(array, before):
                raise final(
                    InPlaceError(
                        f"{tag.described} writes to {name!r}, an array from outside",
                        where=traced.site,
                        why=tag.why,
                        remedy=tag.write_remedy,
                    )
                )
        for name, content in watch.written().items():
            self._refuse_write(traced, tag, name, content)
        return traced

    @staticmethod
    def _refuse_write(traced: TracedBody, tag: Abstract, name: str, content: Any) -> None:
        """Refuse to write a traced value to an object outside; warn of a write of another one, which happens once."""
        problem, why = (
            f"{tag.described} writes to {name}",
            "it runs once in Python, however often the program runs it",
        )
        if any(isinstance(leaf, Handle) for leaf in flatten(content)[0]):
            if compiled_trace() is None:
                return  # where it is used, LeakedValueError says from where
            raise final(
                InPlaceError(
                    problem,
                    where=traced.site,
                    why=why,
                    remedy="let it be one of the values that the loop carries or returns, and assign that outside",
                )
            )
        warn(SideEffectWarning, problem, where=traced.site, why=why, remedy="assign it outside the body")


class TracedBody:
    """The trace of the function of a body.

    Attributes
    ----------
    result : object
        The returned tree, with the contents of variables.
    returned : object
        The tree itself.
    inputs : tuple of Value
        The values of its arguments.
    nodes : list of Node
        The nodes for the values that were given to `collect_nodes`.
    site : object
        The place of the function's definition.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        site: Any,
        tag: Abstract,
        inputs: Sequence[Value],
        args: tuple[Any, ...],
        *,
        checks: bool,
    ) -> None:
        self.site = site
        self.inputs = tuple(inputs)
        self.nodes: list[Node] = []
        self.result: Any = None
        self.returned: Any = None
        self._function = function
        self._args = args
        self._given = [(leaf, leaf.value) for leaf in flatten(args)[0] if isinstance(leaf, Handle)]
        self._tag = tag
        self._draws = tag.draws
        self._takes_checks = checks
        self._checks = 0
        self._failing = 0
        self._failure: Failure | None = None
        self._first_serial = 0
        self._captured: list[Value] = []
        self._initial_contents: dict[Variable, Value] = {}
        self._assigned: dict[Variable, Value] = {}

    def run_body(self) -> Any:
        """Call the function, and return what it returns, with the contents of variables."""
        if isinstance(self._tag, InBody) and self._takes_checks:
            self._tag.check = self._check
        with inside(self._tag, Scope()):
            self.returned = self._function(*self._args)
            return tree_map(_variable_content, self.returned)

    def _check(self, ok: Value) -> bool:
        """Note the number of a check, if it fails and none has failed before, and return whether code goes on as if it had passed."""
        self._checks += 1
        if self._checks == self._failing:
            return False
        if self._failing:
            return True
        if self._failure is None:
            self._failure = _failure_around(self._tag, self)
        number = self._failure.value
        first = logical_and(equal(number, 0), logical_not(ok))
        self._failure.rebind(convert(where(first, self._checks, number), INT64))
        return True

    def verify(self, number: Value) -> None:
        """Raise the error of a check that has failed, in the call of a loop, or of a solver, that has computed the number."""
        if passes(equal(number, 0)) is False:
            self.raise_error(first_number(number))

    def raise_error(self, number: int) -> NoReturn:
        """Call the function again, so that it raises the error of a check that has failed."""
        tag = self._tag
        self._checks, self._failing = 0, number
        tag.recording, tag.over, tag.draws = True, False, self._draws
        stack, mapped = contexts.stack, contexts.mapped
        contexts.stack = [context for context in stack if not isinstance(context, InBody)]
        contexts.mapped = []
        try:
            for handle, value in self._given:
                if handle.value is not value:
                    handle.rebind(value)
            self.run_body()
        finally:
            contexts.stack, contexts.mapped = stack, mapped
            self.finish()
        raise ConcretizationError(
            f"a check of {tag.described} has failed, and its error was not raised when Python ran it again",
            where=self.site,
            why=tag.why,
        )

    def run(self) -> None:
        """Trace the function."""
        before = here.site
        self._first_serial = next_serial()
        try:
            with unhidden_errors():
                self.result = self.run_body()
        except TypeError as error:
            if isinstance(error, GradtapeError) or ", traced)" not in str(error):
                raise
            # NumPy needed an integer and replaces the error.
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
                remedy="make them outside it",
            )
        for content in self._tag.contents.values():
            variable = content.variable()
            if content.input is not None and variable is not None:
                self._initial_contents[variable] = content.input
                if content.assigned:
                    self._assigned[variable] = content.value

    def finish(self) -> None:
        """End the trace, so that the use of a leaked value is an error."""
        if isinstance(self._tag, InBody):
            self._tag.check = None
        self._tag.finish()

    def forget_variables(self) -> None:
        """Let variables go, which must not outlive the trace around; the function can still be called for an error."""
        self._failure, self._assigned, self._initial_contents = None, {}, {}

    def collect_nodes(self, outputs: Sequence[Value]) -> None:
        """Collect the nodes of these values and of those that were assigned to variables."""
        own_inputs = [*self.inputs, *self._initial_contents.values()]
        ends = [*outputs, *self._assigned.values()]
        self.nodes, self._captured = extract(ends, own_inputs, stop=self._is_outside)

    def _is_outside(self, value: Value) -> bool:
        """Return whether a value was computed before the function ran.

        Values that the function computes belong to its body, also where they depend on captured values alone: a branch that is not
        taken, and a loop without iterations, compute none of them. An expression of literals costs less in the body than as an input.
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
        """Return the line that computes a value, or that of the function's definition."""
        if value.node is not None and self._tag in value.tags:
            return value.node.site
        return self.site

    @property
    def reads(self) -> list[BodyInput]:
        """The captured values and variables that it does not assign to."""
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
        body_inputs: list[Value] = []
        contents = dict(self._initial_contents)
        for source in inputs:
            if isinstance(source, Variable):
                begin = contents.setdefault(source, Value(aval(source.shape, source.dtype)))
                body_inputs.append(begin)
            elif source in self.inputs:
                body_inputs.append(source)
            else:
                becomes[source] = Value(source.aval)
                body_inputs.append(becomes[source])
        nodes = [_remapped(node, becomes) for node in self.nodes]
        ends = [
            self._assigned.get(end, contents[end]) if isinstance(end, Variable) else end for end in outputs
        ]
        return Body(body_inputs, nodes, [becomes.get(end, end) for end in ends], name)


class Failure(Variable):
    """The number of the first check of a body that failed; 0 if none has."""

    __slots__ = ("_body", "depth")

    def __init__(self, body: TracedBody) -> None:
        super().__init__(np.int64(0), trainable=False)
        self.depth = len(contexts.stack)
        self._body = weakref.ref(body)

    def rebind(self, value: Value) -> None:
        """Make `value` the content; elements of a mapped axis may have different ones."""
        self._content_within(len(contexts.stack)).assign(detached_read(value, None))

    def verify(self, value: Value) -> None:
        """Raise the error of a check that has failed."""
        body = self._body()
        assert body is not None
        body.verify(value)


@contextmanager
def unhidden_errors() -> Iterator[None]:
    """Raise what ``float(x)`` raised where NumPy hides it behind "setting an array element with a sequence"."""
    try:
        yield
    except ValueError as error:
        if isinstance(error.__cause__, ConcretizationError):
            raise error.__cause__ from None
        raise


def final(error: InPlaceError) -> InPlaceError:
    """Return an error that no other way of running the function mends."""
    error.is_final = True
    return error


def _failure_around(tag: Abstract, body: TracedBody) -> Failure:
    """Return a variable that does not belong to a body."""
    stack, site = contexts.stack, here.site
    try:
        contexts.stack = stack[: stack.index(tag)]
        return Failure(body)
    finally:
        contexts.stack, here.site = stack, site


def _arrays_named_in(function: Callable[..., Any]) -> list[tuple[str, Handle]]:
    """Return the names and arrays among the globals and closure variables of a function, without variables."""
    return [
        (name, value)
        for name, value in outer_variables(function).items()
        if isinstance(value, Handle) and not isinstance(value, Variable)
    ]


def _is_restored(array: Handle, before: Value) -> bool:
    """Give an array its content from before, and return whether it had another one.

    The value of a preallocated array is a new constant at each look, until a traced value is written: its numbers are compared.
    """
    numbers = ndarray_or_none(array) if isinstance(array, Preallocated) else None
    if numbers is None:
        if array.value is before:
            return False
        array.rebind(before)
        return True
    assert before.data is not None
    if numbers.tobytes() == before.data.tobytes():
        return False
    numbers[...] = before.data
    return True


def _line_in(error: Exception) -> Site | None:
    """Return the last line of user code in the traceback of an error."""
    trace = without_internals(error.__traceback__)
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return None
    code = trace.tb_frame.f_code
    return Site(code.co_filename, trace.tb_lineno, code.co_name)


def _variable_content(leaf: Any) -> Any:
    """Return a leaf with the content of a variable in its place."""
    return leaf.read_value() if isinstance(leaf, Variable) else leaf


def _remapped(node: Node, becomes: dict[Value, Value]) -> Node:
    """Return a node with other inputs; one whose inputs do not change stays itself, since custom rules may hold its values."""
    if not any(value in becomes for value in node.inputs):
        return node
    copy = node.copy(tuple([becomes.get(value, value) for value in node.inputs]))
    before, after = node.outs, copy.outs
    keep_names(before, after)
    becomes.update(zip(before, after, strict=True))
    return copy


def apply_graph(graph: Graph, inputs: Sequence[Value]) -> list[Value]:
    """Append the nodes of a graph to the recording with other inputs, and return its outputs."""
    becomes: dict[Value, Value] = dict(zip(graph.inputs, inputs, strict=True))
    before = here.site
    for node in graph.nodes:
        here.site = node.site
        outs = emit_all(node.op, [becomes.get(value, value) for value in node.inputs], **node.params)
        becomes.update(zip(node.outs, outs, strict=True))
    here.site = before
    return [becomes.get(value, value) for value in graph.outputs]


def definition_site(function: Callable[..., Any]) -> Any:
    """Return the place of a function's definition; for callables without Python code, the current place."""
    while isinstance(function, functools.partial):
        function = function.func
    code = getattr(getattr(function, "__wrapped__", function), "__code__", None)
    return here.site if code is None else Site(code.co_filename, code.co_firstlineno, code.co_name)


def refuse_outside_derivative(
    caller: str, values: Iterable[Value], around: Sequence[InBody], remedy: str
) -> None:
    """Raise TapeError where a derivative would need the history of a body's arguments.

    Parameters
    ----------
    caller, remedy : str
        The called function, and what to do instead, for the error.
    values : iterable of Value
        The sources of the derivative.
    around : sequence of InBody
        The bodies whose own values are differentiated.
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
