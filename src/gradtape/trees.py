"""Nested containers, by optree: dicts, lists, tuples, named tuples and registered classes; None is an empty node.

Objects of the user's classes that hold arrays (dataclasses, attrs classes, plain objects) are containers without being registered: their
classes are entered, for gradtape alone, when one is met.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any, Final

import optree

from gradtape.errors import StructureError

TreeSpec = optree.PyTreeSpec

NAMESPACE: Final = "gradtape"


class _Hooks:
    """What is known of objects on a higher floor.

    Attributes
    ----------
    fields : callable or None
        Returns the names of those attributes of an object that hold arrays, and of the others; None for what is no container.
    table : callable or None
        Returns the values of a table of pandas or xarray, and anything else as it is.
    """

    fields: Callable[[Any], tuple[tuple[str, ...], tuple[str, ...]] | None] | None = None
    table: Callable[[Any], Any] | None = None


HOOKS: Final = _Hooks()
LEAVES: Final[set[type]] = {int, float, complex, bool, str, bytes, type(None)}
"""Classes whose objects are never containers, so that nothing need be asked of a leaf."""

_entered: Final[weakref.WeakSet[type]] = weakref.WeakSet()


class _Rest:
    """What an object holds besides arrays, and its class: a part of the structure."""

    __slots__ = ("kind", "names", "others")

    def __init__(self, kind: type, names: tuple[str, ...], others: dict[str, Any]) -> None:
        self.kind, self.names, self.others = kind, names, others

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, _Rest) or (self.kind, self.names) != (other.kind, other.names):
            return False
        if self.others.keys() != other.others.keys():
            return False
        return all(
            mine is other.others[name] or bool(mine == other.others[name])
            for name, mine in self.others.items()
        )

    def __hash__(self) -> int:
        return hash((self.kind, self.names))

    def __repr__(self) -> str:
        return self.kind.__name__


def _flatten_object(thing: Any) -> tuple[tuple[Any, ...], _Rest, tuple[str, ...]]:
    found = None if HOOKS.fields is None else HOOKS.fields(thing)
    names, others = found or ((), tuple(getattr(thing, "__dict__", ())))
    stand_ins = {name for name in others if type(getattr(thing, name)) is _Leaf}
    if stand_ins:
        every = getattr(thing, "__dict__", None) or (*names, *others)
        names = tuple([name for name in every if name in names or name in stand_ins])
        others = tuple([name for name in others if name not in stand_ins])
    children = tuple([getattr(thing, name) for name in names])
    return children, _Rest(type(thing), names, {name: getattr(thing, name) for name in others}), names


def _unflatten_object(rest: Any, children: Any) -> Any:
    made: Any = object.__new__(rest.kind)
    for name, content in (*rest.others.items(), *zip(rest.names, children, strict=True)):
        object.__setattr__(made, name, content)
    return made


def _enter_classes(leaves: list[Any], tables: bool = True) -> bool:
    """Enter the classes of leaves that are objects with arrays; return whether there are any. Tables become their values."""
    found = False
    for place, leaf in enumerate(leaves):
        kind = type(leaf)
        if kind in LEAVES or kind in _entered or HOOKS.fields is None:
            continue
        if HOOKS.table is not None and (values := HOOKS.table(leaf)) is not leaf:
            if tables:
                leaves[place] = values
            continue
        fields = HOOKS.fields(leaf)
        if fields is not None and fields[0]:
            optree.register_pytree_node(kind, _flatten_object, _unflatten_object, namespace=NAMESPACE)
            _entered.add(kind)
            found = True
    return found


def flatten(tree: Any, *, tables: bool = True) -> tuple[list[Any], TreeSpec]:
    """Return the leaves and the structure of nested containers. Tables of pandas and xarray become their values, if `tables`."""
    leaves, spec = optree.tree_flatten(tree, namespace=NAMESPACE)
    return flatten(tree, tables=tables) if _enter_classes(leaves, tables) else (leaves, spec)


def flatten_arguments(tree: Any) -> tuple[list[Any], TreeSpec]:
    """Return what `flatten` returns, but with objects of the user's classes as leaves, unless their classes are registered by the user."""
    leaves, spec = optree.tree_flatten(tree)
    for place, leaf in enumerate(leaves):
        if type(leaf) not in LEAVES and HOOKS.table is not None:
            leaves[place] = HOOKS.table(leaf)
    return leaves, spec


