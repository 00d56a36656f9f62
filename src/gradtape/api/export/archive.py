"""Files that hold a function as data, and `load`, which calls them without the function's Python code.

A file is a magic number with the version of the format, the length of a header, the header (JSON), arrays, and a checksum over all of it.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from gradtape.api.export.cells import Cell
from gradtape.api.export.closed import (
    Traceable,
    TracedCall,
    closed_graph,
    parameter_places,
    refuse_other_order,
    trace_call,
)
from gradtape.api.export.encoding import Decoder, Encoder, Unreadable
from gradtape.api.export.fits import Point, evaluated
from gradtape.api.export.specs import Spec
from gradtape.config import config
from gradtape.errors import ArgumentError, LoweringError, StructureError
from gradtape.habits import suggests_keywords
from gradtape.ir.graph import Graph
from gradtape.ir.op import NDArray
from gradtape.ir.types import aval
from gradtape.kinds.operands import as_value
from gradtape.lru import LRU
from gradtape.records import value_record
from gradtape.runtime.compile.program import GuardMiss, Program, program_for
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle, fresh_value, is_recorded
from gradtape.trace.jit.dims import Dim
from gradtape.trace.jit.leaf_kinds import is_dynamic, is_weak
from gradtape.trace.jit.signature import CallArguments, as_input
from gradtape.trace.source.sites import user_site
from gradtape.transforms.call import recorded
from gradtape.trees import flatten_arguments, outline, tree_map, unflatten

MAGIC: Final = b"gradtape function"
VERSION: Final = 3
"""The newest format: 2 has lengths that vary, 3 more formulas of them; a file without them has the format 1, which older versions read."""

DIGEST: Final = 32


class Loaded:
    """A function that was read from a file; made by `load`.

    It computes as the function of which the file was made, for the same shapes and dtypes, compiled for this machine. Tapes and transforms
    see through it: `gradtape.grad` of it, for instance.

    Attributes
    ----------
    __name__ : str
        The name of the function of which the file was made.
    """

    def __init__(self, header: dict[str, Any], arrays: Sequence[NDArray]) -> None:
        decoder = Decoder(arrays)
        self.__name__: str = str(header["name"])
        self._dims = [Dim(name, min=low, max=high) for name, low, high in header.get("lengths", ())]
        self._cells = [_StoredCell(*cell) for cell in header.get("cells", ())]
        self._header = header
        self._arrays = arrays
        self._programs: LRU[Point, tuple[Graph, Program]] = LRU(lambda: config.memory_cache)
        self._graph: Graph | None = None if self._dims else decoder.graph(header["graph"])
        self._types: list[_Parameter] = (
            [_Parameter(np.dtype(dtype), tuple(shape), weak) for dtype, shape, weak in header["types"]]
            if self._graph is None
            else [
                _Parameter(v.dtype, v.shape, v.aval.weak) for v in self._graph.inputs[: len(header["places"])]
            ]
        )
        self._hidden = [arrays[position] for position in header["hidden"]]
        self._arguments = decoder.value(header["arguments"])
        self._results = decoder.value(header["results"])
        self._places: list[str] = header["places"]
        self._made_for = CallArguments(*self._arguments)
        self._leaves, self._spec = flatten_arguments(self._arguments)
        self._result_spec = flatten_arguments(self._results)[1]
        dynamic = [leaf for leaf in self._leaves if _is_slot(leaf)]
        input_count = len(self._types) + len(self._hidden)
        if not len(dynamic) == len(self._places) == len(self._types) or (
            self._graph is not None and len(self._graph.inputs) != input_count
        ):
            raise Unreadable("its arguments are not those of its graph")

    def __repr__(self) -> str:
        listed = ", ".join(f"{path}: {type_}" for path, type_ in zip(self._places, self._types, strict=True))
        return f"<gradtape function {self.__name__}({listed}) from a file>"

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle what the file holds: the program is made, or found in the disk cache, where it arrives."""
        return Loaded, (self._header, self._arrays)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = CallArguments(args, kwargs)
        inputs, point = self._checked(call)
        graph, program = self._at(point)
        if any(is_recorded(leaf) for leaf in inputs):
            if graph.guards:
                raise ArgumentError(
                    f"{self.__name__} branches on values, so a tape cannot record it",
                    where=user_site(),
                    remedy="export its gradient",
                )
            operands = [
                leaf.value if isinstance(leaf, Handle) else as_value(leaf, "an argument")
                for leaf in [*inputs, *self._hidden]
            ]
            values, _ = recorded(graph, operands)
            return self._nested([Array(fresh_value(value)) for value in values])
        try:
            results = program.run([*map(as_input, inputs), *self._hidden])
        except GuardMiss:
            raise ArgumentError(
                f"{self.__name__} was exported for values that take other branches than these",
                where=user_site(),
                remedy="export it with np.where or gt.cond instead of the branch",
            ) from None
        return self._nested([array if array.ndim else array[()] for array in results])

    def _at(self, point: Point) -> tuple[Graph, Program]:
        """Return the graph and the program for lengths."""
        graph_and_program = self._programs.get(point)
        if graph_and_program is None:
            graph = self._graph_at(point) if self._graph is None else self._graph
            graph_and_program = self._programs[point] = graph, program_for(graph)
        return graph_and_program

    def _graph_at(self, point: Point) -> Graph:
        lengths = ", ".join([f"{dim.name} = {n}" for dim, n in zip(self._dims, point, strict=True)])
        cell = next(cell for cell in self._cells if cell.holds(point))
        if cell.failure is not None:
            raise ArgumentError(
                f"{self.__name__} has no result for {lengths}",
                why=f"it failed when it was exported: {cell.failure}",
                where=user_site(),
                remedy="pass other lengths",
            )
        data = at_lengths(cell.graph, tuple([point[k] for k in cell.free]))
        try:
            return Decoder([self._arrays[position] for position in cell.places]).graph(data)
        except Unreadable as error:
            raise ArgumentError(
                f"{self.__name__} cannot be made for {lengths}: {error}",
                where=user_site(),
                remedy="export it again with this version",
            ) from error

    def _nested(self, leaves: Sequence[Any]) -> Any:
        return unflatten(self._result_spec, leaves)

    def _checked(self, call: CallArguments) -> tuple[list[Any], Point]:
        """Return the leaves that are inputs, and the lengths; raise an error that names the argument which does not fit."""
        if call.spec != self._spec:
            raise StructureError(
                f"{self.__name__} takes the arguments {outline(self._spec)}; got {outline(call.spec)}",
                where=user_site(),
                remedy="pass the same containers",
            )
        refuse_other_order(self.__name__, call, self._made_for)
        inputs: list[Any] = []
        lengths: dict[str, int] = {}
        for leaf, expected in zip(call.leaves, self._leaves, strict=True):
            if not _is_slot(expected):
                if leaf != expected:
                    raise _unfit(self.__name__, "a static argument", repr(leaf), repr(expected))
                continue
            number = len(inputs)
            wanted_type = self._types[number]
            array = leaf.value if isinstance(leaf, Handle) else as_input(leaf) if is_dynamic(leaf) else None
            fits = (
                array is not None
                and array.dtype == wanted_type.dtype
                and wanted_type.meets(array.shape, lengths)
            )
            if not fits or (is_weak(leaf) != wanted_type.weak and wanted_type.weak):
                shown = type(leaf).__name__ if array is None else f"{array.dtype.name}{list(array.shape)}"
                known_lengths = {
                    name: length for name, length in lengths.items() if name in wanted_type.shape
                }
                raise _unfit(self.__name__, self._places[number], shown, wanted_type.text(known_lengths))
            inputs.append(leaf)
        point = tuple([lengths[dim.name] for dim in self._dims])
        for dim, length in zip(self._dims, point, strict=True):
            if length < dim.min or (dim.max is not None and length > dim.max):
                raise ArgumentError(
                    f"{self.__name__}: {dim.name} is {length}, and the function was exported for {dim!r}",
                    where=user_site(),
                    remedy="pass arrays of such a length, or export the function with other bounds",
                )
        return inputs, point


