"""Nested containers, by optree: dicts, lists, tuples, named tuples and registered classes; None is an empty node.

Objects of the user's classes that hold arrays (dataclasses, attrs classes, plain objects) are containers without being registered: their
classes are entered, for gradtape alone, when one is met. The same holds for subclasses of dict, list and tuple.

optree sorts the keys of a dict, and its structures are equal whatever the order of the keys. Code sees the order, so a key of a cache
contains `structure_key`, which also distinguishes keys that are equal but of different types (1 and True).
"""

from __future__ import annotations

import weakref
from collections import OrderedDict, defaultdict
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, time
from decimal import Decimal
from itertools import chain
from typing import Any, Final

import numpy as np
import optree

from gradtape.containers.pandas import is_column, is_frame, row_of
from gradtape.containers.pandas import nodes_of as nodes_of_frames
from gradtape.containers.quantities import as_container, is_stranger_class, units_are_known
from gradtape.containers.quantities import nodes_of as nodes_of_quantities
from gradtape.containers.tables import Attribute, Nodes
from gradtape.containers.tables import nodes_of as nodes_of_tables
from gradtape.errors import StructureError

TreeSpec = optree.PyTreeSpec

NAMESPACE: Final = "gradtape"
ARGUMENTS: Final = "gradtape.arguments"
"""The namespace of optree in which objects of the user's classes are leaves."""
ORDERED: Final = "gradtape.ordered"
"""The same, with the keys of dicts in their own order."""

_KEEPS_ORDER: Final = optree.dict_insertion_ordered(True, namespace=ORDERED)
_KEEPS_ORDER.__enter__()  # for as long as the process runs


