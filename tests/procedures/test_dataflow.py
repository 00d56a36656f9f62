"""What is known of the variables of procedures: which are read first, which hold sums, which number is assigned last."""

import numpy as np
import pytest

from gradtape.ir.types import aval
from gradtape.ops.core.elementwise.logic import less
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.dataflow import exposed_variables, last_number, live_after_loops, total_chain
from gradtape.procedures.ir import Assign
from gradtape.procedures.traversal import names
from gradtape.statements import walk


class Loop:
    """A loop over the elements of an array, whose statements a test appends."""

    def __init__(self):
        self.build = ProcedureBuilder("loop")
        self.x = self.build.array("x", (5,))
        self.total, self.copy, self.other = (
            self.build.variable(name, 0.0) for name in ("total", "copy", "other")
        )

    def filled(self, fill):
        with self.build.loop(5) as i:
            fill(self, self.build, self.build.load(self.x, i))
        self.loop = self.build.body[-1]
        return self

    def chain(self, *shared):
        variables = {getattr(self, name) for name in shared}
        found = total_chain(self.total, list(walk(self.loop.body)), variables)
        return None if found is None else {variable.name for variable in found}


def adds(loop, build, x):
    build.assign(loop.total, build.read(loop.total) + x)


def hands_on(loop, build, x):
    build.assign(loop.copy, build.read(loop.total) + x)
    build.assign(loop.total, build.read(loop.copy) - x * x)


def hands_on_to_two(loop, build, x):
    hands_on(loop, build, x)
    build.assign(loop.other, build.read(loop.copy) + 1.0)


def doubles(loop, build, x):
    build.assign(loop.total, build.read(loop.total) + build.read(loop.total))


def multiplies(loop, build, x):
    build.assign(loop.total, build.read(loop.total) * x)


def stores(loop, build, x):
    adds(loop, build, x)
    build.store(loop.x, 0, build.read(loop.total))


def compares(loop, build, x):
    with build.branch(less(build.read(loop.total), x)):
        adds(loop, build, x)


@pytest.mark.parametrize(
    ("fill", "shared", "chain"),
    [
        (adds, ["total"], {"total"}),
        (adds, ["total", "other"], {"total"}),
        (hands_on, ["total"], {"total", "copy"}),
        (hands_on, ["total", "copy"], None),
        (hands_on_to_two, ["total"], {"total", "copy", "other"}),
        (hands_on_to_two, ["total", "other"], None),
        (doubles, ["total"], None),
        (multiplies, ["total"], None),
        (stores, ["total"], None),
        (compares, ["total"], None),
    ],
)
def test_variables_that_hold_a_sum(fill, shared, chain):
    assert Loop().filled(fill).chain(*shared) == chain


def by_branches(both):
    def fill(loop, build, x):
        with build.branch(less(x, 0.0)) as branch:
            build.assign(loop.copy, x)
        if both:
            build.start_otherwise(branch)
            with build.block(branch.otherwise):
                build.assign(loop.copy, 1.0)
        build.assign(loop.other, build.read(loop.copy))

    return fill


def by_an_inner_loop(loop, build, x):
    with build.loop(3):
        build.assign(loop.copy, x)
    build.assign(loop.other, build.read(loop.copy))


def by_a_condition(loop, build, x):
    with build.loop_while() as inner:
        build.assign(loop.copy, x)
        build.start_body(inner, less(build.read(loop.copy), 0.0))
        build.assign(loop.other, x)
    build.assign(loop.copy, build.read(loop.other))


@pytest.mark.parametrize(
    ("fill", "exposed"),
    [
        (adds, {"total"}),
        (hands_on, {"total"}),
        (by_branches(True), set()),
        (by_branches(False), {"copy"}),
        (by_an_inner_loop, {"copy"}),
        (by_a_condition, {"other"}),
    ],
)
def test_variables_that_are_read_before_they_are_assigned(fill, exposed):
    assert {variable.name for variable in exposed_variables(Loop().filled(fill).loop)} == exposed


def test_variables_that_are_read_after_a_loop():
    loop = Loop().filled(hands_on)
    build, first = loop.build, loop.loop
    build.assign(loop.other, build.read(loop.copy))
    loop.filled(lambda loop, build, x: build.assign(loop.copy, x))
    live = live_after_loops(build.body)
    assert {variable.name for variable in live[first]} == {"copy"}
    assert live[loop.loop] == set()


def test_the_number_that_is_assigned_last():
    def last(fill):
        loop = Loop().filled(fill)
        number, is_certain = last_number(loop.build.body[3:], loop.copy)
        return None if number is None else float(number.data), is_certain

    def assigns(*numbers, then=(), otherwise=()):
        def fill(loop, build, x):
            for number in numbers:
                build.assign(loop.copy, number)
            with build.branch(less(x, 0.0)) as branch:
                for number in then:
                    build.assign(loop.copy, number)
            with build.block(branch.otherwise):
                for number in otherwise:
                    build.assign(loop.copy, number)

        return fill

    assert last(assigns(1.0)) == (1.0, False)  # the loop may have no iterations
    assert last(assigns()) == (None, False)
    assert last(assigns(1.0, 2.0)) == (2.0, False)
    assert last(assigns(1.0, then=[1.0])) == (1.0, False)
    assert last(assigns(1.0, then=[2.0])) == (None, True)
    assert last(assigns(1.0, then=[2.0], otherwise=[2.0])) == (2.0, False)
    assert last(assigns(1.0, then=[2.0], otherwise=[3.0])) == (None, True)
    assert last(lambda loop, build, x: build.assign(loop.copy, x)) == (None, True)
    body = Loop().filled(assigns(then=[2.0], otherwise=[2.0])).loop.body
    (variable,) = {s.variable for s in walk(body) if isinstance(s, Assign)}
    assert last_number(body, variable)[1]


def test_names_are_those_of_all_contents():
    build = ProcedureBuilder("names")
    x, y = build.array("x", (5,)), build.scalar("y")
    out, more = build.allocate("out", 5), build.allocate("more", 5)
    total = build.variable("total", y)
    with build.loop(5) as i:
        build.store(out, i, build.load(x, i) + build.read(total))
        build.store(more, i, 1.0)
    assert {"x", "y", "out", "more", "total"} <= names(build.finish([out], [aval((5,), np.dtype(float))]))
