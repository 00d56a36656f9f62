"""Files that hold a function as data, and `load`, which calls them without the function's Python code.

A file is a magic number with the version of the format, the length of a header, the header (JSON), arrays, and a checksum over all of it.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from gradtape.api.export.closed import TracedCall, closed_graph, parameter_places
from gradtape.api.export.encoding import Decoder, Encoder, Unreadable
from gradtape.errors import ArgumentError, LoweringError, StructureError
from gradtape.ir.graph import Graph
from gradtape.ir.op import NDArray
from gradtape.kinds.operands import as_value
from gradtape.runtime.compile.program import GuardMiss, Program, program_for
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle, fresh_value, is_followed
from gradtape.trace.jit.leaf_kinds import is_dynamic, is_weak
from gradtape.trace.jit.signature import CallArguments, as_input
from gradtape.trace.source.sites import user_site
from gradtape.transforms.call import recorded
from gradtape.trees import flatten_arguments, outline, unflatten

MAGIC: Final = b"gradtape function"
VERSION: Final = 1
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
        self._graph: Graph = decoder.graph(header["graph"])
        self._hidden = [arrays[place] for place in header["hidden"]]
        self._arguments = decoder.value(header["arguments"])
        self._results = decoder.value(header["results"])
        self._places: list[str] = header["places"]
        self._leaves, self._spec = flatten_arguments(self._arguments)
        self._result_spec = flatten_arguments(self._results)[1]
        self._program: Program | None = None
        dynamic = [leaf for leaf in self._leaves if _is_slot(leaf)]
        if len(dynamic) + len(self._hidden) != len(self._graph.inputs) or len(dynamic) != len(self._places):
            raise Unreadable("its arguments are not those of its graph")

    def __repr__(self) -> str:
        inputs = [repr(value.aval) for value in self._graph.inputs[: len(self._places)]]
        listed = ", ".join(f"{place}: {type_}" for place, type_ in zip(self._places, inputs, strict=True))
        return f"<gradtape function {self.__name__}({listed}) from a file>"

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        call = CallArguments(args, kwargs)
        given = self._checked(call)
        if any(is_followed(leaf) for leaf in given):
            if self._graph.guards:
                raise ArgumentError(
                    f"{self.__name__} looks at values, and no tape can follow it",
                    where=user_site(),
                    remedy="export its gradient",
                )
            operands = [
                leaf.value if isinstance(leaf, Handle) else as_value(leaf, "an argument")
                for leaf in [*given, *self._hidden]
            ]
            values, _ = recorded(self._graph, operands)
            return self._nested([Array(fresh_value(value)) for value in values])
        if self._program is None:
            self._program = program_for(self._graph)
        try:
            results = self._program.run([*map(as_input, given), *self._hidden])
        except GuardMiss:
            raise ArgumentError(
                f"{self.__name__} was exported for values that take another way than these",
                where=user_site(),
                remedy="export it with np.where or gt.cond in place of the branch",
            ) from None
        return self._nested([array if array.ndim else array[()] for array in results])

    def _nested(self, leaves: Sequence[Any]) -> Any:
        return unflatten(self._result_spec, leaves)

    def _checked(self, call: CallArguments) -> list[Any]:
        """Return the leaves that are inputs; raise an error that names the argument which does not fit."""
        if call.spec != self._spec:
            raise StructureError(
                f"{self.__name__} takes the arguments {outline(self._spec)}; got {outline(call.spec)}",
                where=user_site(),
                remedy="pass the same containers",
            )
        given: list[Any] = []
        for leaf, wanted in zip(call.leaves, self._leaves, strict=True):
            if not _is_slot(wanted):
                if leaf != wanted:
                    raise _unfit(self.__name__, "a static argument", repr(leaf), repr(wanted))
                continue
            number = len(given)
            value = self._graph.inputs[number]
            array = leaf.value if isinstance(leaf, Handle) else as_input(leaf) if is_dynamic(leaf) else None
            fits = array is not None and (array.dtype, array.shape) == (value.dtype, value.shape)
            if not fits or (is_weak(leaf) != value.aval.weak and value.aval.weak):
                shown = type(leaf).__name__ if array is None else f"{array.dtype.name}{list(array.shape)}"
                raise _unfit(
                    self.__name__, self._places[number], shown, f"{value.dtype.name}{list(value.shape)}"
                )
            given.append(leaf)
        return given


def _unfit(name: str, place: str, given: str, wanted: str) -> ArgumentError:
    return ArgumentError(
        f"{name}: {place} is {given}, and the function was exported for {wanted}",
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
    graph, encoder, call = closed_graph(traced), Encoder(), traced.call
    leaves = list(call.leaves)
    for position in call.positions:
        leaves[position] = _SLOT
    spec = traced.specialisation.spec
    header = {
        "gradtape": version,
        "name": name,
        "places": parameter_places(traced),
        "graph": encoder.graph(graph),
        "arguments": encoder.value(call.with_leaves(leaves)),
        "results": encoder.value(unflatten(spec, range(spec.num_leaves))),
        "hidden": [encoder.value(array)["array"] for array in traced.hidden],
    }
    header["arrays"] = [[array.dtype.str, list(array.shape)] for array in encoder.arrays]
    text = json.dumps(header).encode()
    parts = [MAGIC, VERSION.to_bytes(2, "little"), len(text).to_bytes(8, "little"), text]
    content = b"".join([*parts, *[array.tobytes() for array in encoder.arrays]])
    return content + hashlib.blake2b(content, digest_size=DIGEST).digest()


def load(path: str | os.PathLike[str]) -> Loaded:
    """Read a function that `export` has written to a ``.gradtape`` file.

    Parameters
    ----------
    path : path-like
        The file. It holds the graph of the function as data, with a checksum: no Python code is needed or run, and the machine code is made
        (or found in the disk cache) at the first call. The checksum finds damage; it does not say who made the file.

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
    head = len(MAGIC)
    if not data.startswith(MAGIC) or len(data) < head + 10 + DIGEST:
        raise _refusal(file, "is not a file of gt.export", 'gt.export(f, ..., path="f.gradtape") writes one')
    version = int.from_bytes(data[head : head + 2], "little")
    if version > VERSION:
        raise _refusal(
            file,
            f"has the format {version}, and this gradtape reads up to {VERSION}",
            "install a newer gradtape",
        )
    content, checksum = data[:-DIGEST], data[-DIGEST:]
    if hashlib.blake2b(content, digest_size=DIGEST).digest() != checksum:
        raise _refusal(file, "is damaged: its checksum is wrong", "copy it once more, or export it again")
    start = head + 10
    end = start + int.from_bytes(content[head + 2 : start], "little")
    try:
        header = json.loads(content[start:end])
        return Loaded(header, _arrays(header["arrays"], content, end))
    except (Unreadable, LoweringError, ValueError, KeyError, TypeError) as error:
        raise _refusal(
            file, f"cannot be read by this version of gradtape: {error}", "export it again with this version"
        ) from error


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


def _refusal(file: Path, what: str, remedy: str) -> ArgumentError:
    return ArgumentError(f"load: {file.name!r} {what}", where=user_site(), remedy=remedy)
