"""Names of results, by the transform that made the function."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from typing import Any

import optree

from gradtape.api.export.closed import TracedCall, argument_names, place_of
from gradtape.api.transforms.gradient import grad, value_and_grad


def result_places(traced: TracedCall) -> list[str]:
    """Return what each leaf of the results is: ``value`` and ``grad_x`` of gradients, else ``result``."""
    spec = traced.specialisation.spec
    label = _gradient_labels(traced)
    return [label(tuple(path)) for path in optree.treespec_paths(spec)]


def _gradient_labels(traced: TracedCall) -> Callable[[tuple[Any, ...]], str]:
    """Return the function that names a result by its path."""
    made = traced.function.made_by
    transform = None if made is None else made.transform
    if made is None or transform not in (grad, value_and_grad):
        return lambda path: place_of("result", path)
    given = inspect.signature(transform).bind(*made.args, **made.kwargs)
    given.apply_defaults()
    chosen: Any
    argnums, argnames = given.arguments["argnums"], given.arguments["argnames"]
    names = argument_names(traced.function, len(traced.call.with_leaves(traced.call.leaves)[0]))
    chosen = argnames if argnames is not None else 0 if argnums is None else argnums
    many = isinstance(chosen, tuple | list)
    wanted = [_named(one, names) for one in (chosen if many else (chosen,))]
    has_aux, with_value = given.arguments["has_aux"], transform is value_and_grad

    def gradient(path: tuple[Any, ...]) -> str:
        name, rest = (wanted[path[0]], path[1:]) if many else (wanted[0], path)
        return place_of(f"grad_{name}", rest)

    def label(path: tuple[Any, ...]) -> str:
        if with_value:
            if path[0] == 1:
                return gradient(path[1:])
            if not has_aux:
                return "value"
            return "value" if path[1] == 0 else place_of("aux", path[2:])
        if has_aux:
            return gradient(path[1:]) if path[0] == 0 else place_of("aux", path[1:])
        return gradient(path)

    return label


def _named(chosen: int | str, names: Sequence[str]) -> str:
    return chosen if isinstance(chosen, str) else names[chosen]
