"""The elementwise kind: ``out[i] = f(x[i], y[i], ...)``."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Container, Mapping, Sequence
from functools import cache, lru_cache, reduce
from typing import Any, Final, NamedTuple, cast

import numpy as np

from gradtape import costs
from gradtape.errors import DtypeError, LoweringError, NotDifferentiableError
from gradtape.ir.builder import emit, here
from gradtape.ir.expressions import LIBRARY
from gradtape.ir.graph import ARRAYS, NO_PARAMS, Literal, Node, Value, literal, number_of, single
from gradtape.ir.op import NDArray, Op
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.templates import Template, placeholder, template_of
from gradtape.ir.types import FLOAT64, PYTHON_DTYPES, Aval, aval, is_inexact
from gradtape.kinds.accumulate import Accumulate
from gradtape.kinds.contract import Contract
from gradtape.kinds.cumulative import Cumulative
from gradtape.kinds.index_map import IndexMap, is_zero
from gradtape.kinds.join import Join
from gradtape.kinds.operands import as_value, beside, broadcast_shapes, conform, is_long, operand_values
from gradtape.kinds.reduction import Reduction
from gradtape.kinds.registry import UFUNCS, register
from gradtape.kinds.sort import Sort

MOST_PLANS = 1024
"""Plans that a row keeps; a program whose shapes never repeat would otherwise fill the memory with them."""

Rule = Callable[..., Value]
Rules = tuple[Rule | None, ...]


class Instruction(NamedTuple):
    """An LLVM instruction (or comparison predicate) for each class of operands; None where it does not apply."""

    real: str | None = None
    signed: str | None = None
    unsigned: str | None = None
    boolean: str | None = None


class Intrinsic(NamedTuple):
    """An LLVM intrinsic on floats, such as ``llvm.sqrt``, and one on integers where there is one."""

    real: str | None = None
    integer: str | None = None


class Libm(NamedTuple):
    """A function of the C library, and its number of arguments. ``powf`` is derived from ``pow``, and vector forms are those of libmvec."""

    name: str
    arity: int = 1


class SciPy(NamedTuple):
    """A ufunc of `scipy.special`, called by the address of its scalar function or of its loop.

    Attributes
    ----------
    name : str
    output : int or None
        Which of several results; None for a ufunc with one.
    part : str
        What is computed of a complex result: ``"real"`` or ``"imag"``.
    loop : str
        The types of the loop, such as ``"dD->D"``, where they are not those of the operands: a complex operand of the loop is two
        operands of the row, its parts.
    """

    name: str
    output: int | None = None
    part: str = ""
    loop: str = ""

    @property
    def may_raise(self) -> bool:
        """Whether the function may set an error of Python's: Boost's do, which only SciPy's own code calls, where a number overflows."""
        return self.name.startswith("_ufuncs.")

    def text(self, args: Sequence[str]) -> str:
        """Return the call as a program writes it.

        Examples
        --------
        >>> SciPy("hankel1", None, "imag", "dD->D").text(["v", "x", "y"])
        'scipy.special.hankel1(v, complex(x, y)).imag'
        """
        texts = iter(args)
        kinds = self.loop.partition("->")[0] or "d" * len(args)
        arguments = [
            f"complex({next(texts)}, {next(texts)})" if kind == "D" else next(texts) for kind in kinds
        ]
        chosen = "" if self.output is None else f"[{self.output}]"
        return f"scipy.special.{self.name}({', '.join(arguments)}){chosen}{self.part and '.'}{self.part}"


Body = Instruction | Intrinsic | Libm | SciPy | Callable[..., Value] | None


class UfuncResult(NamedTuple):
    """One of the results of a ufunc of SciPy, or a part of one, as a function of NumPy arrays.

    Attributes
    ----------
    ufunc : numpy.ufunc
    body : SciPy
    """

    ufunc: Any
    body: SciPy

    def __call__(self, *arrays: Any) -> Any:
        """Return the result for arrays."""
        _, output, part, loop = self.body
        if loop:
            parts = iter(arrays)
            arrays = tuple(
                [
                    _joined(next(parts), next(parts)) if kind == "D" else next(parts)
                    for kind in loop.partition("->")[0]
                ]
            )
        results = self.ufunc(*arrays)
        result = results if output is None else results[output]
        return getattr(result, part) if part else result

    def dtypes(self, types: tuple[Any, ...]) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
        """Return the dtypes of operands and result, as `resolve`."""
        if self.body.loop:
            kinds = self.body.loop.partition("->")[0].replace("D", "dd")
            floats = [type_ for kind, type_ in zip(kinds, types, strict=True) if kind == "d"]
            dtype = result_dtype(*floats)
            dtype = dtype if dtype == np.float32 else FLOAT64
            return tuple([dtype if kind == "d" else np.dtype(kind) for kind in kinds]), dtype
        return resolve_ufunc(self.ufunc, types, self.body.output or 0)


def _path_in_scipy(function: Any) -> str:
    """Return where a ufunc is in `scipy.special`, given where it is imported from; empty for others.

    Examples
    --------
    >>> _path_in_scipy("scipy.special._ufuncs:_cospi")
    '_ufuncs._cospi'
    """
    module, _, name = function.partition(":") if isinstance(function, str) else ("", "", "")
    return f"{module}.{name}".removeprefix("scipy.special.") if module.startswith("scipy.special") else ""


