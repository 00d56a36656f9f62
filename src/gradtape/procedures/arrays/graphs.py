"""Array computations of graphs: whatever NumPy function has rows is applied to arrays of static shapes."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from gradtape.errors import LeakedValueError, UnsupportedFunctionError
from gradtape.ir.body import make_body
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, Value, extract
from gradtape.ir.types import aval
from gradtape.procedures.arrays.nests import as_contiguous, as_view, new_array
from gradtape.procedures.arrays.view import ArrayView, Expression, of_numbers
from gradtape.procedures.builder import ProcedureBuilder, integer
from gradtape.procedures.ir import Apply, Span


def apply_graph(
    build: ProcedureBuilder, rule: Callable[..., Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> Any:
    """Append the array computation of a composite of rows, and return new arrays and numbers with its results.

    Parameters
    ----------
    build : ProcedureBuilder
        Where statements go.
    rule : callable
        What computes on graph values, such as an entry of `gradtape.kinds.registry.FUNCTIONS`.
    args, kwargs
        Its arguments; arrays in them have static shapes.
    """
    inputs: dict[Value, Value | Span] = {}
    known: dict[int, Value] = {}
    delivered: dict[Value, Any] = {}

    def placeholder(x: Any) -> Any:
        if isinstance(x, list | tuple):
            items = [placeholder(item) for item in x]
            return type(x)(*items) if hasattr(x, "_fields") else type(x)(items)
        if isinstance(x, Literal) or not isinstance(x, Value | Expression):
            return x
        if id(x) not in known:
            value = Value(x.aval)
            if isinstance(x, Expression):
                inputs[value] = span(as_contiguous(as_view(build, x)))
            else:
                inputs[value] = build.array_inputs[value] = x
            delivered[value] = x
            known[id(x)] = value
        return known[id(x)]

    given = [placeholder(x) for x in args], {name: placeholder(x) for name, x in kwargs.items()}
    try:
        result = rule(*given[0], **given[1])
    except LeakedValueError:  # the rule asks for numbers, to know the shape of its result
        raise UnsupportedFunctionError(
            "the length of a NumPy function's result depends on values",
            where=here.site,
            remedy="select elements with a mask (x[mask]), or with np.nonzero",
        ) from None
    finally:
        build.array_inputs.clear()
    outputs = list(dict.fromkeys(leaf for leaf in _leaves(result) if leaf.is_made and leaf not in inputs))
    if outputs:
        for constant in extract(outputs, inputs)[1]:
            if (
                constant.dtype.kind == "c" and constant.data is not None
            ):  # has no parts in a graph that is split
                with build.at_start():
                    inputs[constant] = span(of_numbers(build, constant.data))
        views = [new_array(build, value.shape, value.dtype) for value in outputs]
        body = make_body(list(inputs), outputs, "array computation")
        build.append(Apply(body, tuple(inputs.values()), tuple([span(view) for view in views])))
        for value, view in zip(outputs, views, strict=True):
            delivered[value] = view if value.ndim else build.load(view.pointer, 0)
    for leaf in _leaves(result):
        if leaf.ndim and leaf not in delivered:
            assert leaf.data is not None
            delivered[leaf] = of_numbers(build, leaf.data)
    return _rebuilt(result, delivered)


def span(view: ArrayView) -> Span:
    """Return a contiguous view as an operand of an array computation."""
    return Span(view.pointer, integer(view.offset), aval(view.aval.shape, view.dtype))


def _leaves(result: Any) -> list[Value]:
    if isinstance(result, Value):
        return [result]
    if isinstance(result, list | tuple):
        return [leaf for item in result for leaf in _leaves(item)]
    return []


def _rebuilt(result: Any, delivered: Mapping[Value, Any]) -> Any:
    if isinstance(result, Value):
        return delivered.get(result, result)
    if isinstance(result, list | tuple):
        items = [_rebuilt(item, delivered) for item in result]
        return type(result)(*items) if hasattr(result, "_fields") else type(result)(items)
    return result
