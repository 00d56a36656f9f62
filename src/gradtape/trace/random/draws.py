"""Draws: the calls of random number generators in a trace, and the plan by which each call of the compiled function repeats them.

A draw is an input of the program. Before the program runs, the plan calls the user's own generators in the order of the trace, so that
each call has new numbers, those that NumPy alone would draw. What a draw depends on (the shape parameter of a gamma distribution) is
computed first, by a program of its own. No number is part of a program, and a program draws none: transforms and caches see pure graphs.

In the trace                                          In each call

generator: captured number, `Fresh`, or itself        the same generator, or one made anew
    |                                                     |
`Draws.draw` -> `Draw` (sampler, parameters)          `DrawPlan` of `Step`: parameters by a `Graph`, then the sampler
    |                                                     |
a `Value`, an input of the trace                      `Pack`: an input of the program; many draws of one type are one

A loop or branch has draws of its own, whose samplers draw for all of it before it begins; they are draws of the trace around it:

`LoopDraws`    all iterations   `IterationDraws`: the calls of one generator, in the order of the iterations
`BranchDraws`  the choice       zeros, if the branch is not chosen
`vmap`         all elements     `ElementDraws`: each element from the same state
`Seeded`       base of both     generators that the body makes with a seed draw numbers, which nothing repeats

`Change` is what a trace has done to a generator. It is undone if the trace is given up, or a guard misses.
"""

from __future__ import annotations

import itertools
import pickle
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from copy import deepcopy
from functools import partial
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.errors import GradtapeWarning, warn
from gradtape.ir.graph import Graph, TraceTag, Value, constant, extract, next_serial
from gradtape.ir.op import NDArray
from gradtape.ir.types import aval, is_inexact
from gradtape.locks import Rank, new_lock
from gradtape.ops.core.elementwise.cast import stop_gradient
from gradtape.ops.core.indexing import getitem
from gradtape.runtime.compile.program import GuardMiss, Program, program_for
from gradtape.trace.jit.guards import Guard, Trace
from gradtape.trace.jit.outcomes import FAILURES
from gradtape.trace.lazy.force import force
from gradtape.trace.patching.undo import restore, state_of
from gradtape.trace.random.observation import own_calls
from gradtape.transforms.call import recorded

Sampler = Callable[..., Any]
"""``(generator, *parameters) -> array or number``: one call of a method."""

LEGACY: Final = np.random.mtrand._rand
"""The generator of the functions ``np.random.normal`` and so on."""


PACKED: Final = 16
"""Draws of one type from which on they are elements of one input."""


class Fresh:
    """Stands for a generator that the traced function makes, with a seed or without: each call makes one anew."""

    __slots__ = ("_function", "_seed")

    def __init__(self, function: Callable[[Any], Any], seed: Any) -> None:
        self._function = function
        self._seed = deepcopy(seed)  # a SeedSequence changes when it has children

    def make(self) -> Any:
        """Return such a generator."""
        with own_calls():
            return self._function(deepcopy(self._seed))


class Seeded:
    """The generators that the body of a loop or branch makes with a seed: in each iteration they draw the same numbers."""

    __slots__ = ("_made", "calls")

    def __init__(self) -> None:
        self.calls: list[Draw] = []  # what they draw are numbers, which nothing repeats
        self._made: dict[int, Any] = {}

    def made(self, generator: Any) -> None:
        """Note that the body has made a generator."""
        self._made[id(generator)] = generator

    def knows(self, generator: Any) -> bool:
        """Return whether the body has made a generator."""
        return id(generator) in self._made


class Draw(NamedTuple):
    """One draw of a trace.

    Attributes
    ----------
    source : int, Generator, RandomState or Fresh
        The generator: its number among the captured ones, or itself.
    sampler : callable
        Draws.
    parameters : tuple of Value
        What the sampler takes besides the generator.
    value : Value
        The numbers; in the trace, those that its call has drawn.
    guards : int
        The number of guards of the trace before it.
    warning : callable or None
        Warns that a derivative does not see the parameters, if a tape records them.
    """

    source: Any
    sampler: Sampler
    parameters: tuple[Value, ...]
    value: Value
    guards: int
    warning: Callable[[], None] | None


