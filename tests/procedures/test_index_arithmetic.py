"""Arithmetic of extents: what is known of them holds for all iterations of the loops around, which are counted here."""

import itertools
import random

import numpy as np
import pytest

from gradtape.ir.evaluate import compute_outputs
from gradtape.ir.graph import Graph, Value, extract
from gradtape.kinds.operands import as_value
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.integer import remainder
from gradtape.ops.core.elementwise.logic import (
    bitwise_and,
    bitwise_or,
    greater,
    greater_equal,
    invert,
    less,
    less_equal,
)
from gradtape.procedures.affine import linear_form
from gradtape.procedures.arrays import index_arithmetic as ix
from gradtape.procedures.builder import integer, leaf

LEAST, MOST = 1, 5
"""Of the size, which no loop counts."""


class Nest:
    """Three loops, ``for i in range(n): for j in range(i + 1): for k in range(4)``, and all their iterations."""

    def __init__(self):
        self.counts = ix.Bounds()
        self.n, self.i, self.j, self.k = self.leaves = [leaf(np.int64) for _ in range(4)]
        self.counts.limit(self.n, [{(): LEAST}], [{(): MOST}])
        for index, count in ((self.i, self.n), (self.j, self.i + 1), (self.k, integer(4))):
            self.counts[index] = count
        combined = [
            (n, i, j, k)
            for n in range(LEAST, MOST + 1)
            for i in range(n)
            for j in range(i + 1)
            for k in range(4)
        ]
        self.iterations = np.array(combined).T

    def values(self, x):
        """Return an extent, or a condition, in all iterations."""
        if not isinstance(x, Value):
            return np.full(self.iterations.shape[1], x)
        (out,) = compute_outputs(Graph(self.leaves, extract([x])[0], [x]), list(self.iterations))
        return np.broadcast_to(out, self.iterations.shape[1])

    def random_extent(self, choose, depth=3):
        if depth == 0 or choose.random() < 0.2:
            return choose.choice([*self.leaves, choose.randint(-3, 4)])
        x, y = (self.random_extent(choose, depth - 1) for _ in range(2))
        match choose.randint(0, 8):
            case 0 | 1:
                return ix.add(x, y)
            case 2 | 3:
                return ix.subtract(x, y)
            case 4:
                return ix.multiply(x, choose.choice([2, -1, 3, self.k]))
            case 5:
                return ix.floor_divide(x, choose.choice([1, 2, 3]))
            case 6:
                return ix.maximum(x, y, self.counts)
            case 7:
                return ix.minimum(x, y, self.counts)
            case _:
                return ix.extent(remainder(as_value(x), integer(choose.choice([2, 3, 5]))))


@pytest.mark.parametrize("seed", range(20))
def test_what_is_known_of_random_extents_holds_in_all_iterations(seed):
    choose = random.Random(seed)
    nest = Nest()
    for _ in range(40):
        x, y = nest.random_extent(choose), nest.random_extent(choose)
        all_x, all_y = nest.values(x), nest.values(y)
        bound = ix.lowest(x, nest.counts)
        assert bound is None or bound <= all_x.min()
        assert not ix.at_least(x, y, nest.counts) or np.all(all_x >= all_y)
        apart = ix.difference(x, y)
        assert apart is None or np.all(all_x - all_y == apart)
        assert (ix.key(x) == ix.key(y)) is ix.same(x, y) is (apart == 0)
        for ours, theirs in (
            (ix.is_equal(x, y), all_x == all_y),
            (ix.is_negative(x, nest.counts), all_x < 0),
            (ix.is_below(x, y, nest.counts), all_x < all_y),
            (ix.maximum(x, y, nest.counts), np.maximum(all_x, all_y)),
            (ix.minimum(x, y, nest.counts), np.minimum(all_x, all_y)),
            (ix.wrapped(x, 9, nest.counts), np.where(all_x < 0, all_x + 9, all_x)),
            (ix.add(x, y), all_x + all_y),
            (ix.subtract(x, y), all_x - all_y),
            (ix.multiply(x, y), all_x * all_y),
        ):
            np.testing.assert_array_equal(nest.values(ours), theirs)