def _complex_loops(path: str, name: str, function: Any) -> Callable[..., Value | Parts] | None:
    """Return the formula for complex numbers of a row of SciPy's: the ufunc's own loops for them. None where it has none."""
    output = function.body.output if isinstance(function, UfuncResult) else None
    ufunc = function.ufunc if isinstance(function, UfuncResult) else function
    loops = dict([loop.split("->") for loop in getattr(ufunc, "types", ())])
    if "D" not in "".join(loops):
        return None

    def parts(*operands: Value | Parts) -> Value | Parts:
        kinds = "".join(
            ["D" if isinstance(x, tuple) else "d" if x.dtype.kind == "f" else x.dtype.char for x in operands]
        )
        if kinds not in loops:
            raise LoweringError(f"scipy.special.{path} has no loop for operands of types {kinds}")
        numbers = [part for x in operands for part in (x if isinstance(x, tuple) else (x,))]
        loop = f"{kinds}->{loops[kinds]}"
        if loops[kinds][output or 0] != "D":
            return _loop_row(path, name, output, "", loop)(*numbers)
        return _loop_row(path, name, output, "real", loop)(*numbers), _loop_row(
            path, name, output, "imag", loop
        )(*numbers)

    return parts


@cache
def _loop_row(path: str, name: str, output: int | None, part: str, loop: str) -> Elementwise:
    """Return the row of what kernels compute by a loop for complex numbers; no function is traced as this row."""
    module, _, function_name = path.rpartition(".")
    row = Elementwise(
        f"{name}.{part or 'value'}",
        f"scipy.special{module and '.'}{module}:{function_name}",
        body=SciPy(path, output, part, loop),
        domain=((-3.0, 3.0),) * len(loop.partition("->")[0].replace("D", "DD")),
    )
    LIBRARY[row.name] = cast(SciPy, row.body).text
    return row


def _joined(x: Any, y: Any) -> Any:
    """Return complex numbers with these parts, which may be infinite."""
    z = np.empty(np.broadcast_shapes(np.shape(x), np.shape(y)), np.result_type(x, np.complex64))
    z.real, z.imag = x, y
    return z


class Refused:
    """Stands in place of a partial derivative that there is no formula for: to ask for it is an error.

    Parameters
    ----------
    what : str
        The function, and the argument: ``"scipy.special.struve in its order v"``.
    why : str
    """

    def __init__(self, what: str, why: str) -> None:
        self.what = what
        self.why = why

    def __call__(self, *args: Any, **params: Any) -> Value:
        """Raise the error."""
        raise NotDifferentiableError(
            f"{self.what} has no derivative here",
            where=here.site,
            why=self.why,
            remedy="give it as a number, or hold it fixed: gt.stop_gradient(...)",
        )


Parts = tuple[Value, Value]
"""Real and imaginary part of complex numbers."""