@value_record
class _Parameter:
    """The dtype of a parameter, its extents (names stand for lengths that vary), and whether it is a number of Python's."""

    dtype: np.dtype[Any]
    shape: tuple[int | str, ...]
    weak: bool

    def __repr__(self) -> str:
        if all(isinstance(extent, int) for extent in self.shape):
            return repr(aval(self.shape, self.dtype, self.weak))
        return f"{aval((), self.dtype)!r}"[:-2] + f"[{','.join(map(str, self.shape))}]"

    def text(self, lengths: dict[str, int]) -> str:
        """Return what errors say about it."""
        listed = ", ".join(map(str, self.shape))
        lengths_text = " and ".join([f"{name} = {length}" for name, length in lengths.items()])
        return f"{self.dtype.name}[{listed}]" + f" with {lengths_text}" * bool(lengths_text)

    def meets(self, shape: tuple[int, ...], lengths: dict[str, int]) -> bool:
        """Return whether an array has such extents; enter the lengths that are met for the first time."""
        if len(shape) != len(self.shape):
            return False
        return all(
            extent == expected
            if isinstance(expected, int)
            else lengths.setdefault(expected, extent) == extent
            for extent, expected in zip(shape, self.shape, strict=True)
        )


class _StoredCell:
    """The graph for a box of lengths, or why there is none."""

    def __init__(self, ranges: Any, graph: Any, places: Sequence[int], failure: str | None) -> None:
        self.cell = Cell(tuple([(low, high) for low, high in ranges]), [], [])
        self.graph = graph
        self.places = places
        self.failure = failure

    @property
    def free(self) -> list[int]:
        return self.cell.free

    def holds(self, point: Point) -> bool:
        return self.cell.holds(point)