def drawn_array(sampler: Sampler, generator: Any, parameters: Sequence[NDArray]) -> tuple[Any, bool]:
    """Return what a sampler draws as an array of the machine's byte order, and whether it is a number of Python's."""
    with own_calls():
        drawn = sampler(generator, *[array if array.ndim else array[()] for array in parameters])
    array = np.asarray(drawn)
    is_plain = type(drawn) in (float, int, bool)
    if not is_plain:
        array = np.require(array, np.dtype(array.dtype.type), ("C", "A"))
    return array, is_plain


class Change:
    """The changes that a trace has made to a generator, to be undone unless another thread has drawn from it since."""

    __slots__ = ("_after", "_before", "generator")

    def __init__(self, generator: Any) -> None:
        self.generator = generator
        self._before = state_of(generator)
        self._after = b""

    def note(self) -> None:
        """Note the state after a draw."""
        self._after = pickle.dumps(state_of(self.generator))

    def undo(self) -> None:
        """Set the generator back."""
        with _lock_of(self.generator):
            if pickle.dumps(state_of(self.generator)) == self._after:
                restore(self.generator, self._before)


class Draws:
    """The draws of one trace.

    Parameters
    ----------
    captured : sequence of Generator or RandomState
        The generators among the captures.

    Attributes
    ----------
    calls : list of Draw
        In the order of the calls.
    """

    __slots__ = ("_changes", "_kept", "_moments", "_sources", "calls")

    def __init__(self, captured: Sequence[Any]) -> None:
        self.calls: list[Draw] = []
        self._sources: dict[int, Any] = {id(LEGACY): LEGACY}
        self._sources.update((id(generator), number) for number, generator in enumerate(captured))
        self._kept = list(captured)
        self._moments: list[tuple[int, int]] = []  # for the nodes that read a draw in place of the input
        self._changes: dict[int, Change] = {}

    def knows(self, generator: Any) -> bool:
        """Return whether a generator is captured, or was made by the function."""
        return id(generator) in self._sources

    def made(self, generator: Any, source: Fresh) -> None:
        """Note that the traced function has made a generator."""
        self._kept.append(generator)
        self._sources[id(generator)] = source

    def draw(
        self,
        trace: Trace,
        generator: Any,
        sampler: Sampler,
        parameters: Sequence[Value],
        warning: Callable[[], None] | None,
    ) -> Value:
        """Draw, and return the numbers as an input of the trace."""
        source = self._sources[id(generator)]
        if id(generator) not in self._changes and not isinstance(source, Fresh):
            self._changes[id(generator)] = Change(generator)
        array, is_plain = drawn_array(sampler, generator, force(parameters))
        if not isinstance(source, Fresh):
            self._changes[id(generator)].note()
        value = Value(aval(array.shape, array.dtype, is_plain), data=array, tags=(trace,))
        self.calls.append(Draw(source, sampler, tuple(parameters), value, len(trace.guards), warning))
        self._moments.append((next_serial(), next_serial()))
        return value

    def restore(self) -> None:
        """Set the generators back to before the trace, which is given up."""
        for change in self._changes.values():
            change.undo()
        self.calls.clear()
        self._moments.clear()

    def plan(self, inputs: Sequence[Value], trace: Trace, stop: Callable[[Value], bool]) -> DrawPlan | None:
        """Return the plan of the draws; None where there are none.

        Parameters
        ----------
        inputs : sequence of Value
            The other inputs of the program.
        trace : Trace
            Their trace.
        stop : callable
            Whether a value is a constant of the program.
        """
        if not self.calls:
            return None
        steps = []
        values = [*inputs]
        for draw in self.calls:
            type_ = draw.value.aval
            if not draw.parameters:
                values.append(draw.value)
                steps.append(
                    Step(draw.source, draw.sampler, (), None, type_.shape, type_.dtype, draw.warning)
                )
                continue
            guards = [(guard.value, guard.expected) for guard in trace.guards[: draw.guards]]
            ends = [*draw.parameters, *[value for value, _ in guards]]
            nodes, leaves = extract(ends, values, stop)
            force(leaves)
            operands = {value for node in nodes for value in node.inputs} | set(ends)
            needed = tuple([position for position, value in enumerate(values) if value in operands])
            inputs_of_step = [values[position] for position in needed]
            graph = Graph(inputs_of_step, nodes, draw.parameters, "parameters", guards)
            values.append(draw.value)
            steps.append(
                Step(draw.source, draw.sampler, needed, graph, type_.shape, type_.dtype, draw.warning)
            )
        numbers: list[Any] = [draw.value.data for draw in self.calls]
        return DrawPlan(steps, numbers, list(self._changes.values()), self._packed(trace))

    def _packed(self, trace: Trace) -> list[Pack]:
        """Return the inputs of the program: of many draws of one type there is one, and each is an element, so that a loop can be found."""
        alike: dict[Any, list[int]] = {}
        for number, draw in enumerate(self.calls):
            alike.setdefault(draw.value.aval if len(self.calls) >= PACKED else number, []).append(number)
        packs = []
        for numbers in alike.values():
            values = [self.calls[number].value for number in numbers]
            if len(values) < PACKED:
                packs += [
                    Pack((number,), False, value) for number, value in zip(numbers, values, strict=True)
                ]
                continue
            type_ = values[0].aval
            stack = Value(aval((len(values), *type_.shape), type_.dtype), tags=(trace,))
            for number, value in enumerate(values):
                element = getitem(stack, number)
                value.aval = element.aval
                value.node, value.index = element.node, 0
                node = element.node
                assert node is not None
                node.adopt(value, (element.aval,))
                first = node.inputs[0].node
                assert first is not None
                first.serial, node.serial = self._moments[numbers[number]]
            packs.append(Pack(tuple(numbers), True, stack))
        return packs