class Elementwise(Op):
    """A row of the elementwise kind.

    Parameters
    ----------
    name : str
        The op's name, NumPy's where NumPy has one.
    function : numpy.ufunc or str or callable
        What computes it with NumPy; ``"scipy.special:erf"`` is imported when first needed. A ufunc also decides the dtypes.
    body : Instruction, Intrinsic, Libm, SciPy, callable or None
        What the kernel computes: a primitive, or a formula over other rows; None for a copy.
    complex_body : callable or None
        The formula for complex numbers: it takes complex operands as pairs of real and imaginary part, and returns such a pair, or a
        value. It agrees with NumPy to rounding, including where a plain formula would overflow. By default the loop for complex numbers of
        a ufunc of SciPy; kernels call NumPy for rows that have none.
    partials : tuple of callables or None
        Per argument, the partial derivative as a formula of ``(z, *args)``, z the result; `flat` where it is
        zero, None where there is no path at all.
    tangents : tuple of callables or None
        Instead of partials: per argument, a formula of ``(d, z, *args)`` that is linear in the tangent d.
    transpose : tuple of callables or None
        For rows that are linear in single arguments: a formula of ``(ct, *args)`` per such argument.
    confine : tuple of callables or None
        Per argument, a formula of ``*args`` for the mask outside which the cotangent is zero by selection.
    neutral : tuple of (number or None)
        For rows of two arguments: the number that, as this argument, makes the result the other argument, whatever that is.
    square_of : callable or None
        ``(*args) -> Value or None``: the value whose square the result is.
    square_tangents : tuple of callables or None
        For rows with a kink that their square does not have: per argument, a formula of ``(d, *args)`` for the tangent of the square.
    squares_add : bool
        Whether the square of the result of real arguments is the sum of their squares.
    magnitude_of : callable or None
        ``(*args) -> Value or None``: a value that the result of real arguments is, up to its sign.
    is_idempotent : bool
        Whether the result for equal arguments is the argument.
    is_involution : bool
        Whether the row undoes itself.
    is_identity : bool
        Whether the result is the argument, possibly with another dtype.
    is_opaque : bool
        Whether what is computed from the result is not known before the program runs, though the argument is a number.
    additive : tuple of int
        Arguments in which the row is linear together; in others of `transpose` it is linear in one at a time.
    is_quotient : bool
        Whether the result is the first of two arguments divided by the second.
    is_power : bool
        Whether the result is the first of two arguments to the power of the second.
    finite_derivatives : bool
        See `Op`.
    finite : bool or callable
        Whether the result is finite where the arguments are, unless their square would overflow, or ``(*args) -> bool``, which says so. By
        default it is if the derivatives are.
    cost : float, optional
        Of one element, in additions of a vector loop, by default that of the body in `gradtape.costs`.
    twin : str
        The row that is computed at almost no cost beside this one of the same operand.
    dtypes : callable, optional
        ``(input types) -> (operand dtypes, result dtype)`` for rows that are not ufuncs.
    domain : tuple of (low, high)
        Per argument, where random samples are drawn.
    edges : tuple of tuples
        Arguments at which the row is tested besides: infinities, kinks, zeros.
    slopes : tuple of (arguments, partials)
        Points at which the partial derivatives are stated and tested: kinks, ties, the far ends of the range. None where one is refused.
    shift : callable, optional
        How the result changes when a value is shifted from which operands are computed; see `gradtape.ops.core.shift_rules`.
    kinks : str
        What the derivative is where there is none; for the table in the documentation.
    dtype_samples : str or tuple of str
        What the row is tested with: a character code for all operands, or one per operand.
    params : tuple of dict
        Parameters that the row is tested with.
    accuracy : float
        The relative error of the function itself, as NumPy or SciPy computes it, where that is more than rounding; 0 where it is not.
    is_sample : bool
        Whether the result is a random number, the last argument, and the derivatives are those for fixed noise.
    """

    def __init__(
        self,
        name: str,
        function: Any,
        *,
        body: Body,
        complex_body: Callable[..., Value | Parts] | None = None,
        partials: Rules | None = None,
        tangents: Rules | None = None,
        transpose: Rules | None = None,
        confine: Rules | None = None,
        neutral: tuple[float | None, ...] = (),
        square_of: Callable[..., Value | None] | None = None,
        square_tangents: Rules | None = None,
        squares_add: bool = False,
        magnitude_of: Callable[..., Value | None] | None = None,
        is_idempotent: bool = False,
        is_involution: bool = False,
        is_identity: bool = False,
        is_opaque: bool = False,
        additive: tuple[int, ...] = (),
        is_quotient: bool = False,
        is_power: bool = False,
        finite_derivatives: bool = False,
        finite: bool | Callable[..., bool] = False,
        cost: float | None = None,
        twin: str = "",
        dtypes: Callable[..., tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]] | None = None,
        domain: tuple[tuple[float, float], ...] = ((-3.0, 3.0),),
        edges: tuple[tuple[Any, ...], ...] = (),
        slopes: tuple[tuple[tuple[Any, ...], tuple[Any, ...]], ...] = (),
        shift: Callable[..., Any] | None = None,
        kinks: str = "",
        dtype_samples: str | tuple[str, ...] = "d",
        params: tuple[dict[str, Any], ...] = ({},),
        accuracy: float = 0.0,
        is_sample: bool = False,
    ) -> None:
        super().__init__(name)
        self._function = function
        self.body = body
        self.is_formula = callable(body)
        self._complex_body = complex_body
        self._scipy = _path_in_scipy(function) if complex_body is None else ""
        self.partials = partials
        self.tangents = tangents
        self.linear_rules = transpose
        self.confine = confine
        self.neutral = neutral
        self.square_of = square_of
        self.square_tangents = square_tangents
        self.squares_add = squares_add
        self.magnitude_of = magnitude_of
        self.is_idempotent = is_idempotent
        self.is_involution = is_involution
        self.is_identity = is_identity
        self.is_opaque = is_opaque
        self.additive = additive
        self.is_quotient = is_quotient
        self.is_power = is_power
        self.finite_derivatives = finite_derivatives
        self._finite = finite or finite_derivatives
        self.cost = body_cost(body) if cost is None else cost
        self.twin = twin
        self._dtypes = dtypes
        self.domain = domain
        self.edges = edges
        self.slopes = slopes
        self.shift = shift
        self.kinks = kinks
        self.dtype_samples = dtype_samples
        self.params = params
        self.accuracy = accuracy
        self.is_sample = is_sample
        self.arity = len(domain)
        self._plans: dict[Any, _Plan] = {}

    @property
    def function(self) -> Any:
        """The NumPy function; SciPy's is imported here, when first needed."""
        if isinstance(self._function, str):
            module, _, name = self._function.partition(":")
            function = getattr(importlib.import_module(module), name)
            # With its switch for the array API, SciPy's public names are functions around its ufuncs.
            self._function = getattr(function, "__wrapped__", function)
            if isinstance(self.body, SciPy) and self.body[1:] != (None, "", ""):
                self._function = UfuncResult(self._function, self.body)
        return self._function

    @property
    def complex_body(self) -> Callable[..., Value | Parts] | None:
        """The formula for complex numbers, which are pairs; None if there is none."""
        if self._scipy:
            self._complex_body = _complex_loops(self._scipy, self.name, self.function)
            self._scipy = ""
        return self._complex_body

    @property
    def differentiable(self) -> bool:
        """Whether the row has a derivative (a row without one has integer or piecewise constant results)."""
        return self.partials is not None or self.tangents is not None

    def is_finite(self, node: Node) -> bool:
        finite = self._finite
        return finite if isinstance(finite, bool) else finite(*node.inputs)

    def __call__(self, *operands: Any, **params: Any) -> Value:
        if params:
            return self._emit(operands, params)
        if len(operands) == 1:
            return self.of_one(operands[0])
        if len(operands) == 2:
            return self.of_two(*operands)
        key = tuple([_type(x) for x in operands])
        plan = self._plans.get(key)
        return self._first(key, operands) if plan is None else self._traced(plan, operands)

    # Recording is mostly the same few combinations of types: a plan per combination makes it several times as fast.

    def of_one(self, x: Any) -> Value:
        """Return what a call with one operand returns."""
        key = x.aval if type(x) is Value else _type(x)
        plan = self._plans.get(key)
        if plan is None:
            return self._first(key, (x,))
        if plan.template is not None:
            return plan.template(x)
        return single(self, (x,), NO_PARAMS, here.site, plan.types, plan.aval)

    def of_two(self, x: Any, y: Any) -> Value:
        """Return what a call with two operands returns."""
        key = x.aval if type(x) is Value else _type(x), y.aval if type(y) is Value else _type(y)
        plan = self._plans.get(key)
        if plan is None:
            return self._first(key, (x, y))
        numbers, template = plan.numbers, plan.template
        if numbers is not None:
            first, second = numbers
            if first is not None:
                x = _number(x, first) if x else _number(x, first, str(x))
            if second is not None:
                y = _number(y, second) if y else _number(y, second, str(y))
        if template is not None:
            return template(x, y)
        return single(self, (x, y), NO_PARAMS, here.site, plan.types, plan.aval)

    def _traced(self, plan: _Plan, operands: tuple[Any, ...]) -> Value:
        if plan.numbers is not None:
            operands = tuple(
                [
                    x if dtype is None else _number(x, dtype) if x else _number(x, dtype, str(x))
                    for x, dtype in zip(operands, plan.numbers, strict=True)
                ]
            )
        if plan.template is not None:
            return plan.template(*operands)
        return single(self, operands, NO_PARAMS, here.site, plan.types, plan.aval)

    def _first(self, key: Any, operands: tuple[Any, ...]) -> Value:
        """Record what has no plan yet, and make one for the next time if that can be."""
        if any(type(x) is np.ndarray for x in operands):
            return self(*[as_value(x) if type(x) is np.ndarray else x for x in operands])
        result = self._emit(operands, {})
        plan = self._plan(operands)
        if plan is not None:
            if len(self._plans) >= MOST_PLANS:
                self._plans.clear()
            self._plans[key] = plan
        return result

    def _plan(self, operands: Sequence[Any]) -> _Plan | None:
        """Return how operands like these are recorded."""
        if not all(type(x) in ARRAYS or (type(x) in NUMBERS and not is_long(x)) for x in operands):
            return None
        if self._checks_fit(operands):
            return None
        placeholders = [placeholder(x.aval) if type(x) in ARRAYS else x for x in operands]
        result = self._emit(placeholders, {})
        node = result.node
        if node is None or node.op is not self:
            return None
        numbers = [
            None if isinstance(x, Value) else y.dtype for x, y in zip(placeholders, node.inputs, strict=True)
        ]
        inputs = [y if isinstance(y, Literal) else x for x, y in zip(placeholders, node.inputs, strict=True)]
        direct = all(x is y for x, y in zip(inputs, node.inputs, strict=True))
        template = None if direct else template_of(inputs, [result])
        if not direct and template is None:
            return None
        types = self.infer([value.aval for value in node.inputs], {})
        return _Plan(result.aval, types, numbers if any(numbers) else None, template)

    def _checks_fit(self, operands: Sequence[Any]) -> bool:
        """Return whether each call has to check a Python integer: whether it fits the dtype of an array."""
        types = [as_value(x).aval for x in operands]
        integers = [type_.weak and type_.dtype.kind == "i" for type_ in types]
        if not any(integers):
            return False
        dtypes, _ = resolve(self, tuple(map(promotion_type, types)))
        return any(
            is_integer and dtype.kind in "iu" and dtype != type_.dtype
            for is_integer, type_, dtype in zip(integers, types, dtypes, strict=True)
        )

    def _emit(self, operands: Sequence[Any], params: dict[str, Any]) -> Value:
        values = operand_values(operands)
        types = tuple(promotion_type(value.aval) for value in values)
        dtypes, dtype = resolve(self, types, **params)
        if all(isinstance(value, Literal) for value in values):
            return self._fold(values, dtypes, params)
        weak = all(value.aval.weak for value in values)
        shape = broadcast_shapes([v.shape for v in values if not isinstance(v, Literal)])
        result = emit(self, [conform(v, d, shape) for v, d in zip(values, dtypes, strict=True)], **params)
        if weak and result.dtype == dtype:
            result.aval = aval(shape, dtype, True)
        return result

    def _fold(
        self, values: Sequence[Value], dtypes: Sequence[np.dtype[Any]], params: dict[str, Any]
    ) -> Value:
        operands: list[Any] = [conform(v, d, ()).data for v, d in zip(values, dtypes, strict=True)]
        with np.errstate(all="ignore"):
            (data,) = self.evaluate(operands, params)
        folded = literal(data, data.dtype)
        if all(value.aval.weak for value in values) and data.dtype in PYTHON_DTYPES.values():
            folded.aval = aval((), data.dtype, True)
        return folded

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        _, dtype = resolve(self, tuple(type_.dtype for type_ in avals), **params)
        for type_ in avals:
            if type_.ndim:
                return (aval(type_.shape, dtype),)
        return (aval((), dtype),)

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        return (np.asarray(self.function(*arrays, **params)),)

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        if not is_inexact(node.out.dtype):
            return (None,)
        total: Value | None = None
        for argument, tangent in enumerate(tangents):
            if tangent is not None:
                term = self.push(node, argument, tangent)
                if term is not None:
                    total = term if total is None else PRIMITIVES["add"](total, term)
        return (total,)

    def push(self, node: Node, argument: int, tangent: Value) -> Value | None:
        """Return the part of the output's tangent that stems from one argument."""
        rules = self.partials if self.partials is not None else self.tangents
        if rules is None:
            raise NotDifferentiableError(f"{self.name} has no derivative", where=node.site)
        rule = rules[argument]
        if rule is None:
            return None
        if self.partials is None:
            return rule(tangent, node.out, *node.inputs, **node.params)
        return scaled(rule(node.out, *node.inputs, **node.params), tangent)

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        (cotangent,) = cotangents
        if self.linear_rules is None or cotangent is None:
            raise NotDifferentiableError(f"{self.name} is not linear", where=node.site)
        rules = self.linear_rules
        return tuple(
            rule(cotangent, *node.inputs, **node.params) if flag and rule is not None else None
            for rule, flag in zip(rules, linear, strict=True)
        )


