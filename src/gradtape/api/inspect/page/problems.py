"""Gradients that are None, zero by construction or not finite, and other numbers that are not: which operation, at which line."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from gradtape.api.debug.explain import explain_gradient
from gradtape.api.debug.numerics import check_numerics
from gradtape.api.inspect.page.program import Files
from gradtape.api.tape.tape import GradientTape
from gradtape.api.transforms.argnums import selection_of
from gradtape.api.transforms.jit import Jitted
from gradtape.errors import GradtapeError, NumericsError
from gradtape.trees import flatten, map_nested, unflatten

SLOPES = ("grad", "value_and_grad")
"""The transforms whose results are gradients."""


def arrays_in(tree: Any) -> list[Any]:
    """Return the arrays and numbers of floating point in nested containers."""
    leaves = [
        np.asarray(leaf)
        for leaf in flatten(tree)[0]
        if isinstance(leaf, np.ndarray | np.generic | float | complex)
    ]
    return [leaf for leaf in leaves if leaf.dtype.kind in "fc"]


def is_finite(tree: Any) -> bool:
    """Return whether all numbers in nested containers are finite."""
    return all(np.isfinite(array).all() for array in arrays_in(tree))


def has_zero_gradient(function: Jitted[..., Any], result: Any) -> bool:
    """Return whether a function that returns gradients has returned one that is zero everywhere."""
    made_by = function.made_by
    if made_by is None or made_by.transform.__name__ not in SLOPES:
        return False
    slopes = result[1] if made_by.transform.__name__ == "value_and_grad" else result
    return any(array.size and not array.any() for array in arrays_in(slopes))


def copied(tree: Any) -> Any:
    """Return nested containers with copies of the arrays."""
    return map_nested(np.copy, np.ndarray, tree)


def explain_nonfinite(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], number: int, files: Files
) -> dict[str, Any]:
    """Return which operation made a NaN or an infinity, by a call that NumPy computes op by op."""
    explanation = {
        "kind": "nan",
        "call": number,
        "file": -1,
        "line": 0,
        "op": "",
        "of": "",
        "why": "",
        "remedy": "",
    }
    try:
        with check_numerics(), np.errstate(all="ignore"):
            function(*args, **kwargs)
    except NumericsError as error:
        finding = error.finding
        file, line = files.place(error.where)
        explanation.update(
            what=error.what, why=error.why or "", remedy=error.remedy or "", file=file, line=line
        )
        if finding is not None and finding.op != "input":
            explanation.update(op=finding.op, of=finding.derivative_of or "")
    except Exception as error:
        explanation.update(
            what="a result is not finite", why=f"the call could not be repeated op by op: {error}"
        )
    else:
        explanation.update(
            what="a result was not finite, and is finite now",
            why="captured values have changed since, or machine code overflowed because it rounds differently",
        )
    return explanation


def explain_zeros(
    function: Jitted[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], files: Files
) -> list[dict[str, Any]]:
    """Return why the gradients of a function are zero, or why there are none, where there is a reason in the code."""
    made_by = function.made_by
    if made_by is None or made_by.transform.__name__ not in SLOPES:
        return []
    try:
        options = inspect.signature(made_by.transform).bind(*made_by.args, **made_by.kwargs).arguments
        primal = options["function"]
        chosen = selection_of(primal, options.get("argnums"), options.get("argnames"), "inspect")
        positions = chosen.places(args, kwargs)
        has_aux = bool(options.get("has_aux"))
        return list(_explained(primal, has_aux, positions, list(args), dict(kwargs), files))
    except (GradtapeError, TypeError, ValueError):  # it is told what can be
        return []


def _explained(
    primal: Callable[..., Any],
    has_aux: bool,
    positions: list[int | str],
    args: list[Any],
    kwargs: dict[str, Any],
    files: Files,
) -> Iterator[dict[str, Any]]:
    sources: list[tuple[str, Any]] = []
    with GradientTape(persistent=True) as tape:
        for position in positions:
            arguments_of_call: Any = kwargs if isinstance(position, str) else args
            leaves, structure = flatten(arguments_of_call[position])
            watched = [tape.watch(np.asarray(leaf)) if arrays_in(leaf) else leaf for leaf in leaves]
            name = f"argument {position}"
            sources += [
                (name if len(leaves) == 1 else f"{name}, array {k}", leaf)
                for k, leaf in enumerate(watched)
                if arrays_in(leaves[k])
            ]
            arguments_of_call[position] = unflatten(structure, watched)
        target = primal(*args, **kwargs)
    target = target[0] if has_aux else target
    for name, source in sources:
        explanation = explain_gradient(tape, target, source)
        if explanation.reason not in ("connected", "not finite"):
            file, line = files.place(explanation.site)
            yield {
                "kind": "zero",
                "what": f"the gradient in {name} is zero: {explanation.reason}",
                "why": explanation.text,
                "remedy": explanation.remedy,
                "file": file,
                "line": line,
                "op": explanation.op or "",
                "of": "",
                "call": 0,
            }
