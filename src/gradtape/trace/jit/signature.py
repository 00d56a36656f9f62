"""Signatures of calls: the structure of the arguments, their dtypes and shapes, and static values.

Everything that a trace can read is checked by the signature of the call or by a step of its captures (`captures.steps`):
docs/explanation/keys.md lists what checks what, with a test case for each line.

- `CallArguments.key`: containers with their keys in order (`structure_key`), the settings of traces, and the key of each leaf.
- `leaf_key`: dtype, shape and layout of an array; the type of a number; the value of a static leaf, with the types of its parts.
- `CaptureWalk`: globals, closures, defaults, attributes, classes, entries of containers, environment variables.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Collection, ItemsView, KeysView, Sequence, ValuesView
from dataclasses import dataclass
from operator import itemgetter
from typing import Any, Final, NamedTuple, Self

import numpy as np

from gradtape.config import trace_settings
from gradtape.errors import DtypeError, StaticArgumentError
from gradtape.ir.builder import here
from gradtape.ir.graph import TraceTag, Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import PYTHON_DTYPES, aval
from gradtape.kinds.operands import check_dtype, check_plain
from gradtape.kinds.refusals import is_used_up, library_of, refusal, too_long
from gradtape.runtime.call.capi import scalar_holds_data
from gradtape.runtime.call.convention import ArraySpec, CallForm, ScalarSpec, StaticSpec
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.layout import Layout, argument_layout, layout_of, remember_memory
from gradtape.trace.array.preallocated import unwrap_preallocated
from gradtape.trace.jit.captures.user_classes import is_generator, is_plain_object
from gradtape.trace.jit.leaf_kinds import NUMBERS, is_dynamic, is_weak
from gradtape.trace.lazy.force import force
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.variable import Variable
from gradtape.trees import (
    ORDERED,
    Leaves,
    TreeSpec,
    exact_key,
    flatten,
    flatten_arguments,
    has_texts_only,
    leaf_of_arguments,
    place_of_leaf,
    structure_key,
)

_REFUSED = (KeysView, ValuesView, ItemsView, array, memoryview, bytearray)
"""Types that hold numbers, but are neither arrays nor containers."""

_EXACT: Final = frozenset({bool, str, bytes, type(None)})
"""Types whose equal objects cannot be told apart."""

_OUTER_NODES: Final = 3
"""The pair of arguments and keywords, the tuple of arguments, and the dict of keywords."""


@dataclass(frozen=True)
class StaticLeaf:
    """A static argument: its value is part of the program."""

    value: Any


@dataclass(frozen=True)
class FunctionLeaf(StaticLeaf):
    """A function that calls pass: it is checked by its parts, as what is captured, and not by its identity."""


@dataclass(frozen=True)
class StaticArguments:
    """The static arguments of a function, by position and by name."""

    positions: tuple[int, ...] = ()
    names: tuple[str, ...] = ()

    def mark(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with the static ones marked."""
        if self.positions:
            positions = {
                position % len(args) for position in self.positions if -len(args) <= position < len(args)
            }
            args = tuple(StaticLeaf(arg) if k in positions else arg for k, arg in enumerate(args))
        if self.names:
            kwargs = {key: StaticLeaf(arg) if key in self.names else arg for key, arg in kwargs.items()}
        return args, kwargs


EVERYTHING_TRACED = StaticArguments()


