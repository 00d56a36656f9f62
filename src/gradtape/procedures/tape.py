"""The tape of a procedure: which Pop takes off what which Push appended, how the values of a record lie in memory, and how long it gets."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import TypeAlias

from gradtape.ir.graph import Value
from gradtape.procedures.arrays.index_arithmetic import (
    Extent,
    add,
    choose,
    extent,
    is_negative,
    multiply,
)
from gradtape.procedures.builder import integer
from gradtape.procedures.ir import Content, For, If, Pop, Push, Statement, While
from gradtape.procedures.traversal import outer_leaves
from gradtape.statements import walk

Tape: TypeAlias = dict[Push, Pop]
"""The Pop of each Push."""


def match_tape(body: Sequence[Statement]) -> Tape | None:
    """Return the Pop of each Push; None where the text of the procedure does not show it.

    A sweep that pops is the mirror image of the one that pushed: its statements come in the reverse order, but the branches of an `If`
    are in the same order.
    """
    tape: Tape = {}
    pending: list[Push] = []
    for statement in _in_tape_order(body):
        if isinstance(statement, Push):
            pending.append(statement)
        else:
            if not pending or not _agree(pending[-1], statement):
                return None
            tape[pending.pop()] = statement
    return None if pending else tape


def _in_tape_order(body: Sequence[Statement]) -> Iterator[Push | Pop]:
    """Yield the statements on the tape; the branches of an `If` that pops come in the reverse order."""
    for statement in body:
        if isinstance(statement, Push | Pop):
            yield statement
        elif isinstance(statement, If):
            inside = list(walk([statement]))
            pushes, pops = (sum(isinstance(inner, kind) for inner in inside) for kind in (Push, Pop))
            branches = (statement.then, statement.otherwise)
            for branch in reversed(branches) if pops > pushes else branches:
                yield from _in_tape_order(branch)
        else:
            for block in statement.blocks():
                yield from _in_tape_order(block)


def _agree(push: Push, pop: Pop) -> bool:
    return list(map(item_size, push.entries)) == list(map(item_size, pop.entries))


def item_size(content: Content) -> int:
    """Return the bytes that a value or a pointer takes on the tape."""
    return content.dtype.itemsize if isinstance(content, Value) else 8


def record_layout(contents: Sequence[Content]) -> tuple[list[int], int]:
    """Return where the values of a record begin, and its size, a multiple of 8: the largest values come first.

    Examples
    --------
    >>> import numpy as np
    >>> from gradtape.procedures.builder import leaf
    >>> record_layout([leaf(np.bool_), leaf(np.float64), leaf(np.int32)])
    ([12, 0, 8], 16)
    """
    places = [0] * len(contents)
    end = 0
    for number in sorted(range(len(contents)), key=lambda k: -item_size(contents[k])):
        places[number] = end
        end += item_size(contents[number])
    return places, (end + 7) // 8 * 8


def streamed_loops(body: Sequence[Statement], tape: Tape | None) -> dict[For, Push | Pop]:
    """Return the counted loops whose records are one for each iteration, with the statement that pushes or pops it.

    Their records are reserved before the loop, and each of their values has an array of its own, so that the loop can be vectorised.
    """
    if tape is None:
        return {}
    holders: dict[Push | Pop, For] = {}
    for statement in walk(body):
        if isinstance(statement, For):
            inside = [inner for inner in walk(statement.body) if isinstance(inner, Push | Pop)]
            if len(inside) == 1 and inside[0] in statement.body:
                holders[inside[0]] = statement
    loops: dict[For, Push | Pop] = {}
    for push, pop in tape.items():
        if push in holders and pop in holders:
            loops[holders[push]] = push
            loops[holders[pop]] = pop
    return loops


def foreseen_records(
    body: Sequence[Statement], record_size: Callable[[Sequence[Content]], int]
) -> dict[For, Value]:
    """Return the outermost counted loops that push and never pop, with the bytes that they push at least, as known before them.

    Branches, and inner loops whose trip counts depend on the iteration, add nothing. The blocks of a parallel loop have tapes of their own.

    Parameters
    ----------
    body : sequence of Statement
    record_size : callable
        Returns the bytes of a record.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("f")
    >>> x = build.scalar("x")
    >>> with build.loop(5) as i:
    ...     build.append(Push((x, i)))
    ...     with build.loop(3) as j:
    ...         build.append(Push((j,)))
    >>> [int(bytes_.data) for bytes_ in foreseen_records(build.body, lambda record: 8 * len(record)).values()]
    [200]
    """
    found: dict[For, Value] = {}
    for statement in body:
        if isinstance(statement, For) and not statement.parallel:
            inside = list(walk([statement]))
            if not any(isinstance(s, Pop) for s in inside):
                bytes_ = _least_pushed(statement, inside, record_size)
                if bytes_ != 0:
                    found[statement] = integer(bytes_)
        elif not isinstance(statement, While):
            for block in statement.blocks():
                found.update(foreseen_records(block, record_size))
    return found


def _least_pushed(
    loop: For, inside: Sequence[Statement], record_size: Callable[[Sequence[Content]], int]
) -> Extent:
    """Return the bytes that a loop pushes at least, from what is known before the statements `inside`."""
    if loop.parallel or len(outer_leaves([loop.count], inside)) < len(outer_leaves([loop.count], [])):
        return 0
    each: Extent = 0
    for statement in loop.body:
        if isinstance(statement, Push):
            each = add(each, record_size(statement.entries))
        elif isinstance(statement, For):
            each = add(each, _least_pushed(statement, inside, record_size))
    count = extent(loop.count)
    return multiply(choose(is_negative(count, {}), 0, count), each)
