"""Nested containers, by optree: dicts, lists, tuples, named tuples and registered classes; None is an empty node."""

from __future__ import annotations

from typing import Any

import optree

from .errors import StructureError

TreeSpec = optree.PyTreeSpec


def flatten(tree: Any) -> tuple[list[Any], TreeSpec]:
    """Return the leaves and the structure of nested containers."""
    return optree.tree_flatten(tree)


def flatten_with_none(tree: Any) -> tuple[list[Any], TreeSpec]:
    """Return what `flatten` returns, but with None as a leaf."""
    return optree.tree_flatten(tree, none_is_leaf=True)


def flatten_up_to(spec: TreeSpec, tree: Any, argument: str, reference: str, where: Any = None) -> list[Any]:
    """Return the parts of `tree` that stand where `spec` has leaves; `where` is a place for the error.

    Raises
    ------
    StructureError
        Where the structures differ; it says where.
    """
    try:
        return list(spec.flatten_up_to(tree))
    except ValueError as error:
        raise StructureError(
            f"{argument} does not have the structure of {reference}: {error}",
            where=where,
            remedy=f"build {argument} with the same containers as {reference}",
        ) from None


def place_of_leaf(tree: Any, position: int, *, none_is_leaf: bool = False) -> str:
    """Return where a leaf stands in its containers, as one would write it: ``['weights'][0]``."""
    return "".join(f"[{key!r}]" for key in optree.tree_paths(tree, none_is_leaf=none_is_leaf)[position])


def unflatten(spec: TreeSpec, leaves: Any) -> Any:
    """Return the containers of `spec` filled with `leaves`."""
    return optree.tree_unflatten(spec, leaves)


def tree_map(function: Any, tree: Any) -> Any:
    """Return `tree` with `function` applied to each leaf."""
    return optree.tree_map(function, tree)