@pytest.mark.parametrize("seed", range(20))
def test_random_slices_are_those_of_python(seed):
    choose = random.Random(seed)
    nest = Nest()
    for _ in range(10):
        start, stop = (choose.choice([None, nest.random_extent(choose, 1)]) for _ in range(2))
        step = choose.choice([None, 1, 2, -1, -3, ix.subtract(ix.multiply(nest.k, 2), 3)])
        size = choose.choice([nest.n, ix.add(nest.n, 2), 6])
        ours = [nest.values(x) for x in ix.resolved_slice(start, stop, step, size, nest.counts)]
        given = [None if x is None else nest.values(x) for x in (start, stop, step)]
        for number, length in enumerate(nest.values(size)):
            one = slice(*[None if x is None else int(x[number]) for x in given])
            elements = range(*one.indices(int(length)))
            first, count, distance = (int(x[number]) for x in ours)
            assert [first + k * distance for k in range(count)] == list(elements)


def test_bounds_follow_from_the_loops():
    nest = Nest()
    n, i, j, k = nest.leaves
    for x, bound in (
        (i, 0),
        (n - 1 - i, 0),
        (i - j, 0),
        (n - i * 2 + i, 1),
        (k - 3, -3),
        (3 - k, 0),
        (i * k, 0),
        (ix.floor_divide(i + 7, 3), 2),
        (i - ix.floor_divide(i, 2), 0),
        (remainder(i + 2, integer(3)), 0),
        (2 - remainder(i - 9, integer(3)), 0),
        (ix.maximum(i - 2, j * 2 - 3, nest.counts), -2),
        (ix.minimum(i + 2, j + 1, nest.counts), 1),
        (ix.choose(less(i, 2), i + 4, j + 3), 3),
        (convert(convert(i + 2, np.dtype("i4")), np.dtype("i8")), 2),
        (i - n * k, -15),
        (i * i, None),
        (ix.floor_divide(i + 7, k), None),
    ):
        assert ix.lowest(x, nest.counts) == bound
    assert ix.key(i - i + 5) == ix.key(as_value(5)) == ix.key(5)
    assert ix.at_least(i, j, nest.counts) and not ix.at_least(j, i, nest.counts)
    assert ix.maximum(i, j, nest.counts) is i and ix.minimum(i, j, nest.counts) is j
    assert ix.maximum(j, i, nest.counts) is i and ix.minimum(j, i, nest.counts) is j


def conditions(nest):
    n, i, j, k = nest.leaves
    single = [
        less(i, k),
        less_equal(i + 1, k),
        greater(j * 2, k),
        greater_equal(j + k, n),
        ix.is_equal(i, k),
        invert(ix.is_equal(j, 2)),
    ]
    return [
        *single,
        *[bitwise_and(x, y) for x, y in itertools.pairwise(single)],
        *[bitwise_or(x, y) for x, y in zip(single, single[2:], strict=False)],
        invert(bitwise_or(single[0], single[3])),
    ]


@pytest.mark.parametrize("negated", [False, True])
def test_what_conditions_imply_holds_where_they_hold(negated):
    nest = Nest()
    count = 0
    for condition in conditions(nest):
        holds = nest.values(condition).astype(bool) != negated
        assert holds.any()
        for terms in ix.implied(condition, nest.counts, negated):
            total = np.zeros(len(holds), int)
            for atoms, factor in terms.items():
                product = np.full(len(holds), factor)
                for atom in atoms:
                    product = product * nest.values(atom)
                total += product
            assert np.all(total[holds] >= 0) and total[holds].min() == 0
            count += 1
    assert count == (14 if negated else 19)


def test_conditions_that_hold_give_bounds():
    nest = Nest()
    _, i, _, k = nest.leaves
    assert not ix.at_least(k, i + 1, nest.counts)
    nest.counts.assumed = ix.implied(less(i, k), nest.counts)
    assert ix.at_least(k, i + 1, nest.counts) and not ix.at_least(k, i + 2, nest.counts)


def test_sums_that_share_terms_are_taken_apart_in_as_many_steps_as_they_have_nodes():
    first, second = x, y = leaf(np.int64), leaf(np.int64)
    a, b = np.array([1, 0]), np.array([0, 1])  # how often x and y have the first and the second
    for _ in range(80):  # of two-to-the-55 terms
        x, y, a, b = y, x + y, b, a + b
    one, other = 3 * b - a
    assert linear_form(3 * y - (x - 7)) == {first: one, second: other, None: 7}
