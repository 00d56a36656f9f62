"""Private functions of SciPy that apply functions to the elements that fulfil a condition."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Value
from gradtape.kinds.arguments import as_array
from gradtape.kinds.operands import broadcast_shapes, broadcast_to
from gradtape.kinds.registry import HOOKS, borrows
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.shape import reshape


def _is_known(condition: Any, truth: bool) -> bool:
    if isinstance(condition, Value):
        return False
    return bool(np.all(np.asarray(condition, np.bool_) == truth))


@borrows("scipy._lib.array_api_extra._lib._funcs:apply_where")
@borrows("scipy._lib.array_api_extra._agnostic._elementwise:apply_where")
def apply_where(
    cond: Any,
    args: Any,
    f1: Callable[..., Any],
    f2: Callable[..., Any] | None = None,
    *,
    fill_value: Any = None,
    xp: Any = None,
) -> Value:
    """Follow the function: both functions see all elements, and the condition selects."""
    operands = args if isinstance(args, tuple) else (args,)
    shape = broadcast_shapes([_shape(item) for item in (cond, *operands)])
    operands = _with_axis(operands)
    if _is_known(cond, True):
        result = as_array(HOOKS.call(f1, *operands))
    else:
        other = fill_value if f2 is None else HOOKS.call(f2, *operands)
        if _is_known(cond, False):
            result = as_array(other)
        else:  # a Python number does not decide the dtype
            result = where(as_array(cond), HOOKS.call(f1, *operands), other)
    return _in_shape(result, shape)


def _with_axis(operands: Sequence[Any]) -> tuple[Any, ...]:
    """Return operands with an axis at least, as elements that a condition selects have: functions may index it."""
    return tuple(
        [
            item
            if _shape(item)
            else (reshape(item, (1,)) if isinstance(item, Value) else np.reshape(item, (1,)))
            for item in operands
        ]
    )


def _in_shape(result: Value, shape: tuple[int, ...]) -> Value:
    return broadcast_to(result, shape) if shape or not result.shape else reshape(result, ())


def _shape(operand: Any) -> tuple[int, ...]:
    return operand.shape if isinstance(operand, Value) else np.shape(operand)


@borrows("scipy._lib._util:_lazyselect")
def lazyselect(
    condlist: Sequence[Any], choicelist: Sequence[Callable[..., Any]], arrays: Sequence[Any], default: Any = 0
) -> Value:
    """Follow the function: the last condition that holds selects."""
    shape = broadcast_shapes([_shape(item) for item in arrays])
    result = as_array(default)
    operands = _with_axis(arrays)
    for condition, choice in zip(condlist, choicelist, strict=True):
        if not _is_known(condition, False):
            result = where(as_array(condition), HOOKS.call(choice, *operands), result)
    return _in_shape(result, shape)
