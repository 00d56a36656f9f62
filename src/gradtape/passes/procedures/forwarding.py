"""Store forwarding: a load of what a block has just stored, or of an array that is still zeros, becomes that value; variables alike."""

from __future__ import annotations

from collections.abc import Sequence

from gradtape.ir.graph import Value, literal, number_of
from gradtape.procedures.affine import distance, linear_form
from gradtape.procedures.dataflow import last_number, same_number
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Content,
    For,
    If,
    Load,
    Memory,
    Pointer,
    Procedure,
    Push,
    Read,
    Statement,
    Store,
    Variable,
)
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.traversal import defines, stored, uses, walk
from gradtape.transforms.procedures.accumulate import structure
from gradtape.transforms.procedures.blocks import BlockTree, Place
from gradtape.transforms.procedures.dependence import Access, Dependence

MOST_PAIRS = 200
"""Pairs of accesses to an array that are compared."""


def forward_elements(procedure: Procedure) -> Procedure:
    """Return the procedure without loads and reads of what is known; the same procedure where there are none.

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
    forwarding = _Forwarding(zero_loads(procedure))
    body = _without_fills(forwarding.block(procedure.body))
    fills = sum(isinstance(s, Allocate) and s.zero for s in procedure.body)
    if not forwarding.count and fills == sum(isinstance(s, Allocate) and s.zero for s in body):
        return procedure
    return Procedure(
        procedure.name,
        procedure.parameters,
        procedure.types,
        body,
        [forwarding.content(content) for content in procedure.results],
        procedure.result_types,
    )


class _Forwarding(Rewriter):
    """Replaces loads by what the block around them, or one around that, has stored.

    Attributes
    ----------
    count : int
        Of the loads that were replaced.
    """

    def __init__(self, zeros: set[Load]) -> None:
        super().__init__()
        self.count = 0
        self._zeros = zeros
        self._elements: dict[tuple[Pointer, object], tuple[Value, Value]] = {}
        """By pointer and structure of the index: the index and the value."""
        self._contents: dict[Variable, Content] = {}
        """What variables hold."""

    def block(self, statements: Sequence[Statement]) -> list[Statement]:
        found: list[Statement] = []
        for statement in statements:
            if isinstance(statement, Load):
                if statement in self._zeros:
                    self.count += 1
                    self.becomes[statement.out] = literal(0, statement.out.dtype)
                    continue
                load = self.statement(statement)
                assert isinstance(load, Load)
                key = load.pointer, structure(load.index)
                known = self._elements.get(key)
                if known is not None:
                    self.count += 1
                    self.becomes[load.out] = known[1]
                    continue
                self._elements[key] = load.index, load.out
                found.append(load)
            elif isinstance(statement, Store):
                store = self.statement(statement)
                assert isinstance(store, Store)
                self._overwrite(store)
                self._elements[store.pointer, structure(store.index)] = store.index, store.value
                found.append(store)
            elif isinstance(statement, Read):
                content = self._contents.get(statement.variable)
                if content is not None:
                    self.count += 1
                    self.becomes[statement.out] = content
                    continue
                self._contents[statement.variable] = statement.out
                found.append(statement)
            elif isinstance(statement, Assign):
                assign = Assign(statement.variable, self.content(statement.value))
                self._contents[assign.variable] = assign.value
                found.append(assign)
            else:
                self._forget([statement])
                found.append(self.any_statement(statement))
        return found

    def any_statement(self, statement: Statement) -> Statement:
        elements, contents = dict(self._elements), dict(self._contents)
        assigned = {s.variable for s in walk([statement]) if isinstance(s, Assign)}
        after = {variable: x for variable, x in contents.items() if variable not in assigned}
        if isinstance(statement, If):
            condition = self.value(statement.condition)
            then = self.block(statement.then)
            self._elements, self._contents = dict(elements), dict(contents)
            result: Statement = If(condition, then, self.block(statement.otherwise))
        else:
            if isinstance(statement, For):  # a variable that each iteration leaves as it was
                for variable in assigned & contents.keys():
                    number, held = last_number(statement.body, variable)[0], contents[variable]
                    if number is not None and same_number(held, number):
                        after[variable] = held
            self._contents = dict(after)
            result = super().any_statement(statement)
        self._elements, self._contents = elements, after
        return result

    def _overwrite(self, store: Store) -> None:
        """Forget the elements that a store may change."""
        for key, (index, _) in list(self._elements.items()):
            if key[0].memory is store.pointer.memory and not (
                key[0] is store.pointer and distance(index, store.index)
            ):
                del self._elements[key]

    def _forget(self, statements: Sequence[Statement]) -> None:
        """Forget the elements of memories that statements write."""
        memories = {pointer.memory for pointer in stored(statements)}
        if memories:
            self._elements = {key: x for key, x in self._elements.items() if key[0].memory not in memories}


def zero_loads(procedure: Procedure) -> set[Load]:
    """Return the loads of elements that nothing has stored since the array was allocated as zeros."""
    arrays = {s.out: s for s in procedure.body if isinstance(s, Allocate) and s.zero}
    if not arrays:
        return set()
    loads, stores = _accesses(procedure, {pointer.memory: pointer for pointer in arrays})
    tree: BlockTree | None = None
    found: set[Load] = set()
    for pointer in arrays:
        own, others = loads.get(pointer, []), stores.get(pointer, [])
        if not own or len(own) * len(others) > MOST_PAIRS:
            continue
        if tree is None:
            tree = BlockTree(procedure, {})
            definitions: dict[Content, Statement] = {x: s for s in walk(procedure.body) for x in defines(s)}
            dependence = Dependence(tree, definitions)
            places = {s: Place(block, k) for block in tree.blocks for k, s in enumerate(block.statements)}
        for load in own:
            access = Access(pointer, load.index, places[load])
            if not any(
                dependence.may_reach(Access(pointer, store.index, places[store]), access) for store in others
            ):
                found.add(load)
    return found


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
                    for x in uses(statement)
                    if isinstance(x, Pointer) and x.memory in pointers
                ]
            )
    for pointer in spoilt:
        loads.pop(pointer, None)
    return loads, stores


def _without_fills(body: Sequence[Statement]) -> list[Statement]:
    """Return the statements of the outermost block; arrays that are stored as a whole before they are read are not filled with zeros."""
    found = list(body)
    for position, statement in enumerate(found):
        if isinstance(statement, Allocate) and statement.zero:
            memory = statement.out.memory
            for following in found[position + 1 :]:
                if any(
                    isinstance(x, Pointer) and x.memory is memory for s in walk([following]) for x in uses(s)
                ):
                    if _stores_all(following, statement):
                        found[position] = Allocate(statement.out, statement.size, False)
                    break
    return found


def _stores_all(nest: Statement, array: Allocate) -> bool:
    """Return whether a nest of loops stores all elements of an array, and reads none."""
    used = [
        s
        for s in walk([nest])
        if any(isinstance(x, Pointer) and x.memory is array.out.memory for x in uses(s))
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
    place = form.pop(None, 0)
    extent = 1
    for symbol, factor in sorted(form.items(), key=lambda item: abs(item[1])):
        if symbol not in counts or abs(factor) != extent:
            return False
        count = counts.pop(symbol)
        extent *= count
        place += min(0, factor * (count - 1))
    return place == 0 and extent == size and all(count == 1 for count in counts.values())
