"""Creation of Arrays, and `stop_gradient`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, overload

import numpy as np

from gradtape.containers.quantities import is_quantity
from gradtape.errors import ArgumentError
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Value
from gradtape.kinds.operands import as_value, number_dtype
from gradtape.kinds.refusals import refusal
from gradtape.ops.core.elementwise import cast
from gradtape.trace.array.array import Array, wrap_value
from gradtape.trace.array.handle import Handle, unwrap
from gradtape.trace.array.layout import layout_of, layout_of_copy, layout_of_operand
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.source.contexts import contexts, scopes
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.variable import Variable
from gradtape.trees import flatten, unflatten

if TYPE_CHECKING:
    from gradtape.api.type_variables import X
    from gradtape.trace.variables.variable import Variable


def asarray(a: Any, dtype: Any = None) -> Array:
    """Return an `Array` of these values.

    Parameters
    ----------
    a : array_like or Array
        Numbers, nested lists (Arrays may stand in them), an ndarray, or an Array.
    dtype : dtype_like, optional
        The wanted dtype. For an Array this is a cast, differentiable between floats.

    Returns
    -------
    Array
        `a` itself where it is an Array of this dtype already; of a Variable, what it holds now.

    Examples
    --------
    >>> import gradtape as gt
    >>> gt.asarray([1, 2], dtype=float)
    Array([1., 2.])
    """
    here.site = user_site()
    if isinstance(a, Variable):
        a = a.read_value()
    wanted = None if dtype is None else number_dtype(dtype)
    # NumPy's float64 is equal to None, which is its default.
    if isinstance(a, Array) and (wanted is None or wanted == a.dtype):
        return a
    value = as_value(unwrap(a), "a")
    made = Array(_leaf(value if wanted is None else cast.convert(value, wanted)))
    if made.ndim > 1 and isinstance(a, Handle | np.ndarray):
        made._contiguous = layout_of_operand(a) if made.dtype == a.dtype else layout_of_copy(a)
    return made


def constant(a: Any, dtype: Any = None) -> Array:
    """Return an `Array` with a copy of these values: no later change of `a` reaches it.

    Parameters
    ----------
    a : array_like
        Numbers, nested lists, or an ndarray.
    dtype : dtype_like, optional
        The wanted dtype; by default NumPy's choice (float64 for Python floats).

    Returns
    -------
    Array
        A value that no tape records until it is watched.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> x = np.ones(2)
    >>> c = gt.constant(x)
    >>> x[0] = 5
    >>> c
    Array([1., 1.])
    """
    if a is None:
        raise ArgumentError("constant got None", where=user_site(), remedy="pass an array or a number")
    wanted = None
    if dtype is not None:
        here.site = user_site()
        wanted = number_dtype(dtype)
    if isinstance(a, Handle):
        value = a.value
        if wanted is not None:
            value = cast.convert(value, wanted)
        is_traced = value.aval.weak or (contexts.stack and scopes()) or (value.tags and trace_of(value))
        data = value.data
        if data is not None and not is_traced:
            copy: Array = wrap_value(Value(value.aval, data=data))
        else:
            here.site = user_site()
            copy = Array(cast.stop_gradient(value))
        if copy.ndim > 1:
            copy._contiguous = layout_of_copy(a)
        return copy
    here.site = user_site()
    if is_quantity(a):
        raise refusal(a, "a")
    array = np.array(a, wanted)
    if array.dtype == object and not isinstance(a, np.ndarray | list | tuple):
        raise refusal(a, "a")
    made = Array(_leaf(as_value(array, "a")))
    if array.ndim > 1:
        made._contiguous = layout_of(array)
    return made


@overload
def stop_gradient(x: Variable) -> Array: ...
@overload
def stop_gradient(x: X) -> X: ...
def stop_gradient(x: Any) -> Any:
    """Return `x` as a constant for differentiation: its gradient is zero.

    Parameters
    ----------
    x : array_like, Array, or nest of these
        Values that are not Arrays are constants already.

    Returns
    -------
    Array, nest of Arrays, or the argument

    Examples
    --------
    >>> import gradtape as gt
    >>> float(gt.grad(lambda x: x * gt.stop_gradient(x))(3.0))
    3.0
    """
    here.site = user_site()
    if isinstance(x, Handle):
        return Array(cast.stop_gradient(x.value))
    leaves, spec = flatten(x)
    if not any(isinstance(leaf, Handle) for leaf in leaves):
        return x
    return unflatten(
        spec, [Array(cast.stop_gradient(leaf.value)) if isinstance(leaf, Handle) else leaf for leaf in leaves]
    )


def _leaf(value: Value) -> Value:
    """Return a literal as an array of rank 0, which can be watched."""
    return Value(value.aval, data=value.data) if isinstance(value, Literal) else value
