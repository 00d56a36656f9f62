"""Forward mode of procedures: beside each statement the one that does the same with tangents."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from gradtape.ir.builder import at
from gradtape.ir.graph import Node, Value, extract, literal
from gradtape.ir.types import Aval, is_inexact
from gradtape.kinds.cotangent import Tangent, summed
from gradtape.kinds.elementwise import Elementwise, Rule, scaled
from gradtape.kinds.operands import conform
from gradtape.ops.core.elementwise.arithmetic import masked_product
from gradtape.ops.core.elementwise.cast import zeros_like
from gradtape.ops.core.elementwise.logic import bitwise_and, bitwise_or, equal, not_equal
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.scipy.special.quadrature import sums_of_scalars
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.ir import (
    Apply,
    Content,
    Pointer,
    Procedure,
    Span,
    Statement,
)
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.traversal import names
from gradtape.transforms.jvp import jvp, push_node, push_partials, push_whole
from gradtape.transforms.kinks.roots import as_one_function
from gradtape.transforms.loops.draft import make_body, never_stop, placeholder
from gradtape.transforms.observers import derivative_site
from gradtape.transforms.procedures.activity import Activity, FiniteValues
from gradtape.transforms.procedures.shadows import Shadows


@sums_of_scalars()
def jvp_procedure(procedure: Procedure, active: Sequence[bool]) -> Procedure:
    """Return the procedure that computes the results and their tangents.

    Parameters
    ----------
    procedure : Procedure
        Without statements of the tape.
    active : sequence of bool
        By parameter: whether it has a tangent.

    Returns
    -------
    Procedure
        Its parameters are those of `procedure`, then a tangent for each active one; its results are those of `procedure`, then a tangent
        for each inexact one. Leaves and pointers of `procedure` are used again.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("square")
    >>> x = build.scalar("x")
    >>> jvp_procedure(build.finish([x * x]), [True]).result_types
    (f64[], f64[])
    """
    return _ForwardMode(procedure, active).run()


class _ForwardMode:
    """The tangents of what a procedure computes, by value."""

    def __init__(self, procedure: Procedure, active: Sequence[bool]) -> None:
        self._procedure = procedure
        self._flags = active
        self._build = ProcedureBuilder(procedure.name, names(procedure))
        self._active = Activity(procedure, active)
        self._finite = FiniteValues(procedure)
        self._shadows = Shadows(self._build, self._active.locations, "t")
        self._tangents: dict[Value, Tangent] = {}
        self._masked: dict[Value, Tangent | None] = {}
        self._rewriter = Rewriter()

    def run(self) -> Procedure:
        """Return the procedure."""
        build, procedure = self._build, self._procedure
        build.parameters += procedure.parameters
        build.types += procedure.types
        for content, type_, flag in zip(procedure.parameters, procedure.types, self._flags, strict=True):
            if flag and isinstance(content, Pointer):
                self._shadows.add_parameter(content, type_)
            elif flag and isinstance(content, Value):
                self._tangents[content] = Tangent(build.scalar(f"{content.name or 'x'}_t", type_.dtype))
        for content, type_, flag in zip(procedure.parameters, procedure.types, self._flags, strict=True):
            if not flag and isinstance(content, Pointer) and content.memory in self._active.locations:
                self._shadows.allocate(content, literal(type_.size), zero=True)
        self._push_block(procedure.body)
        results = list(procedure.results)
        types = list(procedure.result_types)
        for content, type_ in zip(procedure.results, procedure.result_types, strict=True):
            if is_inexact(type_.dtype):
                results.append(self._result(content, type_))
                types.append(type_)
        return build.finish(results, types)

    def _result(self, content: Content, type_: Aval) -> Content:
        if isinstance(content, Value):
            return self._tangent(content)
        if content.memory in self._active.locations:
            return self._shadows.of(content)
        return self._build.allocate(f"{content.name}_t", type_.size, type_.dtype, zero=True)

    def _tangent(self, value: Value) -> Value:
        """Return the tangent of a value; zero if it has none."""
        if value in self._active.values and value not in self._tangents:
            nodes, _ = extract([value], self._tangents, stop=lambda value: value not in self._active.values)
            for node in nodes:
                for out, tangent in zip(
                    node.outs, _pushed(node, self._tangents, self._push_node), strict=True
                ):
                    if tangent is not None:
                        self._tangents[out] = tangent
        tangent = self._tangents.get(value)
        if tangent is None:
            return literal(0.0, value.dtype)
        return self._rewriter.value(conform(tangent.applied(), value.dtype, ()))

    def _push_block(self, statements: Sequence[Statement]) -> None:
        for statement in statements:
            self._push(statement)

    def _push(self, statement: Statement) -> None:
        """Append a statement and the one for tangents."""
        if statement.blocks():
            self._build.append_with_blocks(statement, self._push_block)
        elif isinstance(statement, Apply):
            self._push_apply(statement)
        else:
            self._build.append(statement)
            read = self._shadows.follow(statement, lambda index: index, self._tangent)
            if read is not None:
                value, tangent = read
                self._tangents[value] = Tangent(tangent)

    def _push_apply(self, statement: Apply) -> None:
        """Append the graph with further inputs and outputs: the tangents."""
        body = statement.graph
        operands: list[Value | Span] = list(statement.inputs)
        sources: list[Value] = []
        tangents: list[Value] = []
        for inner, operand in zip(body.inputs, statement.inputs, strict=True):
            if isinstance(operand, Span):
                is_active = self._shadows.has(operand.pointer)
            else:
                is_active = operand in self._active.values
            if is_active:
                sources.append(inner)
                tangents.append(placeholder(inner))
                operands.append(
                    self._shadows.of_span(operand) if isinstance(operand, Span) else self._tangent(operand)
                )
        outputs = list(body.outputs)
        spans = list(statement.outputs)
        pushed = jvp(body.outputs, sources, tangents, never_stop)
        for output, tangent, span in zip(body.outputs, pushed, statement.outputs, strict=True):
            if self._shadows.has(span.pointer):
                outputs.append(zeros_like(output) if tangent is None else tangent)
                spans.append(self._shadows.of_span(span))
        self._build.append(
            Apply(make_body([*body.inputs, *tangents], outputs), tuple(operands), tuple(spans))
        )

    def _push_node(self, node: Node, incoming: Sequence[Tangent | None]) -> Sequence[Tangent | None]:
        """Return the tangents of a node's outputs.

        A tangent that was in memory has lost its mask: where it is zero, it counts as zero by selection, as a cotangent does in reverse
        mode.
        """
        op = node.op
        operands = {
            x.value: operand for x, operand in zip(incoming, node.inputs, strict=True) if x is not None
        }

        def product(partial: Value, tangent: Value) -> Value:
            return self._product(partial, tangent, operands[tangent])

        if isinstance(op, Elementwise) and op.partials is not None:
            return [push_partials(node, op.partials, incoming, product)]
        row: object = masked_product  # which is an op, though its type is that of a function
        if op is row and incoming[0] is not None:
            return [self._push_masked_product(node, incoming[0], incoming[1])]
        is_real = all(value.dtype.kind != "c" for value in (node.out, *node.inputs))  # others conjugate
        if (
            isinstance(op, Elementwise)
            and op.linear_rules is not None
            and is_real
            and not op.finite_derivatives
        ):
            partials = [None if rule is None else _slope(rule) for rule in op.tangents or ()]
            return [push_partials(node, partials, incoming, product)]
        return push_node(node, incoming)

    def _product(self, partial: Value, tangent: Value, operand: Value) -> Value:
        """Return a partial derivative times the tangent of an operand.

        It is 0 where the tangent is zero by selection, if the partial derivative may be infinite there.
        """
        if self._finite.is_finite(partial):
            return scaled(partial, tangent)
        if operand.node is None:
            return masked_product(partial, tangent)
        selected = self._selected(operand)
        if selected is None:
            return scaled(partial, tangent)
        # A zero by arithmetic alone becomes NaN when multiplied by infinity. A selection by the mask instead of `masked_product` would have
        # no derivative with respect to a tangent that happens to be 0.
        by_arithmetic = bitwise_and(selected, equal(tangent, 0))
        return where(by_arithmetic, scaled(partial, tangent), masked_product(partial, tangent))

    def _push_masked_product(self, node: Node, of_slope: Tangent, of_factor: Tangent | None) -> Tangent:
        """Return the tangent of a slope times another tangent: it is 0 where that of the slope is zero by selection, too."""
        slope, factor = node.inputs
        moved = of_slope.applied()
        is_masked = equal(factor, 0)
        selected = None if slope.node is None else self._selected(slope)
        if selected is not None:
            is_masked = bitwise_or(is_masked, bitwise_and(selected, equal(moved, 0)))
        # Each product is differentiable in the factor that it tests for zeros, also where that happens to be 0.
        total = Tangent(where(is_masked, masked_product(moved, factor), masked_product(factor, moved)))
        if of_factor is None:
            return total
        return summed(total, Tangent(masked_product(slope, of_factor.value), of_factor.mask))

    def _selected(self, value: Value) -> Value | None:
        """Return the mask outside which a tangent is zero by selection, if zeros from memory are; None if there are none."""
        nodes, _ = extract([value], self._masked, stop=lambda value: value not in self._active.values)
        for node in nodes:
            for operand in node.inputs:
                tangent = self._tangents.get(operand)
                if operand.node is None and tangent is not None and operand not in self._masked:
                    mask = not_equal(tangent.value, 0)
                    self._masked[operand] = Tangent(tangent.value, mask, is_applied=True)
            self._masked.update(zip(node.outs, _pushed(node, self._masked, push_node), strict=True))
        tangent = self._masked[value]
        return None if tangent is None else tangent.mask


def _pushed(
    node: Node,
    tangents: Mapping[Value, Tangent | None],
    push: Callable[[Node, Sequence[Tangent | None]], Sequence[Tangent | None]],
) -> Sequence[Tangent | None]:
    """Return the tangents of a node's outputs from those of others; `push` is for nodes that are not squares of values with a kink."""
    incoming = [tangents.get(operand) for operand in node.inputs]
    if all(tangent is None for tangent in incoming):
        return [None] * len(node.outs)
    with at(derivative_site(node, backward=False)):
        whole = as_one_function(node, never_stop)
        if whole is None:
            return push(node, incoming)
        return [push_whole(whole, list(map(tangents.get, whole.operands)))]


def _slope(rule: Rule) -> Rule:
    """Return the partial derivative that a linear map of a tangent multiplies with."""
    return lambda z, *args, **params: rule(literal(1.0, z.dtype), z, *args, **params)
