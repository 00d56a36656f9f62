"""Functions of other libraries as nodes: kernels call them through Python, and their derivatives by the library's own transforms."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from math import prod
from typing import Any, NamedTuple

import numpy as np

from gradtape.api.control.nested import as_value_of_rank
from gradtape.api.custom.call import name_of, zeros_for
from gradtape.api.guests.constants import MOST_OPERATORS, MOST_TYPES, key_of_all
from gradtape.api.guests.flat import inserted
from gradtape.api.guests.operator import Operator, Transforms
from gradtape.errors import ArgumentError, ConcretizationError, kind_of
from gradtape.ir.builder import here
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import Aval, Shape, aval, is_inexact
from gradtape.kinds.control import Rule, custom_call, pulled_by_value, visible_inputs
from gradtape.kinds.cotangent import Cotangent
from gradtape.kinds.routines.host import call_host, enter_function
from gradtape.lru import LRU
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.masked import without_selections
from gradtape.trace.jit.guards import abstract_of
from gradtape.trace.lazy.force import force
from gradtape.trace.patching.copies import original_function
from gradtape.trace.random.observation import OWN, own_calls
from gradtape.trace.source.sites import user_site


class Library(Transforms):
    """A library whose functions become nodes.

    Attributes
    ----------
    caller : str
        What users call, for errors.
    results : str
        What functions return, for errors.
    """

    caller: str
    results: str

    def leaves(self, results: tuple[Any, ...]) -> Sequence[Any]:
        return results

    @abstractmethod
    def flatten(self, tree: Any) -> tuple[list[Any], Any, Any]:
        """Return the leaves of nested containers, their structure, and the key of that."""

    @abstractmethod
    def unflatten(self, structure: Any, leaves: Sequence[Any]) -> Any:
        """Return the containers with other leaves."""

    @abstractmethod
    def is_operand(self, leaf: Any) -> bool:
        """Return whether an argument that is not traced is an operand all the same: an array, or a floating-point number."""

    @abstractmethod
    def is_result(self, leaf: Any) -> bool:
        """Return whether a result is an array."""

    @abstractmethod
    def running(self) -> AbstractContextManager[Any]:
        """Return the context in which functions are called."""

    @abstractmethod
    def given(self, array: NDArray, weak: bool) -> Any:
        """Return an array as one of the library; `weak` if it stands for a number of Python's."""

    @abstractmethod
    def taken(self, result: Any) -> NDArray:
        """Return an array of the library as one of NumPy."""

    @abstractmethod
    def is_conversion(self, error: Exception) -> bool:
        """Return whether an error is that of an array which is visible_inputs by a transform, and converted to one of NumPy."""

    def is_mismatch(self, error: Exception) -> bool:
        """Return whether an error is that of results with other shapes than before: in a pullback, or among the elements of a batch."""
        return False

    @abstractmethod
    def types(self, flat: ForeignCode, operands: Sequence[Aval]) -> Sequence[Aval]:
        """Return the types of a function's results for operands of these types, without computing the results.

        Raises
        ------
        NeedsNumbers
            If the function asks for numbers.
        """

    @abstractmethod
    def types_of(self, flat: ForeignCode, results: Sequence[Any]) -> Sequence[Aval]:
        """Return the types of results."""


class NeedsNumbers(Exception):
    """A function cannot be evaluated without the numbers of its arguments."""