def _unfit(name: str, path: str, shown: str, expected: str) -> ArgumentError:
    return ArgumentError(
        f"{name}: {path} is {shown}, and the function was exported for {expected}",
        where=user_site(),
        remedy="pass such an argument, or export the function for this one",
    )


_SLOT: Final = "\0array"
"""Stands for an array or a number among the arguments."""


def _is_slot(leaf: Any) -> bool:
    return type(leaf) is str and leaf == _SLOT


def pack_function(traced: TracedCall, name: str, version: str) -> bytes:
    """Return the file of a traced call.

    Raises
    ------
    LoweringError
        For operations that are functions of this process, and for containers of the user's classes.
    """
    encoder = Encoder()
    graph = encoder.graph(closed_graph(traced))
    return packed_file({**signature_of(traced, name, version, encoder), "graph": graph}, encoder, 1)


def signature_of(traced: TracedCall, name: str, version: str, encoder: Encoder) -> dict[str, Any]:
    """Return what a file says besides the graph."""
    call = traced.call
    leaves = list(call.leaves)
    for position in call.positions:
        leaves[position] = _SLOT
    spec = traced.specialisation.spec
    return {
        "gradtape": version,
        "name": name,
        "places": parameter_places(traced),
        "arguments": encoder.value(call.with_leaves(leaves)),
        "results": encoder.value(unflatten(spec, range(spec.num_leaves))),
        "hidden": [encoder.value(array)["array"] for array in traced.hidden],
    }


def at_lengths(data: Any, point: Point) -> Any:
    """Return data with numbers in place of formulas."""
    if isinstance(data, dict):
        if "sized" in data:
            return evaluated(data, point)
        return {key: at_lengths(item, point) for key, item in data.items()}
    return [at_lengths(item, point) for item in data] if isinstance(data, list) else data


def packed_file(header: dict[str, Any], encoder: Encoder, version: int) -> bytes:
    header["arrays"] = [[array.dtype.str, list(array.shape)] for array in encoder.arrays]
    text = json.dumps(header).encode()
    parts = [MAGIC, version.to_bytes(2, "little"), len(text).to_bytes(8, "little"), text]
    content = b"".join([*parts, *[array.tobytes() for array in encoder.arrays]])
    return content + hashlib.blake2b(content, digest_size=DIGEST).digest()


