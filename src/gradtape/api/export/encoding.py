"""Graphs as JSON data, and back: input is checked, and no code is made from it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np

from gradtape.errors import GradtapeError, LoweringError, kind_of
from gradtape.ir.body import Body
from gradtape.ir.builder import emit_all
from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.ir.op import NDArray, Op
from gradtape.ir.types import aval
from gradtape.kinds.control import barrier
from gradtape.kinds.registry import ROWS
from gradtape.kinds.routines.callback import calls_locally
from gradtape.ops.numpy.linalg.factors import QRResult, SVDResult
from gradtape.ops.numpy.linalg.solve import EighResult, SlogdetResult
from gradtape.passes.rewrite import closed
from gradtape.passes.simplify.annotations import inline_custom_calls
from gradtape.transforms.loops.ops import repeat, scan, switch, while_loop
from gradtape.transforms.procedures.loop_pullback import unfold_loops

STRUCTURES: Final[dict[str, Op]] = {op.name: op for op in (barrier, repeat, scan, switch, while_loop)}
"""The operations that are no rows."""


NAMED: Final[dict[str, Any]] = {one.__name__: one for one in (EighResult, QRResult, SlogdetResult, SVDResult)}
"""The named tuples of `numpy.linalg`."""


class Unreadable(ValueError):
    """Data that describe no graph."""


class Encoder:
    """Writes graphs; their arrays are in a list.

    Attributes
    ----------
    arrays : list of ndarray
    """

    shares_literals = True
    """Whether operands that are one literal are one in the file."""

    def __init__(self) -> None:
        self.arrays: list[NDArray] = []

    def graph(self, graph: Graph) -> dict[str, Any]:
        """Return a graph; derivatives that the user gave are left out, and their computations kept."""
        return self._nodes(closed(unfold_loops(inline_custom_calls(graph))))

    def _nodes(self, graph: Graph) -> dict[str, Any]:
        numbers: dict[Value, int] = {value: number for number, value in enumerate(graph.inputs)}
        count, leaves, nodes = len(graph.inputs), [], []

        def number_of(value: Value) -> int:
            nonlocal count
            if value not in numbers or (isinstance(value, Literal) and not self.shares_literals):
                leaves.append([count, isinstance(value, Literal), value.aval.weak, self._array(value.data)])
                numbers[value] = count
                count += 1
            return numbers[value]

        for node in graph.nodes:
            operands = [number_of(value) for value in node.inputs]
            nodes.append([_name(node), operands, self.value(node.params), count])
            for out in node.outs:
                numbers[out] = count
                count += 1
        return {
            "name": graph.name,
            "inputs": [[value.dtype.str, list(value.shape), value.aval.weak] for value in graph.inputs],
            "leaves": leaves,
            "nodes": nodes,
            "outputs": [number_of(value) for value in graph.outputs],
            "guards": [[number_of(value), expected] for value, expected in graph.guards],
        }

    def _array(self, array: Any) -> Any:
        """Return the place of an array in the list, or what describes it."""
        self.arrays.append(np.ascontiguousarray(array).reshape(np.shape(array)))
        return len(self.arrays) - 1

    def value(self, value: Any) -> Any:
        """Return a parameter, or containers of arguments and results."""
        if value is None or type(value) in (bool, int, str):
            return value
        if type(value) in (float, complex):
            return {"number": self._array(value)}
        if type(value) in (tuple, list):
            return {type(value).__name__: [self.value(item) for item in value]}
        if type(value) in NAMED.values():
            return {"named": [type(value).__name__, *[self.value(item) for item in value]]}
        if type(value) is dict:
            return {"dict": [[self.value(key), self.value(item)] for key, item in value.items()]}
        if isinstance(value, np.dtype):
            return {"dtype": value.str}
        if isinstance(value, np.ndarray):
            return {"array": self._array(value)}
        if isinstance(value, Body):
            return {"body": self._nodes(value)}
        raise _refused(
            kind_of(value),
            "the file holds arrays, numbers, strings, and plain tuples, lists and dicts",
        )


def _name(node: Node) -> str:
    registered = ROWS.get(node.op.name, STRUCTURES.get(node.op.name))
    if registered is not node.op or calls_locally(node):
        raise _refused(node.op.name, "it is a function of this process, or was compiled from its source")
    return node.op.name


def _refused(description: str, why: str) -> LoweringError:
    return LoweringError(
        f"{description} cannot be written to a .gradtape file",
        why=why,
        remedy="pickle the function that gt.jit returned, for processes that have its code, or compute this outside it",
    )


class VaryingEncoder(Encoder):
    """Writes graphs that are compared with those of other lengths: numbers are a part of the data."""

    shares_literals = False  # equal numbers are one literal or several, depending on what was traced before

    def _array(self, array: Any) -> Any:
        array = np.asarray(array)
        if array.dtype.kind in "biuf" and not array.ndim:
            return {"full": [array.dtype.str, [], array.item()]}
        return super()._array(array)


class Decoder:
    """Reads graphs; each operation infers its types, so that what does not fit is found."""

    def __init__(self, arrays: Sequence[NDArray]) -> None:
        self.arrays = arrays

    def graph(self, data: Any, kind: type[Graph] = Graph) -> Graph:
        """Return a graph.

        Raises
        ------
        Unreadable
            For data that describe none.
        """
        try:
            return self._graph(data, kind)
        except (
            KeyError,
            IndexError,
            TypeError,
            ValueError,
            AttributeError,
            AssertionError,
            GradtapeError,
        ) as error:
            raise Unreadable(str(error)) from error

    def _graph(self, data: Any, kind: type[Graph]) -> Graph:
        inputs = [Value(aval(tuple(shape), np.dtype(dtype), weak)) for dtype, shape, weak in data["inputs"]]
        values: dict[int, Value] = dict(enumerate(inputs))
        for number, is_literal, weak, reference in data["leaves"]:
            array = self._array(reference)
            kind_of_leaf = Literal if is_literal else Value
            values[number] = kind_of_leaf(aval(array.shape, array.dtype, weak), data=array)
        nodes = []
        for name, operands, params, first in data["nodes"]:
            op = ROWS[name] if name in ROWS else STRUCTURES[name]
            outs = emit_all(op, [values[number] for number in operands], **self.value(params))
            values.update(enumerate(outs, first))
            node = outs[0].node
            assert node is not None
            nodes.append(node)
        outputs = [values[number] for number in data["outputs"]]
        if kind is Body:
            return Body(inputs, nodes, outputs, data["name"])
        return Graph(
            inputs,
            nodes,
            outputs,
            data["name"],
            [(values[number], expected) for number, expected in data["guards"]],
        )

    def _array(self, reference: Any) -> NDArray:
        if isinstance(reference, int):
            return self.arrays[reference]
        ((kind, (dtype, extents, *numbers)),) = reference.items()
        array_dtype = np.dtype(dtype)
        if array_dtype.kind not in "biuf":
            raise Unreadable(f"it holds arrays of {array_dtype}")
        if kind == "full":
            return np.full(tuple(extents), numbers[0], array_dtype)
        if kind == "diagonal":  # this and the last one are in files of the format 2 alone
            filled = np.full((extents, extents), numbers[1], array_dtype)
            np.fill_diagonal(filled, numbers[0])
            return filled
        with np.errstate(all="ignore"):
            spaced: NDArray = np.arange(extents).astype(array_dtype) * array_dtype.type(
                numbers[1]
            ) + array_dtype.type(numbers[0])
        return spaced

    def value(self, data: Any) -> Any:
        """Return a parameter, or containers."""
        if data is None or type(data) in (bool, int, str):
            return data
        ((kind, content),) = data.items()
        if kind in ("tuple", "list"):
            items = [self.value(item) for item in content]
            return tuple(items) if kind == "tuple" else items
        if kind == "named":
            return NAMED[content[0]](*[self.value(item) for item in content[1:]])
        if kind == "dict":
            return {self.value(key): self.value(item) for key, item in content}
        if kind == "dtype":
            return np.dtype(content)
        if kind == "array":
            return self._array(content)
        if kind == "number":
            return self._array(content).item()
        if kind == "body":
            return self.graph(content, Body)
        raise Unreadable(f"it holds {kind!r}")
