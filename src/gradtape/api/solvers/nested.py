"""Functions of nested arrays as functions of one vector, compiled, for solvers that know vectors only."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from gradtape.api.solvers.solution import product, weighted_hessian
from gradtape.api.sparsity.transform import sparse_hessian, sparse_jacobian
from gradtape.api.transforms.functional import hessian, jacobian
from gradtape.api.transforms.gradient import value_and_grad
from gradtape.api.transforms.jit import jit
from gradtape.api.units import refuse_quantities
from gradtape.errors import ArgumentError, DtypeError, ShapeError, kind_of
from gradtape.lru import LRU
from gradtape.runtime.compile.background import solving
from gradtape.trace.array.handle import Handle
from gradtape.trace.dispatch.call_errors import list_error
from gradtape.trace.source.sites import user_site
from gradtape.trees import TreeSpec, flatten, spread_prefix, structure_key, unflatten

Sparse: TypeAlias = Literal["auto"] | bool
Function = Callable[..., Any]

LARGE: Final = 500
"""With fewer unknowns than these, derivatives are dense unless sparse ones are asked for."""

DENSITY: Final = 0.1
"""Up to which part of the elements a matrix is taken as sparse."""


class Unknowns:
    """Nested arrays of floats as one vector.

    Parameters
    ----------
    x0 : nest of array_like
        The unknowns. A list of numbers is an array.
    caller : str
        The function that takes them, for errors.
    argument : str
        The name of its argument, for errors.

    Attributes
    ----------
    vector : array
        They, one after the other.
    shapes : tuple of tuple of int
        The shapes of the leaves.
    spec : TreeSpec
        The containers.
    structure : object
        Their keys in order; see `structure_key`.
    """

    def __init__(self, x0: Any, caller: str, argument: str = "x0") -> None:
        if x0 is None:
            raise ArgumentError(
                f"{caller}: {argument} is None",
                where=user_site(),
                remedy=f"pass initial values: {argument}=np.zeros(3), a number, or (nested) containers of these",
            )
        refuse_quantities(x0, f"{caller}: {argument}")
        if type(x0) is list and x0 and all(map(_is_number, x0)):  # an array, as SciPy takes it
            x0 = np.stack(x0)
        leaves, self.spec = flatten(x0)
        self.structure = structure_key(x0)
        arrays: list[Any] = [leaf if isinstance(leaf, Handle) else np.asarray(leaf) for leaf in leaves]
        for array in arrays:
            if array.dtype.kind not in "fiu":
                raise DtypeError(
                    f"{caller}: {argument} has an array of dtype {array.dtype}",
                    where=user_site(),
                    why="only real numbers are supported",
                    remedy="pass real and imaginary parts as unknowns of their own"
                    if array.dtype.kind == "c"
                    else "pass floats",
                )
        self.shapes = tuple([np.shape(array) for array in arrays])
        self.vector = np.concatenate([np.reshape(array, -1) * 1.0 for array in arrays] or [np.zeros(0)])

    def nested(self, vector: Any) -> Any:
        """Return a vector in the containers of the unknowns."""
        return nested(vector, self.shapes, self.spec)

    def bounds(self, given: Any, caller: str) -> Any:
        """Return bounds of the vector as SciPy takes them: pairs, as they are passed for a single array, or `scipy.optimize.Bounds`."""
        if given is None or (isinstance(given, list) and len(self.shapes) == 1):
            return given
        optimize: Any = importlib.import_module("scipy.optimize")
        return optimize.Bounds(*self.ends(given, caller))

    def ends(self, given: Any, caller: str) -> tuple[Any, Any]:
        """Return bounds as two vectors: pairs as SciPy's, or lower and upper bounds of the structure of the unknowns or of a part of it."""
        if given is None:
            return np.full(self.vector.size, -np.inf), np.full(self.vector.size, np.inf)
        if isinstance(given, list) and len(self.shapes) == 1:
            if len(given) != self.vector.size or any(
                not np.iterable(pair) or len([*pair]) != 2 for pair in given
            ):
                raise ShapeError(
                    f"{caller}: bounds are a list of {len(given)} elements that are not one pair for each of {self.vector.size} unknowns",
                    where=user_site(),
                    remedy="pass a pair (lower, upper) for each unknown, or two arrays, or two numbers in a tuple: bounds=(0.0, 1.0)",
                )
            infinite = -np.inf, np.inf
            pairs = [
                [end if one is None else one for one, end in zip(pair, infinite, strict=True)]
                for pair in given
            ]
            low, high = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
            return np.stack(low) * 1.0, np.stack(high) * 1.0
        low, high = (given.lb, given.ub) if hasattr(given, "lb") else _pair(given, caller)
        whole = unflatten(self.spec, list(range(len(self.shapes))))
        ends = []
        for name, end, none in (("lower", low, -np.inf), ("upper", high, np.inf)):
            end = none if end is None else end
            if len(self.shapes) == 1 and not isinstance(end, dict):
                leaves = [end] if isinstance(end, list | tuple) or np.ndim(end) else flatten(end)[0]
            else:
                leaves = spread_prefix(end, whole, f"the {name} bounds", "x0", user_site())
            parts = []
            for leaf, shape in zip(leaves, self.shapes, strict=True):
                numbers = _numbers(leaf, none)
                lead = (1,) * (len(shape) - np.ndim(numbers))
                extents = zip((*lead, *np.shape(numbers)), shape, strict=False)
                fits = np.ndim(numbers) <= len(shape) and all(one in (1, extent) for one, extent in extents)
                if not fits:
                    raise ShapeError(
                        f"{caller}: the {name} bounds have an array of shape {np.shape(leaf)} for unknowns of shape {shape}",
                        where=user_site(),
                        remedy="pass one bound for each number, or one for all",
                    )
                part = numbers + np.zeros(shape)
                if not isinstance(part, Handle) and np.isnan(part).any():
                    raise ArgumentError(
                        f"{caller}: the {name} bounds have a NaN",
                        where=user_site(),
                        remedy=f"pass None or {none} where there is no bound",
                    )
                parts.append(np.reshape(part, -1))
            ends.append(np.concatenate(parts))
        return ends[0], ends[1]


