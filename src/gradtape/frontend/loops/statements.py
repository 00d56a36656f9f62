"""Statements of loops: counted, with a condition, unrolled."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from functools import partial
from typing import Any, Final

import numpy as np

from gradtape.frontend.interpreter import Interpreter
from gradtape.frontend.loops.fixpoint import MOST_SMALL, Fixpoint
from gradtape.frontend.loops.sequences import Sequence, sequence, stored_arrays
from gradtape.frontend.operators import both, either, negated
from gradtape.frontend.structure import ForLoop, Run, WhileLoop
from gradtape.frontend.values import (
    NeedsStaticError,
    as_condition,
    refuse,
)
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, literal, next_serial
from gradtape.ir.types import BOOL, INT64, aval
from gradtape.procedures.builder import integer, leaf
from gradtape.procedures.ir import For, If, Read, Statement, Variable, While

MOST_UNROLLED: Final = 512
"""Iterations up to which a loop is unrolled that has to be."""

MOST_VALUES: Final = 8192
"""Values that the iterations of an unrolled loop may compute: the time to differentiate and compile so much code grows with its square."""
MOST_TINY: Final = 4
MOST_TINY_CODE: Final = 40
"""Iterations, and instructions of straight-line code, up to which a loop inside another one is unrolled."""


def for_loop(self: Interpreter, node: ForLoop) -> None:
    """Interpret a loop over an iterable."""
    rows = sequence(self, stored_arrays(self.value(node.iterator)))
    key = (self.path, id(node))
    if rows.is_static or key in self.unrolled or _is_tiny(self, node, rows):
        unroll(self, node, rows)
        return
    if isinstance(rows.count, int) and rows.count <= 0:
        return
    before, mark = self.state(), self.build.mark()
    try:
        Fixpoint(self, node, key, rows.count).run(lambda loop: _counted_pass(loop, node, rows))
    except NeedsStaticError:
        if not isinstance(rows.count, int) or rows.count > MOST_UNROLLED:
            raise
        self.restore(before)
        self.build.forget(mark)
        self.dead = False
        self.unrolled.add(key)
        unroll(self, node, rows)


def _is_tiny(self: Interpreter, node: ForLoop, rows: Sequence) -> bool:
    """Return whether a loop inside another one is so small that its iterations are written one after the other.

    Loops over the coordinates of points are such: their derivatives need no records then.
    """
    if not self.loops or not isinstance(rows.count, int) or rows.count > MOST_TINY or node.stops:
        return False
    return (
        len(node.body) == 1
        and isinstance(node.body[0], Run)
        and len(node.body[0].instructions) <= MOST_TINY_CODE
    )


def unroll(self: Interpreter, node: ForLoop, rows: Sequence, first: int = 0) -> None:
    """Interpret the body once for each item."""
    if not isinstance(rows.count, int):
        raise NeedsStaticError("the trip count of a loop over a tuple depends on data", where=here.site)
    begin = next_serial()
    for k in range(first, rows.count):
        if next_serial() - begin > MOST_VALUES:
            refuse(
                f"a loop over different types, or one that changes them, has {rows.count} iterations: too many to write them all out"
            )
        with self.inside(id(node), k):
            self.bind(node.item, rows.item(k))
            self.run(node.body)
        if self.dead:
            return
        stop = any_stop(self, node.stops)
        if isinstance(stop, Value):
            self.branch(stop, _nothing, partial(unroll, self, node, rows, k + 1), node.live_after)
            return
        if stop:
            return


def _nothing() -> None:
    pass


def any_stop(self: Interpreter, stops: list[str]) -> Any:
    """Return whether one of some variables is true."""
    stop: Any = False
    for name in stops:
        stop = either(stop, as_condition(self.value(name)))
    return stop


def _counted_pass(loop: Fixpoint, node: ForLoop, rows: Sequence) -> None:
    """Append a counted loop; one that may end early is a while loop with a counter."""
    self, build = loop.interpreter, loop.interpreter.build
    if loop.stops():
        _stopped_pass(loop, node, rows)
        return
    index = Value(aval((), INT64, True))
    statement = For(index, integer(rows.count), [], rows.parallel, here.site)
    build.append(statement)
    loop.body = statement.body
    with (
        build.block(statement.body),
        build.own_start(statement.body) if rows.parallel else nullcontext(),
        _counting(build, index, statement.count),
    ):
        loop.trip = index
        loop.begin()
        small = isinstance(rows.count, int) and rows.count <= MOST_SMALL
        self.small_loops += small
        try:
            with self.inside(id(node)):
                self.bind(node.item, rows.item(index))
                self.run(node.body)
        finally:
            self.small_loops -= small
        loop.end()


@contextmanager
def _counting(build: Any, index: Value, count: Value) -> Iterator[None]:
    """Let the bounds of an index be known inside."""
    build.counts[index] = count
    try:
        yield
    finally:
        del build.counts[index]


def _stopped_pass(loop: Fixpoint, node: ForLoop, rows: Sequence) -> None:
    self, build = loop.interpreter, loop.interpreter.build
    counter = Variable(build.unique("k"), aval((), INT64, True))
    build.assign(counter, 0)
    count = integer(rows.count)
    statement = While(leaf(BOOL))
    build.append(statement)
    with build.block(statement.test):
        index = build.read(counter)
        loop.begin()
        going = negated(any_stop(self, node.stops))
        statement.condition = both(index < count, going)
    loop.body = statement.body
    with build.block(statement.body), _counting(build, index, count):
        with self.inside(id(node)):
            self.bind(node.item, rows.item(index))
            self.run(node.body)
        loop.end()
        build.assign(counter, index + 1)


def while_loop(self: Interpreter, node: WhileLoop) -> None:
    """Interpret a loop with a condition, or one that only jumps end."""
    key = (self.path, id(node))
    Fixpoint(self, node, key).run(lambda loop: _while_pass(loop, node))


def _while_pass(loop: Fixpoint, node: WhileLoop) -> None:
    self, build = loop.interpreter, loop.interpreter.build
    statement = While(leaf(BOOL))
    with build.block(statement.test):
        loop.begin()
        condition = _test(self, node)
    if condition is False:
        for statement_of_test in statement.test:
            build.append(statement_of_test)
        return
    build.append(statement)
    statement.condition = condition if isinstance(condition, Value) else literal(np.bool_(True))
    loop.body = statement.body
    with build.block(statement.body), build.assuming(statement.condition), self.inside(id(node)):
        self.run(node.body)
        loop.end()
    if not isinstance(condition, Value) and not loop.has_changed:
        refuse("a loop never ends", "end it by a condition that changes")


def _test(self: Interpreter, node: WhileLoop) -> Any:
    """Append the test of a loop, and return the condition under which it goes on."""
    stop = any_stop(self, node.stops)
    if not node.name:
        return negated(stop)
    build = self.build
    statements: list[Statement] = []
    with build.block(statements):
        self.run_instructions(Run(node.test, node.live))
        condition = as_condition(self.value(node.name))
        if node.negated:
            condition = negated(condition)
    if not isinstance(stop, Value) or all(isinstance(statement, Read) for statement in statements):
        for statement in statements:
            build.append(statement)
        return both(condition, negated(stop))
    going = Variable(build.unique("going"), aval((), BOOL))
    stopped: list[Statement] = []
    with build.block(stopped):
        build.assign(going, np.bool_(False))
    with build.block(statements):
        build.assign(going, condition)
    build.append(If(stop, stopped, statements))
    return build.read(going)
