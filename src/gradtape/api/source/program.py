"""Derivatives as NumPy code that a person can read, and that needs nothing else."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from functools import cached_property
from types import MappingProxyType
from typing import Any, Final

import numpy as np

from gradtape.api.export.closed import TracedCall, argument_places, closed_graph, trace_call
from gradtape.api.export.specs import check_described
from gradtape.api.inspect.views import Text
from gradtape.api.source.expressions import ATOM, PYTHON_TYPES, Piece, dtype_text, has_function, literal_piece
from gradtape.api.source.formulas import derivative, formulas, symbol
from gradtape.api.source.names import Origins, capture_name, counts_of_uses
from gradtape.api.source.writer import Writer, wrapped
from gradtape.api.transforms.jit import Jitted, jit
from gradtape.errors import ArgumentError, GradtapeError, kind_of
from gradtape.ir.body import Body
from gradtape.ir.graph import Graph, Literal, Node, Value, extract, literal
from gradtape.ir.printer import identifier
from gradtape.kinds.elementwise import Elementwise
from gradtape.ops.core.elementwise.cast import convert_row
from gradtape.passes.control.bodies import holds_bodies, in_bodies
from gradtape.passes.control.loop_fusion import fuse_loops
from gradtape.passes.control.loop_simplify import simplify_loops
from gradtape.passes.control.loop_trim import trim_loops
from gradtape.passes.rewrite import rewrite
from gradtape.passes.simplify.annotations import inline_custom_calls, remove_barriers
from gradtape.passes.simplify.cse import eliminate_common_subexpressions
from gradtape.passes.simplify.dce import eliminate_dead_code
from gradtape.passes.simplify.expand_formulas import conformed
from gradtape.passes.simplify.inline_calls import inline_calls
from gradtape.passes.simplify.masks import fold_masks
from gradtape.passes.simplify.primal_results import share_primal_results
from gradtape.trace.jit.leaf_kinds import is_dynamic
from gradtape.trace.source.sites import user_site

MOST_ELEMENTS: Final = 1000
"""The elements of an array from outside that is written into the code."""

WITH_VALUE: Final = ("value_and_grad",)


class Source(Text):
    """The code of a function, which shows itself as it is; its method `latex` returns formulas.

    Attributes
    ----------
    function : callable
        The function, made by running the code.
    namespace : dict
        What the code defines.
    """

    __slots__ = ("__dict__",)

    _program: _Program

    @cached_property
    def namespace(self) -> dict[str, Any]:
        names: dict[str, Any] = {}
        exec(compile(str(self), "<gt.source>", "exec"), names)
        return names

    @property
    def function(self) -> Callable[..., Any]:
        name = str(self).rpartition("\ndef ")[2].partition("(")[0]
        found: Callable[..., Any] = self.namespace[name]
        return found

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function."""
        return self.function(*args, **kwargs)

    def latex(self) -> Text:
        """Return the function as formulas, in an ``aligned`` block of LaTeX, if it computes with numbers alone.

        Raises
        ------
        LoweringError
            For arrays, loops, and functions of several numbers that have no notation.

        Examples
        --------
        >>> import numpy as np, gradtape as gt
        >>> print(gt.source(gt.grad(lambda x: 3 * x**3 - np.sin(x)), 1.0).latex())
        \\begin{aligned}
        \\frac{\\partial f}{\\partial x} &= 9 \\, x^{2} - \\cos\\left(x\\right)
        \\end{aligned}
        <BLANKLINE>
        """
        return Text(self._program.formulas())


