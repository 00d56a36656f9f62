"""Statistics of ranks, which SciPy computes with numbers: they are steps, so that numbers are right, and their derivative is zero.

On a tape the function runs with numbers. In a compiled function the kernel calls it back.
"""

from __future__ import annotations

import copy
import warnings
from collections.abc import Iterator
from typing import Any, Final

import numpy as np

from gradtape.ir.types import FLOAT64, Aval, aval
from gradtape.kinds.registry import SOLVERS
from gradtape.kinds.routines.host import call_host, enter_function
from gradtape.ops.core.elementwise.cast import stop_gradient
from gradtape.ops.scipy.opaque import RANK_STATISTICS
from gradtape.trace.array.array import Array
from gradtape.trace.array.concretize import abstracting_trace
from gradtape.trace.array.handle import Handle
from gradtape.trace.patching.functions import Function
from gradtape.trace.patching.opaque import paused, traced_parts

FIELDS: Final = ("statistic", "pvalue", "correlation", "zstatistic")
"""The fields of results that depend on the samples."""


def _rank_statistic(name: str) -> Function:
    def run(plain: Function, args: Any, kwargs: Any) -> Any:
        found = {id(handle): handle.value for handle in _handles((args, kwargs))}
        traced = list(traced_parts((args, kwargs)))
        if any(id(handle) not in found for handle in traced):
            return NotImplemented  # a function of the user's reads it
        if not any(abstracting_trace(handle.value) is not None for handle in traced):
            return paused(name, plain, args, kwargs, [handle.value for handle in traced])
        values, places = list(found.values()), list(found)

        def with_numbers(*arrays: Any) -> Any:
            numbers = dict(zip(places, arrays, strict=True))
            return plain(*_filled(args, numbers), **_filled(kwargs, numbers))

        # numbers of any kind, without ties, say which shapes the results have
        samples = [np.cos((k + 1.0) * np.arange(value.size) + k) for k, value in enumerate(values)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            example = with_numbers(
                *[
                    sample.reshape(value.shape).astype(value.dtype)
                    for sample, value in zip(samples, values, strict=True)
                ]
            )
        fields = [field for field in FIELDS if hasattr(example, field)]

        def call(*arrays: Any) -> tuple[Any, ...]:
            result = with_numbers(*arrays)
            return tuple(
                [
                    np.asarray(getattr(result, field), type_.dtype)
                    for field, type_ in zip(fields, types, strict=True)
                ]
            )

        types = [_type_of(getattr(example, field)) for field in fields]
        outs = call_host(enter_function(call), types, [stop_gradient(value) for value in values])
        return _with_fields(example, dict(zip(fields, map(Array, outs), strict=True)))

    return run


def _type_of(number: Any) -> Aval:
    """Return the type of a number of a result: of single precision if SciPy computes in it."""
    array = np.asarray(number)
    return aval(array.shape, array.dtype if array.dtype == np.float32 else FLOAT64)


def _handles(item: Any) -> Iterator[Handle]:
    """Return the arrays in arguments that are traced, or would be if they were used."""
    if isinstance(item, Handle):
        yield item
    elif isinstance(item, list | tuple | dict):
        for part in item.values() if isinstance(item, dict) else item:
            yield from _handles(part)


def _filled(item: Any, numbers: dict[int, Any]) -> Any:
    if isinstance(item, dict):
        return {key: _filled(part, numbers) for key, part in item.items()}
    if type(item) in (list, tuple):
        return type(item)([_filled(part, numbers) for part in item])
    return numbers.get(id(item), item)


def _with_fields(example: Any, fields: dict[str, Any]) -> Any:
    """Return a result of SciPy's with other numbers; what else depends on the samples is None."""
    if isinstance(example, tuple):
        own: Any = example
        made = type(own)(**{name: fields.get(name, getattr(own, name)) for name in own._fields})
    else:
        made = copy.copy(example)
        for name in vars(made):
            setattr(made, name, None)
    for name, item in fields.items():
        if not isinstance(example, tuple) or name not in example._fields:  # type: ignore[attr-defined]
            setattr(made, name, item)
    return made


SOLVERS.update({f"scipy.stats.{name}": _rank_statistic(f"scipy.stats.{name}") for name in RANK_STATISTICS})
