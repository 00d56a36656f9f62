"""Prologues: what a program computes from inputs that stay equal from call to call is computed once, and kept.

The first call of a program runs it whole, and copies the inputs that may stay equal. The second call that finds some of them unchanged lets
a thread split the program. From then on a call compares these inputs with the copies, byte by byte, and runs the main program on
what is kept; a call with other data runs the whole program. Data that are seen twice in a row replace the oldest ones that are kept.

What is kept is computed from the copies, never from an array that other code can write to, and is not changed afterwards: threads need
no lock to read it.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import replace
from typing import Final
from weakref import WeakSet

import numpy as np

from gradtape.config import config
from gradtape.interruptions import raise_interruption
from gradtape.ir.graph import Graph
from gradtape.ir.op import NDArray
from gradtape.locks import Rank, new_lock
from gradtape.passes.prologue import Split, may_pay, split
from gradtape.passes.rewrite import closed
from gradtape.passes.simplify.masks import fold_masks
from gradtape.runtime.call.convention import ArraySpec, CallForm, ScalarSpec
from gradtape.runtime.compile.background import PATIENCE, Compilation, compilation_of
from gradtape.runtime.compile.program import Program, part_program

__all__ = ["Kept", "Prologue", "kept_bytes", "prologue_of"]

MOST_KEPT: Final = 2
"""How many data a program keeps results for: those of training and of tests may take turns."""

MOST_CHANGES: Final = 16
"""Calls that find other data each after which no further results are kept: the whole program answers them without a look at their inputs.
Calls with data that are kept already, which machine code answers, do not count."""

_BLOCK: Final = 2**16
"""Elements that are compared at a time in Python: the first difference ends it."""


class Kept:
    """The results of a prologue for some data.

    Attributes
    ----------
    inputs : dict of int to ndarray
        Copies of the inputs that the prologue reads, by their positions.
    results : list of ndarray
        What it has computed from them.
    """

    __slots__ = ("inputs", "results")

    def __init__(self, inputs: dict[int, NDArray], results: list[NDArray]) -> None:
        self.inputs = inputs
        self.results = results

    @property
    def nbytes(self) -> int:
        return sum(array.nbytes for array in (*self.inputs.values(), *self.results))

    def is_of(self, arrays: Sequence[NDArray]) -> bool:
        """Return whether inputs are equal to those it was computed from."""
        return all(_equal(arrays[position], copy) for position, copy in self.inputs.items())


def _equal(one: NDArray, other: NDArray) -> bool:
    """Return whether two arrays have the same dtype, shape and bytes."""
    if one.dtype != other.dtype or one.shape != other.shape:
        return False
    kind = np.uint64 if one.nbytes % 8 == 0 else np.uint8
    ours, theirs = (
        np.ascontiguousarray(array).reshape(-1).view(np.uint8).view(kind) for array in (one, other)
    )
    blocks = range(0, len(ours), _BLOCK)
    return all(np.array_equal(ours[at : at + _BLOCK], theirs[at : at + _BLOCK]) for at in blocks)


class Prologue:
    """The prologue of one program: it watches its inputs, splits it, and keeps results.

    Parameters
    ----------
    graph : Graph
        The whole program.
    form : CallForm
        How its native entry is called; its arguments without the static ones are the first inputs.
    captured : collection of int
        The positions of the inputs that may stay equal.
    conditional : collection of int
        The positions of those that may, if another one of them has changed meanwhile.

    Attributes
    ----------
    kept : list of Kept
        The latest first.
    main : Program or None
        Takes the inputs, and then what is kept.
    when_ready : callable or None
        Is called, with a text about it, when the calls have another native entry from now on.
    runs : int
        How often the prologue was computed.
    state : str
        What is kept, or why nothing is.
    is_over : bool
        Whether the whole program answers all other calls, and no more results are kept.
    """

    __slots__ = (
        "__weakref__",
        "_captured",
        "_changes",
        "_conditional",
        "_form",
        "_graph",
        "_is_busy",
        "_making",
        "_pays",
        "_previous",
        "_prologue",
        "is_over",
        "kept",
        "main",
        "runs",
        "state",
        "when_ready",
    )

    def __init__(
        self, graph: Graph, form: CallForm, captured: Collection[int], conditional: Collection[int]
    ) -> None:
        self._graph = graph
        self._form = form
        self._captured = frozenset(captured)
        self._conditional = frozenset(conditional)
        self._previous: dict[int, NDArray] = {}
        self._making: Compilation[tuple[Split, Program, Program] | None] | None = None
        self._prologue: tuple[Split, Program] | None = None
        self._changes = 0
        self._is_busy = False
        self._pays: dict[frozenset[int], bool] = {}
        self.kept: list[Kept] = []
        self.main: Program | None = None
        self.when_ready: Callable[[str], object] | None = None
        self.runs = 0
        self.state = "inputs that stay equal are looked for"
        self.is_over = False
        with _lock:
            _living.add(self)

    @property
    def is_watching(self) -> bool:
        """Whether calls come through Python, which looks at their inputs."""
        return not self.is_over and not self.kept

    @property
    def nbytes(self) -> int:
        """The bytes of kept results and of the copies of inputs."""
        copies = {id(array): array.nbytes for array in list(self._previous.values())}
        for entry in list(self.kept):
            copies.update((id(array), array.nbytes) for array in (*entry.inputs.values(), *entry.results))
        return sum(copies.values())

    def run(self, whole_program: Program, arrays: Sequence[NDArray]) -> list[NDArray]:
        """Compute the outputs: by the main program if what is kept fits the inputs, else by the whole one."""
        main = self.main
        if main is not None:
            for entry in list(self.kept):
                if entry.is_of(arrays):
                    return main.run([*arrays, *entry.results])
        outputs = whole_program.run(arrays)
        if not (self.is_over or whole_program.is_in_the_making):
            with _lock:
                is_busy, self._is_busy = self._is_busy, True
            if not is_busy:
                try:
                    self._observe(arrays)
                finally:
                    self._is_busy = False
        return outputs

    def _observe(self, arrays: Sequence[NDArray]) -> None:
        """Compare the inputs of a call with those of the last one that the whole program has computed."""
        watched = self._captured | self._conditional if self._prologue is None else self._prologue[0].inputs
        before, now = self._previous, {}
        room = config.kept_memory - kept_bytes() + sum(array.nbytes for array in before.values())
        if sum(arrays[position].nbytes for position in watched) > room:
            self._give_up("there is no room for copies of its inputs (gt.config.kept_memory)")
            return
        for position in watched:
            copy = before.get(position)
            now[position] = (
                copy if copy is not None and _equal(arrays[position], copy) else _copy(arrays[position])
            )
        self._previous = now
        if not before:
            return
        equal = frozenset([position for position in watched if now[position] is before[position]])
        if self._prologue is not None:
            if len(equal) == len(watched):
                self._compute(*self._prologue)
            else:
                self._note_change()
        elif self._making is None:
            stable = equal if self._conditional - equal else equal & self._captured
            if stable not in self._pays:  # a walk over a large graph takes longer than a call
                self._pays[stable] = bool(stable) and may_pay(self._graph, stable)
            if self._pays[stable]:
                self._make(stable)
            else:
                self._note_change()
        elif self._making.is_over:
            self._take(self._making)

    def _note_change(self) -> None:
        self._changes += 1
        if self._changes < MOST_CHANGES:
            return
        if self.kept:
            self.is_over, self._previous = True, {}
            self._tell("no further results are kept: inputs differ from call to call")
        else:
            self._give_up("its inputs differ from call to call")

    def _give_up(self, reason: str) -> None:
        self.is_over = True
        self._previous, self.kept, self.main, self._prologue = {}, [], None, None
        self._tell(f"nothing is kept from call to call: {reason}")

    def _tell(self, text: str) -> None:
        self.state = text
        if self.when_ready is not None:
            self.when_ready(text)

    def _make(self, stable: frozenset[int]) -> None:
        """Let a thread split the program, and wait for a while."""
        graph, form, most = self._graph, self._form, config.kept_memory - kept_bytes()
        making = self._making = compilation_of(
            f"prologue:{id(self)}", lambda: _programs(graph, form, stable, most)
        )
        if making.wait(PATIENCE):
            self._take(making)

    def _take(self, making: Compilation[tuple[Split, Program, Program] | None]) -> None:
        try:
            split_programs = making.result()
        except Exception as error:
            raise_interruption(error)
            self._give_up(f"the program cannot be split ({error})")
            return
        if split_programs is None:
            self._give_up("it would save too little, or need too much memory")
            return
        parts, prologue, self.main = split_programs
        self._prologue = parts, prologue
        self._compute(parts, prologue)

    def _compute(self, parts: Split, prologue: Program) -> None:
        """Compute the prologue from the copies of the inputs, and keep the results."""
        inputs = {position: self._previous[position] for position in parts.inputs}
        try:
            results = [np.asarray(result, order="C") for result in prologue.run(list(inputs.values()))]
        except Exception as error:  # the whole program raises it, in the call that it belongs to
            raise_interruption(error)
            self._note_change()
            return
        self.runs += 1
        self._changes = 0
        entry = Kept(inputs, results)
        self._previous = inputs
        others = self.kept[: MOST_KEPT - 1]
        while (
            others
            and entry.nbytes + _bytes_without(self) + sum(o.nbytes for o in others) > config.kept_memory
        ):
            others.pop()
        if entry.nbytes + _bytes_without(self) > config.kept_memory:
            self._give_up("there is no room for its results (gt.config.kept_memory)")
            return
        self.kept = [entry, *others]
        count = len(results)
        self._tell(
            f"{count} array{'s' if count > 1 else ''} of {sum(r.nbytes for r in results):,} bytes are kept from call to call, "
            f"with copies of {sum(a.nbytes for a in inputs.values()):,} bytes of inputs that stay equal"
        )


def _copy(array: NDArray) -> NDArray:
    return np.array(array, order="C", copy=True)


def _programs(
    graph: Graph, form: CallForm, stable: frozenset[int], most: int
) -> tuple[Split, Program, Program] | None:
    """Return a program in two parts; None where that is not worth it, or there is no machine code."""
    from gradtape.passes.complex.graphs import split_complex
    from gradtape.passes.pipeline import merge  # late: the compiler, which few processes need

    parts = split(fold_masks(merge(split_complex(closed(graph)))), stable, most)
    if parts is None:
        return None
    specs = [ArraySpec(value.dtype, value.shape) for value in parts.prologue.outputs]
    prologue, main = part_program(parts.prologue), part_program(parts.main, _with_arguments(form, specs))
    if prologue.kernel.loaded is None or main.kernel.loaded is None:
        return None
    return parts, prologue, main


def _with_arguments(form: CallForm, specs: Sequence[ArraySpec]) -> CallForm:
    return replace(form, arguments=(*form.arguments, *specs))


def prologue_of(
    graph: Graph, form: CallForm, hidden: int, differentiated: Collection[int]
) -> Prologue | None:
    """Return the prologue of a program that may be worth one.

    Parameters
    ----------
    graph : Graph
        The program; its inputs are the arguments, and last so many `hidden` inputs.
    form : CallForm
        How its native entry is called.
    hidden : int
        The number of hidden inputs.
    differentiated : collection of int
        The positions of the inputs in which it differentiates, if it does.
    """
    if form.written or config.kept_memory == 0:
        return None
    specs = [spec for spec in form.arguments if isinstance(spec, ArraySpec | ScalarSpec)]
    if len(specs) != len(graph.inputs):
        return None
    fit: set[int] = {position for position, spec in enumerate(specs) if _is_comparable(spec)} - set(
        differentiated
    )
    captured = {position for position in fit if differentiated or position >= len(specs) - hidden}
    if len(fit - captured) == 1:  # no other one can change
        fit = captured
    if not fit or not may_pay(graph, fit):
        return None
    return Prologue(graph, form, captured, fit - captured)


def _is_comparable(spec: ArraySpec | ScalarSpec) -> bool:
    """Return whether native code can compare an input with a copy."""
    if isinstance(spec, ScalarSpec):
        return spec.kind == "float"
    return bool(spec.shape) or spec.kind == "array" or spec.dtype == np.float64


_lock: Final = new_lock(Rank.LEAF)
_living: Final[WeakSet[Prologue]] = WeakSet()


def kept_bytes() -> int:
    """Return the bytes that all programs keep from call to call.

    Examples
    --------
    >>> kept_bytes() >= 0
    True
    """
    with _lock:
        living = list(_living)
    return sum(prologue.nbytes for prologue in living)


def _bytes_without(excluded: Prologue) -> int:
    with _lock:
        living = list(_living)
    return sum(prologue.nbytes for prologue in living if prologue is not excluded)