class LoopDraws(Seeded):
    """The draws in the body of a loop with known trip count: all iterations draw before the loop, and it reads their numbers.

    Parameters
    ----------
    draws : Draws, LoopDraws or None
        Those of the trace around the loop; None where it runs at once.
    around : Trace or None
        That trace.
    """

    __slots__ = ("_around", "_draws")

    def __init__(self, draws: Draws | LoopDraws | None, around: Trace | None) -> None:
        super().__init__()
        self._draws = draws
        self._around = around

    def can_draw(self, generator: Any) -> bool:
        """Return whether it is known where later calls find a generator."""
        if isinstance(self._draws, LoopDraws):
            return self._draws.can_draw(generator)
        return self._draws is None or self._draws.knows(generator)

    def draw(
        self,
        trace: Trace,
        generator: Any,
        sampler: Sampler,
        parameters: Sequence[Value],
        warning: Callable[[], None] | None,
    ) -> Value:
        """Return a value that stands for the numbers of each iteration. Parameters are those of all iterations."""
        with own_calls():
            copy = deepcopy(generator)
        array, is_plain = drawn_array(sampler, copy, force(parameters))
        value = Value(aval(array.shape, array.dtype, is_plain), tags=(trace,))
        self.calls.append(Draw(generator, sampler, tuple(parameters), value, 0, warning))
        return value

    def stacks(self, length: int, reverse: bool) -> list[Value]:
        """Draw for all iterations, and return the numbers of each call along a first axis."""
        groups: dict[int, list[Draw]] = {}
        for draw in self.calls:
            groups.setdefault(id(draw.source), []).append(draw)
        stacks_of: dict[int, list[Value]] = {}
        for key, draws in groups.items():
            iterations = IterationDraws(draws, length, reverse)
            parameters_of_all = [value for draw in draws for value in draw.parameters]
            for number, draw in enumerate(draws):
                parameters = draw.parameters if number else parameters_of_all
                stack = self._before(draw, partial(iterations, number), parameters)
                stacks_of.setdefault(key, []).append(stack)
        return [stacks_of[id(draw.source)].pop(0) for draw in self.calls]

    def _before(self, draw: Draw, sampler: Sampler, parameters: Sequence[Value]) -> Value:
        """Draw before the loop, or the choice."""
        if self._draws is not None and self._around is not None:
            return self._draws.draw(self._around, draw.source, sampler, parameters, draw.warning)
        array, is_plain = drawn_array(sampler, draw.source, force(parameters))
        return Value(aval(array.shape, array.dtype, is_plain), data=array)