def body_cost(body: Body) -> float:
    """Return what one element costs, in additions; for a formula, of which the rows in it have their own costs, that of a function.

    Examples
    --------
    >>> body_cost(Instruction(real="fadd")), body_cost(Libm("exp"))
    (1.0, 10.0)
    """
    if isinstance(body, Instruction | Intrinsic):
        name = body.real or (body.signed if isinstance(body, Instruction) else None) or ""
        usual = costs.INTRINSIC if name.startswith("llvm.") else costs.INSTRUCTION
        return costs.SLOW_INSTRUCTIONS.get(name, usual)
    if isinstance(body, Libm):
        return costs.LIBM_FUNCTIONS.get(body.name, costs.LIBM_FUNCTION)
    return costs.SCIPY_FUNCTION


def flat(z: Value, *args: Value, **params: Any) -> Value:
    """The partial derivative of a piecewise constant function: 0 (None would mean that there is no path)."""
    return literal(0.0)


def scaled(partial: Value, vector: Value) -> Value:
    """Return a partial derivative times a (co)tangent; the number 0 makes zeros, even of infinities."""
    number = number_of(partial)
    if number == 0 or (is_zero(vector) and np.can_cast(partial.dtype, vector.dtype, "same_kind")):
        return PRIMITIVES["zeros_like"](vector)
    return vector if number == 1 else PRIMITIVES["multiply"](partial, vector)


