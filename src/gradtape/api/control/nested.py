"""Nested containers of the carries, arguments and results of loops: arrays and numbers to be traced, and static leaves."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from gradtape.errors import DtypeError, StructureError, kind_of
from gradtape.ir.graph import Literal, Value
from gradtape.ir.types import Aval, aval
from gradtape.kinds.operands import as_value, broadcast_to
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.leaf_kinds import is_numeric
from gradtape.trace.lazy.force import force
from gradtape.trace.variables.variable import Variable
from gradtape.trees import Leaves, element_spec, flatten, outline, place_of_leaf


class NumericLeaves(Leaves):
    """The leaves of a tree whose arrays and numbers are traced; None is an empty container.

    Parameters
    ----------
    tree : object
        The containers.
    argument : str
        What they are, for errors.
    elements : bool, default False
        Whether other values that take their places are elements of theirs, as in a scan.

    Attributes
    ----------
    values : list of Value
        Those leaves that are arrays or numbers.
    """

    def __init__(self, tree: Any, argument: str, *, elements: bool = False) -> None:
        self.tree, self.argument = tree, argument
        leaves, spec = flatten(tree)
        super().__init__(leaves, element_spec(tree, spec) if elements else spec, is_numeric)
        self.values = [
            as_value_of_rank(self.leaves[position], self.place(position)) for position in self.positions
        ]

    def place(self, position: int) -> str:
        """Return where a leaf stands, as one would write it."""
        return f"{self.argument}{place_of_leaf(self.tree, position)}"

    def places(self) -> list[str]:
        """Return where the arrays and numbers stand."""
        return [self.place(position) for position in self.positions]

    def with_arrays(self, values: Sequence[Value]) -> Any:
        """Return the containers with Arrays of other values."""
        return self.rebuild(map(Array, values))

    @property
    def recorded(self) -> bool:
        """Whether a leaf belongs to a recording."""
        return any(
            isinstance(leaf, Handle) and (not isinstance(leaf, Variable) or leaf.is_recorded)
            for leaf in self.leaves
        )

    def statics(self) -> list[tuple[int, Any]]:
        """Return the leaves that stay as they are, with their positions."""
        chosen = set(self.positions)
        return [(position, leaf) for position, leaf in enumerate(self.leaves) if position not in chosen]


def as_value_of_rank(leaf: Any, argument: str) -> Value:
    """Return a leaf as a value that is no part of the program text."""
    value = leaf.value if isinstance(leaf, Handle) else as_value(leaf, argument)
    return Value(value.aval, data=value.data) if isinstance(value, Literal) else value


def result_value(leaf: Any, argument: str) -> Value:
    """Return a result of a body as a value that a node computes."""
    value = leaf.value if isinstance(leaf, Handle) else as_value(leaf, argument)
    return weakly(broadcast_to(value, ()), value.aval) if isinstance(value, Literal) else value


def weakly(value: Value, like: Aval) -> Value:
    """Return a value with the weak type of another."""
    value.aval = aval(value.shape, value.dtype, like.weak)
    return value


def returned_nest(result: Any, like: NumericLeaves, name: str, where: Any) -> list[Any]:
    """Return the leaves of a body's result, which must have the structure of its argument.

    Parameters
    ----------
    result : object
        What it returned.
    like : NumericLeaves
        What it was given.
    what : str
        What that is, for errors.
    where : object
        A place for errors.

    Returns
    -------
    list
        Those that stand where `like` has arrays or numbers.

    Raises
    ------
    StructureError
        Where the containers differ, or leaves that stay as they are.
    DtypeError
        For what is neither an array nor a number.
    """
    leaves, spec = flatten(result)
    if spec != like.spec:
        remedy = f"return the containers of {like.argument}, or start with those that are returned"
        if result is None:
            remedy = "return the carry, also where the function writes to it: out[k] = x; return out"
        raise StructureError(
            f"{name} has the structure {outline(spec)}, and {like.argument} has {outline(like.spec)}",
            where=where,
            why="the carry has the same containers in each iteration",
            remedy=remedy,
        )
    for position, old in like.statics():
        if not (leaves[position] is old or _equal(leaves[position], old)):
            raise StructureError(
                f"{at(name, place_of_leaf(result, position))} is {_brief(leaves[position])}, and {like.place(position)} is {_brief(old)}",
                where=where,
                why="objects other than arrays and numbers are part of the program and cannot change",
                remedy="carry a number in its place",
            )
    for place in like.positions:
        refuse_static(leaves[place], at(name, place_of_leaf(result, place)), where)
    return like.select(leaves)


def refuse_static(leaf: Any, name: str, where: Any) -> None:
    """Raise DtypeError unless a leaf is an array or a number."""
    if not is_numeric(leaf):
        raise DtypeError(
            f"{name} is {kind_of(leaf)}, which is neither an array nor a number",
            where=where,
            remedy="return arrays, numbers, None, or nests of these",
        )


def at(name: str, path: str) -> str:
    """Return the name of a part."""
    return f"{name}: {path}" if path else name


def type_of(value: Value | Aval) -> str:
    """Return a type as errors show it: ``f64[3]``."""
    type_ = value.aval if isinstance(value, Value) else value
    return repr(aval(type_.shape, type_.dtype))


def handed_back(values: Sequence[Value], recorded: bool) -> list[Any]:
    """Return values as Arrays in a recording, else as ndarrays."""
    if recorded or any(tag.recording for value in values for tag in value.tags):
        return [Array(value) for value in values]
    return [array.copy() if array.ndim else array[()] for array in force(values)]


def described(function: Callable[..., Any]) -> str:
    """Return the name of a function, quoted."""
    return repr(getattr(function, "__name__", type(function).__name__))


def _equal(first: Any, second: Any) -> bool:
    return type(first) is type(second) and bool(first == second)


def _brief(leaf: Any) -> str:
    text = repr(leaf)
    return f"{text[:40]}..." if len(text) > 40 else text
