"""Calls that run op by op: the user's function as it stands, on pending arrays."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.errors import ConcretizationError
from gradtape.ir.graph import Literal, Value
from gradtape.ir.op import NDArray
from gradtape.kinds.operands import as_value
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle, fresh_value, is_recorded
from gradtape.trace.array.layout import layout_of_operand, remember_memory
from gradtape.trace.dispatch.call_errors import call_error
from gradtape.trace.jit.aliases import merged, partners, refusal, refuse_read_only
from gradtape.trace.jit.captures.arguments import argument_copies, with_repeated, write_through
from gradtape.trace.jit.leaf_kinds import is_dynamic, is_handle
from gradtape.trace.jit.side_effects import settle
from gradtape.trace.jit.signature import CallArguments, layout_of_input
from gradtape.trace.lazy.force import force
from gradtape.trace.source.contexts import Scope, inside
from gradtape.trace.translation.mode import run_function
from gradtape.trees import Leaves, flatten


def run_op_by_op(
    function: Callable[..., Any],
    name: str,
    call: CallArguments,
    *,
    keep_arrays: bool = False,
    copies: bool = False,
) -> Any:
    """Run a function as it stands on pending arrays, and compute the results.

    Parameters
    ----------
    function : callable
        The user's.
    name : str
        For messages.
    call : CallArguments
        The arguments.
    keep_arrays : bool
        Whether results stay Arrays in any case, and not only where a tape or trace around the call records them.
    copies : bool
        Whether the function gets copies of Arrays, as compiled functions do, and not these themselves.
    """
    leaves = [_as_recorded(leaf) for leaf in call.leaves]
    if copies:
        leaves = [_copied(leaf) if type(leaf) is Array else leaf for leaf in leaves]
    for position, first in merged(call.leaves).items():
        leaves[position] = leaves[first]
    before = [leaf.value if isinstance(leaf, Handle) else None for leaf in leaves]
    args, kwargs = with_repeated(call.given, call.with_leaves(leaves))
    containers = argument_copies(call.given, (args, kwargs), "the arguments")
    with inside(Scope()):
        results = Leaves(*flatten(called(function, args, kwargs)), is_handle)
    written = [
        position
        for position, leaf in enumerate(leaves)
        if isinstance(leaf, Handle) and leaf.value is not before[position]
    ]
    refuse_read_only(call.leaves, leaves, written)
    for position, other in partners(call.leaves, written):
        if leaves[position] is not leaves[other]:
            raise refusal(name, call.name_of(position), call.name_of(other))
    for container in write_through(containers, leaves, call.leaves):
        settle(container)
    arrays = results.traced()
    if not (keep_arrays or any(map(is_recorded, arrays))):
        arrays = list(map(owned_array, force([array.value for array in arrays])))
    return results.rebuild(arrays)


def called(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return what a user's function returns; explain arguments that do not fit."""
    try:
        return run_function(function, args, kwargs)
    except (TypeError, AttributeError) as error:
        mistake = call_error(error, function, args, kwargs)
        if mistake is None:
            raise
        raise mistake from None


def called_on_traced(function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Do what `called` does, with arguments that have no numbers."""
    try:
        return called(function, args, kwargs)
    except ValueError as error:
        # NumPy replaces the error of float(x) by "setting an array element with a sequence".
        if isinstance(error.__cause__, ConcretizationError):
            raise error.__cause__ from None
        raise


def _as_recorded(leaf: Any) -> Any:
    """Return a leaf as it enters a recording: arrays and numbers become Arrays, so that writes never reach the caller's."""
    if not is_dynamic(leaf) or isinstance(leaf, Handle):
        return leaf
    value = as_value(leaf, "an argument")
    # A literal has no node with respect to which a gradient could be taken.
    array = Array(Value(value.aval, data=value.data) if isinstance(value, Literal) else value)
    if issubclass(type(leaf), np.ndarray):
        array._contiguous = layout_of_operand(leaf)
        remember_memory(array, leaf)
    return array


def _copied(leaf: Array) -> Array:
    """Return an Array of its own with the content of another one."""
    copy = Array(fresh_value(leaf.value))
    copy._contiguous = layout_of_input(leaf)
    remember_memory(copy, leaf)
    return copy


def owned_array(array: NDArray) -> Any:
    """Return a computed array as the caller's own; rank 0 becomes a NumPy scalar, as NumPy's functions return it."""
    return np.array(array) if array.ndim else array[()]
