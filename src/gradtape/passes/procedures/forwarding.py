"""Store forwarding: a load of what a block has just stored, or of an array that is still zeros, becomes that value; variables alike."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Final, Generic, TypeVar

from gradtape.ir.graph import Literal, Value, extract, literal, number_of
from gradtape.ops.core.elementwise.arithmetic import add
from gradtape.passes.procedures.accesses import LoopAccesses
from gradtape.procedures.affine import linear_form
from gradtape.procedures.dataflow import kept_variables, same_number
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Check,
    Content,
    For,
    If,
    Load,
    Memory,
    Pointer,
    Pop,
    Procedure,
    Push,
    Read,
    Statement,
    Store,
    Variable,
)
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.traversal import roots, stored
from gradtape.records import replaced
from gradtape.statements import walk
from gradtape.transforms.procedures.accumulate import structure

T = TypeVar("T")

MOST_PAIRS: Final = 24
"""Pairs of accesses to an array of zeros that are compared."""


def forward_elements(procedure: Procedure) -> Procedure:
    """Return the procedure without loads and reads of known values; the same procedure where there are none.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("square")
    >>> a = build.allocate("a", 5)
    >>> build.store(a, 0, build.scalar("x") * 2.0)
    >>> forwarded = forward_elements(build.finish([build.load(a, 0) * build.load(a, 0)]))
    >>> [type(statement).__name__ for statement in forwarded.body]
    ['Allocate', 'Store']
    """
    forwarded = _forwarded_once(procedure, set())
    if forwarded is procedure or not loads_of_zeros(forwarded):
        return forwarded
    # Of an accumulator that is used up in each iteration only the zeros are left.
    return _forwarded_once(forwarded, _added_to(procedure) - _used_otherwise(forwarded))


def _forwarded_once(procedure: Procedure, neutral: set[Value]) -> Procedure:
    """Return the procedure after one walk; zeros that are `neutral` are so in additions: they leave the sign of a zero."""
    sums = _Sums()
    forwarding = _Forwarding(zero_loads(procedure), sums, neutral)
    stores = _OverwrittenStores(sums)
    body = stores.block(_without_fills(forwarding.block(procedure.body)))
    fills = sum(isinstance(s, Allocate) and s.zero for s in procedure.body)
    if (
        not forwarding.count
        and not stores.count
        and fills == sum(isinstance(s, Allocate) and s.zero for s in body)
    ):
        return procedure
    return replaced(
        procedure, body=body, results=[forwarding.content(content) for content in procedure.results]
    )


class _Forwarding(Rewriter):
    """Replaces loads by what the block around them, or one around that, has stored.

    Attributes
    ----------
    count : int
        Of the loads that were replaced.
    """

    def __init__(self, zeros: set[Load], sums: _Sums, neutral: set[Value]) -> None:
        super().__init__()
        self.count = 0
        self._zeros = zeros
        self._neutral = neutral
        self._elements: _Elements[Value] = _Elements(sums)
        """What elements hold."""
        self._contents: dict[Variable, Content] = {}
        """What variables hold."""

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        forwarded: list[Statement] = []
        for statement in statements:
            if isinstance(statement, Load):
                if statement in self._zeros:
                    self.count += 1
                    zero = -0.0 if statement.out in self._neutral else 0
                    self.becomes[statement.out] = literal(zero, statement.out.dtype)
                    continue
                load = self.statement(statement)
                assert isinstance(load, Load)
                element = self._elements.get(load.pointer, load.index)
                if element is not None:
                    self.count += 1
                    self.becomes[load.out] = element
                    continue
                self._elements.set(load.pointer, load.index, load.out)
                forwarded.append(load)
            elif isinstance(statement, Store):
                store = self.statement(statement)
                assert isinstance(store, Store)
                self._elements.forget_unless_apart(store.pointer, store.index)
                self._elements.set(store.pointer, store.index, store.value)
                forwarded.append(store)
            elif isinstance(statement, Read):
                content = self._contents.get(statement.variable)
                if content is not None:
                    self.count += 1
                    self.becomes[statement.out] = content
                    continue
                self._contents[statement.variable] = statement.out
                forwarded.append(statement)
            elif isinstance(statement, Assign):
                assign = Assign(statement.variable, self.content(statement.value), statement.site)
                self._contents[assign.variable] = assign.value
                forwarded.append(assign)
            else:
                self._elements.forget({pointer.memory for pointer in stored([statement])})
                forwarded.append(self._with_blocks(statement))
        return forwarded

    def _with_blocks(self, statement: Statement) -> Statement:
        elements, contents = self._elements.copy(), dict(self._contents)
        assigned = {s.variable for s in walk([statement]) if isinstance(s, Assign)}
        after = {variable: x for variable, x in contents.items() if variable not in assigned}
        if isinstance(statement, If):
            condition = self.value(statement.condition)
            then = self.block(statement.then)
            then_contents = self._contents
            self._elements, self._contents = elements.copy(), dict(contents)
            result: Statement = If(condition, then, self.block(statement.otherwise))
            for variable in assigned & then_contents.keys() & self._contents.keys():
                first, second = then_contents[variable], self._contents[variable]
                if first is second or (isinstance(first, Literal) and same_number(second, first)):
                    after[variable] = first
        else:
            if isinstance(statement, For):  # a variable that each iteration leaves as it was
                for variable in kept_variables(statement.body, contents) & contents.keys():
                    after[variable] = contents[variable]
            self._contents = dict(after)
            result = self.statement(statement)
        self._elements, self._contents = elements, after
        return result


class _OverwrittenStores:
    """Removes the stores of elements that the same block stores again before anything may load them.

    Attributes
    ----------
    count : int
        Of the stores that were removed.
    """

    def __init__(self, sums: _Sums) -> None:
        self.count = 0
        self._sums = sums

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        """Return the statements of a block that are needed."""
        reversed_block: list[Statement] = []
        later: _Elements[Store] = _Elements(self._sums)
        for statement in reversed(statements):
            if isinstance(statement, Store):
                if later.get(statement.pointer, statement.index) is not None:
                    self.count += 1
                    continue
                later.set(statement.pointer, statement.index, statement)
            elif isinstance(statement, Load):
                later.forget_unless_apart(statement.pointer, statement.index)
            elif not isinstance(statement, Read | Assign | Push | Pop | Check | Allocate):
                later.forget(
                    {x.memory for s in walk([statement]) for x in s.uses() if isinstance(x, Pointer)}
                )
            reversed_block.append(statement.with_parts(block=self.block))
        return reversed_block[::-1]


class _Elements(Generic[T]):
    """Elements of arrays with their known values.

    They are grouped by pointer and by the index without its constant term. Two elements of one group are the same or apart, as
    their constant terms tell; nothing is known of elements of different groups. So a write leaves one group of its memory, and takes
    the same time however many elements are known: an unrolled block stores thousands.
    """

    def __init__(
        self, sums: _Sums, memories: dict[Memory, dict[tuple[Pointer, object], dict[int, T]]] | None = None
    ) -> None:
        self._sums = sums
        self._memories = {} if memories is None else memories

    def copy(self) -> _Elements[T]:
        """Return elements that change independently."""
        return _Elements(
            self._sums,
            {
                memory: {group: dict(elements) for group, elements in groups.items()}
                for memory, groups in self._memories.items()
            },
        )

    def get(self, pointer: Pointer, index: Value) -> T | None:
        """Return the known value of an element, or None."""
        terms, constant = self._sums.split(index)
        return self._memories.get(pointer.memory, {}).get((pointer, terms), {}).get(constant)

    def set(self, pointer: Pointer, index: Value, content: T) -> None:
        """Keep the known value of an element."""
        terms, constant = self._sums.split(index)
        groups = self._memories.setdefault(pointer.memory, {})
        groups.setdefault((pointer, terms), {})[constant] = content

    def forget_unless_apart(self, pointer: Pointer, index: Value) -> None:
        """Forget the elements that may be the one at an index."""
        terms, constant = self._sums.split(index)
        groups = self._memories.pop(pointer.memory, {})
        elements = groups.get((pointer, terms))
        if elements is not None:
            elements.pop(constant, None)
            self._memories[pointer.memory] = {(pointer, terms): elements}

    def forget(self, memories: Iterable[Memory]) -> None:
        """Forget all elements of memories."""
        for memory in memories:
            self._memories.pop(memory, None)


class _Sums:
    """Indices as sums, each computed once."""

    def __init__(self) -> None:
        self._known: dict[Value, tuple[object, int]] = {}

    def split(self, index: Value) -> tuple[object, int]:
        """Return what indices with the same multiples of the same values have in common, and the constant term."""
        parts = self._known.get(index)
        if parts is None:
            form = linear_form(index)
            constant = form.pop(None, 0)
            terms: Counter[object] = Counter()
            for x, factor in form.items():
                assert x is not None
                terms[structure(x)] += factor  # different values may be computed alike
            parts = self._known[index] = frozenset([term for term in terms.items() if term[1]]), constant
        return parts


def zero_loads(procedure: Procedure) -> set[Load]:
    """Return the loads of elements that nothing has stored since the array was allocated as zeros."""
    arrays = {s.out: s for s in procedure.body if isinstance(s, Allocate) and s.zero}
    if not arrays:
        return set()
    memories = {pointer.memory: pointer for pointer in arrays}
    loads, stores = _accesses(procedure, memories)
    if not loads:
        return set()
    users = _first_users(procedure.body)
    first = {memory: set(walk([statement])) for memory, statement in users.items() if memory in memories}
    accesses = LoopAccesses(procedure)
    zeros = _of_zeros(arrays, loads, stores)
    for pointer in arrays:
        own_loads = [load for load in loads.get(pointer, []) if load in first[pointer.memory]]
        others = [store for store in stores.get(pointer, []) if store in first[pointer.memory]]
        if not own_loads or len(own_loads) * len(others) > MOST_PAIRS:
            continue
        for load in own_loads:
            if not any(accesses.may_reach(store, load) for store in others):
                zeros.add(load)
    return zeros


def _added_to(procedure: Procedure) -> set[Value]:
    """Return what is loaded of elements to which something is added: the sign of a zero in such a sum is free, as its order is."""
    sums = _Sums()
    loads = {s.out: s for s in walk(procedure.body) if isinstance(s, Load) and s.out.dtype.kind == "f"}
    targets: set[Value] = set()
    for store in walk(procedure.body):
        node = store.value.node if isinstance(store, Store) else None
        if node is None or node.op is not add:
            continue
        assert isinstance(store, Store)
        for x in node.inputs:
            load = loads.get(x)
            if load is None or load.pointer is not store.pointer:
                continue
            if sums.split(load.index) == sums.split(store.index):
                targets.add(x)
    return targets


def _used_otherwise(procedure: Procedure) -> set[Value]:
    """Return what statements use themselves, and what is computed otherwise than by addition of."""
    used = roots(procedure)
    nodes, _ = extract([x for x in used if x.is_made])
    return {x for x in used if not x.is_made} | {
        x for node in nodes if node.op is not add for x in node.inputs
    }


def loads_of_zeros(procedure: Procedure) -> set[Load]:
    """Return the loads of arrays that are allocated as zeros and into which nothing but zeros is stored."""
    arrays = [s.out for s in procedure.body if isinstance(s, Allocate) and s.zero]
    return _of_zeros(arrays, *_accesses(procedure, {pointer.memory: pointer for pointer in arrays}))


def _of_zeros(
    arrays: Iterable[Pointer], loads: dict[Pointer, list[Load]], stores: dict[Pointer, list[Store]]
) -> set[Load]:
    of_zeros: set[Load] = set()
    for pointer in arrays:
        if all(_is_zero(store.value) for store in stores.get(pointer, [])):
            of_zeros.update(loads.get(pointer, []))
    return of_zeros


def _is_zero(value: Value) -> bool:
    """Return whether a value is the number as which arrays are allocated."""
    return isinstance(value, Literal) and value.data is not None and not any(value.data.tobytes())


def _accesses(
    procedure: Procedure, pointers: dict[Memory, Pointer]
) -> tuple[dict[Pointer, list[Load]], dict[Pointer, list[Store]]]:
    """Return the loads and stores of the pointers that nothing but loads and stores uses, and through which alone a memory is used."""
    loads: dict[Pointer, list[Load]] = {}
    stores: dict[Pointer, list[Store]] = {}
    spoilt: set[Pointer] = set()
    for statement in walk(procedure.body):
        if isinstance(statement, Load | Store):
            pointer = pointers.get(statement.pointer.memory)
            if pointer is statement.pointer:
                if isinstance(statement, Load):
                    loads.setdefault(pointer, []).append(statement)
                else:
                    stores.setdefault(pointer, []).append(statement)
            elif pointer is not None:
                spoilt.add(pointer)
        elif isinstance(statement, Apply | Assign | Push):
            spoilt.update(
                [
                    pointers[x.memory]
                    for x in statement.uses()
                    if isinstance(x, Pointer) and x.memory in pointers
                ]
            )
    for pointer in spoilt:
        loads.pop(pointer, None)
    return loads, stores


def _first_users(body: Sequence[Statement]) -> dict[Memory, Statement]:
    """Return by memory the first of several statements that uses an element or hands a pointer on, itself or in its blocks."""
    users: dict[Memory, Statement] = {}
    for statement in body:
        for inner in walk([statement]):
            if isinstance(inner, Load | Store):
                users.setdefault(inner.pointer.memory, statement)
            elif isinstance(inner, Apply | Assign | Push):
                for content in inner.uses():
                    if isinstance(content, Pointer):
                        users.setdefault(content.memory, statement)
    return users


def _without_fills(body: Sequence[Statement]) -> list[Statement]:
    """Return the statements of the outermost block; arrays that are stored as a whole before they are read are not filled with zeros."""
    users = _first_users(body)
    statements: list[Statement] = []
    for statement in body:
        if isinstance(statement, Allocate) and statement.zero:
            user = users.get(statement.out.memory)
            if user is not None and _stores_all(user, statement):
                statements.append(Allocate(statement.out, statement.size, False))
                continue
        statements.append(statement)
    return statements


def _stores_all(nest: Statement, array: Allocate) -> bool:
    """Return whether a nest of loops stores all elements of an array, and reads none."""
    used = [
        s
        for s in walk([nest])
        if any(isinstance(x, Pointer) and x.memory is array.out.memory for x in s.uses())
    ]
    if not all(isinstance(s, Store) for s in used):
        return False
    counts: dict[Value, int] = {}
    level: Sequence[Statement] = [nest]
    while True:  # terminates: blocks are nested to some depth
        (holder,) = [s for s in level if used[0] in walk([s])]
        if isinstance(holder, Store):
            return holder.pointer is array.out and _covers(holder.index, counts, number_of(array.size))
        count = number_of(holder.count) if isinstance(holder, For) else None
        if not isinstance(holder, For) or count is None:
            return False
        counts[holder.index] = int(count)
        level = holder.body


def _covers(index: Value, counts: dict[Value, int], size: object) -> bool:
    """Return whether an index takes each number below a size exactly once."""
    form = linear_form(index)
    lowest = form.pop(None, 0)
    extent = 1
    for symbol, factor in sorted(form.items(), key=lambda item: abs(item[1])):
        if symbol not in counts or abs(factor) != extent:
            return False
        count = counts.pop(symbol)
        extent *= count
        lowest += min(0, factor * (count - 1))
    return lowest == 0 and extent == size and all(count == 1 for count in counts.values())
