"""`callback`: Python functions that are not traced, called by compiled functions."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Hashable, Sequence
from math import prod
from types import MethodType
from typing import Any

import numpy as np

from gradtape.api.control.nested import NumericLeaves, handed_back
from gradtape.api.custom.differences import METHODS, Differences, Method
from gradtape.api.custom.rules import custom_jvp
from gradtape.api.transforms.callables import check_callable
from gradtape.errors import (
    ArgumentError,
    ConcretizationError,
    DtypeError,
    GradtapeWarning,
    ShapeError,
    StructureError,
    kind_of,
    warn,
)
from gradtape.habits import suggests_keywords
from gradtape.ir.builder import at, here
from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import is_inexact
from gradtape.kinds.routines.host import call_host, enter_function
from gradtape.trace.array.array import Array
from gradtape.trace.array.concretize import array_of
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import abstract_of
from gradtape.trace.lazy.force import force
from gradtape.trace.patching.copies import original_function
from gradtape.trace.random.observation import own_calls
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, outline, unflatten


@suggests_keywords
def callback(
    function: Callable[..., Any],
    result_like: Any = None,
    *args: Any,
    derivative: Method | None = None,
    sparsity: Any = None,
) -> Any:
    """Call a Python function with ndarrays at each call, also inside a compiled function.

    Parameters
    ----------
    function : callable
        ``function(*args) -> results``. It gets ndarrays (scalars for arrays of rank 0) and is not traced, so it may use any library.
        Its results must depend on its arguments alone.
    result_like : nest of array_like
        Arrays with the shapes and dtypes of the results: ``np.zeros(3)``. Their values do not matter. If it is None, the function is
        called once to find the shapes and dtypes; this needs the values of the arguments, which are known on tapes and when a jitted
        function is traced, but not in the bodies of loops.
    *args : array_like, or nests of them
        Its arguments.
    derivative : {"differences", "complex-step"}, optional
        How its derivatives are computed: by central differences whose steps are chosen by an estimated error (`scipy.differentiate`;
        about 11 calls for each number of the arguments, and 9 to 13 digits of a smooth function), or by complex steps (one call for
        each number, all digits; the function must compute with complex numbers). By default there is none.
    sparsity : sparse matrix or array_like of bool, optional
        The sparsity pattern of the Jacobian, with a row for each number of the results and a column for each floating-point number of
        the arguments. Columns that share no row are computed together.

    Returns
    -------
    nest
        The results, in the containers of `result_like`.

    Raises
    ------
    ShapeError, StructureError
        When it is called, if a result has another shape, or the results have other containers or units, than `result_like`.
    NotDifferentiableError
        If a derivative with respect to one of the arguments is requested, without `derivative`. Pass ``gt.stop_gradient(x)`` where it is
        constant, or call it in the body of a function with a custom derivative (`custom_vjp`, `custom_jvp`).
    ConcretizationError
        If `result_like` is None and the arguments have no concrete values.

    See Also
    --------
    custom_root : What a solver returns, with its derivative.

    Notes
    -----
    A kernel takes Python's lock for the call, which costs 3 to 10 microseconds. Under `vmap` the function is called once for each
    element. A call whose result is not used may be left out.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def rank(a):
    ...     return np.float64(np.linalg.matrix_rank(a))
    >>> @gt.jit
    ... def f(a):
    ...     return np.sum(a) * gt.callback(rank, 0.0, gt.stop_gradient(a))
    >>> float(f(np.eye(3)))
    9.0

    A simulator that is a black box:

    >>> import math, warnings
    >>> def simulate(x):
    ...     return math.exp(x[0]) * x[1] ** 2
    >>> x = np.array([0.5, 3.0])
    >>> with warnings.catch_warnings(action="ignore"):
    ...     slope = gt.grad(lambda x: gt.callback(simulate, 0.0, x, derivative="differences"))(x)
    >>> np.allclose(slope, [9 * math.exp(0.5), 6 * math.exp(0.5)], rtol=1e-9)
    True
    """
    here.site = user_site()
    check_callable(function, "callback")
    function = original_function(
        function
    )  # not the copy that a trace reads: it reads and writes what is outside, in each call
    if derivative is not None and derivative not in METHODS:
        raise ArgumentError(
            f"callback: unknown derivative {derivative!r}",
            where=here.site,
            remedy=f"derivative={METHODS[0]!r} or {METHODS[1]!r}; a rule of your own is given by gt.custom_vjp",
        )
    if sparsity is not None and derivative is None:
        raise ArgumentError(
            "callback: sparsity needs a derivative",
            where=here.site,
            remedy=f"derivative={METHODS[0]!r}",
        )
    if sparsity is not None:
        sparsity = _pattern(sparsity)
    host = _HostFunction(function, args, result_like, here.site)
    if derivative is None:
        return host.returned(host.results(*host.operands.values))
    return _differentiable(host, derivative, sparsity)


def _pattern(given: Any) -> Any:
    """Return a sparsity pattern as a sparse matrix of booleans."""
    sparse: Any = importlib.import_module("scipy.sparse")
    if not sparse.issparse(given):
        leaves, spec = flatten(given)
        numbers = [
            array_of(leaf.value, "the sparsity of a Jacobian, which is the content")  # a captured array
            if isinstance(leaf, Handle)
            else leaf
            for leaf in leaves
        ]
        try:
            matrix = np.asarray(unflatten(spec, numbers))
        except ValueError:  # rows of several lengths
            matrix = np.zeros(0, object)
        if matrix.ndim != 2 or matrix.dtype.kind not in "biuf":
            is_array = matrix.ndim > 0 and matrix.dtype.kind in "biuf"
            raise ArgumentError(
                f"callback: sparsity is {f'an array of shape {matrix.shape}' if is_array else kind_of(given)}",
                where=here.site,
                remedy="give one matrix, dense or sparse, with a row for each number of the results and a column for each floating-point "
                "number of the arguments",
            )
        given = matrix
    pattern = sparse.csr_array(given, dtype=bool)
    pattern.eliminate_zeros()
    return pattern


class _HostFunction:
    """A function of the user's that is called with numbers.

    Parameters
    ----------
    function : callable
        The function.
    args : tuple
        What it is called with.
    result_like : nest of array_like or None
        Arrays with the shapes and dtypes of its results. None: they are learned by a call.
    site : Site
        The user's line that calls it: a rule for its derivative runs when that line is over.

    Attributes
    ----------
    operands : NumericLeaves
        The arguments.
    like : NumericLeaves
        Arrays like the results.
    """

    def __init__(
        self, function: Callable[..., Any], args: tuple[Any, ...], result_like: Any, site: Any
    ) -> None:
        self.function, self.name = function, getattr(function, "__name__", type(function).__name__)
        self.site = site
        self.operands = NumericLeaves(args, "args")
        if result_like is None:
            arrays = [self._number(value) for value in self.operands.values]
            result_like = self._called(arrays)
        self.like = NumericLeaves(result_like, "result_like")
        self.types = [value.aval for value in self.like.values]

    def _number(self, value: Value) -> NDArray:
        if abstract_of(value) is None:
            return force([value])[0]
        raise ConcretizationError(
            f"callback: the shapes of the results of {self.name} cannot be determined by calling it",
            where=user_site(),
            why="its arguments have no numbers in the body of a loop, or of a mapped function",
            remedy="give arrays like the results as result_like: np.zeros(3)",
        )

    def _called(self, arrays: Sequence[NDArray]) -> Any:
        given = self.operands.rebuild([array if array.ndim else array[()] for array in arrays])
        with own_calls():  # while a trace computes an example
            return self.function(*given)

    def call(self, *arrays: NDArray) -> tuple[NDArray, ...]:
        """Return the function's results, of which the shapes are checked."""
        leaves, spec = flatten(self._called(arrays))
        found = [np.asarray(leaf) for leaf in leaves]
        if spec != self.like.spec:
            raise StructureError(
                f"callback: {self.name} returned {outline(spec)}, and result_like is {outline(self.like.spec)}",
                why="* stands for an array or a number; units of quantities are a part of the structure",
                remedy="give result_like the containers and units of the results: the result of one call will do",
            )
        if [array.shape for array in found] != [type_.shape for type_ in self.types]:
            raise ShapeError(
                f"callback: {self.name} returned arrays of shapes {[array.shape for array in found]}",
                why=f"result_like has the shapes {[type_.shape for type_ in self.types]}",
                remedy="pass arrays with the shapes of its results as result_like",
            )
        return tuple(found)

    def results(self, *inputs: Value) -> tuple[Value, ...]:
        """Return the results as values that a kernel computes."""
        with at(self.site):
            return call_host(enter_function(self.call, self._identity()), self.types, inputs)

    def _identity(self) -> Hashable:
        """Return what calls have in common that compute the same: the function, and the types of its results. None if arguments or
        results have containers, or arguments have parts that are no arrays.
        """
        leaves, results = self.operands.spec.num_leaves, self.like.spec
        if self.operands.spec.num_nodes != leaves + 1 or len(self.operands.positions) != leaves:
            return None
        if results.num_nodes > 1 and (
            results.type is not tuple or results.num_nodes > results.num_leaves + 1
        ):
            return None
        function = self.function
        ids: tuple[int, ...] = (id(function),)
        if isinstance(function, MethodType):  # made anew at each access
            ids = (id(function.__func__), id(function.__self__))
        return (
            *ids,
            leaves,
            results.num_nodes,
            tuple([(type_.shape, type_.dtype.char) for type_ in self.types]),
        )

    def returned(self, values: Sequence[Value]) -> Any:
        """Return results in their containers, as the caller works."""
        return self.like.rebuild(handed_back(values, self.operands.recorded))