def _is_number(entry: Any) -> bool:
    return not entry.ndim if isinstance(entry, Handle) else isinstance(entry, int | float | np.number)


def nested(vector: Any, shapes: Sequence[tuple[int, ...]], spec: TreeSpec) -> Any:
    """Return a vector as arrays of these shapes in containers."""
    parts, first = [], 0
    for shape in shapes:
        last = first + int(np.prod(shape, dtype=int))
        parts.append(np.reshape(vector[first:last], shape) if shape else vector[first])
        first = last
    return unflatten(spec, parts)


def _numbers(given: Any, none: float) -> Any:
    """Return bounds as floats, with `none` where there is None."""
    if isinstance(given, Handle):
        return given
    if isinstance(given, list | tuple) and any(isinstance(entry, Handle) for entry in given):
        return np.stack([_numbers(entry, none) for entry in given])
    objects: Any = np.asarray(given, object)
    return np.where(objects == None, none, objects).astype(float)  # noqa: E711 - element by element


def _pair(given: Any, caller: str) -> Any:
    if isinstance(given, tuple) and len(given) == 2:
        return given
    raise ArgumentError(
        f"{caller}: bounds must be a pair (lower, upper), got {kind_of(given)}",
        where=user_site(),
        remedy="bounds=(0.0, 1.0), or two containers like x0 with numbers or arrays",
    )


def vector_of(results: Any) -> Any:
    """Return nested arrays as one vector."""
    leaves, _ = flatten(results)
    return np.concatenate([np.reshape(leaf, -1) * 1.0 for leaf in leaves])


Maker = Callable[..., Function]

_programs: Final[LRU[Any, Function]] = LRU(lambda: 256)
"""Compiled functions of a vector, by the user's function, the structure of its argument and what they compute."""


class Program:
    """The user's function as one of a vector, and its derivatives, compiled once for all calls with the same function.

    Parameters
    ----------
    function : callable
        ``function(x, *args)`` of nested unknowns.
    unknowns : Unknowns
        The structure of `x`.
    flat : callable
        ``flat(function, x, *args)``: what is computed.
    """

    def __init__(self, function: Function, unknowns: Unknowns, flat: Function) -> None:
        self._function, self._unknowns, self._flat = function, unknowns, flat
        self.calls = 0

    def traced(self, vector: Any, *args: Any) -> Any:
        """Evaluate the function of a vector, to be traced."""
        return self._flat(self._function, self._unknowns.nested(vector), *args)

    def compiled(self, transform: Function) -> Function:
        """Return a transform of the function of a vector, compiled; its calls are counted."""
        unknowns = self._unknowns
        key: Any
        try:
            key = (self._function, self._flat, transform, unknowns.shapes, unknowns.spec, unknowns.structure)
            made = _programs.get(key)
        except TypeError:  # a callable that cannot be hashed
            key = made = None
        if made is None:
            function, flat, shapes, spec = self._function, self._flat, unknowns.shapes, unknowns.spec

            def of_vector(vector: Any, *args: Any) -> Any:
                return flat(function, nested(vector, shapes, spec), *args)

            made = transform(of_vector)
            if key is not None:
                _programs[key] = made
        chosen = made

        @solving
        def counted(vector: Any, *args: Any) -> Any:
            self.calls += 1
            try:
                return chosen(vector, *args)
            except (TypeError, AttributeError) as error:
                mistake = list_error(error, self._function, (unknowns.nested(vector), *args), {})
                if mistake is None:
                    raise
                raise mistake from None

        return counted

    def jacobian(self, method_takes_sparse: bool, sparse: Sparse, vector: Any, *args: Any) -> Function:
        """Return the Jacobian as a compiled function: a sparse one if that is what the method takes, and few elements are not zero."""
        if method_takes_sparse and is_sparse(
            sparse, lambda: self.compiled(pattern_of)(vector, *args), vector
        ):
            return self.compiled(sparse_jacobian)
        return self.compiled(compiled_jacobian)


def pattern_of(function: Function) -> Function:
    return sparse_jacobian(function).pattern


def hessian_pattern(function: Function) -> Function:
    return sparse_hessian(function).pattern


def compiled_jacobian(function: Function) -> Function:
    return jit(jacobian(function))


def compiled_hessian(function: Function) -> Function:
    return jit(hessian(function))


def compiled_value_and_grad(function: Function) -> Function:
    return jit(value_and_grad(function))


def compiled_product(function: Function) -> Function:
    return jit(product(function))


def compiled_weighted_hessian(function: Function) -> Function:
    return jit(weighted_hessian(function))


def is_sparse(asked: Sparse, pattern: Callable[[], Any], vector: Any) -> bool:
    if asked != "auto":
        return asked
    if vector.size < LARGE:
        return False
    found = pattern()
    return bool(found.nnz <= DENSITY * found.shape[0] * found.shape[1])
