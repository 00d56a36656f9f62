"""Sparse Jacobians and Hessians of functions."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, TypeAlias

import numpy as np

from gradtape.api.sparsity.plan import Plan, hessian_plan, jacobian_plan
from gradtape.api.sparsity.products import FlatMaps
from gradtape.api.tape.jacobian import chunk_limit
from gradtape.api.tape.memory import Memory, memory_limit
from gradtape.api.transforms.argnums import Names, Positions, selection_of
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.functional import target_value
from gradtape.api.transforms.jit import Jitted, jit_of
from gradtape.api.transforms.pickling import Repeatable, pickled_as_call, reduced
from gradtape.api.transforms.recording import (
    differentiable,
    differentiable_leaves,
    named,
    recordable_body,
    split_aux,
    zeros_like,
)
from gradtape.api.units import MAGNITUDES, refuse_quantities
from gradtape.config import within_memory
from gradtape.errors import (
    ArgumentError,
    DtypeError,
    GradtapeError,
    NonScalarOutputError,
    ShapeError,
    kind_of,
)
from gradtape.ir.builder import here
from gradtape.ir.graph import TraceTag, Value, literal
from gradtape.ops.core.indexing import gather_row
from gradtape.runtime.compile.cache import Shipment, receive
from gradtape.trace.array.array import Array, placeholder
from gradtape.trace.jit.signature import EVERYTHING_TRACED
from gradtape.trace.lazy.reroll import moment_now, with_loops
from gradtape.trace.routines.sparse_matrices import known_index
from gradtape.trace.source.sites import user_site
from gradtape.transforms.sparsity.index_sets import IndexSets, from_matrix
from gradtape.transforms.vjp import vjp
from gradtape.trees import flatten, unflatten

Mode: TypeAlias = Literal["auto", "fwd", "rev", "both"]
MODES: Final = ("auto", "fwd", "rev", "both")
PATTERNS: Final = ("global", "local")


class SparseTransform(Repeatable):
    """A function that computes a sparse matrix of derivatives. Made by `sparse_jacobian` and `sparse_hessian`.

    It is called with the arguments of the function. The first call with arguments of other shapes, or with other index arrays,
    finds the pattern, colours it and compiles the products; the next ones run machine code.
    """

    def __init__(self, compiled: Jitted[..., Any], caller: str, several: bool, has_aux: bool) -> None:
        self._compiled = compiled
        self._caller = caller
        self._several = several
        self._has_aux = has_aux
        self.__name__ = compiled.__name__
        self.__wrapped__ = compiled

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced(self, self._compiled.shipment())

    def __setstate__(self, state: Shipment) -> None:
        receive(state)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Return the matrix; a tuple of matrices for several arguments; with ``has_aux`` a pair of that and aux."""
        data, aux, layout = self._compiled(*args, **kwargs)
        blocks = [block.filled(each) for block, each in zip(layout.blocks, data, strict=True)]
        matrices = tuple(blocks) if self._several else blocks[0]
        return (matrices, aux) if self._has_aux else matrices

    def __repr__(self) -> str:
        return f"<gradtape.{self.__name__}>"

    def elements(self, *args: Any, **kwargs: Any) -> Any:
        """Return the elements of the pattern alone, row by row, for solvers that know it (see `plan`).

        Returns
        -------
        array
            Shape (number of elements of the pattern,); a tuple of arrays for several arguments.
        """
        data, *_ = self._compiled(*args, **kwargs)
        return tuple(data) if self._several else data[0]

    def plan(self, *args: Any, **kwargs: Any) -> Plan:
        """Return the plan for these arguments: the pattern of the matrix in all arguments side by side, and the colours."""
        *_, layout = self._compiled(*args, **kwargs)
        plan: Plan = layout.plan
        return plan

    def pattern(self, *args: Any, **kwargs: Any) -> Any:
        """Return the pattern for these arguments, in which all arguments stand side by side.

        Returns
        -------
        scipy.sparse.csr_array
            Of booleans; for ``jac_sparsity`` of `scipy.optimize.least_squares` and `scipy.integrate.solve_ivp`.
        """
        return _as_matrix(self.plan(*args, **kwargs))


