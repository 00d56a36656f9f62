"""Complex numbers in procedures: two numbers each, which lie side by side in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtape.ir.builder import at
from gradtape.ir.graph import Value, extract, literal
from gradtape.ir.site import Site
from gradtape.ir.types import INT64, Aval, aval, part_dtype
from gradtape.kinds.operands import conform
from gradtape.passes.complex.split import ComplexSplit
from gradtape.passes.procedures.fusion import contract_arrays
from gradtape.procedures.builder import ProcedureBuilder, leaf
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Content,
    Dtype,
    Load,
    Memory,
    Pointer,
    Pop,
    Procedure,
    Push,
    Read,
    Span,
    Statement,
    Store,
    Variable,
)
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.traversal import names
from gradtape.statements import walk


def split_complex_procedure(procedure: Procedure) -> Procedure:
    """Return the procedure with real numbers only.

    A parameter or result of complex numbers becomes an array of floats with a last axis of real and imaginary part. Loops are fused before:
    of parts, every second element, dependence analysis knows less.
    """
    if not any(map(_is_complex, _contents(procedure))):
        return procedure
    return _Splitter(contract_arrays(procedure)).run()


def _is_complex(content: Content) -> bool:
    return content.dtype.kind == "c"


def _contents(procedure: Procedure) -> Iterator[Content]:
    """Yield values and pointers of a procedure, and what is computed between them."""
    operands: list[Content] = [*procedure.parameters, *procedure.results]
    for statement in walk(procedure.body):
        operands += [*statement.uses(), *statement.defines()]
    yield from operands
    nodes, _ = extract([x for x in operands if isinstance(x, Value)])
    for node in nodes:
        yield from node.outs


class _Splitter(Rewriter):
    """Rewrites statements."""

    def __init__(self, procedure: Procedure) -> None:
        super().__init__()
        self._procedure = procedure
        self._split = ComplexSplit()
        self._memories: dict[Memory, Memory] = {}
        self._pointers: dict[Pointer, Pointer] = {}
        self._variables: dict[Variable, tuple[Variable, ...]] = {}
        self._known: set[Value] = set()
        self._unique = ProcedureBuilder(names=names(procedure)).unique

    def run(self) -> Procedure:
        procedure = self._procedure
        parameters: list[Content] = []
        types: list[Aval] = []
        first: list[Statement] = []
        for parameter, type_ in zip(procedure.parameters, procedure.types, strict=True):
            if isinstance(parameter, Value) and _is_complex(parameter):
                part = part_dtype(parameter.dtype)
                pointer = self._new_pointer(parameter.name or "number", part)
                first += self._loads(parameter, pointer, literal(0, INT64), None)
                parameters.append(pointer)
            else:
                parameters.append(self.content(parameter))
            types.append(flat_type(type_))
        results: list[Content] = []
        last: list[Statement] = []
        body = self.block(procedure.body)
        for result in procedure.results:
            if isinstance(result, Value) and _is_complex(result):
                pointer = self._new_pointer("result", part_dtype(result.dtype))
                last.append(Allocate(pointer, literal(2, INT64)))
                last += self._stores(result, pointer, literal(0, INT64), None)
                results.append(pointer)
            else:
                results.append(self.content(result))
        result_types = [flat_type(type_) for type_ in procedure.result_types]
        return Procedure(procedure.name, parameters, types, [*first, *body, *last], results, result_types)

    def _new_pointer(self, name: str, dtype: Dtype) -> Pointer:
        name = self._unique(name)
        return Pointer(name, Memory(name, dtype))

    # Values

    def pointer(self, pointer: Pointer) -> Pointer:
        """Return a pointer to floats for one to complex numbers."""
        if not _is_complex(pointer):
            return pointer
        if pointer not in self._pointers:
            self._pointers[pointer] = Pointer(pointer.name, self._memory(pointer.memory))
        return self._pointers[pointer]

    def _memory(self, memory: Memory) -> Memory:
        if memory not in self._memories:
            self._memories[memory] = Memory(memory.name, part_dtype(memory.dtype))
        return self._memories[memory]

    def value(self, value: Value) -> Value:
        """Return a real value in terms of the new leaves."""
        self._enter(value)
        return self._split.value(value)

    def parts(self, value: Value) -> tuple[Value, Value]:
        """Return the parts of a complex value."""
        self._enter(value)
        real, imaginary = self._split.parts(value)
        part = part_dtype(value.dtype)
        return conform(real, part, ()), conform(imaginary, part, ())

    def _enter(self, value: Value) -> None:
        """Split what computes a value."""
        nodes, leaves = extract([value], self._known)
        for number in leaves:
            if number.data is not None and _is_complex(number):
                part = part_dtype(number.dtype)
                self._split.enter(number, (literal(number.data.real, part), literal(number.data.imag, part)))
        for node in nodes:
            with at(node.site):
                self._split.node(node)
            self._known.update(node.outs)

    def _loads(self, out: Value, pointer: Pointer, index: Value, site: Site | None) -> list[Statement]:
        real, imaginary = self._new_parts(out)
        return [
            Load(real, pointer, index, site),
            Load(imaginary, pointer, index + literal(1, INT64), site),
        ]

    def _stores(self, value: Value, pointer: Pointer, index: Value, site: Site | None) -> list[Statement]:
        real, imaginary = self.parts(value)
        return [
            Store(pointer, index, real, site),
            Store(pointer, index + literal(1, INT64), imaginary, site),
        ]

    def _new_parts(self, out: Value) -> tuple[Value, Value]:
        part = part_dtype(out.dtype)
        parts = leaf(part), leaf(part)
        self._split.enter(out, parts)
        return parts

    def _new_variables(self, variable: Variable) -> tuple[Variable, ...]:
        """Return the variables of the parts; one for pointers, and for real numbers the variable itself."""
        if variable not in self._variables:
            name, type_ = variable.name, variable.type
            new: tuple[Variable, ...] = (variable,)
            if type_.dtype.kind == "c":
                if isinstance(type_, Memory):
                    new = (Variable(name, self._memory(type_)),)
                else:
                    part = aval((), part_dtype(type_.dtype))
                    new = (Variable(f"{name}.real", part), Variable(f"{name}.imag", part))
            self._variables[variable] = new
        return self._variables[variable]

    # Statements

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return what the statements of a block become."""
        return [new for statement in statements for new in self._statements(statement)]

    def _statements(self, statement: Statement) -> list[Statement]:
        if isinstance(statement, Push):
            return [Push(tuple([part for value in statement.values for part in self._contents(value)]))]
        if isinstance(statement, Pop):
            return [Pop(tuple([part for out in statement.outs for part in self._new_contents(out)]))]
        if isinstance(statement, Apply):
            return self._apply(statement)
        if isinstance(statement, Load | Store) and _is_complex(statement.pointer):
            pointer = self.pointer(statement.pointer)
            index = self.value(statement.index) * literal(2, INT64)
            if isinstance(statement, Load):
                return self._loads(statement.out, pointer, index, statement.site)
            return self._stores(statement.value, pointer, index, statement.site)
        if isinstance(statement, Read):
            outs = self._new_contents(statement.out)
            return [Read(*pair) for pair in zip(outs, self._new_variables(statement.variable), strict=True)]
        if isinstance(statement, Assign):
            values = self._contents(statement.value)
            return [
                Assign(*pair) for pair in zip(self._new_variables(statement.variable), values, strict=True)
            ]
        if isinstance(statement, Allocate):
            size = self.value(statement.size)
            if _is_complex(statement.out):
                size = size * literal(2, INT64)
            return [Allocate(self.pointer(statement.out), size, statement.zero)]
        return [self.statement(statement)]

    def _contents(self, content: Content) -> tuple[Content, ...]:
        if isinstance(content, Value) and _is_complex(content):
            return self.parts(content)
        return (self.content(content),)

    def _new_contents(self, out: Content) -> tuple[Content, ...]:
        if isinstance(out, Value) and _is_complex(out):
            return self._new_parts(out)
        return (self.content(out),)

    def span(self, span: Span) -> Span:
        """Return a span over floats; its type says that they are complex numbers."""
        offset = self.value(span.offset)
        if _is_complex(span.pointer):
            offset = offset * literal(2, INT64)
        return Span(self.pointer(span.pointer), offset, span.aval)

    def _apply(self, statement: Apply) -> list[Statement]:
        """Return an array computation, and what stores the complex numbers that it is given."""
        before: list[Statement] = []
        inputs: list[Value | Span] = []
        for x in statement.inputs:
            if isinstance(x, Span):
                inputs.append(self.span(x))
            elif _is_complex(x):
                pointer = self._new_pointer("number", part_dtype(x.dtype))
                before.append(Allocate(pointer, literal(2, INT64)))
                before += self._stores(x, pointer, literal(0, INT64), None)
                inputs.append(Span(pointer, literal(0, INT64), x.aval))
            else:
                inputs.append(self.value(x))
        outputs = tuple([self.span(x) for x in statement.outputs])
        return [*before, Apply(statement.graph, tuple(inputs), outputs)]


def flat_type(type_: Aval) -> Aval:
    """Return the type of an array of the parts."""
    return aval((*type_.shape, 2), part_dtype(type_.dtype)) if type_.dtype.kind == "c" else type_