class _Hooks:
    """What is known of objects in a higher layer.

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


class CyclicObject:
    """Stands for an object that is reached from itself, which is no tree of numbers: it is a leaf."""

    __slots__ = ("thing",)

    def __init__(self, thing: Any) -> None:
        self.thing = thing


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
        return all(_is_equal(mine, other.others[name]) for name, mine in self.others.items())

    def __hash__(self) -> int:
        return hash((self.kind, self.names))

    def __repr__(self) -> str:
        return self.kind.__name__


def _is_equal(mine: Any, theirs: Any) -> bool:
    return mine is theirs or (type(mine) is type(theirs) and bool(exact_key(mine) == exact_key(theirs)))


def _flatten_object(thing: Any) -> tuple[tuple[Any, ...], _Rest, tuple[str, ...]]:
    found = None if HOOKS.fields is None else HOOKS.fields(thing)
    if HOOKS.fields is not None and found is None:
        return (CyclicObject(thing),), _Rest(type(thing), (), {}), (Attribute(""),)
    names, others = found or ((), tuple(getattr(thing, "__dict__", ())))
    stand_ins = {name for name in others if type(getattr(thing, name)) is _Leaf}
    if stand_ins:
        every = getattr(thing, "__dict__", None) or (*names, *others)
        names = tuple([name for name in every if name in names or name in stand_ins])
        others = tuple([name for name in others if name not in stand_ins])
    children = tuple([getattr(thing, name) for name in names])
    return children, _Rest(type(thing), names, {name: getattr(thing, name) for name in others}), names


def _unflatten_object(rest: Any, children: Any) -> Any:
    if children and not rest.names:
        (child,) = children
        return child.thing if type(child) is CyclicObject else child
    made: Any = object.__new__(rest.kind)
    for name, content in (*rest.others.items(), *zip(rest.names, children, strict=True)):
        object.__setattr__(made, name, content)
    return made


_BASES: Final = (OrderedDict, defaultdict, dict, list, tuple)
"""The classes of containers that may be subclassed, the more special ones first."""

_CONSTANTS: Final = frozenset({str, bytes, bool, type(None)})
"""Types of attributes that are a part of the structure."""

_containers: Final[weakref.WeakSet[type]] = weakref.WeakSet()
_others: Final[weakref.WeakSet[type]] = weakref.WeakSet()
"""Subclasses of dict, list and tuple that are containers, and those that are leaves."""


class _Shape:
    """An object of a subclass of dict, list or tuple without its items and without the attributes that may be numbers."""

    __slots__ = ("factory", "key", "keys", "kind", "names", "others")

    def __init__(
        self, kind: type, keys: tuple[Any, ...], names: tuple[str, ...], others: dict[str, Any], factory: Any
    ) -> None:
        self.kind, self.keys, self.names, self.others, self.factory = kind, keys, names, others, factory
        self.key = kind, tuple(map(exact_key, keys)), names, tuple(others.items()), factory

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _Shape) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"{self.kind.__name__}({', '.join(map(repr, self.keys))})"


def _flatten_subclass(thing: Any) -> tuple[tuple[Any, ...], _Shape, tuple[Any, ...]]:
    fields = getattr(thing, "__dict__", {})
    others = {name: content for name, content in fields.items() if type(content) in _CONSTANTS}
    names = tuple([name for name in fields if name not in others])
    if isinstance(thing, dict):
        keys: tuple[Any, ...] = tuple(dict.keys(thing))
        items = [dict.__getitem__(thing, key) for key in keys]
    else:
        items = list(list.__iter__(thing) if isinstance(thing, list) else tuple.__iter__(thing))
        keys = tuple(range(len(items)))
    shape = _Shape(type(thing), keys, names, others, getattr(thing, "default_factory", None))
    return (*items, *[fields[name] for name in names]), shape, (*keys, *names)


def _unflatten_subclass(shape: Any, children: Any) -> Any:
    items, fields = children[: len(shape.keys)], children[len(shape.keys) :]
    base: Any = next(base for base in _BASES if issubclass(shape.kind, base))
    made: Any = tuple.__new__(shape.kind, items) if base is tuple else base.__new__(shape.kind)
    if base is list:
        list.extend(made, items)
    elif base is not tuple:
        for key, item in zip(shape.keys, items, strict=True):
            base.__setitem__(made, key, item)
        if base is defaultdict:
            made.default_factory = shape.factory
    for name, content in (*shape.others.items(), *zip(shape.names, fields, strict=True)):
        object.__setattr__(made, name, content)
    return made


def _is_container_class(kind: type) -> bool:
    """Return whether a class is a subclass of dict, list or tuple whose objects are their items and their attributes."""
    if not issubclass(kind, dict | list | tuple) or kind in _BASES or hasattr(kind, "_fields"):
        return False
    if any(hasattr(kind, name) for name in ("__array__", "__array_ufunc__", "__array_function__")):
        return False
    slots = [vars(owner).get("__slots__", ()) for owner in kind.__mro__ if owner not in _BASES]
    return not any(name not in ("__dict__", "__weakref__") for each in slots for name in (each,) if each)


def nodes_of(kind: type) -> Nodes | None:
    """Return how objects of a class of another library are taken apart and put together; None if they are no containers."""
    return nodes_of_tables(kind) or nodes_of_frames(kind) or nodes_of_quantities(kind)


def with_containers(tree: Any) -> Any:
    """Return a tree in which all quantities are containers."""
    if not units_are_known():
        return tree
    return optree.tree_map(as_container, tree, none_is_leaf=True, namespace=NAMESPACE)


def _enter_containers(leaves: Sequence[Any]) -> bool:
    """Enter the classes of leaves that are objects of subclasses of dict, list and tuple; return whether there are any."""
    found = False
    for leaf in leaves:
        kind = type(leaf)
        if kind in LEAVES or kind in _others:
            continue
        if is_stranger_class(kind):
            found = True
            continue
        known = kind in _containers
        nodes = None if known else nodes_of(kind)
        if nodes is not None:
            for namespace in (NAMESPACE, ARGUMENTS, ORDERED):
                optree.register_pytree_node(kind, *nodes, namespace=namespace)
            _containers.add(kind)
            found = True
        if not isinstance(leaf, dict | list | tuple):
            continue
        if not _is_container_class(kind):
            _others.add(kind)
        elif kind not in _containers:
            for namespace in (NAMESPACE, ARGUMENTS, ORDERED):
                optree.register_pytree_node(kind, _flatten_subclass, _unflatten_subclass, namespace=namespace)
            _containers.add(kind)
            found = True
    return found


def _enter_classes(leaves: list[Any], tables: bool = True) -> bool:
    """Enter the classes of leaves that are objects with arrays; return whether there are any. Tables become their values."""
    found = _enter_containers(leaves)
    for place, leaf in enumerate(leaves):
        kind = type(leaf)
        if kind in LEAVES or kind in _entered or kind in _containers or HOOKS.fields is None:
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
    return flatten(with_containers(tree), tables=tables) if _enter_classes(leaves, tables) else (leaves, spec)


def flatten_arguments(tree: Any, namespace: str = ARGUMENTS) -> tuple[list[Any], TreeSpec]:
    """Return what `flatten` returns, but with objects of the user's classes as leaves, unless their classes are registered by the user.

    In the namespace `ORDERED` the keys of dicts are in their own order.
    """
    leaves, spec = optree.tree_flatten(tree, namespace=namespace)
    if LEAVES.issuperset(map(type, leaves)):
        return leaves, spec
    if _enter_containers(leaves):
        return flatten_arguments(with_containers(tree), namespace)
    if HOOKS.table is not None:
        leaves = [leaf if type(leaf) in LEAVES else HOOKS.table(leaf) for leaf in leaves]
    return leaves, spec


_USUAL_KEYS: Final = frozenset({str, int})


def structure_key(tree: Any) -> Any:
    """Return all of a structure that code can see: the containers with their keys in order, and the types of the keys.

    Examples
    --------
    >>> structure_key({"a": 1, "b": 2}) == structure_key({"b": 1, "a": 2})
    False
    >>> structure_key({1: 1}) == structure_key({True: 1})
    False
    """
    leaves, spec = optree.tree_flatten(tree, none_is_leaf=True, namespace=ORDERED)
    if _enter_containers(leaves):
        return structure_key(with_containers(tree))
    paths = spec.paths()
    if _USUAL_KEYS.issuperset(map(type, chain.from_iterable(paths))):
        return spec, None
    return spec, tuple([tuple(map(exact_key, path)) for path in paths])


def columns_of(tree: Any) -> list[Any]:
    """Return, for each leaf of `flatten`, the column of pandas whose values it is; None for others."""
    parts = optree.tree_leaves(tree, is_column, namespace=NAMESPACE)
    return [part if is_column(part) else None for part in parts]


def element_spec(tree: Any, spec: TreeSpec, axes: Sequence[Any] | None = None) -> TreeSpec:
    """Return the structure of an element of nested containers whose leaves are mapped: that of a row for a data frame of pandas.

    Parameters
    ----------
    tree : object
        The containers.
    spec : TreeSpec
        Their structure.
    axes : sequence of int or None, optional
        The axis along which each leaf is mapped; the first one by default.
    """
    none_is_leaf = spec.none_is_leaf
    parts, outer = optree.tree_flatten(tree, is_frame, none_is_leaf=none_is_leaf, namespace=NAMESPACE)
    if not any(map(is_frame, parts)):
        return spec
    place = 0
    for position, part in enumerate(parts):
        count = len(optree.tree_leaves(part, none_is_leaf=none_is_leaf, namespace=NAMESPACE))
        if is_frame(part) and (axes is None or any(axis is not None for axis in axes[place : place + count])):
            parts[position] = row_of(part if axes is None or not axes[place] else part.T)
        place += count
    return optree.tree_structure(unflatten(outer, parts), none_is_leaf=none_is_leaf, namespace=NAMESPACE)


def has_texts_only(tree: Any) -> bool:
    """Return whether all keys of the dicts in nested containers are of the type str."""
    if isinstance(tree, dict):
        return all(type(key) is str for key in tree) and all(map(has_texts_only, dict.values(tree)))
    if type(tree) in LEAVES or optree.tree_is_leaf(tree, none_is_leaf=True, namespace=ORDERED):
        return True
    return all(map(has_texts_only, optree.tree_flatten_one_level(tree, namespace=ORDERED)[0]))


TOLD_APART_BY_TEXT: Final = frozenset({float, complex, Decimal, datetime, time})
"""Classes of which objects are equal that differ: 0.0 and -0.0, 1.0 and 1.00, one instant in two time zones."""


def exact_key(thing: Any) -> Any:
    """Return a key of an immutable object that is equal for objects of equal content and type alone.

    Examples
    --------
    >>> [exact_key(a) == exact_key(b) for a, b in (((1, 2), (True, 2)), (0.0, -0.0), (1, 1), ("a", "a"))]
    [False, False, True, True]
    >>> exact_key(Decimal("1.0")) == exact_key(Decimal("1.00"))
    False
    """
    kind = type(thing)
    if kind is str or kind is int:
        return thing if kind is str else (kind, thing)
    if issubclass(kind, np.generic):
        return kind, thing.dtype.str, thing.tobytes()
    if kind in TOLD_APART_BY_TEXT:
        return kind, repr(thing)
    if issubclass(kind, tuple):
        return kind, tuple(map(exact_key, thing)), thing
    if kind is frozenset:
        return kind, frozenset(map(exact_key, thing))
    return kind, thing


def flatten_with_none(tree: Any) -> tuple[list[Any], TreeSpec]:
    """Return what `flatten` returns, but with None as a leaf."""
    leaves, spec = optree.tree_flatten(tree, none_is_leaf=True, namespace=NAMESPACE)
    return flatten_with_none(with_containers(tree)) if _enter_classes(leaves) else (leaves, spec)


def flatten_to(kind: type, tree: Any, *, none_is_leaf: bool = True) -> tuple[list[Any], TreeSpec]:
    """Return what `flatten` returns, but with instances of a registered class as leaves."""
    return optree.tree_flatten(
        with_containers(tree),
        lambda part: isinstance(part, kind),
        none_is_leaf=none_is_leaf,
        namespace=NAMESPACE,
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
        return list(spec.flatten_up_to(with_containers(tree)))
    except ValueError as error:
        raise StructureError(
            f"{argument} does not have the structure of {reference}: {error}",
            where=where,
            remedy=f"build {argument} with the same containers as {reference}",
        ) from None


def place_of_leaf(tree: Any, position: int, *, none_is_leaf: bool = False) -> str:
    """Return where a leaf stands in its containers, as one would write it: ``['weights'][0]``."""
    return "".join(
        (f".{key}" if key else "") if isinstance(key, Attribute) else f"[{key!r}]"  # empty: the object itself
        for key in optree.tree_paths(with_containers(tree), none_is_leaf=none_is_leaf, namespace=NAMESPACE)[
            position
        ]
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
    return optree.tree_map(function, with_containers(tree), namespace=NAMESPACE)


def spread_prefix(prefix: Any, tree: Any, argument: str, reference: str, where: Any = None) -> list[Any]:
    """Return, for each leaf of `flatten_with_none`, the leaf of `prefix` that stands above it; None is a leaf of both.

    Raises
    ------
    StructureError
        Where `prefix` is not the outer part of the structure of `tree`.
    """
    # The error would print a leaf of the tree, which may be an array that has no numbers.
    plain = optree.tree_map(lambda _: _Leaf(), with_containers(tree), none_is_leaf=True, namespace=NAMESPACE)
    try:
        return optree.broadcast_prefix(prefix, plain, none_is_leaf=True, namespace=NAMESPACE)
    except ValueError as error:
        outer = isinstance(prefix, tuple | list) and type(prefix) is type(tree)
        entries = "entry" if outer and len(prefix) == 1 else "entries"
        differ = outer and len(prefix) != len(tree)
        problem = f"it has {len(prefix)} {entries} for {len(tree)}" if differ else error
        raise StructureError(
            f"{argument} does not match {reference}: {problem}",
            where=where,
            remedy=f"give one entry for all, or containers like the outer ones of {reference}",
        ) from None


class _Leaf:
    """Stands for any leaf."""

    __slots__ = ()

    def __repr__(self) -> str:
        return "a leaf"