class Block:
    """The columns of one argument: a pattern of its own, and where its elements stand among those of the matrix."""

    def __init__(self, plan: Plan, start: int, stop: int) -> None:
        chosen = np.flatnonzero((plan.indices >= start) & (plan.indices < stop))
        self.is_whole = len(chosen) == plan.nnz
        self.places = chosen
        self.shape = plan.shape[0], stop - start
        small = max(plan.nnz, *plan.shape) < 2**31
        dtype = np.int32 if small else np.int64
        counts = np.bincount(plan.rows()[chosen], minlength=plan.shape[0])
        self.indices = (plan.indices[chosen] - start).astype(dtype)
        self.indptr = np.concatenate([[0], np.cumsum(counts)]).astype(dtype)

    def taken(self, data: Value) -> Value:
        """Return the elements of the block among those of the whole matrix."""
        places, facts = known_index(self.places, data.shape[0])
        return gather_row(data, places, **facts)

    def filled(self, data: Any) -> Any:
        """Return the matrix with these elements."""
        import scipy.sparse

        # Methods of the matrix, such as eliminate_zeros, write to its pattern.
        whole = scipy.sparse.csr_array((data, self.indices.copy(), self.indptr.copy()), shape=self.shape)
        whole.has_canonical_format = True
        return whole


class Layout:
    """What compiled functions return besides elements: the plan, and the pattern of each argument."""

    def __init__(self, plan: Plan, widths: Sequence[int]) -> None:
        self.plan = plan
        stops = np.cumsum(widths)
        self.blocks = [
            Block(plan, int(stop - width), int(stop)) for width, stop in zip(widths, stops, strict=True)
        ]

    def split(self, data: Value) -> list[Array]:
        """Return the elements of each argument's matrix."""
        return [Array(data if block.is_whole else block.taken(data)) for block in self.blocks]


