"""Data flow between iterations: the variables and the arrays that they hand on, and the variables in which they only sum."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from collections.abc import Set as AbstractSet

from gradtape.ir.graph import Literal, Value
from gradtape.ops.core.elementwise.arithmetic import add, multiply, subtract
from gradtape.ops.core.elementwise.select import where
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
    Push,
    Read,
    Span,
    Statement,
    Store,
    Variable,
    While,
)
from gradtape.procedures.traversal import assigned, reads
from gradtape.statements import walk


def exposed_variables(loop: For | While) -> set[Variable]:
    """Return the variables that an iteration may read before it assigns them."""
    exposed: set[Variable] = set()
    assigned: set[Variable] = set()
    for block in loop.blocks():
        _find_exposed(block, assigned, exposed)
    return exposed


def _find_exposed(body: Sequence[Statement], assigned: set[Variable], exposed: set[Variable]) -> None:
    """Enter the variables that statements may read before they assign them; `assigned` is for those that they assign for sure."""
    for statement in body:
        if isinstance(statement, Read):
            if statement.variable not in assigned:
                exposed.add(statement.variable)
        elif isinstance(statement, Assign):
            assigned.add(statement.variable)
        elif isinstance(statement, For):
            _find_exposed(statement.body, set(assigned), exposed)
        elif isinstance(statement, While):
            _find_exposed(statement.test, assigned, exposed)
            _find_exposed(statement.body, set(assigned), exposed)
        elif isinstance(statement, If):
            then, otherwise = set(assigned), set(assigned)
            _find_exposed(statement.then, then, exposed)
            _find_exposed(statement.otherwise, otherwise, exposed)
            assigned |= then & otherwise


def escaping_allocations(body: Sequence[Statement]) -> dict[Statement, set[Statement]]:
    """Return for each loop the allocations in it whose pointers may be used after the iteration that made them."""
    readers = reads(body)
    escaping: dict[Statement, set[Statement]] = {}
    for loop in walk(body):
        if not isinstance(loop, For | While):
            continue
        inside: list[Statement] = list(walk([loop]))
        allocated = {s for s in inside if isinstance(s, Allocate)}
        if not allocated:
            continue
        exposed = exposed_variables(loop)
        inner_readers = reads([loop])
        memories: set[Memory] = set()
        for s in inside:
            if isinstance(s, Assign) and isinstance(s.value, Pointer):
                variable = s.variable
                if variable in exposed or readers[variable] > inner_readers[variable]:
                    memories.add(s.value.memory)
            elif isinstance(s, Push):
                memories.update(x.memory for x in s.values if isinstance(x, Pointer))
        escaping[loop] = {s for s in allocated if s.out.memory in memories}
    return escaping


def live_after_loops(body: Sequence[Statement]) -> dict[For, set[Variable]]:
    """Return by counted loop the variables that may be read after it before they are assigned."""
    live_after: dict[For, set[Variable]] = {}
    _live_before(body, set(), live_after)
    return live_after


def _live_before(
    statements: Sequence[Statement], live: set[Variable], live_after: dict[For, set[Variable]]
) -> set[Variable]:
    """Return the variables that are live before statements, from those after them."""
    live = set(live)
    for statement in reversed(statements):
        if isinstance(statement, Read):
            live.add(statement.variable)
        elif isinstance(statement, Assign):
            live.discard(statement.variable)
        elif isinstance(statement, If):
            then = _live_before(statement.then, live, live_after)
            live = then | _live_before(statement.otherwise, live, live_after)
        elif isinstance(statement, For):
            live_after[statement] = live
            live = live | _live_before(statement.body, live | exposed_variables(statement), live_after)
        elif isinstance(statement, While):
            following = _live_before(statement.body, live | exposed_variables(statement), live_after)
            live = _live_before(statement.test, live | following, live_after)
    return live


def total_chain(
    variable: Variable, inside: Sequence[Statement], shared: Collection[Variable]
) -> set[Variable] | None:
    """Return the variables that hold a sum, if iterations only add to it: what they assign is what it held, plus terms without it.

    Inner loops may hand the sum on to variables of their own. None where iterations do something else.

    Parameters
    ----------
    variable : Variable
    inside : sequence of statements
        All statements of the loop.
    shared : collection of Variable
        The variables that are read before they are assigned, in an iteration or after the loop.
    """
    makers: dict[Content, Read] = {s.out: s for s in inside if isinstance(s, Read)}
    assigns = [s for s in inside if isinstance(s, Assign)]
    begins = {s: {makers[begin].variable for begin, _ in totals(s) if begin in makers} for s in assigns}
    chain = {variable}
    while True:  # terminates: each round but the last has more variables
        next_variables = {s.variable for s in assigns if not chain.isdisjoint(begins[s])}
        if next_variables <= chain:
            break
        chain |= next_variables
    if any(member is not variable and member in shared for member in chain):
        return None
    chain_reads = {x for x, maker in makers.items() if maker.variable in chain}
    for statement in inside:
        values = [x for x in statement.uses() if isinstance(x, Value)]
        if isinstance(statement, Assign) and statement.variable in chain:
            if not any(
                begin in chain_reads and not depend_on(terms, chain_reads)
                for begin, terms in totals(statement)
            ):
                return None
        elif depend_on(values, chain_reads):
            return None
    return chain


def totals(statement: Assign | Store) -> list[tuple[Value, list[Value]]]:
    """Return the leaves to which a statement adds, each with the terms, and the conditions under which some of them are added.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder()
    >>> x, total = build.scalar("x"), build.variable("total", 0.0)
    >>> build.assign(total, build.read(total) - x)
    >>> [len(terms) for _, terms in totals(build.body[-1])]
    [1]
    """
    value = statement.value
    if isinstance(value, Pointer) or value.dtype.kind not in "fiu":
        return []
    return _totals(value)


def _totals(value: Value) -> list[tuple[Value, list[Value]]]:
    node = value.node
    if node is None:
        return [] if isinstance(value, Literal) else [(value, [])]
    if node.op is add or node.op is subtract:
        first, second = node.inputs
        chains = [(begin, [*terms, second]) for begin, terms in _totals(first)]
        if node.op is add and second.node is None:
            chains += [(begin, [*terms, first]) for begin, terms in _totals(second)]
        return chains
    if node.op is where:
        condition, first, second = node.inputs
        others = dict(_totals(second))
        return [
            (begin, [*terms, *others[begin], condition]) for begin, terms in _totals(first) if begin in others
        ]
    return []


def depend_on(values: Sequence[Value], leaves: AbstractSet[Content]) -> bool:
    """Return whether one of several values is computed from one of the leaves."""
    visited: set[Value] = set()
    pending = list(values)
    while pending:
        value = pending.pop()
        if value in leaves:
            return True
        if value not in visited:
            visited.add(value)
            maker = value.maker()
            pending += () if maker is None else maker[1]
    return False


def last_number(body: Sequence[Statement], variable: Variable) -> tuple[Literal | None, bool]:
    """Return the number that statements assign to a variable last, and whether they do for certain; None if it is no number."""
    last: Literal | None = None
    for statement in reversed(body):
        if isinstance(statement, Assign):
            if statement.variable is variable:
                value = statement.value
                fits = isinstance(value, Literal) and (last is None or same_number(value, last))
                return (value, True) if isinstance(value, Literal) and fits else (None, True)
            continue
        ends = [
            last_number(block, variable)
            for block in statement.blocks()
            if any(isinstance(s, Assign) and s.variable is variable for s in walk(block))
        ]
        for number, _ in ends:
            if number is None or (last is not None and not same_number(number, last)):
                return None, True
            last = number
        if isinstance(statement, If) and len(ends) == 2 and all(is_certain for _, is_certain in ends):
            return last, True
    return last, False


def same_number(value: object, number: Literal) -> bool:
    """Return whether a value is a known number, to the bit."""
    return isinstance(value, Literal) and value.data is not None and value.data.tobytes() == _bytes(number)


def _bytes(number: Literal) -> bytes:
    assert number.data is not None
    return number.data.tobytes()


def kept_variables(body: Sequence[Statement], before: Mapping[Variable, object]) -> set[Variable]:
    """Return the variables that the body of a loop assigns, and leaves as they were.

    Adjoints of sums are such: each iteration takes them, and writes them back.

    Parameters
    ----------
    body : sequence of statements
    before : mapping of Variable to object
        What variables hold before the loop, as far as it is known; numbers count.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder()
    >>> total, other = build.variable("total", 0.0), build.variable("other", 0.0)
    >>> build.assign(other, build.read(total))
    >>> build.assign(total, 1.0)
    >>> build.assign(total, build.read(other))
    >>> [variable.name for variable in kept_variables(build.body[2:], {})]
    ['total']
    """
    changed = unchanged = assigned(body)
    while True:  # terminates: each round but the last has fewer variables
        begin = dict(before)
        for variable in changed:
            content = before.get(variable)
            initial = content if isinstance(content, Literal) else variable
            begin[variable] = initial if variable in unchanged else object()
        contents = dict(begin)
        _follow(body, contents, {})
        still = {variable for variable in unchanged if _are_same(contents[variable], begin[variable])}
        if still == unchanged:
            return unchanged
        unchanged = still


def _follow(
    body: Sequence[Statement], contents: dict[Variable, object], known_as: dict[Content, object]
) -> None:
    """Enter what variables hold after statements: a variable for its contents at the beginning, a value, or what is not known.

    `known_as` is for what has been read.
    """
    for statement in body:
        if isinstance(statement, Read):
            known_as[statement.out] = contents.setdefault(statement.variable, statement.out)
        elif isinstance(statement, Assign):
            contents[statement.variable] = _summed(statement.value, known_as)
        elif isinstance(statement, If):
            then, otherwise = dict(contents), dict(contents)
            _follow(statement.then, then, known_as)
            _follow(statement.otherwise, otherwise, known_as)
            for variable in then.keys() | otherwise.keys():
                first, other = then.get(variable), otherwise.get(variable)
                contents[variable] = first if _are_same(first, other) and first is not None else object()
        elif isinstance(statement, For | While):
            inside = [s for block in statement.blocks() for s in block]
            unchanged = kept_variables(inside, contents)
            for variable in assigned(inside) - unchanged:
                contents[variable] = object()


def _are_same(first: object, other: object) -> bool:
    return first is other or (isinstance(first, Literal) and same_number(other, first))


def _summed(value: Content, known_as: dict[Content, object]) -> object:
    """Return what a value is known as; of a sum of -0.0 and another term that one."""
    while isinstance(value, Value) and (node := value.node) is not None and node.op is add:
        first, second = (known_as.get(x, x) for x in node.inputs)
        if _is_empty_sum(first):
            value = node.inputs[1]
        elif _is_empty_sum(second):
            value = node.inputs[0]
        else:
            break
    return known_as.get(value, value)


def _is_empty_sum(value: object) -> bool:
    return (
        isinstance(value, Literal)
        and value.data is not None
        and value.dtype.kind == "f"
        and str(value.data) == "-0.0"
    )


# Sums and indices


def exact_integers(body: Sequence[Statement]) -> set[Value]:
    """Return the int64 sums, differences and products that are nothing but parts of indices, extents and trip counts.

    They do not overflow: an index is less than the extent of an array.
    """
    exact: set[Value] = set()
    pending = [value for value in _positions(body) if value.is_made]
    while pending:
        value = pending.pop()
        if value in exact or value.dtype.char not in "lq":
            continue
        node = value.node
        if node is None:
            continue
        if node.op in (add, subtract, multiply):
            exact.add(value)
            pending += node.inputs
        elif node.op is where:
            pending += node.inputs[1:]
    return exact


def _positions(body: Sequence[Statement]) -> Iterator[Value]:
    for statement in walk(body):
        if isinstance(statement, Load | Store):
            yield statement.index
        elif isinstance(statement, For):
            yield statement.count
        elif isinstance(statement, Allocate):
            yield statement.size
        elif isinstance(statement, Apply):
            for operand in (*statement.inputs, *statement.outputs):
                if isinstance(operand, Span):
                    yield operand.offset


def free_sums(body: Sequence[Statement]) -> dict[Value, Value]:
    """Return the sums that accumulate, with what each adds.

    An element or a variable gets what it held, plus terms that do not depend on that. Between its assignments a variable may hand the sum
    on to others.
    """
    makers: dict[Content, Load | Read] = {s.out: s for s in walk(body) if isinstance(s, Load | Read)}
    sums: dict[Value, Value] = {}
    paths: list[tuple[Variable, Variable, dict[Value, Value]]] = []
    for statement in walk(body):
        if not isinstance(statement, Assign | Store):
            continue
        for begin, path in _paths(statement, makers):
            maker = makers.get(begin)
            if isinstance(statement, Store):
                if isinstance(maker, Load) and is_same_element(maker, statement):
                    sums |= path
                    break
            elif isinstance(maker, Read):
                paths.append((maker.variable, statement.variable, path))
    reached = _reachable([(source, target) for source, target, _ in paths])
    for source, target, path in paths:
        if source is target or source in reached[target]:
            sums |= path
    return sums


def _paths(
    statement: Assign | Store, makers: dict[Content, Load | Read]
) -> Iterator[tuple[Value, dict[Value, Value]]]:
    """Yield the leaves to which the value of a statement adds terms, with the sums between, and their terms."""
    value = statement.value
    if isinstance(value, Pointer) or value.dtype.kind != "f":
        return
    pending: list[tuple[Value, dict[Value, Value]]] = [(value, {})]
    while pending:
        value, path = pending.pop()
        node = value.node
        if node is None:
            if not depend_on(list(path.values()), {value}):
                yield value, path
        elif node.op in (add, subtract):
            first, second = node.inputs
            pending.append((first, {**path, value: second}))
            if node.op is add and second.node is None:
                pending.append((second, {**path, value: first}))


def _reachable(edges: Sequence[tuple[Variable, Variable]]) -> dict[Variable, set[Variable]]:
    """Return the variables to which sums are handed on from each variable."""
    following: dict[Variable, set[Variable]] = {}
    for source, target in edges:
        following.setdefault(source, set()).add(target)
        following.setdefault(target, set())
    reached: dict[Variable, set[Variable]] = {}
    for start in following:
        visited: set[Variable] = set()
        pending = list(following[start])
        while pending:
            variable = pending.pop()
            if variable not in visited:
                visited.add(variable)
                pending += following[variable]
        reached[start] = visited
    return reached


def is_same_element(load: Load, store: Store) -> bool:
    """Return whether a load and a store have the same pointer and index."""
    if load.pointer is not store.pointer:
        return False
    x, y = load.index, store.index
    return x is y or (isinstance(x, Literal) and isinstance(y, Literal) and bool(x.data == y.data))


def unsummed(value: Value, sums: Mapping[Value, Value]) -> tuple[Value, list[Value]]:
    """Return the leaf to which a free sum adds, and what it adds: the value itself, and nothing, if it is no free sum."""
    terms: list[Value] = []
    while value in sums:
        terms.append(sums[value])
        assert value.node is not None
        (value,) = [x for x in value.node.inputs if x is not terms[-1]]
    return value, terms