class BranchDraws(LoopDraws):
    """The draws in a function of `cond` or `switch`: they draw before the choice, if it is the one that is chosen."""

    __slots__ = ()

    def chosen(self, number: int, last: int, index: Value) -> list[Value]:
        """Return what the function draws, or zeros.

        Parameters
        ----------
        number, last : int
            The number of the function, and that of the last one.
        index : Value
            The choice.
        """
        return [
            self._before(draw, partial(_if_chosen, draw, number, last), [index, *draw.parameters])
            for draw in self.calls
        ]


def _if_chosen(draw: Draw, number: int, last: int, generator: Any, index: Any, *parameters: Any) -> Any:
    if min(max(int(index), 0), last) == number:
        return draw.sampler(generator, *parameters)
    zeros = np.zeros(draw.value.shape, draw.value.dtype)
    return zeros.item() if draw.value.aval.weak else zeros


class IterationDraws:
    """The calls of one generator in the iterations of a loop, in NumPy's order: the first call draws for all of them.

    Parameters
    ----------
    draws : sequence of Draw
        The calls.
    length : int
        The trip count.
    reverse : bool
        Whether the last element of what a loop reads belongs to the first iteration.
    """

    __slots__ = ("_drawn", "_length", "_reverse", "_samplers")

    def __init__(self, draws: Sequence[Draw], length: int, reverse: bool) -> None:
        ends = np.cumsum([0, *[len(draw.parameters) for draw in draws]])
        slices = [slice(*pair) for pair in itertools.pairwise(ends)]
        self._samplers = list(zip([draw.sampler for draw in draws], slices, strict=True))
        self._length = length
        self._reverse = reverse
        self._drawn = threading.local()

    def __call__(self, number: int, generator: Any, *parameters: Any) -> NDArray:
        """Return the numbers of one of the calls, (length, ...). The first one gets the parameters of all."""
        if number == 0:
            rounds = [
                [sampler(generator, *parameters[part]) for sampler, part in self._samplers]
                for _ in range(self._length)
            ]
            self._drawn.arrays = [np.asarray(numbers) for numbers in zip(*rounds, strict=True)]
        numbers: NDArray = self._drawn.arrays[number]
        return np.ascontiguousarray(numbers[::-1]) if self._reverse else numbers


class ElementDraws:
    """A call in a mapped function whose parameters differ between the elements: each one draws from the same state.

    Afterwards the generator is where the draw for the first element has left it. A rejection sampler takes as many numbers of the
    generator as its parameters need.

    Parameters
    ----------
    sampler : callable
        Draws for one element.
    is_mapped : sequence of bool
        Which parameters have the elements along their first axis; the others are shared.

    Attributes
    ----------
    is_plain : bool
        Whether an element is a number of Python's, once it has drawn.
    """

    __slots__ = ("_is_mapped", "_sampler", "is_plain")

    def __init__(self, sampler: Sampler, is_mapped: Sequence[bool]) -> None:
        self._sampler = sampler
        self._is_mapped = tuple(is_mapped)
        self.is_plain = False

    def __call__(self, generator: Any, *parameters: Any) -> NDArray:
        """Return the numbers of all elements."""
        size = next(len(x) for x, flag in zip(parameters, self._is_mapped, strict=True) if flag)
        before = state_of(generator)
        after, rows = before, []
        for number in range(size):
            restore(generator, before)
            arguments = [
                x[number] if flag else x for x, flag in zip(parameters, self._is_mapped, strict=True)
            ]
            row, self.is_plain = drawn_array(self._sampler, generator, list(map(np.asarray, arguments)))
            rows.append(row)
            if number == 0:
                after = state_of(generator)
        restore(generator, after)
        return np.stack(rows)


class Pack(NamedTuple):
    """An input of the program that holds draws.

    Attributes
    ----------
    draws : tuple of int
        Which draws.
    is_stack : bool
        Whether they are its elements along a first axis; else it is a single draw.
    value : Value
        The input.
    """

    draws: tuple[int, ...]
    is_stack: bool
    value: Value

    def filled(self, drawn: Sequence[NDArray]) -> NDArray:
        """Return its numbers, given those of all draws."""
        if self.is_stack:
            return np.stack([drawn[number] for number in self.draws])
        return drawn[self.draws[0]]