COMPARED_NODES: Final = 64
"""How many nodes two values may be computed by alike."""

SQUARED_NODES: Final = 1000
"""How many nodes are looked at for the elements of which a square consists."""


class SmoothSquare(NamedTuple):
    """The square of values with a kink, times other factors, as one function of what these are computed from.

    Attributes
    ----------
    operand : Value
        What is squared.
    kinks : tuple of Node
        The nodes with a kink.
    others : tuple of Value
        What else stands among the elements that are squared, which have no kink.
    moves : tuple of Node
        What puts the elements of all these together, by maps of indices, joins, stores, selections and sums of squares, in the order of
        computation.
    factors : tuple of Value
        What the square is multiplied by: numbers, or arrays of its shape.
    contraction : Node or None
        What sums the squares.
    """

    operand: Value
    kinks: tuple[Node, ...]
    others: tuple[Value, ...]
    moves: tuple[Node, ...]
    factors: tuple[Value, ...] = ()
    contraction: Node | None = None

    @property
    def with_kink(self) -> tuple[Node, ...]:
        """The nodes that compute values with a kink, `kinks` and those of `moves` that change signs or add squares."""
        return (*self.kinks, *[node for node in self.moves if computes_kink(node.out)])

    @property
    def operands(self) -> tuple[Value, ...]:
        """The values that derivatives go to: the inputs of nodes with a kink, the elements without one, then the factors."""
        return (*[x for node in self.kinks for x in node.inputs], *self.others, *self.factors)

    def push(self, tangents: Sequence[Value | None]) -> Value | None:
        """Return the tangent of the product, from those of `operands`."""
        add, multiply = PRIMITIVES["add"], PRIMITIVES["multiply"]
        remaining = iter(tangents)
        squares: dict[Value, Value] = {}
        for node in self.kinks:
            rules = node.op.square_tangents  # type: ignore[attr-defined] # _square_of has seen that it is Elementwise
            terms = [
                rule(tangent, *node.inputs) for rule in rules if (tangent := next(remaining)) is not None
            ]
            if terms:
                squares[node.out] = reduce(add, terms)
        for value in self.others:
            tangent = next(remaining)
            if tangent is not None:
                squares[value] = multiply(2.0 * value, tangent)
        total = self.assembled(squares)
        terms = [] if total is None else [total]
        for position, tangent in enumerate(remaining):
            if tangent is not None:
                others = self.factors[:position] + self.factors[position + 1 :]
                terms.append(
                    multiply(reduce(multiply, others, multiply(self.operand, self.operand)), tangent)
                )
        return reduce(add, terms) if terms else None

    def assembled(self, squares: Mapping[Value, Value]) -> Value | None:
        """Return the product that has given values, or their tangents, in place of the squares of `kinks` and `others`."""
        multiply = PRIMITIVES["multiply"]
        known_squares: dict[Value, Value | None] = dict(squares)
        for node in self.moves:
            parts = [known_squares.get(x) for x in node.inputs]
            scaling = _scaling(node)
            if scaling is not None:
                value, number = scaling
                square = known_squares.get(value)
                squared = number * number
                known_squares[node.out] = (
                    square if square is None or squared == 1.0 else multiply(square, squared)
                )
            elif _adds_squares(node):
                squares_given = [x for x in parts if x is not None]
                known_squares[node.out] = reduce(PRIMITIVES["add"], squares_given) if squares_given else None
            else:
                (known_squares[node.out],) = (
                    (None,) if all(x is None for x in parts) else node.op.jvp(node, parts)
                )
        total = known_squares.get(self.operand)
        if total is None:
            return None
        if self.contraction is not None:
            unit = PRIMITIVES["expand"](literal(1.0, total.dtype), total.shape, ())
            total = emit(self.contraction.op, [total, unit], **self.contraction.params)
        return reduce(lambda product, factor: multiply(factor, product), self.factors, total)