def flatten_with_none(tree: Any) -> tuple[list[Any], TreeSpec]:
    """Return what `flatten` returns, but with None as a leaf."""
    leaves, spec = optree.tree_flatten(tree, none_is_leaf=True, namespace=NAMESPACE)
    return flatten_with_none(tree) if _enter_classes(leaves) else (leaves, spec)


def flatten_to(kind: type, tree: Any, *, none_is_leaf: bool = True) -> tuple[list[Any], TreeSpec]:
    """Return what `flatten` returns, but with instances of a registered class as leaves."""
    return optree.tree_flatten(
        tree, lambda part: isinstance(part, kind), none_is_leaf=none_is_leaf, namespace=NAMESPACE
    )


class Leaves:
    """The leaves of a tree, some of which are traced, and the structure of the tree.

    Parameters
    ----------
    leaves : list
        All leaves.
    spec : TreeSpec
        The structure.
    is_traced : callable
        Returns whether a leaf is traced: an array or number, and not a static part of the program.

    Attributes
    ----------
    positions : list of int
        The positions of the traced leaves.
    """

    __slots__ = ("leaves", "positions", "spec")

    def __init__(self, leaves: list[Any], spec: TreeSpec, is_traced: Callable[[Any], bool]) -> None:
        self.leaves, self.spec = leaves, spec
        self.positions = [position for position, leaf in enumerate(leaves) if is_traced(leaf)]

    def traced(self) -> list[Any]:
        """Return the traced leaves."""
        return [self.leaves[position] for position in self.positions]

    def select(self, parts: Sequence[Any]) -> list[Any]:
        """Return the parts, of which there is one per leaf, at the positions of traced leaves."""
        return [parts[position] for position in self.positions]

    def rebuild(self, parts: Iterable[Any]) -> Any:
        """Return the tree with other objects in place of the traced leaves."""
        leaves = list(self.leaves)
        for position, part in zip(self.positions, parts, strict=True):
            leaves[position] = part
        return unflatten(self.spec, leaves)


def map_nested(function: Callable[[Any], Any], kind: type, operand: Any) -> Any:
    """Return an operand with a function applied to instances of a class, also in nested lists and tuples; others are not copied."""
    if isinstance(operand, kind):
        return function(operand)
    nested = (kind, list, tuple)
    if isinstance(operand, list | tuple) and any(isinstance(item, nested) for item in operand):
        items = [map_nested(function, kind, item) for item in operand]
        if isinstance(operand, list):
            return items
        return type(operand)(*items) if hasattr(operand, "_fields") else tuple(items)
    return operand


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
    return "".join(
        f"[{key!r}]"
        for key in optree.tree_paths(tree, none_is_leaf=none_is_leaf, namespace=NAMESPACE)[position]
    )


def leaf_of_arguments(names: Iterable[str], arguments: Iterable[Any], position: int) -> str:
    """Return what a leaf of several arguments is, as one would write it: ``params['weights'][0]``."""
    for name, argument in zip(names, arguments, strict=True):
        count = len(flatten(argument)[0])
        if position < count:
            return name + place_of_leaf(argument, position)
        position -= count
    raise IndexError(position)


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
    return optree.tree_map(function, tree, namespace=NAMESPACE)


def spread_prefix(prefix: Any, tree: Any, argument: str, reference: str, where: Any = None) -> list[Any]:
    """Return, for each leaf of `flatten_with_none`, the leaf of `prefix` that stands above it; None is a leaf of both.

    Raises
    ------
    StructureError
        Where `prefix` is not the outer part of the structure of `tree`.
    """
    # The error would print a leaf of the tree, which may be an array that has no numbers.
    plain = optree.tree_map(lambda _: _Leaf(), tree, none_is_leaf=True, namespace=NAMESPACE)
    try:
        return optree.broadcast_prefix(prefix, plain, none_is_leaf=True, namespace=NAMESPACE)
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
