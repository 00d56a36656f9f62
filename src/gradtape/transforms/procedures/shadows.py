"""Shadows: the memories, pointers and variables that hold the tangents, cotangents or squares of others."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from functools import reduce
from typing import NamedTuple

from gradtape.ir.body import make_body
from gradtape.ir.graph import Literal, Node, Value, extract
from gradtape.ir.types import Aval
from gradtape.kinds.elementwise import (
    computes_kink,
    factors_of_square,
    has_kink,
    is_same,
    square_of_elements,
    unmoved,
    without_sign,
)
from gradtape.kinds.operands import conform
from gradtape.ops.core.elementwise.arithmetic import multiply
from gradtape.ops.core.elementwise.cast import with_tangent_of
from gradtape.passes.procedures.forwarding import forward_elements
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.equal_statements import WithEqualNumbers, merge_equal_statements
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Content,
    Load,
    Memory,
    Pointer,
    Procedure,
    Read,
    Span,
    Statement,
    Store,
    Variable,
)
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.traversal import names, roots
from gradtape.records import replaced
from gradtape.statements import walk
from gradtape.transforms.activity import differentiable_inputs
from gradtape.transforms.loops.draft import never_stop
from gradtape.transforms.procedures.activity import Location, loads, location_of, stores


class Shadows:
    """The shadows of the active locations of a procedure: of the same dtypes, and as large.

    Parameters
    ----------
    build : ProcedureBuilder
        Of the procedure to which they belong.
    active : collection of Memory or Variable
        What has a shadow.
    suffix : str
        Of their names.
    """

    def __init__(self, build: ProcedureBuilder, active: Collection[Location | Content], suffix: str) -> None:
        self._build = build
        self._active = active
        self._suffix = suffix
        self._memories: dict[Memory, Memory] = {}
        self._pointers: dict[Pointer, Pointer] = {}
        self._variables: dict[Variable, Variable] = {}

    def has(self, location: Memory | Variable | Pointer) -> bool:
        """Return whether there is a shadow; a variable of pointers has one where its memory has."""
        if isinstance(location, Pointer):
            return location.memory in self._active
        if isinstance(location, Variable) and isinstance(location.type, Memory):
            return location.type in self._active
        return location in self._active

    def of(self, pointer: Pointer) -> Pointer:
        """Return the shadow of a pointer."""
        return self._pointers[pointer]

    def of_span(self, span: Span) -> Span:
        return Span(self.of(span.pointer), span.offset, span.aval)

    def memory(self, memory: Memory) -> Memory:
        """Return the shadow of a memory."""
        if memory not in self._memories:
            name = self._build.unique(f"{memory.name}_{self._suffix}")
            self._memories[memory] = Memory(name, memory.dtype)
        return self._memories[memory]

    def variable(self, variable: Variable) -> Variable:
        """Return the shadow of a variable."""
        if variable not in self._variables:
            type_ = variable.type
            self._variables[variable] = Variable(
                self._build.unique(f"{variable.name}_{self._suffix}"),
                self.memory(type_) if isinstance(type_, Memory) else type_,
            )
        return self._variables[variable]

    def add(self, pointer: Pointer) -> Pointer:
        """Return a new shadow of a pointer, which a statement or the caller is to define."""
        memory = self.memory(pointer.memory)
        shadow = Pointer(self._build.unique(f"{pointer.name}_{self._suffix}"), memory)
        self._pointers[pointer] = shadow
        return shadow

    def add_parameter(self, pointer: Pointer, type_: Aval) -> None:
        """Append a parameter that is the shadow of a pointer."""
        self._build.parameters.append(self.add(pointer))
        self._build.types.append(type_)

    def allocate(self, pointer: Pointer, size: Value, zero: bool) -> None:
        """Append the allocation of the shadow of a pointer."""
        self._build.append(Allocate(self.add(pointer), size, zero))

    def follow(
        self, statement: Statement, index: Callable[[Value], Value], stored: Callable[[Value], Value]
    ) -> tuple[Value, Value] | None:
        """Append the statement that does with shadows what a statement does with what they belong to.

        Parameters
        ----------
        statement : Statement
            Without blocks, and no array computation.
        index : callable
            Returns an index or a size in terms of the leaves of the procedure that is made.
        stored : callable
            Returns what a shadow gets where a value is stored or assigned.

        Returns
        -------
        tuple of Value or None
            What the statement loads or reads, and the same of the shadow.
        """
        build = self._build
        if isinstance(statement, Load) and self.has(statement.pointer):
            return statement.out, build.load(self.of(statement.pointer), index(statement.index))
        if isinstance(statement, Store) and self.has(statement.pointer):
            build.store(self.of(statement.pointer), index(statement.index), stored(statement.value))
        elif isinstance(statement, Allocate) and self.has(statement.out):
            self.allocate(statement.out, index(statement.size), statement.zero)
        elif isinstance(statement, Read) and self.has(statement.variable):
            variable = self.variable(statement.variable)
            if isinstance(statement.out, Value):
                return statement.out, build.read(variable)
            build.append(Read(self.add(statement.out), variable))
        elif isinstance(statement, Assign) and self.has(statement.variable):
            value = statement.value
            variable = self.variable(statement.variable)
            build.assign(variable, self.of(value) if isinstance(value, Pointer) else stored(value))
        return None


def with_smooth_squares(procedure: Procedure) -> Procedure:
    """Return the procedure with squares of contents that have a kink differentiated as one function (ADR 105).

    A location that holds ``abs(x)``, for instance, gets a shadow for its square, which is stored wherever the location is stored. The
    square of a value that is read from the location keeps its value, and has the derivative of the shadow. In a primal the shadow is dead.

    Examples
    --------
    >>> from gradtape.ops.core.elementwise.signs import absolute
    >>> build = ProcedureBuilder("square")
    >>> y = build.allocate("y", 1)
    >>> build.store(y, 0, absolute(build.scalar("x")))
    >>> value = build.load(y, 0)
    >>> [type(statement).__name__ for statement in with_smooth_squares(build.finish([value * value])).body]
    ['Allocate', 'Allocate', 'Store', 'Store', 'Load', 'Load']
    """
    kinks = _Kinks(procedure)
    if kinks.is_worth_matching():
        # what is equal becomes one value
        procedure = WithEqualNumbers().rewritten(procedure)
        procedure = forward_elements(merge_equal_statements(forward_elements(procedure)))
        kinks = _Kinks(procedure)
    if not kinks.squares:
        return procedure
    return _Squared(procedure, kinks).rewritten(procedure)


class SquaredProcedure(NamedTuple):
    """A procedure that knows squares.

    Attributes
    ----------
    procedure : Procedure
        Its further parameters are the squares of some of the parameters, its further result that of a result.
    places : tuple of int
        Which parameters these are.
    """

    procedure: Procedure
    places: tuple[int, ...]


def with_given_squares(
    procedure: Procedure, kinked: Sequence[int | None], result: int | None = None
) -> SquaredProcedure | None:
    """Return the procedure with the squares of parameters that have a kink outside, where it squares them; None if it does not.

    Parameters
    ----------
    procedure : Procedure
    kinked : sequence of (int or None)
        By parameter: the place of the first one that is the same number or array; None if it has no kink.
    result : int, optional
        The result whose square is a further result; None is returned if it has no kink.

    Examples
    --------
    >>> build = ProcedureBuilder("square")
    >>> x = build.scalar("x")
    >>> squared, places = with_given_squares(build.finish([x * x]), [0])
    >>> len(squared.parameters), places
    (2, (0,))
    """
    written = {
        pointer.memory for statement in walk(procedure.body) for pointer in statement.pointers_written()
    }
    flagged = [
        position
        for position, parameter in enumerate(procedure.parameters)
        if kinked[position] is not None
        and parameter.dtype.kind == "f"
        and not (isinstance(parameter, Pointer) and parameter.memory in written)
    ]
    if not flagged and (result is None or not _computes_kinks(procedure)):
        return None
    equal = Rewriter()
    for position in flagged:
        first = kinked[position]
        if first is not None and first in flagged:
            equal.becomes[procedure.parameters[position]] = procedure.parameters[first]
    procedure = forward_elements(merge_equal_statements(forward_elements(equal.rewritten(procedure))))
    squared = None if result is None else procedure.results[result]
    kinks = _Kinks(procedure, [procedure.parameters[position] for position in flagged], squared)
    if squared is not None and not kinks.has_result:
        return None
    positions = [
        position for position in flagged if location_of(procedure.parameters[position]) in kinks.locations
    ]
    if not positions and squared is None:
        return None
    return SquaredProcedure(
        _Squared(procedure, kinks, positions, squared).rewritten(procedure), tuple(positions)
    )


class _Kinks:
    """The squares of values read from locations that hold values with a kink.

    Attributes
    ----------
    squares : dict of Node to (Value, tuple of Value)
        By product: the leaf or the value with a kink whose square is a factor of it, and the other factors.
    wanted : set of Value
        The leaves whose squares are read.
    locations : set of Memory or Variable
        Those whose squares are stored.

    Parameters
    ----------
    procedure : Procedure
    given : sequence of Value or Pointer
        Parameters that have a kink outside, and that nothing writes to.
    result : Value or Pointer, optional
        A result whose square is wanted; `has_result` says whether it has a kink.
    """

    def __init__(
        self, procedure: Procedure, kinked_parameters: Sequence[Content] = (), result: Content | None = None
    ) -> None:
        self.has_result = False
        self.squares: dict[Node, tuple[Value, tuple[Value, ...]]] = {}
        self.wanted: set[Value] = set()
        self.locations: set[Location | Content] = set()
        self._products: list[Node] = []
        used = roots(procedure)
        nodes, _ = extract(used, stop=lambda value: not value.is_made)
        statements = list(walk(procedure.body))
        applies = [statement for statement in statements if isinstance(statement, Apply)]
        inside = [node for apply in applies for node in apply.graph.nodes]
        if not kinked_parameters and not any(map(_has_square_without_kink, (*nodes, *inside))):
            return
        self._products = _differentiated(nodes, used)
        stored = list(stores(statements))
        kinked: set[Location | Content] = {location_of(content) for content in kinked_parameters}
        shared = {location_of(content) for content in procedure.parameters}
        numbers = {content: content for content in kinked_parameters if isinstance(content, Value)}
        self._leaves: dict[Value, Location | Content] = {}
        while True:  # ends: each round adds a location
            self._leaves = {value: location for value, location in loads(statements) if location in kinked}
            self._leaves |= numbers
            added = {
                location
                for value, location in stored
                if location not in shared and value.dtype.kind == "f" and has_kink(value, self._leaves)
            }
            added |= {
                span.pointer.memory
                for apply in applies
                for output, span in zip(apply.graph.outputs, apply.outputs, strict=True)
                if span.pointer.memory not in shared and self._has_kink(apply, output, kinked)
            }
            if added <= kinked:
                break
            kinked |= added
        for node in self._products:
            square = self.square(node.out)
            if square is not None:
                self.squares[node] = square
                self._want(square[0])
        if isinstance(result, Value):
            self.has_result = result.dtype.kind == "f" and has_kink(result, self._leaves)
            square = self.square(multiply(result, result)) if self.has_result else None
            if square is not None:
                self._want(square[0])
        elif result is not None and result.memory in kinked:
            self.has_result = True
            self.locations.add(result.memory)
        todo = set(self.locations)
        while todo:
            location = todo.pop()
            before = set(self.locations)
            for value, into in stored:
                if into == location:
                    square = self.square(multiply(value, value))
                    if square is not None:
                        self._want(square[0])
            for apply in applies:
                for output, span in zip(apply.graph.outputs, apply.outputs, strict=True):
                    if span.pointer.memory == location:
                        self._want_of(apply, output, kinked)
            todo |= self.locations - before

    def _want(self, value: Value) -> None:
        if value in self._leaves:
            self.wanted.add(value)
            self.locations.add(self._leaves[value])

    def _has_kink(self, apply: Apply, output: Value, kinked: Collection[Location | Content]) -> bool:
        """Return whether elements of an output of an array computation are moved from values with a kink."""
        square = square_of_elements(output, never_stop) if output.dtype.kind == "f" else None
        if square is None:
            return False
        operands = dict(zip(apply.graph.inputs, apply.inputs, strict=True))
        return bool(square.with_kink) or any(
            operand.pointer.memory in kinked if isinstance(operand, Span) else has_kink(operand, self._leaves)
            for operand in (operands[x] for x in square.others if x in operands)
        )

    def _want_of(self, apply: Apply, output: Value, kinked: Collection[Location | Content]) -> None:
        """Ask for the squares of what elements of an output of an array computation are moved from."""
        square = square_of_elements(output, never_stop)
        operands = dict(zip(apply.graph.inputs, apply.inputs, strict=True))
        for x in () if square is None else square.others:
            operand = operands.get(x)
            if isinstance(operand, Span):
                self.locations |= {operand.pointer.memory} & set(kinked)
            elif operand is not None:
                squared = self.square(multiply(operand, operand))
                if squared is not None:
                    self._want(squared[0])

    def square(self, product: Value) -> tuple[Value, tuple[Value, ...]] | None:
        """Return what a product has the square of as a factor, and the other factors; None for numbers and other products."""
        factors = None if product.node is None else factors_of_square(product.node)
        if factors is None:
            return None
        left, right = factors
        for position, value in enumerate(map(self._factor, left)):
            is_leaf = value in self._leaves
            if not is_leaf and not computes_kink(value):
                continue
            for other, equal in enumerate(map(self._factor, right)):
                if equal is value or (not is_leaf and is_same(value, equal)):
                    other_factors = (
                        *left[:position],
                        *left[position + 1 :],
                        *right[:other],
                        *right[other + 1 :],
                    )
                    # Transforms know the squares of what a row computes, times numbers.
                    if is_leaf or not all(isinstance(factor, Literal) for factor in other_factors):
                        return value, other_factors
        return None

    def _factor(self, value: Value) -> Value:
        """Return a factor without what moves it, and without what changes the sign of a leaf."""
        leaf = without_sign(value)
        return leaf if leaf in self._leaves else unmoved(value)

    def is_worth_matching(self) -> bool:
        """Return whether a product of two values with a kink may be a square whose operands were loaded twice."""
        return any(
            all(any(has_kink(factor, self._leaves) for factor in side) for side in sides)
            for node in self._products
            if node not in self.squares and (sides := factors_of_square(node)) is not None
        )


def _has_square_without_kink(node: Node) -> bool:
    return any(map(computes_kink, node.outs))


def _computes_kinks(procedure: Procedure) -> bool:
    """Return whether there is a row with a kink in a procedure."""
    nodes, _ = extract(roots(procedure), stop=lambda value: not value.is_made)
    applies = [statement for statement in walk(procedure.body) if isinstance(statement, Apply)]
    return any(
        map(_has_square_without_kink, [*nodes, *[node for apply in applies for node in apply.graph.nodes]])
    )


def _differentiated(nodes: Sequence[Node], used: Sequence[Value]) -> list[Node]:
    """Return the products through which derivatives go."""
    reached = set(used)
    products: list[Node] = []
    for node in reversed(nodes):
        if not reached.isdisjoint(node.outs):
            reached.update(differentiable_inputs(node))
            if node.out.dtype.kind == "f" and factors_of_square(node) is not None:
                products.append(node)
    return products


class _Squared(Rewriter):
    """Adds the statements for shadows of squares, and gives squares their derivatives."""

    def __init__(
        self,
        procedure: Procedure,
        kinks: _Kinks,
        kinked_positions: Sequence[int] = (),
        result: Content | None = None,
    ) -> None:
        super().__init__()
        self._kinks, self._result = kinks, result
        self._build = ProcedureBuilder(procedure.name, names(procedure))
        self._shadows = Shadows(self._build, kinks.locations, "squared")
        self._squares: dict[Value, Value] = {}
        for position in kinked_positions:
            parameter, type_ = procedure.parameters[position], procedure.types[position]
            if isinstance(parameter, Pointer):
                self._shadows.add_parameter(parameter, type_)
            else:
                name = parameter.name or "number"
                self._squares[parameter] = self._build.scalar(f"{name}_squared", type_.dtype)

    def rewritten(self, procedure: Procedure) -> Procedure:
        """Return the procedure with its shadows, and with those of parameters as further parameters."""
        extended = super().rewritten(procedure)
        extended = replaced(
            extended,
            parameters=[*extended.parameters, *self._build.parameters],
            types=[*extended.types, *self._build.types],
        )
        result = self._result
        if result is None:
            return extended
        square = self._shadows.of(result) if isinstance(result, Pointer) else self._square(result)
        type_ = procedure.result_types[list(procedure.results).index(result)]
        return replaced(
            extended, results=[*extended.results, square], result_types=[*extended.result_types, type_]
        )

    def made(self, node: Node, inputs: tuple[Value, ...]) -> Sequence[Value]:
        outs = super().made(node, inputs)
        square = self._kinks.squares.get(node)
        if square is None:
            return outs
        value, other_factors = square
        factors = [self.becomes.get(factor, factor) for factor in other_factors]
        squared = self._squares.get(value)
        if squared is None:
            plain = self.becomes[value]
            squared = multiply(plain, plain)
        product = reduce(multiply, factors, squared)
        return [with_tangent_of(outs[0], conform(product, outs[0].dtype, ()))]

    def _square(self, value: Value) -> Value:
        """Return the square of the stored value, in terms of the squares of its operands."""
        product = multiply(value, value)
        square = self._kinks.square(product)
        if square is not None:
            assert product.node is not None
            self._kinks.squares[product.node] = square
        return conform(self.value(product), value.dtype, ())

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        block: list[Statement] = []
        with self._build.block(block):
            for statement in statements:
                self._build.append(self.statement(statement))
                self._append_shadow(statement)
        return block

    def _append_shadow(self, statement: Statement) -> None:
        """Append the statement that does with the shadow what a statement does."""
        if isinstance(statement, Apply):
            self._append_squares(statement)
        elif not (
            isinstance(statement, Load | Read)
            and isinstance(statement.out, Value)
            and statement.out not in self._kinks.wanted
        ):
            read = self._shadows.follow(statement, self.value, self._square)
            if read is not None:
                value, square = read
                self._squares[value] = square

    def _append_squares(self, apply: Apply) -> None:
        """Append the array computation of the squares of those outputs that have a shadow, whose elements are moved as theirs."""
        shadows = self._shadows
        given = dict(zip(apply.graph.inputs, apply.inputs, strict=True))
        operands: dict[Value, Value | Span] = {
            x: self._span(operand) if isinstance(operand, Span) else self.value(operand)
            for x, operand in given.items()
        }
        squares: dict[Value, Value] = {}
        for x, operand in given.items():
            if isinstance(operand, Span) and shadows.has(operand.pointer):
                squares[x] = Value(x.aval)
                operands[squares[x]] = self._span(shadows.of_span(operand))
            elif isinstance(operand, Value) and operand.dtype.kind == "f":
                squares[x] = Value(x.aval)
                operands[squares[x]] = self._square(operand)
        outputs, spans = [], []
        for output, span in zip(apply.graph.outputs, apply.outputs, strict=True):
            if not shadows.has(span.pointer):
                continue
            square = square_of_elements(output, never_stop)
            assembled = multiply(output, output)
            if square is not None:
                values = (*[node.out for node in square.kinks], *square.others)
                moved = square.assembled({x: squares.get(x, multiply(x, x)) for x in values})
                assert moved is not None
                assembled = moved
            outputs.append(assembled)
            spans.append(self._span(shadows.of_span(span)))
        if outputs:
            body = make_body(list(operands), outputs, "squares")
            self._build.append(Apply(body, tuple(operands.values()), tuple(spans)))

    def _span(self, span: Span) -> Span:
        return Span(span.pointer, self.value(span.offset), span.aval)