def smooth_square(
    node: Node, is_closed: Callable[[Value], bool], leaves: Container[Value] = ()
) -> SmoothSquare | None:
    """Return what the square that a node computes is differentiated as, where its operand has a kink that cancels.

    By the chain rule, the slope of the operand at the kink would decide, which is a convention; second derivatives would be wrong.
    None for other nodes, and where derivatives end at the operand (`is_closed`). Values in `leaves` have a kink; they are among the
    `others` of the result.
    """
    op = node.op
    if isinstance(op, Contract):
        return _sum_of_squares(node, is_closed, leaves)
    if not isinstance(op, Elementwise) or op.square_of is None:
        return None
    operand = op.square_of(*node.inputs)
    if operand is None:
        return _square_among_factors(node, node.inputs, is_closed, leaves) if _multiplies(node) else None
    square = _square_of(operand, is_closed, leaves)
    if square is None:
        return _square_among_factors(node, (operand, operand), is_closed, leaves)
    return square


def _multiplies(node: Node) -> bool:
    row: object = PRIMITIVES["multiply"]  # which is an op, though its type is that of a function
    return node.op is row


def factors_of_square(node: Node) -> tuple[list[Value], list[Value]] | None:
    """Return the factors of both operands of a product, or of a square; None for other nodes."""
    op = node.op
    if not isinstance(op, Elementwise) or op.square_of is None:
        return None
    operand = op.square_of(*node.inputs)
    if operand is not None:
        factors = _factors(operand, _never)
        return factors, factors
    if not _multiplies(node):
        return None
    left, right = (_factors(value, _never) for value in node.inputs)
    return left, right


def factors_of(value: Value) -> list[Value]:
    """Return the factors of a product, also those of its factors, each without the maps of indices behind it."""
    return [unmoved(factor) for factor in _factors(value, _never)]


def has_kink(value: Value, leaves: Container[Value]) -> bool:
    """Return whether a value has a factor whose square has no kink, computed by a row or among `leaves`."""
    return any(factor in leaves or _square_of(factor, _never) is not None for factor in factors_of(value))


def _never(value: Value) -> bool:
    """Return False: derivatives do not end at any value."""
    return False


def computes_kink(value: Value) -> bool:
    """Return whether a row computes a value with a kink that its square does not have."""
    node = value.node
    op = None if node is None else node.op
    if node is None or not isinstance(op, Elementwise):
        return False
    return op.square_tangents is not None or op.squares_add or _magnitude(node) is not None


def unmoved(value: Value) -> Value:
    """Return what index maps and conversions within a class of dtypes make a value of."""
    node = value.node
    while node is not None and (
        isinstance(node.op, IndexMap) or (isinstance(node.op, Elementwise) and node.op.is_identity)
    ):
        if node.inputs[0].dtype.kind != value.dtype.kind:
            break
        value = node.inputs[0]
        node = value.node
    return value


def _sum_of_squares(
    node: Node, is_closed: Callable[[Value], bool], leaves: Container[Value] = ()
) -> SmoothSquare | None:
    """Return the sum that contracts equal arrays element by element."""
    x, y = node.inputs
    if node.params["x"] != node.params["y"] or not is_same(x, y):
        return None
    square = _square_of(x, is_closed, leaves)
    return None if square is None else square._replace(contraction=node)


def _moved(node: Node) -> tuple[Value, ...]:
    """Return the operands whose elements, or multiples of these, are those of the result, each at most once; none for other nodes."""
    op = node.op
    if isinstance(op, IndexMap) or (isinstance(op, Elementwise) and op.is_identity):
        return node.inputs[:1]
    if isinstance(op, Join):
        return node.inputs
    if isinstance(op, Accumulate):
        return node.inputs[:2] if op.combine == "set" else ()
    if isinstance(op, Elementwise) and op.confine is not None:  # a selection
        return tuple([node.inputs[k] for k in op.additive])
    if _adds_squares(node):
        return node.inputs
    scaling = _scaling(node)
    return () if scaling is None else scaling[:1]


