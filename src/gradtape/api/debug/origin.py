"""The origin of a NaN or an infinity: from a non-finite element of a result back to the op that computed it from finite operands."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Final

import numpy as np

from gradtape.api.debug.unrolled import Index, Iterations, UnrolledLoops, compute_op_by_op
from gradtape.ir.graph import Literal, Node, Value
from gradtape.ir.op import NDArray
from gradtape.kinds.control import Structured
from gradtape.kinds.elementwise import Elementwise
from gradtape.ops.core.elementwise.select import where
from gradtape.transforms.call import GraphCall, inlined
from gradtape.transforms.observers import DerivativeSite

SHOWN_SAMPLES: Final = 3

REMEDIES: Final = {
    "log": "keep the argument above zero where the result is used: np.log(np.where(x > 0, x, 1.0)), or np.log(x + tiny)",
    "divide": "keep the denominator away from zero: np.where(y != 0, x / np.where(y != 0, y, 1.0), 0.0)",
    "sqrt": "keep the argument above zero: np.sqrt(np.where(x > 0, x, 1.0)) inside the branch of an np.where",
    "exp": "subtract the maximum first (np.logaddexp, scipy.special.logsumexp and softmax do)",
    "power": "keep the base above zero, or use a whole exponent",
    "arcsin": "clip the argument to (-1, 1)",
    "arccos": "clip the argument to (-1, 1)",
}
"""What helps, by the op that computed the number, or by the op whose derivative did."""

REMEDY: Final = "look at the numbers that go in there: print them, or stop in a debugger at this line"


@dataclass(frozen=True)
class Sample:
    """One non-finite element: its index, its value, and the operands of which it was computed."""

    index: Index
    result: Any
    operands: tuple[Any, ...]


@dataclass(frozen=True)
class Finding:
    """The op that computed a NaN or an infinity from finite operands.

    Attributes
    ----------
    op : str
        Its name; ``"input"`` where the number came from outside.
    shape : tuple of int
        The shape of its result.
    dtype : numpy.dtype
        The dtype of its result.
    site : object
        The user's line.
    derivative_of : str or None
        Where the op is part of a gradient: the op whose derivative it computes.
    samples : tuple of Sample
        A few of the elements.
    count : int
        The number of elements that it made non-finite.
    name : str or None
        The name that the user gave the value.
    iterations : tuple of (str, int)
        The loops that the op is in, each with the number of the iteration, the innermost first.
    """

    op: str
    shape: tuple[int, ...]
    dtype: np.dtype[Any]
    site: Any
    derivative_of: str | None
    samples: tuple[Sample, ...]
    count: int
    name: str | None
    iterations: Iterations = ()

    @property
    def headline(self) -> str:
        """The op, the number, its position in the result, and the iteration."""
        sample = self.samples[0]
        location = f"at {list(sample.index)}" if sample.index else "as its result"
        backward = "" if self.derivative_of is None else f", in the derivative of {self.derivative_of}"
        return f"{self.op} gave {number(sample.result)} {location}{backward}{in_iterations(self.iterations)}"

    @property
    def reason(self) -> str:
        """The operands of the samples, and the type of the result."""
        kind = f"the result is {self.dtype} of shape {self.shape}"
        if not self.samples[0].operands:
            return f"{kind}; all that goes into this element is finite, and it overflows"
        calls = [
            f"{self.op}({', '.join(map(number, sample.operands))}) is {number(sample.result)}"
            + (f" at {list(sample.index)}" if sample.index else "")
            for sample in self.samples
        ]
        further = f", and {self.count - len(calls)} more" if self.count > len(calls) else ""
        return f"{'; '.join(calls)}{further}; {kind}"

    @property
    def remedy(self) -> str:
        """The remedy."""
        return REMEDIES.get(self.derivative_of or self.op, REMEDY)


def number(value: Any) -> str:
    """Return a number with six digits."""
    return f"{value:.6g}" if isinstance(value, float | complex) else str(value)


def in_iterations(iterations: Iterations) -> str:
    """Return the iterations as the end of a sentence."""
    return "".join([f", in iteration {iteration} of {loop}" for loop, iteration in iterations])


def first_nonfinite(array: Any) -> Index | None:
    """Return the index of the first element that is NaN or infinite."""
    if array.dtype.kind not in "fc":
        return None
    nonfinite = ~np.isfinite(array)
    if not nonfinite.any():
        return None
    return tuple(map(int, np.unravel_index(int(np.argmax(nonfinite)), array.shape)))


def origin(value: Value, index: Index) -> Finding:
    """Return the op that made an element of a computed value non-finite.

    The search follows single elements. So an op is not blamed if a selection does not take its result, an index does not read it, or it is
    only compared.
    """
    loops = UnrolledLoops()
    while True:
        node = value.node
        if node is not None and isinstance(node.op, Structured):
            value, index = loops.source(node, value.index, index)
            continue
        pushed = loops.source_of_stack_element(value, index)
        if pushed is not None:
            value, index = pushed
            continue
        if node is not None and isinstance(node.op, GraphCall):
            value = inlined(node.op.graph, node.inputs)[value.index]
            compute_op_by_op([value])
            continue
        if node is None or any(operand.data is None for operand in node.inputs):
            return _finding(value, None, index, loops)
        step = (
            _nonfinite_operand(node, index)
            if isinstance(node.op, Elementwise)
            else _probe(node, value, index)
        )
        if step is None or isinstance(step[0], Literal):  # a literal of the program text belongs to the op
            return _finding(value, node, index, loops)
        value, index = step


def _nonfinite_operand(node: Node, index: Index) -> tuple[Value, Index] | None:
    """Return the operand of an elementwise node whose element is non-finite already, and its index; None where all are finite."""
    operands = list(node.inputs)
    if node.op is where:
        condition, chosen, other = operands
        operands = [chosen if _element(condition, index) else other]
    nonfinite = [operand for operand in operands if not np.isfinite(_element(operand, index))]
    if not nonfinite:
        return None
    computed = [operand for operand in nonfinite if not isinstance(operand, Literal)] or nonfinite
    worst = next((operand for operand in computed if np.isnan(_element(operand, index))), computed[0])
    return worst, index if worst.ndim else ()


def _element(value: Value, index: Index) -> Any:
    assert value.data is not None
    return value.data[index] if value.ndim else value.data[()]


def _probe(node: Node, value: Value, index: Index) -> tuple[Value, Index] | None:
    """Return the operand of any other node whose element makes the result non-finite, and its index; None where the node itself does.

    Non-finite elements are replaced by zeros. If the result stays non-finite, the node computed it; else bisection finds an element.
    """
    suspects = _nonfinite_elements(node)
    if not len(suspects):
        return None
    is_nonfinite_with = _trial(node, value.index, index, suspects)
    if is_nonfinite_with(suspects[:0]):
        return None
    while len(suspects) > 1:
        half = suspects[: len(suspects) // 2]
        suspects = half if is_nonfinite_with(half) else suspects[len(half) :]
    argument, position = map(int, suspects[0])
    culprit = node.inputs[argument]
    return culprit, tuple(map(int, np.unravel_index(position, culprit.shape)))


def _nonfinite_elements(node: Node) -> NDArray:
    """Return the non-finite elements of a node's operands: pairs of operand and flat position, int of shape (count, 2)."""
    positions_found = [np.zeros((0, 2), np.intp)]
    for argument, operand in enumerate(node.inputs):
        assert operand.data is not None
        if operand.dtype.kind in "fc":
            positions = np.flatnonzero(~np.isfinite(operand.data))
            positions_found.append(np.stack([np.full_like(positions, argument), positions], axis=1))
    return np.concatenate(positions_found)


