"""The arguments of the methods of distributions, standardised, and masks for those outside the domain.

The methods of `scipy.stats` select the arguments in the domain, and write results of private methods, such as ``_logpdf``, to their places.
The rules here compute the private methods, which are SciPy's, for all arguments, and select among the results.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from gradtape.ir.graph import Literal, Value
from gradtape.ir.types import BOOL, FLOAT64
from gradtape.kinds.arguments import as_array
from gradtape.kinds.operands import broadcast_shapes, broadcast_to
from gradtape.kinds.registry import HOOKS
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.logic import greater, logical_not
from gradtape.ops.core.elementwise.select import where

Mask = Value | bool
"""An array of booleans, or a boolean that is the same for all elements."""


class Parameters(NamedTuple):
    """Parameters of a distribution.

    Attributes
    ----------
    shapes : tuple
        The shape parameters: values, and arrays or numbers that are not traced.
    loc, scale : Value
    invalid : Value or bool
        Where a parameter is outside its domain.
    low, high : Value or array
        The ends of the support of the standard distribution.
    """

    shapes: tuple[Any, ...]
    loc: Value
    scale: Value
    invalid: Mask
    low: Any
    high: Any


def parameters(distribution: Any, args: Sequence[Any], kwds: dict[str, Any]) -> Parameters:
    """Return the parameters in the arguments of a method, after those that are the method's own."""
    return of_parsed(distribution, *distribution._parse_args(*args, **kwds))


def of_parsed(distribution: Any, given: Sequence[Any], loc: Any, scale: Any) -> Parameters:
    """Return parameters that have been told apart."""
    shapes = tuple([shape_parameter(each) for each in given])
    loc, scale = as_array(loc, "loc"), as_array(scale, "scale")
    valid = either(HOOKS.call(distribution._argcheck, *shapes))
    low, high = HOOKS.call(distribution._get_support, *shapes)
    return Parameters(shapes, loc, scale, invert(both(valid, known(greater(scale, 0)))), low, high)


def shape_parameter(parameter: Any) -> Any:
    """Return a shape parameter as an array; literals become ndarrays, with which private methods compute constants."""
    value = as_array(parameter, "a shape parameter")
    return np.asarray(value.data) if isinstance(value, Literal) else value


def known(mask: Any) -> Mask:
    """Return a mask as a boolean if it is a literal."""
    if isinstance(mask, Literal):
        assert mask.data is not None
        return bool(mask.data)
    assert isinstance(mask, Value)
    return mask


def either(condition: Any) -> Mask:
    """Return the result of a private method that is a condition as a mask."""
    if isinstance(condition, Value):
        return known(convert(condition, BOOL))
    array = np.asarray(condition, np.bool_)
    if array.all() or not array.any():
        return bool(array.all())
    return as_array(array)


def both(first: Mask, second: Mask) -> Mask:
    """Return the conjunction of masks."""
    if isinstance(first, bool):
        return second if first else False
    if isinstance(second, bool):
        return first if second else False
    return first & second


def invert(mask: Mask) -> Mask:
    """Return the negation of a mask."""
    return not mask if isinstance(mask, bool) else logical_not(mask)


def select(mask: Mask, chosen: Any, other: Any) -> Any:
    """Return `chosen` where a mask is true, and `other` elsewhere."""
    if isinstance(mask, bool):
        return chosen if mask else other
    return where(mask, chosen, other)


def standard(x: Any, given: Parameters, argument: str = "x") -> Value:
    """Return ``(x - loc) / scale`` as doubles."""
    z = as_array(x, argument)
    if not is_number(given.loc, 0):
        z = z - given.loc
    if not is_number(given.scale, 1):
        z = z / given.scale
    return z if z.dtype == FLOAT64 else convert(z, FLOAT64)


def is_number(value: Any, number: float) -> bool:
    """Return whether a value is a literal with this number."""
    return isinstance(value, Literal) and value.data is not None and value.data == number


def is_infinite(bound: Any) -> bool:
    """Return whether a bound of a support is known to be infinite for all parameters."""
    return not isinstance(bound, Value) and bool(np.all(np.isinf(bound)))


def finish(result: Any, given: Parameters, *operands: Value) -> Value:
    """Return a result with NaN for invalid parameters, in the common shape of the operands and the parameters."""
    result = select(given.invalid, np.nan, as_array(result))
    shapes = [np.shape(item) if not isinstance(item, Value) else item.shape for item in given.shapes]
    shapes += [given.loc.shape, given.scale.shape, *[x.shape for x in operands]]
    value = as_array(result)
    value = value if value.dtype == FLOAT64 else convert(value, FLOAT64)
    return broadcast_to(value, broadcast_shapes([value.shape, *shapes]))
