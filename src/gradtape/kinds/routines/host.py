"""Functions of the user's that kernels call back: what stays Python inside a compiled function."""

from __future__ import annotations

import functools
import uuid
from collections.abc import Callable, Hashable, Sequence
from typing import Any, Final, NoReturn

import numpy as np

from gradtape.errors import NotDifferentiableError
from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import Aval, Shape
from gradtape.kinds.routines.callback import Callback, callback_row

Function = Callable[..., tuple[NDArray, ...]]

FUNCTIONS: Final[dict[str, Function]] = {}
"""The functions that kernels of this process call, by key. A kernel may live as long as the process, and so do they."""

_keys: Final[dict[Hashable, str]] = {}
"""The keys of functions that have an identity."""

Types = tuple[tuple[Shape, str], ...]


def enter_function(function: Function, identity: Hashable = None) -> str:
    """Register a function of arrays that returns a tuple of arrays, and return its key: no other process has it, whose kernels the disk
    cache may hold.

    Parameters
    ----------
    function : callable
        The function.
    identity : hashable, optional
        Equal for functions that compute the same. The first of them stands for all, so that programs which call them share their kernels.
        What its ids belong to must live as long as `function`.
    """
    key = uuid.uuid4().hex
    if identity is not None:
        key = _keys.setdefault(identity, key)
    FUNCTIONS.setdefault(key, function)
    return key


@functools.cache
def _row(ranks: tuple[int, ...], takes_stacks: bool) -> Callback:
    name = "_".join(("host_function_of_stacks" if takes_stacks else "host_function", *map(str, ranks)))

    def refuse(outs: Sequence[Value], inputs: Sequence[Value], params: dict[str, Any]) -> NoReturn:
        raise NotDifferentiableError(
            "gt.callback has no derivative",
            where=outs[0].node.site if outs[0].node is not None else None,
            why="it is a Python function, which is called with numbers",
            remedy="pass gt.stop_gradient(x), or give it a derivative with gt.custom_vjp",
        )

    return callback_row(
        name,
        ranks=ranks,
        shapes=lambda *shapes, key, types: tuple(shape for shape, _ in types),
        dtypes=lambda *dtypes, key, types: tuple(np.dtype(char) for _, char in types),
        evaluate=lambda *arrays, key, types: FUNCTIONS[key](*arrays),
        tangent=refuse,
        samples=(),
        takes_stacks=takes_stacks,
        is_local=True,
    )


def call_host(
    key: str, results: Sequence[Aval], inputs: Sequence[Value], *, takes_stacks: bool = False
) -> tuple[Value, ...]:
    """Return the results, of these types, of a registered function.

    Parameters
    ----------
    key : str
        What `enter_function` returned.
    results : sequence of Aval
        The types of its results.
    inputs : sequence of Value
        Its arguments. It gets ndarrays.
    takes_stacks : bool
        Whether it is called once for all elements of mapped axes, which are in front of those of each array; else once for each.
    """
    types = tuple((type_.shape, type_.dtype.char) for type_ in results)
    row = _row(tuple([value.ndim for value in inputs]), takes_stacks)
    return row.results(*inputs, key=key, types=types)