def _differentiable(host: _HostFunction, method: Method, sparsity: Any, order: int = 1) -> Any:
    """Return the results of a function with derivatives by differences or complex steps, of any order; `order` is that of the first."""
    values = host.operands.values
    if not host.operands.recorded:
        return host.returned(host.results(*values))
    moving = [k for k, value in enumerate(values) if is_inexact(value.dtype)]
    for value in (*(values[k] for k in moving), *host.like.values):
        if value.dtype.kind == "c":
            raise DtypeError(
                f"callback: derivatives of {host.name} are computed for real arguments and results, not for {value.dtype}",
                where=here.site,
                remedy="pass the real and the imaginary part as two arguments, and return two results",
            )
    sizes = [prod(values[k].shape) for k in moving]
    counts = [prod(type_.shape) for type_ in host.types]
    floating = [
        value.dtype for value in (*(values[k] for k in moving), *host.like.values) if is_inexact(value.dtype)
    ]
    coarsest = max(floating, key=lambda dtype: np.finfo(dtype).eps, default=np.dtype(float))

    def jacobian(*arrays: NDArray) -> NDArray:
        """Return the derivatives of all numbers of the results with respect to all floating numbers of the arguments."""

        def vector_function(vector: NDArray) -> NDArray:
            given = [*arrays]
            for k, part in zip(moving, np.split(vector, np.cumsum(sizes)[:-1]), strict=True):
                dtype = np.result_type(vector, np.float64) if vector.dtype.kind == "c" else values[k].dtype
                given[k] = part.reshape(values[k].shape).astype(dtype)
            return np.concatenate([np.ravel(part) for part in host.call(*given)])

        point = np.concatenate([np.ravel(arrays[k]) for k in moving]).astype(float)
        return Differences(vector_function, host.name, method, sparsity, coarsest)(point, sum(counts))

    jacobian.__name__ = f"the Jacobian of {host.name}"

    @custom_jvp
    def computed(*arrays: Any) -> Any:
        outs = host.results(*NumericLeaves(arrays, "args").values)
        return tuple(map(Array, outs))

    @computed.defjvp
    def rule(primals: Any, tangents: Any) -> Any:
        if method == "differences" and order == 1:
            warn(
                GradtapeWarning,
                f"callback: derivatives of {host.name} are computed by differences",
                where=host.site,
                why=f"about 11 calls for each of the {sum(sizes)} numbers of its arguments, and fewer digits than a rule gives",
                remedy='give it a rule by gt.custom_vjp, or derivative="complex-step" if it computes with complex numbers; else ignore '
                "this with warnings.filterwarnings",
            )
        shape = np.zeros((sum(counts), sum(sizes)))
        slopes = _differentiable(_HostFunction(jacobian, primals, shape, host.site), method, None, order + 1)
        moved = slopes @ np.concatenate([np.ravel(tangents[k]) for k in moving])
        ends = np.cumsum(counts)
        parts = [
            np.reshape(moved[end - count : end], type_.shape).astype(type_.dtype)
            for end, count, type_ in zip(ends, counts, host.types, strict=True)
        ]
        return computed(*primals), tuple(parts)

    return host.like.rebuild(computed(*map(Array, values)))