@dataclass(frozen=True)
class FunctionFirst(StaticArguments):
    """The static arguments of a program that takes the function that it transforms before the arguments of that function."""

    def mark(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return the arguments with the function and the static ones marked."""
        function, *others = args
        marked, kwargs = super().mark(tuple(others), kwargs)
        return (FunctionLeaf(function), *marked), kwargs


class CallArguments(Leaves):
    """The arguments of one call, flattened. The traced leaves are the inputs of the kernel.

    Attributes
    ----------
    leaves : list
        All leaves.
    objects : list
        The leaves, with what static ones hold.
    arrays : bool
        Whether an argument is an `Array`, so that the results are.
    """

    __slots__ = ("_given", "_key", "arrays", "objects")

    def __init__(
        self, args: tuple[Any, ...], kwargs: dict[str, Any], static: StaticArguments = EVERYTHING_TRACED
    ) -> None:
        leaves, spec = flatten_arguments(static.mark(args, kwargs))
        super().__init__(unwrap_preallocated(leaves), spec, is_dynamic)
        self.objects = [leaf.value if isinstance(leaf, StaticLeaf) else leaf for leaf in self.leaves]
        self.arrays = any(isinstance(leaf, Handle) and _is_recorded(leaf) for leaf in self.leaves)
        self._key: Any = None
        self._given = args, kwargs, static

    @property
    def key(self) -> Any:
        """The signature: equal for calls that have the same specialisations, if the captures are the same."""
        if self._key is None:
            try:
                self._key = ((self.spec, self.structure, trace_settings()), *map(leaf_key, self.leaves))
            except DtypeError:
                args, kwargs, static = self._given
                _refuse_by_name(*static.mark(args, kwargs))
                raise
        return self._key

    @property
    def given(self) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """The arguments by position and by name."""
        return self._given[:2]

    @property
    def structure(self) -> Any:
        """What code sees of the containers of the arguments beyond `spec`: the order of keys. None where no argument is a container."""
        args, kwargs, static = self._given
        plain = not self.has_containers and len(kwargs) < 2
        return None if plain else structure_key(static.mark(args, kwargs))

    @property
    def has_containers(self) -> bool:
        """Whether an argument is a container, which may hold one leaf."""
        nodes: int = self.spec.num_nodes
        return nodes != len(self.leaves) + _OUTER_NODES

    def dynamic(self) -> list[NDArray]:
        """Return the inputs of the kernel among the leaves, as it takes them; see `as_input`."""
        return [as_input(self.leaves[position]) for position in self.positions]

    def name_of(self, position: int) -> str:
        """Return what a leaf is, for messages: ``argument 1['w']``."""
        args, kwargs, _ = self._given
        names = [*[f"argument {number}" for number in range(len(args))], *kwargs]
        return leaf_of_arguments(names, [*args, *kwargs.values()], position)

    def with_leaves(self, leaves: Sequence[Any]) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Return arguments of the same structure with other leaves."""
        arguments: Any = self.spec.unflatten(
            [leaf.value if isinstance(leaf, StaticLeaf) else leaf for leaf in leaves]
        )
        args, kwargs = arguments
        return args, kwargs

    def placeholders(self, tag: TraceTag, objects: Sequence[Any]) -> tuple[list[Any], list[Value]]:
        """Return the leaves with a traced Array for each dynamic one and the copy of each object, and the values of the Arrays."""
        leaves: list[Any] = []
        inputs: list[Value] = []
        for leaf, copied in zip(self.leaves, objects, strict=True):
            if is_dynamic(leaf):
                array = as_input(leaf).copy()
                weak = is_weak(leaf)
                value = Value(aval(array.shape, array.dtype, weak), data=array, tags=(tag,))
                inputs.append(value)
                placeholder = Array(value)
                placeholder._contiguous = layout_of_input(leaf)
                remember_memory(placeholder, leaf)
                leaf = placeholder
            elif not isinstance(leaf, StaticLeaf):
                leaf = copied
            elif copied is not leaf.value:
                leaf = type(leaf)(copied)
            leaves.append(leaf)
        return leaves, inputs


def _refuse_by_name(args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    """Raise the error for an argument of a wrong type, with its place in its containers."""
    for name, argument in [*((f"argument {k}", arg) for k, arg in enumerate(args)), *kwargs.items()]:
        for position, leaf in enumerate(unwrap_preallocated(flatten_arguments(argument)[0])):
            path = place_of_leaf(argument, position) if leaf is not argument else ""
            leaf_key(leaf, f"{name}{path}")


def _is_recorded(leaf: Handle) -> bool:
    return leaf.is_recorded if isinstance(leaf, Variable) else True


def as_input(leaf: Any) -> NDArray:
    """Return an array or number as kernels take it: C-contiguous, aligned, in native byte order."""
    if type(leaf) in NUMBERS:
        try:
            return np.asarray(leaf, PYTHON_DTYPES[type(leaf)])
        except OverflowError:
            raise too_long(leaf, "an argument") from None
    if isinstance(leaf, Handle):
        (leaf,) = force([leaf.value])
    return np.require(leaf, np.dtype(leaf.dtype.type), ("C", "A"))


def layout_of_input(leaf: Any) -> Layout:
    """Return the layout of an input of a trace, as NumPy's array would have it."""
    if isinstance(leaf, Handle):
        return leaf._contiguous if leaf._base is None else leaf._contiguous is True
    return argument_layout(leaf) if isinstance(leaf, np.ndarray | np.generic) else True


def leaf_key(leaf: Any, argument: str = "an argument") -> Any:
    """Return the part of the signature of one leaf."""
    kind = type(leaf)
    if kind is np.ndarray:
        key = (check_dtype(leaf.dtype, argument), leaf.shape)
        # Whether a reshape is a view depends on the layout.
        return key if leaf.flags.c_contiguous else (*key, layout_of(leaf))
    if kind in NUMBERS:
        return kind
    if issubclass(type(leaf), np.ndarray):
        check_plain(leaf, argument)
        return (check_dtype(leaf.dtype, argument), leaf.shape)
    if issubclass(kind, np.generic):
        return (check_dtype(leaf.dtype, argument), "scalar")
    if isinstance(leaf, Handle) and not isinstance(leaf, Variable):
        type_ = leaf.value.aval
        if type_.weak:
            return type_.dtype, type_.shape, "weak"
        layout = layout_of_input(leaf)
        return (
            (type_.dtype, type_.shape)
            if layout is True or not type_.shape
            else (type_.dtype, type_.shape, layout)
        )
    if kind is FunctionLeaf:
        return kind
    declared = kind is StaticLeaf
    if declared:
        leaf, kind = leaf.value, type(leaf.value)
    if isinstance(leaf, Variable):
        return (kind, leaf.serial)
    if not declared and (isinstance(leaf, _REFUSED) or is_used_up(leaf) or library_of(leaf)):
        here.site = user_site()
        raise refusal(leaf, argument)
    if is_plain_object(leaf) or (is_generator(leaf) and not declared):
        return kind
    try:
        hash(leaf)
    except (TypeError, ValueError):  # of a memoryview
        raise StaticArgumentError(
            f"{argument}, of type {kind.__name__}, is static (not an array or a number to be traced), and it cannot be hashed",
            where=user_site(),
            why="gradtape compiles once per value of such an argument and must be able to find it again",
            remedy="pass np.array(sorted(x)) for numbers, which a set has in no order, or a frozenset for settings"
            if isinstance(leaf, set)
            else "pass a hashable object (a tuple, a frozen dataclass), or register the class with optree as a container",
        ) from None
    return (kind, leaf) if kind in _EXACT else (kind, leaf, exact_key(leaf))


class OwnOrder(NamedTuple):
    """The structure of nested arguments with the keys of dicts in their own order.

    Attributes
    ----------
    spec : TreeSpec
        The structure.
    order : callable or None
        Returns the leaves with the keys of dicts sorted, as kernels take them; None where they are in order.
    keys : object
        What `structure_key` returns, if there are dicts with other keys than texts: equal ones may be of other types.
    """

    spec: TreeSpec
    order: Callable[[list[Any]], Sequence[Any]] | None
    keys: Any

    @classmethod
    def of(cls, call: CallArguments) -> Self:
        """Return that of a call."""
        args, kwargs, static = call._given
        tree = static.mark(args, kwargs)
        spec = flatten_arguments(tree, ORDERED)[1]
        position_of_path = {path: position for position, path in enumerate(spec.paths())}
        positions = [position_of_path[path] for path in call.spec.paths()]
        order = None if positions == sorted(positions) else itemgetter(*positions)
        return cls(spec, order, None if has_texts_only(tree) else structure_key(tree))


class NativeCall(NamedTuple):
    """The calling convention of the native entry of one signature.

    Attributes
    ----------
    form : CallForm
        Types of the arguments, results and their nesting.
    statics : list
        The objects that static arguments are compared with.
    nested : (OwnOrder, TreeSpec) or None
        The structures of arguments and of results, unless they are plain tuples and lists of results: then the entry takes the leaves,
        and returns those that are computed.
    leaves : int
        The number of leaves of a call.
    passed : tuple of int
        The leaves that the entry takes; it does not take objects whose attributes are checked.
    """

    form: CallForm
    statics: list[Any]
    nested: tuple[OwnOrder, TreeSpec] | None = None
    leaves: int = 0
    passed: tuple[int, ...] = ()


def native_call(
    call: CallArguments,
    values: Sequence[Value],
    spec: TreeSpec,
    results: Sequence[Any],
    hidden: Sequence[Any],
    written: Collection[int] = (),
) -> NativeCall | None:
    """Return the calling convention of the native entry for calls like this one, or None.

    Parameters
    ----------
    call : Call
        The call.
    values : sequence of Value
        The outputs of the kernel.
    spec : TreeSpec
        The containers of the results.
    results : sequence of int or callable
        For each leaf of `spec`, its position in `values`, or a function that returns a constant: machine code leaves these out.
    hidden : sequence of object
        The hidden inputs.
    written : collection of int
        The leaves that the function writes to: memory of their own, apart from that of the other arguments.
    """
    if any(isinstance(capture, Handle) for capture in hidden):
        return None
    numbers = (*call.leaves, *hidden)
    if any(issubclass(type(leaf), np.generic) and not scalar_holds_data(leaf.dtype) for leaf in numbers):
        return None  # machine code reads the data of a scalar where it is
    _, kwargs = call.with_leaves(call.leaves)
    computed = [output for output in results if isinstance(output, int)]
    structure: Any = spec.unflatten(results)
    nested = None
    is_plain = (
        _plain_structure(structure) and flatten(structure)[1] == spec
    )  # tables let go of their labels for a number
    if kwargs or call.has_containers or len(computed) < len(results) or not is_plain:
        nested = (OwnOrder.of(call), spec)
        structure = tuple(computed)
    statics: list[Any] = []
    arguments: list[ArraySpec | ScalarSpec | StaticSpec] = []
    leaf_numbers = []
    for number, leaf in enumerate(call.leaves):
        if (is_plain_object(leaf) and not isinstance(leaf, StaticLeaf)) or isinstance(leaf, FunctionLeaf):
            continue
        leaf_numbers.append(number)
        if not is_dynamic(leaf):
            arguments.append(StaticSpec())
            statics.append(leaf.value if isinstance(leaf, StaticLeaf) else leaf)
        else:
            arguments.append(_spec_of(leaf))
    arguments += map(_spec_of, hidden)
    outputs = tuple(ArraySpec(value.dtype, value.shape) for value in values)
    written_numbers = [leaf_numbers.index(leaf) for leaf in written]
    arrays = [number for number, spec in enumerate(arguments) if isinstance(spec, ArraySpec)]
    disjoint_pairs = tuple(
        [
            (k, other)
            for k in written_numbers
            for other in arrays
            if other != k and (other not in written_numbers or other > k)
        ]
    )
    written_to = tuple([k for k in written_numbers if isinstance(call.leaves[leaf_numbers[k]], np.ndarray)])
    form = CallForm(tuple(arguments), outputs, structure, apart=disjoint_pairs, written=written_to)
    return NativeCall(form, statics, nested, len(call.leaves), tuple(leaf_numbers))


def _spec_of(leaf: Any) -> ArraySpec | ScalarSpec:
    if is_weak(leaf):
        kind: Any = (
            {"f": "float", "i": "int", "c": "complex"}[leaf.dtype.kind]
            if isinstance(leaf, Handle)
            else type(leaf).__name__
        )
        return ScalarSpec(kind)
    if leaf.shape or isinstance(leaf, Handle):
        return ArraySpec(np.dtype(leaf.dtype.type), leaf.shape)
    # Code can tell a scalar from an array of rank 0.
    return ArraySpec(np.dtype(leaf.dtype.type), (), "array" if isinstance(leaf, np.ndarray) else "scalar")


def _plain_structure(structure: Any) -> bool:
    if type(structure) in (tuple, list):
        return all(map(_plain_structure, structure))
    return structure is None or isinstance(structure, int)


def without_lengths(key: Any) -> Any:
    """Return what signatures have in common whose arrays differ in lengths alone.

    Examples
    --------
    >>> key = CallArguments((np.ones((4, 3)), 2.0), {}).key
    >>> without_lengths(key) == without_lengths(CallArguments((np.ones((5, 3)), 1.0), {}).key)
    True
    >>> without_lengths(key) == without_lengths(CallArguments((np.ones(5), 1.0), {}).key)
    False
    """
    head, *leaves = key
    return head, *[
        (leaf[0], len(leaf[1]), *leaf[2:])
        if isinstance(leaf, tuple) and isinstance(leaf[0], np.dtype) and isinstance(leaf[1], tuple)
        else leaf
        for leaf in leaves
    ]


def describe_key(key: Any) -> str:
    """Return the types of the arguments of a signature's key."""
    parts = []
    for leaf in key[1:]:
        if isinstance(leaf, type):
            parts.append(f"Python {leaf.__name__}")
        elif isinstance(leaf[0], np.dtype):
            parts.append(f"{leaf[0]} scalar" if leaf[1] == "scalar" else f"{leaf[0]}{list(leaf[1])}")
        else:
            parts.append("a variable" if issubclass(leaf[0], Variable) else f"static {leaf[1]!r}")
    return f"({', '.join(parts)})"