class Step:
    """One draw of a plan.

    Parameters
    ----------
    source, sampler, warning
        As in `Draw`.
    needed : tuple of int
        Where the inputs of `graph` are among those of the program and earlier draws.
    graph : Graph or None
        Computes the parameters, if there are any.
    shape, dtype
        Of the numbers.
    """

    __slots__ = (
        "_program",
        "dtype",
        "first_guard",
        "graph",
        "needed",
        "sampler",
        "shape",
        "source",
        "warning",
    )

    def __init__(
        self,
        source: Any,
        sampler: Sampler,
        needed: tuple[int, ...],
        graph: Graph | None,
        shape: tuple[int, ...],
        dtype: np.dtype[Any],
        warning: Callable[[], None] | None,
    ) -> None:
        self.source = source
        self.sampler = sampler
        self.needed = needed
        self.graph = graph
        self.shape = shape
        self.dtype = dtype
        self.warning = warning
        self.first_guard = 0
        self._program: Program | None = None

    def parameters(self, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Compute the parameters, given the inputs of the program and earlier draws."""
        if self.graph is None:
            return []
        if self._program is None:
            self._program = program_for(self.graph)
        try:
            return self._program.run([arrays[position] for position in self.needed])
        except GuardMiss as miss:
            raise GuardMiss(self.first_guard + miss.guard, miss.actual) from None

    def recorded(self, values: Sequence[Value]) -> list[NDArray]:
        """Compute the parameters of a call that a tape records; warn where a derivative would miss them."""
        if self.graph is None:
            return []
        outs, looks = recorded(self.graph, [values[position] for position in self.needed])
        for number, ((_, expected), value) in enumerate(zip(self.graph.guards, looks, strict=True)):
            answer = int(force([value])[0])
            if answer != expected:
                raise GuardMiss(self.first_guard + number, answer)
        if self.warning is not None and any(map(is_differentiated, outs)):
            self.warning()
        return force(outs)

    def drawn(self, generator: Any, parameters: Sequence[NDArray]) -> NDArray:
        """Draw."""
        array, _ = drawn_array(self.sampler, generator, parameters)
        assert array.shape == self.shape and array.dtype == self.dtype
        return array  # type: ignore[no-any-return]


def is_differentiated(value: Value) -> bool:
    """Return whether a tape, or a derivative that is being recorded, records a value, and no `stop_gradient` is in between."""
    tags = [tag for tag in value.tags if type(tag) is TraceTag and tag.recording]
    ahead, visited = [value] if tags else [], set[Value]()
    while ahead:
        inner = ahead.pop()
        if inner in visited or not is_inexact(inner.dtype):
            continue
        visited.add(inner)
        maker = inner.maker()
        before = [] if maker is None else [x for x in maker[1] if any(tag in x.tags for tag in tags)]
        if not before:
            return True
        if maker is not None and maker[0] is not stop_gradient:
            ahead += before
    return False


class DrawPlan:
    """The draws of each call of a compiled function.

    Parameters
    ----------
    steps : sequence of Step
        In order.
    numbers : list of ndarray
        What the traced call has drawn, which the first call takes.
    changes : list of Change
        What this has done to its generators.
    packs : list of Pack
        The inputs of the program, which hold one draw, or many of one type.
    """

    __slots__ = ("_first", "_packs", "inputs", "steps")

    def number_guards(self, first: int, guards: Sequence[Guard]) -> list[Guard]:
        """Let the guards before draws have numbers from `first`, after those of the program; return them."""
        for step in self.steps:
            step.first_guard = first
        return list(
            guards[: max([0, *[len(step.graph.guards) for step in self.steps if step.graph is not None]])]
        )

    def __init__(
        self, steps: Sequence[Step], numbers: list[NDArray], changes: list[Change], packs: Sequence[Pack]
    ) -> None:
        self.steps = tuple(steps)
        self._packs = tuple([pack._replace(value=Value(pack.value.aval)) for pack in packs])
        self.inputs = [pack.value for pack in packs]
        self._first: list[tuple[list[NDArray], list[Change]]] = [(numbers, changes)]

    def give_up_first(self) -> None:
        """Set the generators back to before the trace, if no call has taken its numbers."""
        for _, changes in self._take_first():
            for change in changes:
                change.undo()

    def _take_first(self) -> list[tuple[list[NDArray], list[Change]]]:
        try:
            return [self._first.pop()]
        except IndexError:
            return []

    @contextmanager
    def undone_by_misses(self, generators: Sequence[Any]) -> Iterator[list[Change]]:
        """Set the generators back if a guard misses in the block: then another trace answers the call, and draws anew.

        Meanwhile no other thread draws from them. Yields a list for `run` and `recorded`, of what they take from the trace.
        """
        states: list[Change] = []
        used = {
            id(generator): generator
            for step in self.steps
            if (generator := _generator_of(step.source, generators, {}))
        }
        with ExitStack() as locks:
            for generator in sorted(used.values(), key=id):
                locks.enter_context(_lock_of(generator))
            before = [(generator, state_of(generator)) for generator in used.values()]
            try:
                yield states
            except (GuardMiss, *FAILURES):
                for generator, state in before:
                    restore(generator, state)
                for change in states:
                    change.undo()
                raise

    def run(
        self, generators: Sequence[Any], arrays: Sequence[NDArray], taken: list[Change] | None = None
    ) -> list[NDArray]:
        """Draw for a call.

        Parameters
        ----------
        generators : sequence of Generator or RandomState
            The captured ones as they are now.
        arrays : sequence of ndarray
            The other inputs of the program.
        """
        for numbers, changes in self._take_first():
            if taken is not None:
                taken += changes
            return self._filled(numbers)
        available = list(arrays)
        fresh: dict[int, Any] = {}
        for step in self.steps:
            parameters = step.parameters(available)
            available.append(step.drawn(_generator_of(step.source, generators, fresh, make=True), parameters))
        return self._filled(available[len(arrays) :])

    def _filled(self, drawn: Sequence[NDArray]) -> list[NDArray]:
        return [pack.filled(drawn) for pack in self._packs]

    def recorded(
        self, generators: Sequence[Any], values: Sequence[Value], states: list[Change]
    ) -> list[Value]:
        """Draw for a call that a tape records: the numbers are constants of the recording."""
        first = []
        for numbers, changes in self._take_first():
            first.append(numbers)
            states += changes
        available = list(values)
        drawn: list[NDArray] = []
        fresh: dict[int, Any] = {}
        for number, step in enumerate(self.steps):
            parameters = step.recorded(available)
            if first:
                drawn.append(first[0][number])
            else:
                generator = _generator_of(step.source, generators, fresh, make=True)
                drawn.append(step.drawn(generator, parameters))
            available.append(constant(drawn[-1]))
        return [constant(array) for array in self._filled(drawn)]


def _generator_of(
    source: Any, generators: Sequence[Any], fresh: dict[int, Any], *, make: bool = False
) -> Any:
    """Return the generator of a draw in this call; None for one that each call makes anew, unless it is to be made."""
    if isinstance(source, int):
        return generators[source]
    if not isinstance(source, Fresh):
        return source
    if make and id(source) not in fresh:
        fresh[id(source)] = source.make()
    return fresh.get(id(source))


def _lock_of(generator: Any) -> Any:
    """Return the lock under which a generator draws, which a thread may take again.

    Before NumPy 2.4 it may not: one lock for all generators stands in, which keeps compiled functions on other threads from drawing.
    """
    bits = generator.bit_generator if isinstance(generator, np.random.Generator) else generator._bit_generator
    return bits.lock if hasattr(bits.lock, "_is_owned") else _draws


_draws: Final = new_lock(Rank.DRAWS)


def warn_of_constant(method: str, where: Any) -> Callable[[], None]:
    """Return what warns that a derivative does not see the parameters of a draw."""

    def warn_now() -> None:
        warn(
            GradtapeWarning,
            f"{method} draws from a distribution with a watched parameter, and the derivative does not see it",
            where=where,
            why="the numbers are discrete, or have no derivative for given noise: they are constants in derivatives",
            remedy="use gt.expectation (or gt.score_function) for the derivative of a mean; gt.stop_gradient(x) if this is intended",
        )

    return warn_now