@pickled_as_call
def sparse_jacobian(
    function: Callable[..., Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    mode: Mode = "auto",
    pattern: Any = "global",
    chunk_size: int | None = None,
    memory: Memory = None,
) -> SparseTransform:
    """Return a function that computes the Jacobian of `function` as a sparse matrix.

    The sparsity pattern is found from the graph of the function. Columns that share no row (or rows that share no column) are computed
    by one product, and one compiled program computes all products.

    Parameters
    ----------
    function : callable
        NumPy code that returns a float, an array of floats, or nested containers of these (with ``has_aux``: a pair of this result and
        anything else).
    argnums : int or sequence of int, optional
        Positions of the arguments to differentiate with respect to, by default the first. Each argument may be a number, an array, or
        nested containers of these.
    argnames : str or sequence of str, optional
        Names of the arguments, instead of `argnums`, as for `grad`.
    has_aux : bool, default False
        Whether `function` returns ``(result, aux)``; then the result is ``(jacobian, aux)``.
    mode : {"auto", "fwd", "rev", "both"}, default "auto"
        Forward mode computes sums of columns, reverse mode sums of rows, "both" some columns and some rows (for a matrix with a few
        dense rows and a few dense columns); "auto" chooses the way with the fewest products.
    pattern : {"global", "local"}, sparse matrix or plan, default "global"
        A global pattern holds for all values of the differentiated arguments. A local one is that of a call: what
        ``np.where`` does not select, what is multiplied by zero and what an index array does not read counts as zero; a call with
        another one is traced anew. Or the pattern itself, if it is known: elements outside it must be zero; or a plan (of the method
        ``plan`` of another transform, in another process too: it can be pickled), which has the colours as well.
    chunk_size : int, optional
        The number of products that are computed at once, as for `jacobian`.
    memory : int or str, optional
        The bytes, as a number or as in ``"2 GB"``, that the intermediate values of these products, and the records of each reversed loop,
        may take, as for `jacobian`.

    Returns
    -------
    SparseTransform
        Takes the arguments of `function`. It returns a `scipy.sparse.csr_array` with a row for each element of the result and a
        column for each element of the argument: arrays are flattened, and the leaves of nested containers stand one after the
        other. A tuple of matrices, if `argnums` or `argnames` is a sequence. Elements of the pattern are stored even where they
        are zero. Its method ``pattern(*args)`` returns the pattern alone.

    Raises
    ------
    DtypeError
        At a call, if a result is no float, or if something is complex.
    ShapeError
        At a call, if the shape of `pattern` is not that of the Jacobian.
    ArgumentError
        If the mode is unknown; at a call, if the pattern has too many elements to be sparse.

    See Also
    --------
    inspect.sparsity : The pattern and the colours as a picture.

    Notes
    -----
    Index arrays are read and guarded: a call in which an index array has changed gets its own pattern. One that
    depends on differentiated arguments may read any element (with a global pattern). Solvers, factorisations and functions with
    derivatives of their own mix all elements of a problem. Loops are analysed iteration by iteration, as far as their trip counts and
    indices are known: of a branch that depends on differentiated arguments both sides count, and such a ``while`` loop may end after any
    of its iterations.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> jac = gt.sparse_jacobian(lambda x: x[1:] * x[:-1])
    >>> J = jac(np.array([1.0, 2.0, 3.0]))
    >>> J.toarray()
    array([[2., 1., 0.],
           [0., 3., 2.]])
    >>> jac.plan(np.ones(1000))
    <999 x 1000, 1998 elements (0.2 %), products: 2 of columns>
    """
    caller = "sparse_jacobian"
    if mode not in MODES:
        raise ArgumentError(
            f"{caller}: mode is {mode!r}",
            where=user_site(),
            remedy='choose "auto", "fwd", "rev" or "both"',
        )
    return _transform(function, argnums, argnames, has_aux, mode, pattern, caller, chunk_size, memory)


@pickled_as_call
def sparse_hessian(
    function: Callable[..., Any],
    argnums: Positions = None,
    *,
    argnames: Names = None,
    has_aux: bool = False,
    pattern: Any = "global",
    chunk_size: int | None = None,
    memory: Memory = None,
) -> SparseTransform:
    """Return a function that computes the Hessian of `function` as a sparse matrix.

    The pattern is found in the graph of the gradient. Products of the Hessian with the sums of columns of a colour are computed
    by forward mode over reverse mode; a star colouring makes use of the symmetry.

    Parameters
    ----------
    function : callable
        NumPy code that returns one real number (with ``has_aux``: a pair of this number and anything else).
    argnums, argnames, has_aux, pattern, chunk_size, memory
        As for `sparse_jacobian`. Several arguments have one Hessian together.

    Returns
    -------
    SparseTransform
        Takes the arguments of `function`, and returns a `scipy.sparse.csr_array` with a row and a column for each element of the
        argument (of all arguments one after the other, if `argnums` or `argnames` is a sequence). Both halves are stored, and the
        diagonal.

    Raises
    ------
    NonScalarOutputError
        At a call, if the result is not one number.
    DtypeError, ShapeError, ArgumentError
        As for `sparse_jacobian`.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def chain(x):
    ...     return np.sum((x[1:] - x[:-1] ** 2) ** 2)
    >>> hess = gt.sparse_hessian(chain)
    >>> hess(np.array([1.0, 2.0, 0.0])).toarray()
    array([[ 4., -4.,  0.],
           [-4., 50., -8.],
           [ 0., -8.,  2.]])
    >>> hess.plan(np.ones(1000))
    <1000 x 1000, 2998 elements (0.3 %), products: 3 of columns>
    """
    return _transform(
        function, argnums, argnames, has_aux, "hessian", pattern, "sparse_hessian", chunk_size, memory
    )


def jacobian_pattern(function: Callable[..., Any], x: Any) -> Any:
    """Return where the Jacobian of a function may be different from zero, whatever is an argument or a parameter of it.

    Parameters
    ----------
    function : callable
        ``function(x)``: an array.
    x : array_like
        An argument, of which only the type counts.

    Returns
    -------
    scipy.sparse.csr_array or None
        Of booleans; None if it is not known.
    """
    tag = TraceTag()
    moment = moment_now()
    start = differentiable(x, tag, "jacobian_pattern")
    target = target_value(function(placeholder(start, x)), "jacobian_pattern")
    tag.recording = False
    (target,), _ = with_loops(moment, [target], None, [start])
    maps = FlatMaps([target], [start], tag, "jacobian_pattern", False)
    try:
        return _as_matrix(maps.pattern_by_constants())
    except GradtapeError:
        return None
    finally:
        tag.end()


def _as_matrix(pattern: Plan | IndexSets) -> Any:
    import scipy.sparse

    ones = np.ones(pattern.nnz, bool)
    parts = ones, pattern.indices.copy(), pattern.indptr.copy()
    return scipy.sparse.csr_array(parts, shape=pattern.shape)


def _transform(
    function: Callable[..., Any],
    argnums: Positions,
    argnames: Names,
    has_aux: bool,
    mode: str,
    pattern: Any,
    caller: str,
    chunk_size: int | None,
    memory: Memory,
) -> SparseTransform:
    check_callable(function, caller)
    here.site = user_site()
    bound, limit = chunk_limit(chunk_size, memory, caller), memory_limit(memory, caller)
    selection = selection_of(function, argnums, argnames, caller)
    given = _given_pattern(pattern, caller)
    is_hessian = mode == "hessian"
    if isinstance(given, Plan) and given.is_symmetric and not is_hessian:
        raise ArgumentError(
            f"{caller}: pattern is the plan of a Hessian",
            where=user_site(),
            why="it computes one of each two elements that are equal",
            remedy="pass a plan of a Jacobian: gt.sparse_jacobian(f).plan(x)",
        )

    def compute(*args: Any, **kwargs: Any) -> Any:
        with within_memory(limit):
            return computed(args, kwargs)

    def computed(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """Record the function, and compute the compressed products of its derivative."""
        here.site = user_site()
        places = selection.places(args, kwargs)
        chosen = selection.chosen(args, kwargs, places)
        refuse_quantities(chosen, f"{caller}: an argument")
        tag = TraceTag()
        leaves, spec = flatten(chosen)
        starts = [
            _real(start, caller)
            for start in differentiable_leaves(
                leaves, tag, lambda position: f"{caller}: {selection.leaf(places, chosen, position)}"
            )
        ]
        moment = moment_now()
        copies = list(map(placeholder, starts, leaves))
        arguments, keywords = selection.replaced(args, kwargs, places, unflatten(spec, copies))
        result = recordable_body(function)(*arguments, **keywords)
        selection.check_copies(args, kwargs, leaves, copies, starts)
        result, aux = split_aux(result, caller) if has_aux else (result, None)
        refuse_quantities(
            result, f"{caller}: the result", f"return magnitudes in units of your choice: {MAGNITUDES}"
        )
        targets = [_real(target_value(leaf, caller), caller) for leaf in flatten(result)[0]]
        if is_hessian:
            targets = _gradients(targets, starts, tag, caller)
        tag.recording = False
        targets, aux = with_loops(moment, targets, aux, starts)
        maps = FlatMaps(targets, starts, tag, caller, pattern == "local" if given is None else False)
        found = maps.pattern() if given is None else _fitting(given, maps.shape, caller)
        plan = found if isinstance(found, Plan) else None
        if plan is None and given is None and mode == "auto":
            plan = maps.plan_by_blocks(found)
        if plan is None:
            plan = hessian_plan(found) if is_hessian else jacobian_plan(found, mode)
        widths = [sum(np.size(leaf) for leaf in flatten(each)[0]) for each in chosen]
        layout = Layout(plan, [sum(widths)] if is_hessian else widths)
        data = layout.split(maps.matrix(plan, bound))
        tag.end()
        return data, aux, layout

    compiled = jit_of(compute, named(caller, function), EVERYTHING_TRACED)
    return SparseTransform(compiled, caller, selection.several and not is_hessian, has_aux)


def _gradients(targets: Sequence[Value], starts: Sequence[Value], tag: TraceTag, caller: str) -> list[Value]:
    """Return the gradient of the only result."""
    if len(targets) != 1 or targets[0].ndim:
        shown = f"an array of shape {targets[0].shape}" if len(targets) == 1 else f"{len(targets)} results"
        raise NonScalarOutputError(
            f"{caller} needs a function that returns one number; this one returned {shown}",
            where=user_site(),
            remedy="sum it (np.sum), or use gt.sparse_jacobian of its gradient",
        )
    one = literal(1, targets[0].dtype)
    found = vjp(targets, starts, [one], lambda value: tag not in value.tags)
    return [zeros_like(start) if part is None else part for part, start in zip(found, starts, strict=True)]


def _real(value: Value, caller: str) -> Value:
    if value.dtype.kind == "c":
        raise DtypeError(
            f"{caller}: {value.dtype} among the arguments or results",
            where=user_site(),
            remedy="work on real and imaginary parts: np.stack([np.real(z), np.imag(z)]); gt.jacobian takes complex numbers",
        )
    return value


def _given_pattern(pattern: Any, caller: str) -> Any:
    """Return the pattern that the user knows as a matrix of booleans; None where it is to be found."""
    if isinstance(pattern, str):
        if pattern not in PATTERNS:
            raise ArgumentError(
                f"{caller}: pattern is {pattern!r}",
                where=user_site(),
                remedy='choose "global" or "local", or give the pattern as a sparse matrix',
            )
        return None
    if isinstance(pattern, Plan):
        return pattern
    import scipy.sparse

    given: Any = pattern
    if not scipy.sparse.issparse(pattern) and not isinstance(pattern, np.ndarray):
        raise DtypeError(
            f"{caller}: pattern is {kind_of(given)}",
            where=user_site(),
            remedy='choose "global" or "local", or give the pattern as a sparse matrix',
        )
    return from_matrix(scipy.sparse.csr_array(given))


def _fitting(pattern: Any, shape: tuple[int, int], caller: str) -> Any:
    if pattern.shape != shape:
        raise ShapeError(
            f"{caller}: pattern has shape {pattern.shape}, but the matrix has shape {shape}",
            where=user_site(),
            remedy="it has a row for each element of the result, and a column for each element of the arguments",
        )
    return pattern