def _square_of(
    operand: Value, is_closed: Callable[[Value], bool], leaves: Container[Value] = ()
) -> SmoothSquare | None:
    """Return the square of a value, if it is the result of a row with a kink, or its elements are moved from such results."""
    square = square_of_elements(operand, is_closed)
    if square is None or not (square.with_kink or any(value in leaves for value in square.others)):
        return None
    return square


def square_of_elements(operand: Value, is_closed: Callable[[Value], bool]) -> SmoothSquare | None:
    """Return the square of a value in terms of the values that its elements are moved from; None where these are too many."""
    kinks: list[Node] = []
    others: list[Value] = []
    moves: list[Node] = []
    visited: set[Value] = set()
    pending = [(operand, False)]
    while pending:
        value, is_done = pending.pop()
        node = value.node
        if is_done:
            assert node is not None
            moves.append(node)
            continue
        if value in visited:
            continue
        visited.add(value)
        if len(visited) > SQUARED_NODES:
            return None
        moved = () if node is None or is_closed(value) else _moved(node)
        if moved and all(x.dtype.kind == value.dtype.kind for x in moved):
            pending.append((value, True))
            pending += [(x, False) for x in moved]
        elif node is not None and not is_closed(value) and computes_kink(value):
            kinks.append(node)
        else:
            others.append(value)
    return SmoothSquare(operand, tuple(kinks), tuple(others), tuple(moves))


def _square_among_factors(
    node: Node,
    operands: Sequence[Value],
    is_closed: Callable[[Value], bool],
    leaves: Container[Value] = (),
) -> SmoothSquare | None:
    """Return the square in a product of two values such as ``0.5 * a * a``, if `a` has a kink."""
    left, right = (_factors(value, is_closed) for value in operands)
    if len(left) + len(right) == 2:
        return None
    for position, value in enumerate(left):
        square = _square_of(value, is_closed, leaves) if value.shape == node.out.shape else None
        if square is None:
            continue
        for other, equal in enumerate(right):
            if is_same(value, equal):
                factors = (*left[:position], *left[position + 1 :], *right[:other], *right[other + 1 :])
                fits = all(
                    isinstance(factor, Literal)
                    or (factor.shape == value.shape and (is_closed(factor) or _is_of_rows(factor)))
                    for factor in factors
                )
                return square._replace(factors=factors) if fits else None
    return None


def _is_of_rows(value: Value) -> bool:
    """Return whether a value is computed by a row.

    Eigenvectors keep their own products, whose cotangents the derivatives of equal eigenvalues are found by.
    """
    node = unmoved(value).node
    return node is None or isinstance(node.op, Elementwise | Reduction)


def _factors(value: Value, is_closed: Callable[[Value], bool], depth: int = 3) -> list[Value]:
    """Return the factors of a product, also those of its factors."""
    node = value.node
    if depth == 0 or node is None or is_closed(value):
        return [value]
    if _multiplies(node):
        return [factor for operand in node.inputs for factor in _factors(operand, is_closed, depth - 1)]
    number = _number_beside(node)
    if number is None:
        return [value]
    return [*_factors(node.inputs[0], is_closed, depth - 1), literal(number, value.dtype)]


def _scaling(node: Node) -> tuple[Value, complex] | None:
    """Return the value that a node multiplies by a number, with the number up to its sign; None if it does something else."""
    magnitude = _magnitude(node)
    if magnitude is not None:
        return magnitude, 1.0
    number = _number_beside(node)
    if number is not None:
        return node.inputs[0], number
    for value, factor in zip(node.inputs, node.inputs[::-1], strict=True) if _multiplies(node) else ():
        number = number_of(factor)
        if number is not None:
            return value, number
    return None


def _adds_squares(node: Node) -> bool:
    return isinstance(node.op, Elementwise) and node.op.squares_add


def _magnitude(node: Node) -> Value | None:
    """Return a value that a node's result is up to its sign, if both are real and the sign depends on the value."""
    op = node.op
    if not isinstance(op, Elementwise) or op.magnitude_of is None or node.out.dtype.kind != "f":
        return None
    value = op.magnitude_of(*node.inputs)
    return value if value is not None and value.dtype.kind == "f" else None


def is_opposite(x: Value, y: Value) -> bool:
    """Return whether one value is computed as minus the other."""
    a, b = x.node, y.node
    row: object = PRIMITIVES["subtract"]
    if a is not None and b is not None and a.op is row and b.op is row:
        return all(map(is_same, a.inputs, b.inputs[::-1]))
    (left, first), (right, second) = map(_multiple, (x, y))
    return first == -second and is_same(left, right)


def _multiple(value: Value) -> tuple[Value, complex]:
    """Return a value and a number whose product is computed as a value."""
    product: complex = 1.0
    while value.node is not None and _magnitude(value.node) is None:
        scaling = _scaling(value.node)
        if scaling is None:
            break
        value, number = scaling
        product *= number
    return value, product


def without_sign(value: Value) -> Value:
    """Return what index maps, conversions and changes of sign make a value of."""
    value = unmoved(value)
    while value.node is not None and (magnitude := _magnitude(value.node)) is not None:
        value = unmoved(magnitude)
    return value


def _number_beside(node: Node) -> complex | None:
    """Return the number by which a node multiplies its first operand; None if it does something else."""
    op: object = node.op
    if op is PRIMITIVES["negative"]:
        return -1.0
    if op is PRIMITIVES["divide"]:
        divisor = number_of(node.inputs[1])
        return 1.0 / divisor if divisor and is_inexact(node.out.dtype) else None
    return None


