"""Random bodies of loops and branches, nested at random."""

from __future__ import annotations

import numpy as np

from gradtape.passes.rewrite import closed
from gradtape.transforms.loops.ops import repeat, scan, switch, while_loop
from tests.support.control_cases import (
    INT64,
    body_of,
    convert,
    graph_of,
    like,
    literal,
    matvec,
    row,
    scanned,
    sin,
    spread,
    tanh,
    total,
    value,
    where,
)
from tests.support.loop_derivatives import pulled, pushed

POLICIES = (None, None, None, "all", 1, 2, 3, "sqrt", ("treeverse", 2))


class Maker:
    """Draws formulas of numbers, vectors of two, and matrices of two by two; all of them stay small."""

    def __init__(self, rng, depth=0):
        self.rng = rng
        self.depth = depth

    def pick(self, things):
        return things[self.rng.integers(len(things))]

    def of_shape(self, pool, shape):
        found = [x for x in pool if x.shape == shape and x.dtype.kind == "f"]
        if found:
            return self.pick(found)
        some = self.pick([x for x in pool if x.dtype.kind == "f"])
        return spread(total(some), *shape) if shape else total(some)

    def step(self, pool):
        """Return one more value."""
        shape = self.pick([(), (2,), (2,), (2, 2)])
        a, b = self.of_shape(pool, shape), self.of_shape(pool, shape)
        choice = self.rng.integers(12 if self.depth < 2 else 8)
        if choice == 0:
            return a * b
        if choice == 1:
            return a + b * 0.5
        if choice == 2:
            return sin(a) - b
        if choice == 3:
            return tanh(a * b)
        if choice == 4:
            return where(a > b, sin(a), b * 0.5)
        if choice == 5:
            return row("maximum")(a, b) * float(self.rng.normal())
        if choice == 6:
            return matvec(self.of_shape(pool, (2, 2)), self.of_shape(pool, (2,)))
        if choice == 7:
            return a / (1.5 + b * b)
        return self.pick([self.inner_scan, self.inner_while, self.inner_switch, self.inner_scan])(pool)

    def inner(self):
        return Maker(self.rng, self.depth + 1)

    def inner_scan(self, pool):
        c, s, e = (self.of_shape(pool, (2,)) for _ in range(3))
        inputs = [value((), INT64), value((2,)), value((2,)), value(())]
        body = body_of(lambda i, c, s, e: self.inner().outputs([c, s, e, number(i)], [(2,), ()]), inputs)
        s, left = scan(body, [c], [s], [e], 2, reverse=bool(self.rng.integers(2)), policy=self.pick(POLICIES))
        return self.pick([s, left])

    def inner_while(self, pool):
        c, s = self.of_shape(pool, (2,)), self.of_shape(pool, (2,))
        inputs = [value((), INT64), value((2,)), value((2,)), value(())]
        body = body_of(
            lambda i, c, s, n: (*self.inner().outputs([c, s, number(i)], [(2,)]), n + 1.0, *[s * c]), inputs
        )
        test = body_of(lambda i, c, s, n: (n < 2.5,), inputs)
        s, _, count, stack = while_loop(test, body, [c], [s, literal(0.0)])
        again = body_of(lambda i, s, e: (s * 0.5 + e,), [value((), INT64), value((2,)), value((2,))])
        (t,) = repeat(again, count, [], [s], [stack], reverse=bool(self.rng.integers(2)))
        return self.pick([s, t])

    def inner_switch(self, pool):
        a, b = self.of_shape(pool, (2,)), self.of_shape(pool, ())
        index = convert(b > 0.0, np.int64)
        branches = [
            body_of(lambda a, b: self.inner().outputs([a, b], [(2,)]), [value((2,)), value()])
            for _ in range(2)
        ]
        return switch(branches, index, [a, b])[0]

    def outputs(self, pool, shapes):
        pool = list(pool)
        for _ in range(self.rng.integers(1, 5)):
            pool.append(self.step(pool))
        # Bounded, so that no chain of products grows out of sight.
        return [tanh(self.of_shape(pool[::-1], shape)) for shape in shapes]


def number(i):
    return convert(i, float) * 0.1


def drawn(seed, policies=POLICIES):
    rng = np.random.default_rng(seed)
    maker = Maker(rng)

    def iterate(index, consts, carries, elements):
        pool = [*consts, *carries, *elements, number(index)]
        return maker.outputs(pool, [x.shape for x in carries] + [(2,), ()])

    return scanned(
        f"random{seed}",
        iterate,
        [(2, 2), ()],
        [(2,), ()][: rng.integers(1, 3)],
        [(2,)],
        int(rng.integers(0, 6)),
        seed=seed,
        reverse=bool(rng.integers(2)),
        policy=maker.pick(policies),
    )


def whole_graph(case, orders):
    inputs = [like(x) for x in case.arrays]
    outs = list(case.loop(*inputs))
    for order in orders:
        outs = [*outs, *(pushed(outs, inputs) if order == "f" else pulled(outs, inputs))]
    return closed(graph_of(outs, inputs))
