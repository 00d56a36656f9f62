"""Nested containers, by optree: dicts, lists, tuples, named tuples and registered classes; None is an empty node."""

from __future__ import annotations

from collections.abc import Callable
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


def flatten_to(kind: type, tree: Any, *, none_is_leaf: bool = True) -> tuple[list[Any], TreeSpec]:
    """Return what `flatten` returns, but with instances of a registered class as leaves."""
    return optree.tree_flatten(tree, lambda part: isinstance(part, kind), none_is_leaf=none_is_leaf)


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


def outline(spec: TreeSpec) -> str:
    """Return a structure as one would write it, with * for the leaves."""
    text = str(spec)
    return text.removeprefix("PyTreeSpec(").removesuffix(")").removesuffix(", NoneIsLeaf")


def register_node(
    kind: type, flatten_node: Callable[[Any], Any], unflatten_node: Callable[[Any, Any], Any]
) -> None:
    """Let instances of a class count as containers for everybody, in optree's own notation."""
    optree.register_pytree_node(
        kind, flatten_node, unflatten_node, namespace=optree.registry.__GLOBAL_NAMESPACE
    )


def unflatten(spec: TreeSpec, leaves: Any) -> Any:
    """Return the containers of `spec` filled with `leaves`."""
    return optree.tree_unflatten(spec, leaves)


def tree_map(function: Any, tree: Any) -> Any:
    """Return `tree` with `function` applied to each leaf."""
    return optree.tree_map(function, tree)


def spread_prefix(prefix: Any, tree: Any, argument: str, reference: str, where: Any = None) -> list[Any]:
    """Return, for each leaf of `flatten_with_none`, the leaf of `prefix` that stands above it; None is a leaf of both.

    Raises
    ------
    StructureError
        Where `prefix` is not the outer part of the structure of `tree`.
    """
    # The error would print a leaf of the tree, which may be an array that has no numbers.
    plain = optree.tree_map(lambda _: _Leaf(), tree, none_is_leaf=True)
    try:
        return optree.broadcast_prefix(prefix, plain, none_is_leaf=True)
    except ValueError as error:
        raise StructureError(
            f"{argument} does not match {reference}: {error}",
            where=where,
            remedy=f"give one entry for all, or containers like the outer ones of {reference}",
        ) from None


class _Leaf:
    """Stands for any leaf."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "a leaf"