def source(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Source:
    """Return a function, or its derivative, as readable NumPy code, which needs only NumPy, and SciPy for special functions.

    Parameters
    ----------
    function : callable
        What `gradtape.grad`, `gradtape.value_and_grad`, `gradtape.jacobian`, `gradtape.hessian`, `gradtape.vmap`, `gradtape.jit` or
        another transform returned, or NumPy code itself.
    *args, **kwargs
        Example arguments, or a `gradtape.spec` for each: the code is for arrays of these shapes and dtypes.

    Returns
    -------
    str
        A module with one function. It shows itself without quotes; calling it runs the function, and the attribute ``namespace`` is what
        the module defines.

    Raises
    ------
    LoweringError
        For what NumPy and SciPy have no public function for, such as `gradtape.callback`; the user's line is named.
    ArgumentError
        If the function reads variables, draws random numbers, or reads a large array from outside its arguments.

    See Also
    --------
    gradtape.inspect.graph : The graph, as traced.
    gradtape.inspect.numba_source : Loops that Numba compiles.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> code = gt.source(gt.grad(lambda x: np.sin(x) * x), 1.0)
    >>> print(code.splitlines()[-1])
        return np.sin(x) + np.cos(x) * x
    >>> float(code(0.0))
    0.0
    """
    if not callable(function):
        raise ArgumentError(
            f"source got {kind_of(function)}, which is not callable",
            where=user_site(),
            remedy="gt.source(gt.grad(f), x)",
        )
    check_described(
        function,
        args,
        kwargs,
        "source",
        why="the code is for arguments of these shapes and dtypes",
        call="gt.source(f{})",
    )
    compiled: Any = function if isinstance(function, Jitted) else jit(function)
    made_by = getattr(compiled, "made_by", None)
    transform = "" if made_by is None else made_by.transform.__name__
    inner = (
        made_by.args[0] if made_by is not None and made_by.args and callable(made_by.args[0]) else function
    )
    traced = trace_call(compiled, args, kwargs)
    graph = prepared(closed_graph(traced))
    program = _Program(traced, graph, transform, inner, Origins(_own_graph(inner, transform, args, kwargs)))
    code = Source(program.text())
    code._program = program
    return code


def _own_graph(inner: Any, transform: str, args: Any, kwargs: Any) -> Graph | None:
    """Return the program of the user's function itself, which tells the names; None where it takes other arguments."""
    if transform not in ("grad", "value_and_grad", "hessian", "jacobian", "jit", "", "jacfwd", "jacrev"):
        return None
    try:
        return prepared(
            closed_graph(trace_call(jit(inner) if not isinstance(inner, Jitted) else inner, args, kwargs))
        )
    except GradtapeError:
        return None


def prepared(graph: Graph) -> Graph:
    """Return a graph without details that a reader does not need: calls, copies, duplicates and unused values."""
    for step in (
        inline_calls,
        inline_custom_calls,
        remove_barriers,
        eliminate_dead_code,
        share_primal_results,
        simplify_loops,
    ):
        graph = step(graph)
    graph = eliminate_common_subexpressions(graph)
    graph = fuse_loops(graph)
    graph = trim_loops(graph)
    graph = rewrite(graph, _public)
    if holds_bodies(graph):
        graph = in_bodies(graph, _prepared_body)
    graph = fold_masks(graph)
    return eliminate_dead_code(eliminate_common_subexpressions(graph))


def _prepared_body(body: Body) -> Body:
    done = prepared(body)
    return Body(done.inputs, done.nodes, done.outputs, body.name)


def _public(node: Node, inputs: tuple[Value, ...]) -> tuple[Value, ...] | None:
    """Replace rows that no library has as a function by their formulas."""
    op = node.op
    if op is convert_row and inputs[0].dtype == node.params["dtype"]:
        return (
            (inputs[0],) if inputs[0].shape == node.out.shape and not isinstance(inputs[0], Literal) else None
        )
    if not isinstance(op, Elementwise) or not op.is_formula or has_function(op) or not callable(op.body):
        return None
    if op.name == "identity":
        return (inputs[0],)
    result = op.body(*inputs, **node.params)
    return (_expanded(conformed(result, node.out), set(inputs)),)


def _expanded(value: Value, ends: set[Value]) -> Value:
    """Return a formula in which each row has a public function."""
    nodes, leaves = extract([value], ends, stop=lambda part: part.node is None or part in ends)
    graph = Graph([*ends, *leaves], nodes, [value])
    return rewrite(graph, _public).outputs[0]


class _Program:
    """The text of a module."""

    def __init__(
        self, traced: TracedCall, graph: Graph, transform: str, inner: Any, origins: Origins
    ) -> None:
        self._traced = traced
        self._graph = graph
        self._transform = transform
        self._inner = inner
        self._origins = origins
        self._constants: dict[Any, Piece] = {}

    def text(self) -> str:
        traced, graph = self._traced, self._graph
        parameters, paths = self._parameters()
        modules = [name for name in parameters if name.lstrip("*") in ("np", "scipy")]
        if modules:
            raise ArgumentError(
                f"gt.source: {traced.name} has a parameter with the name {modules[0]}",
                where=user_site(),
                why="the code calls the functions of a module with this name",
                remedy="rename the parameter",
            )
        spread = self._transform not in ("grad", "value_and_grad")
        writer = Writer(
            self._origins,
            {name.lstrip("*") for name in parameters},
            spread=spread,
        )
        pieces: dict[Value, Piece] = {}
        leaf_names = []
        used = counts_of_uses(graph, [value for value, _ in graph.guards])
        for value, path in zip(graph.inputs, paths, strict=False):
            name = path if path.isidentifier() else _leaf_name(path)
            if not path.isidentifier() and used[value]:
                name = writer.unique(name)
            text = f"np.float64({path})" if _is_plain_float(value) else path
            if used[value] and text != name:
                writer.lines.append(f"    {name} = {text}")
            leaf_names.append(name)
            pieces[value] = Piece(name, ATOM, value.shape)
        hidden = traced.hidden
        for value, array in zip(graph.inputs[len(paths) :], hidden, strict=True):
            pieces[value] = self._constant(writer, array)
        for value in graph.constants():
            assert value.data is not None
            pieces[value] = self._constant(writer, value.data)
        wanted = self._wanted(leaf_names)
        writer.block(graph, pieces, "    ", is_outermost=True, wanted=wanted)
        results = [_result(pieces, value) for value in graph.outputs]
        shown = _structure(
            traced.specialisation.spec.unflatten([_Leaf(text) for text in results]), traced.name
        )
        body = writer.lines
        last = body[-1] if body else ""
        if len(results) == 1 and last.startswith(f"    {shown} = ") and shown.isidentifier():
            body[-1] = f"    return {last.partition(' = ')[2]}"
        else:
            body.append(f"    return {shown}")
        body = [part for line in body for part in wrapped(line)]
        code = "\n".join([f"def {identifier(traced.name)}({', '.join(parameters)}):", *body])
        imports = [f"import {name}" for name in ("scipy.linalg", "scipy.special") if name + "." in code]
        return "\n".join(["import numpy as np", *imports, "", "", code]) + "\n"

    def formulas(self) -> str:
        """Return the function as formulas."""
        _, paths = self._parameters()
        names = [path if path.isidentifier() else _leaf_name(path) for path in paths]
        wanted = self._wanted(names)
        name = getattr(self._inner, "__name__", "")
        function = name if name.isidentifier() else "f"
        results = [
            derivative(function, wanted[value].removeprefix("d_")) if value in wanted else symbol(function)
            for value in self._graph.outputs
        ]
        names += [f"c_{path}" for path in range(1, len(self._graph.inputs) - len(paths) + 1)]
        return formulas(self._graph, names, self._origins, function, results)

    def _parameters(self) -> tuple[list[str], list[str]]:
        """Return the parameters, and what each traced leaf of the arguments is in terms of them."""
        traced = self._traced
        paths = argument_places(traced)
        _, kwargs = traced.call.with_leaves(traced.call.leaves)
        parameters: dict[str, None] = {}
        for path in paths:
            base = path.partition("[")[0].partition(".")[0]
            if base not in kwargs:
                parameters[base] = None
        try:
            known = inspect.signature(traced.function).parameters
        except (TypeError, ValueError):
            known = MappingProxyType({})
        shown = [
            f"*{name}" if name in known and known[name].kind is inspect.Parameter.VAR_POSITIONAL else name
            for name in parameters
        ]
        names = [*shown, *[name for name in kwargs if name not in parameters]]
        traced_places = [
            path for path, leaf in zip(paths, traced.call.leaves, strict=True) if is_dynamic(leaf)
        ]
        selected = traced.call.select(paths)
        return names, list(selected) if len(selected) != len(traced_places) else traced_places

    def _wanted(self, leaf_names: list[str]) -> dict[Value, str]:
        """Return the names of the results: those of derivatives are called after the arguments."""
        graph, transform = self._graph, self._transform
        if transform not in ("grad", "value_and_grad", "jacobian"):
            return {}
        outputs = list(graph.outputs)
        if transform in WITH_VALUE:
            outputs = outputs[1:]
        made_by = self._traced.function.made_by
        options = {} if made_by is None else made_by.kwargs
        if (made_by is not None and len(made_by.args) > 1) or options:
            return {}
        first = [
            name
            for name, path in zip(leaf_names, self._parameters()[1], strict=True)
            if path.partition("[")[0].partition(".")[0] == self._parameters()[0][0]
        ]
        if len(first) != len(outputs):
            return {}
        return {
            output: f"d_{name}"
            for name, output in zip(first, outputs, strict=True)
            if output.node is not None
        }

    def _constant(self, writer: Writer, array: Any) -> Piece:
        if array.size > MOST_ELEMENTS:
            raise ArgumentError(
                f"gt.source: {self._traced.name} reads an array of {array.size} elements from outside its arguments",
                where=user_site(),
                why="the code would have to contain them",
                remedy="pass the array as an argument",
            )
        if array.ndim == 0:
            return literal_piece(literal(array))
        key = array.tobytes(), array.dtype, array.shape
        if key in self._constants:
            return self._constants[key]
        name = writer.unique(capture_name(array, self._inner) or "constant")
        kind = "" if array.dtype.name in PYTHON_TYPES else f", {dtype_text(array.dtype)}"
        text = repr(array.tolist()).replace("inf", "np.inf").replace("nan", "np.nan")
        if array.size == 0:
            text = f"np.empty({array.shape}, {dtype_text(array.dtype)})"
            writer.lines.append(f"    {name} = {text}")
        else:
            writer.lines.append(f"    {name} = np.array({text}{kind})")
        self._constants[key] = Piece(name, ATOM, array.shape)
        return self._constants[key]


def _is_plain_float(value: Value) -> bool:
    return value.shape == () and value.dtype == np.dtype(float)


def _leaf_name(path: str) -> str:
    """Return a name for a part of an argument: ``params['w']`` is ``w``."""
    tail = path.rpartition("[")[2].rstrip("]").strip("'\"") if path.endswith("]") else path.rpartition(".")[2]
    if tail.isidentifier():
        return tail
    return identifier(path)


def _result(pieces: dict[Value, Piece], value: Value) -> str:
    piece = literal_piece(value) if isinstance(value, Literal) else pieces[value]
    if piece.shape == value.shape:
        return piece.text
    if piece.shape == ():
        return f"np.full({value.shape}, {piece.text})"
    return f"np.array({piece.whole(value.shape).text})"


class _Leaf:
    """The text of one result."""

    def __init__(self, text: str) -> None:
        self.text = text


def _structure(tree: Any, name: str) -> str:
    """Return results in their containers."""
    if isinstance(tree, _Leaf):
        return tree.text
    if tree is None:
        return "None"
    if isinstance(tree, dict):
        return "{" + ", ".join(f"{key!r}: {_structure(part, name)}" for key, part in tree.items()) + "}"
    if type(tree) is tuple:
        parts = ", ".join(_structure(part, name) for part in tree)
        return f"({parts},)" if len(tree) == 1 else f"({parts})"
    if type(tree) is list:
        return "[" + ", ".join(_structure(part, name) for part in tree) + "]"
    raise ArgumentError(
        f"gt.source: {name} returns {kind_of(tree)}",
        where=user_site(),
        why="the code needs only NumPy",
        remedy="return tuples, lists and dicts of arrays",
    )