@suggests_keywords
def load(path: str | os.PathLike[str]) -> Loaded:
    """Read a function that `export` has written to a ``.gradtape`` file.

    Parameters
    ----------
    path : path-like
        The file. It holds the graph of the function as data, with a checksum. No Python code is needed or run; the graph is compiled
        (or its machine code is loaded from the disk cache) at the first call. The checksum detects damage; it does not authenticate the
        file.

    Returns
    -------
    callable
        Takes arguments of the structure, shapes and dtypes with which the function was exported.

    Raises
    ------
    ArgumentError
        If there is no such file, it was not made by `export`, it is damaged, or it was made by a newer version of gradtape.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, gradtape as gt
    >>> path = f"{tempfile.mkdtemp()}/loss.gradtape"
    >>> files = gt.export(lambda w: np.sum(w**2), gt.spec(2), path=path)
    >>> loss = gt.load(path)
    >>> float(loss(np.array([3.0, 4.0]))), gt.grad(loss)(np.array([3.0, 4.0]))
    (25.0, array([6., 8.]))
    """
    file = Path(path)
    try:
        data = file.read_bytes()
    except OSError as error:
        raise ArgumentError(
            f"load: {str(file)!r} cannot be read: {error.strerror}", where=user_site()
        ) from None
    return _loaded(data, repr(file.name))


def _loaded(data: bytes, name: str) -> Loaded:
    """Return the function of a file with a name, for errors."""
    head = len(MAGIC)
    if not data.startswith(MAGIC) or len(data) < head + 10 + DIGEST:
        raise _refusal(name, "is not a file of gt.export", 'gt.export(f, ..., path="f.gradtape") writes one')
    version = int.from_bytes(data[head : head + 2], "little")
    if version > VERSION:
        raise _refusal(
            name,
            f"has the format {version}, and this gradtape reads up to {VERSION}",
            "install a newer gradtape",
        )
    content, checksum = data[:-DIGEST], data[-DIGEST:]
    if hashlib.blake2b(content, digest_size=DIGEST).digest() != checksum:
        raise _refusal(name, "is damaged: its checksum is wrong", "copy it again, or export it again")
    start = head + 10
    end = start + int.from_bytes(content[head + 2 : start], "little")
    try:
        header = json.loads(content[start:end])
        return Loaded(header, _arrays(header["arrays"], content, end))
    except (Unreadable, LoweringError, ValueError, KeyError, TypeError) as error:
        raise _refusal(
            name, f"cannot be read by this version of gradtape: {error}", "export it again with this version"
        ) from error


def pickled_program(function: Traceable, args: tuple[Any, ...]) -> tuple[Any, ...]:
    """Return how a function is pickled that belongs to this process: as its program, which is what `load` returns where it arrives.

    Parameters
    ----------
    function : Traceable
        NumPy code that closes over values, as `jit` returns it.
    args : tuple
        Its arguments, nests with values in place of arrays: their types alone count.
    """
    specs = tree_map(lambda value: Spec(value.shape, value.dtype), args)
    return pickled_trace(trace_call(function, specs, {}))


def pickled_trace(traced: TracedCall) -> tuple[Any, ...]:
    """Return how the trace of a call is pickled: as the file of it."""
    return unpacked, (pack_function(traced, traced.name, own_version()),)


def own_version() -> str:
    """Return the version of gradtape."""
    return str(sys.modules[__name__.partition(".")[0]].__version__)


def unpacked(data: bytes) -> Loaded:
    """Return the function of a file."""
    return _loaded(data, "a pickled function")


def _arrays(forms: Sequence[Any], content: bytes, at: int) -> list[NDArray]:
    arrays = []
    for dtype_text, shape in forms:
        dtype = np.dtype(dtype_text)
        if dtype.kind not in "biufc":
            raise Unreadable(f"it holds arrays of {dtype}")
        array = np.zeros(shape, dtype)
        flat = np.frombuffer(content, dtype, array.size, at)
        array.reshape(-1)[...] = flat
        at += array.nbytes
        arrays.append(array)
    return arrays


def _refusal(name: str, problem: str, remedy: str) -> ArgumentError:
    return ArgumentError(f"load: {name} {problem}", where=user_site(), remedy=remedy)