DETERMINED: Final = (Elementwise, IndexMap, Reduction, Cumulative, Contract, Join, Accumulate, Sort)
"""The kinds whose results follow from their operands and parameters."""


def is_same(x: Value, y: Value) -> bool:
    """Return whether two values are computed alike from the same values, within some nodes."""
    same: set[tuple[Value, Value]] = set()
    pending = [(x, y)]
    while pending:
        pair = x, y = pending.pop()
        if x is y or pair in same:
            continue
        a, b = x.node, y.node
        if a is None or b is None:
            if not _is_same_constant(x, y):
                return False
            continue
        if (
            len(same) == COMPARED_NODES
            or a.op is not b.op
            or not isinstance(a.op, DETERMINED)
            or len(a.inputs) != len(b.inputs)
            or a.params != b.params
            or a.outs.index(x) != b.outs.index(y)
        ):
            return False
        same.add(pair)
        pending += zip(a.inputs, b.inputs, strict=True)
    return True


def _is_same_constant(x: Value, y: Value) -> bool:
    """Return whether two values are the same number, or arrays of the same indices."""
    if isinstance(x, Literal) and isinstance(y, Literal):
        return x.aval == y.aval and number_of(x) == number_of(y)
    if x.data is None or y.data is None or x.dtype.kind != "i":
        return False
    return x.aval == y.aval and np.array_equal(x.data, y.data)


NUMBERS: Final = frozenset({bool, int, float, complex, np.float64, np.float32, np.int64})
"""The types of numbers that plans are made for: a plan knows the dtype that the number takes, not the number."""


def _type(operand: Any) -> Any:
    """Return what a plan depends on of an operand."""
    return operand.aval if type(operand) in ARRAYS else type(operand)


class _Plan(NamedTuple):
    """How one combination of operand types is recorded.

    Attributes
    ----------
    aval : Aval
        What the result is.
    types : tuple of Aval
        What `Elementwise.infer` returns: without weakness.
    numbers : sequence of dtype or None
        The dtypes that numbers among the operands take; None if there are none.
    template : Template or None
        The nodes, where operands have to be converted or repeated first.
    """

    aval: Aval
    types: tuple[Aval, ...]
    numbers: Sequence[np.dtype[Any] | None] | None
    template: Template | None


@lru_cache(maxsize=4096, typed=True)
def _number(number: float, dtype: np.dtype[Any], zero: str = "") -> Value:
    """Return a number as a literal; `zero` tells zeros from each other, which are equal whatever their signs."""
    return conform(as_value(beside(number, dtype)), dtype, ())


def promotion_type(type_: Aval) -> Any:
    """What NumPy's promotion sees: the dtype, or the Python type of a weak value."""
    if not type_.weak:
        return type_.dtype
    return {"b": type_.dtype, "i": int, "f": float, "c": complex}[type_.dtype.kind]


_DOUBLES: Final = frozenset((FLOAT64, float))


@lru_cache(maxsize=8192)
def resolve(
    op: Elementwise, types: tuple[Any, ...], **params: Any
) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    """Return the dtypes to which the operands are cast and the dtype of the result.

    Raises
    ------
    DtypeError
        Where NumPy has no loop for such operands.
    """
    if op._dtypes is not None:
        return op._dtypes(*types, **params)
    if isinstance(op._function, str) and FLOAT64 in types and _DOUBLES.issuperset(types):
        # SciPy's functions take doubles; importing it to ask takes 0.15 s.
        return (FLOAT64,) * len(types), FLOAT64
    function = op.function
    return function.dtypes(types) if isinstance(function, UfuncResult) else resolve_ufunc(function, types)


def resolve_ufunc(
    ufunc: Any, types: tuple[Any, ...], output: int = 0
) -> tuple[tuple[np.dtype[Any], ...], np.dtype[Any]]:
    """Return the dtypes to which a ufunc casts its operands and the dtype of one of its results (as `resolve`)."""
    operand_types = types
    if all(isinstance(type_, type) for type_ in types):
        operand_types = tuple(
            PYTHON_DTYPES[type_] for type_ in types
        )  # Python numbers alone: their own dtypes
    try:
        dtypes = ufunc.resolve_dtypes((*operand_types, *[None] * ufunc.nout))
    except TypeError:
        names = ", ".join(getattr(type_, "name", None) or type_.__name__ for type_ in types)
        raise DtypeError(
            f"np.{ufunc.__name__} does not take operands of dtype {names}",
            where=here.site,
            remedy="convert an operand with .astype(...)",
        ) from None
    return tuple(dtypes[: ufunc.nin]), dtypes[ufunc.nin + output]


def result_dtype(*types: Any) -> np.dtype[Any]:
    """Return NumPy's common dtype of dtypes and weak Python types."""
    if all(isinstance(type_, type) for type_ in types):
        return np.result_type(*[PYTHON_DTYPES[type_] for type_ in types])
    return np.result_type(*[type_(0) if isinstance(type_, type) else type_ for type_ in types])


def elementwise(name: str, function: Any, **facts: Any) -> Elementwise:
    """Enter a row of the elementwise kind; see `Elementwise` for the facts."""
    row = register(Elementwise(name, function, **facts))
    UFUNCS[name] = row
    if isinstance(row.body, SciPy):
        LIBRARY[name] = row.body.text
    return row
