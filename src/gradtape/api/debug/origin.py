"""Where a NaN or an infinity came up: from one bad element of a result back to the op that made it of good numbers."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from gradtape.api.debug.unrolled import WrittenOut, work_out
from gradtape.ir.graph import Literal, Node, Value
from gradtape.ir.op import NDArray
from gradtape.kinds.control import Structured
from gradtape.kinds.elementwise import Elementwise
from gradtape.transforms.call import Call, inlined
from gradtape.transforms.observers import Derived

Place = tuple[int, ...]

SHOWN = 3


@dataclass(frozen=True)
class Sample:
    """One bad element: its index, what came out, and the numbers that went in."""

    index: Place
    result: Any
    operands: tuple[Any, ...]


@dataclass(frozen=True)
class Finding:
    """What made a NaN or an infinity.

    Attributes
    ----------
    op : str
        The op; ``"input"`` where the number came from outside.
    shape : tuple of int
        Of its result.
    dtype : numpy.dtype
        Of its result.
    site : object
        The user's line.
    derivative_of : str or None
        Where the op is part of a gradient: the op whose derivative it computes.
    samples : tuple of Sample
        A few of the elements.
    count : int
        How many elements it made bad.
    name : str or None
        What the user called the value.
    turns : tuple of (str, int)
        Of which loops, and in which turns, the innermost first.
    """

    op: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    site: Any
    derivative_of: str | None
    samples: tuple[Sample, ...]
    count: int
    name: str | None
    turns: tuple[tuple[str, int], ...] = ()


def first_bad(array: Any) -> Place | None:
    """Return the index of the first element that is NaN or infinite."""
    if array.dtype.kind not in "fc":
        return None
    bad = ~np.isfinite(array)
    if not bad.any():
        return None
    return tuple(map(int, np.unravel_index(int(np.argmax(bad)), array.shape)))


def origin(value: Value, place: Place) -> Finding:
    """Return what made an element of a computed value bad.

    The walk follows single elements, so that what a selection leaves behind, an index passes over or a comparison swallows is not blamed.
    """
    loops = WrittenOut()
    while True:
        node = value.node
        if node is not None and isinstance(node.op, Structured):
            value, place = loops.result(node, value.index, place)
            continue
        earlier = loops.continued(value, place)
        if earlier is not None:
            value, place = earlier
            continue
        if node is not None and isinstance(node.op, Call):
            value = inlined(node.op.graph, node.inputs)[value.index]
            work_out([value])
            continue
        if node is None or any(operand.data is None for operand in node.inputs):
            return _finding(value, None, place, loops)
        step = _selected(node, place) if isinstance(node.op, Elementwise) else _probed(node, value, place)
        if step is None or isinstance(step[0], Literal):  # a bad number in the program text is the op's own
            return _finding(value, node, place, loops)
        value, place = step


def _selected(node: Node, place: Place) -> tuple[Value, Place] | None:
    """Return the operand of an elementwise node, and the element, that is bad already."""
    operands = list(node.inputs)
    if node.op.name == "where":
        condition, chosen, other = operands
        operands = [chosen if _element(condition, place) else other]
    bad = [operand for operand in operands if not np.isfinite(_element(operand, place))]
    if not bad:
        return None
    made = [operand for operand in bad if not isinstance(operand, Literal)] or bad
    worst = next((operand for operand in made if np.isnan(_element(operand, place))), made[0])
    return worst, place if worst.ndim else ()


def _element(value: Value, place: Place) -> Any:
    assert value.data is not None
    return value.data[place] if value.ndim else value.data[()]


def _probed(node: Node, value: Value, place: Place) -> tuple[Value, Place] | None:
    """Return the operand of any other node, and the element, to which the result owes its badness.

    Bad elements are replaced by zeros: if the result stays bad, the node itself is to blame; else halving finds an element that is.
    """
    suspects = _bad_elements(node)
    if not len(suspects):
        return None
    spoils = _trial(node, value.index, place, suspects)
    if spoils(suspects[:0]):
        return None
    while len(suspects) > 1:
        half = suspects[: len(suspects) // 2]
        suspects = half if spoils(half) else suspects[len(half) :]
    argument, position = map(int, suspects[0])
    culprit = node.inputs[argument]
    return culprit, tuple(map(int, np.unravel_index(position, culprit.shape)))


def _bad_elements(node: Node) -> NDArray:
    """Return pairs of an operand's number and the flat position of a bad element in it."""
    found = [np.zeros((0, 2), np.intp)]
    for argument, operand in enumerate(node.inputs):
        assert operand.data is not None
        if operand.dtype.kind in "fc":
            positions = np.flatnonzero(~np.isfinite(operand.data))
            found.append(np.stack([np.full_like(positions, argument), positions], axis=1))
    return np.concatenate(found)


def _trial(node: Node, output: int, place: Place, suspects: NDArray) -> Callable[[NDArray], bool]:
    """Return the question whether an element of the result is bad if only some of the suspects are left as they are."""
    given = [np.asarray(operand.data) for operand in node.inputs]

    def positions(chosen: NDArray, argument: int) -> NDArray:
        found: NDArray = chosen[chosen[:, 0] == argument, 1]
        return found

    def spoils(kept: NDArray) -> bool:
        arrays = [array.copy() for array in given]
        for argument, (array, original) in enumerate(zip(arrays, given, strict=True)):
            array.flat[positions(suspects, argument)] = 0
            left = positions(kept, argument)
            array.flat[left] = original.flat[left]
        with np.errstate(all="ignore"):
            result = node.op.evaluate(arrays, node.params)[output]
        return not np.isfinite(result[place])

    return spoils


def _finding(value: Value, node: Node | None, place: Place, loops: WrittenOut) -> Finding:
    site = None if node is None else node.site
    places, count = _born(value, node, place)
    assert value.data is not None
    samples = tuple(Sample(at, value.data[at].item(), _operands(node, at)) for at in places)
    return Finding(
        op="input" if node is None else node.op.name,
        shape=value.shape,
        dtype=value.dtype,
        site=site,
        derivative_of=site.op if isinstance(site, Derived) else None,
        samples=samples,
        count=count,
        name=value.name,
        turns=() if node is None else loops.turns.get(node, ()),
    )


def _born(value: Value, node: Node | None, place: Place) -> tuple[list[Place], int]:
    """Return some elements that became bad here, `place` first, and how many there are."""
    assert value.data is not None
    bad = np.array(~np.isfinite(value.data))
    if node is not None:
        if not isinstance(node.op, Elementwise):
            return [place], 1
        for operand in node.inputs:
            bad &= np.isfinite(operand.data)  # type: ignore[arg-type]
    bad[place] = False
    others = [tuple(map(int, index)) for index in np.argwhere(bad)[: SHOWN - 1]]
    return [place, *others], int(bad.sum()) + 1


def _operands(node: Node | None, place: Place) -> tuple[Any, ...]:
    if node is None or not isinstance(node.op, Elementwise):
        return ()
    return tuple(_element(operand, place).item() for operand in node.inputs)