def _trial(node: Node, output: int, index: Index, suspects: NDArray) -> Callable[[NDArray], bool]:
    """Return a function of some of the suspects: whether the result is non-finite if all others are replaced by zeros."""
    arrays_of_node = [np.asarray(operand.data) for operand in node.inputs]

    def positions(chosen: NDArray, argument: int) -> NDArray:
        positions_of_argument: NDArray = chosen[chosen[:, 0] == argument, 1]
        return positions_of_argument

    def is_nonfinite_with(remaining: NDArray) -> bool:
        arrays = [array.copy() for array in arrays_of_node]
        for argument, (array, original) in enumerate(zip(arrays, arrays_of_node, strict=True)):
            array.flat[positions(suspects, argument)] = 0
            left = positions(remaining, argument)
            array.flat[left] = original.flat[left]
        with np.errstate(all="ignore"):
            result = node.op.evaluate(arrays, node.params)[output]
        return not np.isfinite(result[index])

    return is_nonfinite_with


def _finding(value: Value, node: Node | None, index: Index, loops: UnrolledLoops) -> Finding:
    site = None if node is None else node.site
    indices, count = _made_here(value, node, index)
    assert value.data is not None
    samples = tuple(Sample(at, value.data[at].item(), _operands(node, at)) for at in indices)
    return Finding(
        op="input" if node is None else node.op.name,
        shape=value.shape,
        dtype=value.dtype,
        site=site,
        derivative_of=site.op if isinstance(site, DerivativeSite) else None,
        samples=samples,
        count=count,
        name=value.name,
        iterations=() if node is None else loops.iterations.get(node, ()),
    )


def _made_here(value: Value, node: Node | None, index: Index) -> tuple[list[Index], int]:
    """Return the indices of some elements that a node made non-finite, `index` first, and the number of such elements."""
    assert value.data is not None
    originates = np.array(~np.isfinite(value.data))
    if node is not None:
        if not isinstance(node.op, Elementwise):
            return [index], 1
        for operand in node.inputs:
            originates &= np.isfinite(operand.data)  # type: ignore[arg-type]
    originates[index] = False
    others = [tuple(map(int, other)) for other in np.argwhere(originates)[: SHOWN_SAMPLES - 1]]
    return [index, *others], int(originates.sum()) + 1


def _operands(node: Node | None, index: Index) -> tuple[Any, ...]:
    if node is None or not isinstance(node.op, Elementwise):
        return ()
    return tuple(_element(operand, index).item() for operand in node.inputs)