class ForeignCode:
    """A function of operands, one after another, that returns a tuple of arrays.

    Attributes
    ----------
    nesting : object
        The structure of its results, known after a call.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        library: Library,
        structure: Any,
        constants: dict[int, Any],
    ) -> None:
        self.function, self.library, self.name = function, library, name_of(function)
        self._structure, self._constants = structure, constants
        self.nesting: Any = None
        self._returns_one = False

    def __call__(self, *operands: Any) -> tuple[Any, ...]:
        args, kwargs = self.library.unflatten(self._structure, inserted(operands, self._constants))
        returned = self.function(*args, **kwargs)
        if self._returns_one and self.library.is_result(returned):  # as in the call before
            return (returned,)
        results, self.nesting, _ = self.library.flatten(returned)
        self._returns_one = len(results) == 1 and results[0] is returned
        for result in results:
            if not self.library.is_result(result):
                raise ArgumentError(
                    f"{self.library.caller}: {self.name} returned {kind_of(result)}",
                    where=user_site(),
                    why="the results of an operation are arrays",
                    remedy=f"return {self.library.results}, in any containers",
                )
        return tuple(results)


class Results(NamedTuple):
    """The results of a function for operands of some types."""

    nesting: Any
    types: Sequence[Aval]


class ForeignFunction:
    """A function of a library for one structure of its arguments, and one set of constants among them."""

    def __init__(self, flat: ForeignCode, weak: tuple[bool, ...]) -> None:
        self.flat, self.library, self.weak = flat, flat.library, weak
        self.operator = Operator(flat, flat.library)
        self._results: LRU[Any, Results] = LRU(lambda: MOST_TYPES)
        self._calls: dict[Any, tuple[Any, str]] = {}

    def apply(self, values: Sequence[Value]) -> Any:
        """Return the results as Arrays, in their containers."""
        numbers = None if any(abstract_of(value) is not None for value in values) else lambda: force(values)
        results = self._results_of([value.aval for value in values], numbers)
        outs = self.call(self.operator, values, results.types)
        return self.library.unflatten(results.nesting, list(map(Array, outs)))

    def computed(self, arrays: Sequence[NDArray]) -> Any:
        """Return the results for numbers, in their containers: arrays, or scalars of NumPy."""
        types = [aval(array.shape, array.dtype, flag) for array, flag in zip(arrays, self.weak, strict=True)]
        results = self._results_of(types, lambda: arrays)
        result_arrays = list(
            map(np.array, self._called(self.operator, [array.ndim for array in arrays], arrays))
        )
        return self.library.unflatten(
            results.nesting, [array if array.ndim else array[()] for array in result_arrays]
        )

    def call(self, operator: Operator, values: Sequence[Value], types: Sequence[Aval]) -> tuple[Value, ...]:
        """Return the results, of these types, of an operator, as values with the derivatives that it has."""
        ranks = tuple([value.ndim for value in values])
        shapes = tuple([type_.shape for type_ in types])
        # The operator is kept with its key, so that no other one gets its id.
        entry = self._calls.get((id(operator), ranks, shapes))
        if entry is None:
            entry = operator, enter_function(lambda *arrays: self._called(operator, ranks, arrays, shapes))
            self._calls[id(operator), ranks, shapes] = entry
        outs = call_host(entry[1], types, values, takes_stacks=True)
        return custom_call(outs, values, _OperatorRule(self, operator))

    def _results_of(self, types: Sequence[Aval], numbers: Callable[[], Sequence[NDArray]] | None) -> Results:
        """Return the results for operands of some types; `numbers` computes them, if they can be computed."""
        key = tuple([(type_.shape, type_.dtype) for type_ in types])
        results = self._results.get(key)
        if results is None:
            library, flat = self.library, self.flat
            with own_calls(), library.running():
                try:
                    result_types = self._explained(library.types, flat, types)
                except NeedsNumbers as error:
                    if numbers is None:
                        raise ConcretizationError(
                            f"{library.caller}: the shapes of the results of {flat.name} could not be determined without values",
                            where=user_site(),
                            why=f"there are no values in the body of a loop or of a mapped function; the library's error: {error}",
                            remedy=f"correct {flat.name} if that is a mistake; if it needs numbers, "
                            f"gt.callback({flat.name}, np.zeros(shape), x)",
                        ) from error
                    result_types = library.types_of(flat, flat(*self._given(numbers())))
            results = self._results[key] = Results(flat.nesting, result_types)
        return results

    def _called(
        self,
        operator: Operator,
        ranks: Sequence[int],
        arrays: Sequence[NDArray],
        shapes: Sequence[Shape] | None = None,
    ) -> tuple[NDArray, ...]:
        """Compute the results of an operator, or of a stack of calls, of which the number is that of axes in front of all operands.

        `shapes` are those that a program has for the results.
        """
        lead: Shape = arrays[0].shape[: arrays[0].ndim - ranks[0]] if arrays else ()
        if lead:
            operator = operator.mapped((0,) * len(arrays))
            arrays = [array.reshape((prod(lead), *array.shape[len(lead) :])) for array in arrays]
        library = self.library
        around, OWN.active = OWN.active, True
        try:
            with library.running():
                results = self._explained(operator.program, *self._given(arrays))
                result_arrays = [library.taken(result) for result in results]
        finally:
            OWN.active = around
        for array, shape in zip(result_arrays, shapes or (), strict=shapes is not None):
            if array.shape[bool(lead) :] != shape:
                raise self._other_shapes(
                    f"returned an array of shape {array.shape[bool(lead) :]}, and one of shape {shape} when its shapes were determined"
                )
        return tuple(
            [array.reshape((*lead, *array.shape[1:])) for array in result_arrays] if lead else result_arrays
        )

    def _explained(self, function: Callable[..., Any], *args: Any) -> Any:
        """Call a function of the library, and say what is wrong if it is one of NumPy."""
        name = self.flat.name
        try:
            return function(*args)
        except Exception as error:
            if self.library.is_mismatch(error):
                raise self._other_shapes(
                    "returned arrays of other shapes than when its shapes were determined"
                ) from error
            if not self.library.is_conversion(error):
                raise
            raise ArgumentError(
                f"{self.library.caller}: {name} converts {self.library.results} to NumPy arrays",
                where=user_site(),
                why="their derivatives end there",
                remedy=f"call {name}(x) itself, which gradtape traces, or write it without NumPy",
            ) from error

    def _other_shapes(self, problem: str) -> ArgumentError:
        return ArgumentError(
            f"{self.library.caller}: {self.flat.name} {problem}",
            where=user_site(),
            why="a compiled program has the shapes of its first call",
            remedy="return arrays whose shapes do not depend on numbers: torch.where(x > 0, x, 0), not x[x > 0]",
        )

    def _given(self, arrays: Sequence[NDArray]) -> list[Any]:
        weak = (*self.weak, *(False,) * (len(arrays) - len(self.weak)))
        return [
            self.library.given(array, flag and not array.ndim)
            for array, flag in zip(arrays, weak, strict=True)
        ]


class _OperatorRule(Rule):
    """The derivatives of an operator: its pushforward and its pullback, which are operators with derivatives of their own."""

    def __init__(self, function: ForeignFunction, operator: Operator) -> None:
        super().__init__(function.flat.name)
        self._function, self._operator = function, operator

    def push(self, node: Node, tangents: Sequence[Value | None]) -> Sequence[Value | None]:
        values = visible_inputs(node)
        moving = tuple([number for number, tangent in enumerate(tangents) if tangent is not None])
        moved = [tangent for tangent in tangents if tangent is not None]
        types = [aval(out.shape, out.dtype) for out in node.outs if is_inexact(out.dtype)]
        if not types:
            return [None] * len(node.outs)
        pushforward = self._operator.pushforward(moving, len(values))
        pushed = iter(self._function.call(pushforward, [*values, *moved], types))
        return [next(pushed) if is_inexact(out.dtype) else None for out in node.outs]

    def pull(
        self, node: Node, cotangents: Sequence[Value | None], is_needed: Sequence[bool]
    ) -> Sequence[Value | None]:
        values = visible_inputs(node)
        positions = tuple(
            [
                position
                for position, (value, flag) in enumerate(zip(values, is_needed, strict=True))
                if flag and is_inexact(value.dtype)
            ]
        )
        weights = [
            zeros_for(out) if cotangent is None else cotangent
            for out, cotangent in zip(node.outs, cotangents, strict=True)
            if is_inexact(out.dtype)
        ]
        pulled: list[Value | None] = [None] * len(values)
        if positions and weights:
            types = [aval(values[position].shape, values[position].dtype) for position in positions]
            below = self._operator.transposed(positions)
            pullback, count = below or (self._operator.pullback(positions, len(values)), len(values))
            parts = self._function.call(pullback, [*values[:count], *weights], types)
            for position, part in zip(positions, parts, strict=True):
                pulled[position] = part
        return pulled

    def pull_back(
        self, node: Node, cotangents: Sequence[Cotangent | None], is_needed: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        return pulled_by_value(self, node, cotangents, is_needed)


def native(array: NDArray) -> NDArray:
    """Return an array in the byte order of the machine: other libraries have no other."""
    return array if array.dtype.isnative else array.astype(array.dtype.newbyteorder("="))


def wrapped(function: Callable[..., Any], library: Library) -> Callable[..., Any]:
    """Return a function of arrays, traced ones or not, for a function of a library."""
    function = original_function(function)  # not the copy that a trace reads
    functions: LRU[Any, ForeignFunction] = LRU(lambda: MOST_OPERATORS)

    def of_arrays(*args: Any, **kwargs: Any) -> Any:
        here.site = user_site()
        args, kwargs = without_selections((args, kwargs))
        leaves, structure, key = library.flatten((args, kwargs))
        is_operand = [isinstance(leaf, Handle) or library.is_operand(leaf) for leaf in leaves]
        operands = [leaf for leaf, flag in zip(leaves, is_operand, strict=True) if flag]
        constants = {number: leaf for number, leaf in enumerate(leaves) if not is_operand[number]}
        weak = tuple(
            [
                leaf.value.aval.weak if isinstance(leaf, Handle) else isinstance(leaf, float | complex)
                for leaf in operands
            ]
        )
        key_with_constants = key, weak, key_of_all(constants)
        foreign = functions.get(key_with_constants)
        if foreign is None:
            flat = ForeignCode(function, library, structure, constants)
            foreign = functions[key_with_constants] = ForeignFunction(flat, weak)
        arrays = [
            native(library.taken(leaf)) if hasattr(leaf, "dtype") and not isinstance(leaf, Handle) else leaf
            for leaf in operands
        ]
        if not any(isinstance(leaf, Handle) for leaf in operands):
            return foreign.computed(list(map(np.asarray, arrays)))
        return foreign.apply(
            [as_value_of_rank(array, f"an argument of {foreign.flat.name}") for array in arrays]
        )

    return of_arrays
