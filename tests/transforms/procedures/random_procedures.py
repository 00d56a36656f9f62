"""Random structured programs: loops, branches, variables, aliased pointers, graphs of arrays, allocations in loops."""

from __future__ import annotations

import random

import numpy as np

from gradtape.ir.body import Body
from gradtape.ir.graph import Value, extract, literal
from gradtape.ir.types import INT64, aval
from gradtape.ops.core.elementwise.exponential import cos, exp, sin
from gradtape.ops.core.elementwise.integer import remainder
from gradtape.ops.core.elementwise.logic import equal, less, less_equal, not_equal
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.ir import Apply, Span

SIZE = 20


class Writer:
    """Appends random statements; what is known is passed on as lists, which inner blocks extend by copies."""

    def __init__(self, seed, dtype):
        self.random = random.Random(seed)
        self.dtype = np.dtype(dtype)
        self.build = ProcedureBuilder(f"random{seed}")
        self.left = 24
        self.numbers = []

    def procedure(self):
        build, dtype = self.build, self.dtype
        x, y = build.array("x", (SIZE,), dtype), build.scalar("y", dtype)
        n = build.scalar("n", np.int64)
        place = build.array("place", (SIZE,), np.int64)
        self.places = place
        a = build.allocate("a", SIZE, dtype)
        b = build.allocate("b", SIZE, dtype, zero=True, memory=a.memory)
        c = build.allocate("c", SIZE, dtype, zero=True)
        with build.loop(SIZE) as i:
            build.store(a, i, build.load(x, i))
        self.variables = [build.variable(name, y, dtype) for name in "uv"]
        self.counters = [build.variable("k", n)]
        self.pointers = [build.variable("p", a), build.variable("q", b)]
        self.block([y], [n], [a, b, c], 0)
        out = build.allocate("out", SIZE, dtype)
        last = build.read(self.pointers[0])
        with build.loop(SIZE) as i:
            build.store(out, i, build.load(last, i))
        total = build.read(self.variables[0]) * build.read(self.variables[1])
        type_ = aval((SIZE,), dtype)
        return build.finish([out, c, total], [type_, type_, aval((), dtype)])

    def block(self, values, indices, arrays, depth):
        values, indices, arrays = list(values), list(indices), list(arrays)
        for _ in range(self.random.randint(2, 5)):
            if self.left > 0:
                self.left -= 1
                self.statement(values, indices, arrays, depth)

    def pick(self, items):
        return self.random.choice(items[-4:] if self.random.random() < 0.7 else items)

    def value(self, values):
        """Return a bounded, smooth expression."""
        x, y = self.pick(values), self.pick(values)
        rows = [
            lambda: sin(x * y),
            lambda: x * y * 0.3,
            lambda: x + 0.5 * y,
            lambda: cos(x) * y,
            lambda: exp(sin(x)) * 0.4,
            lambda: x - y * y * 0.2,
            lambda: x / (2.5 + sin(y)) if self.dtype.kind == "f" else x,
            lambda: literal(0.7, self.dtype),
        ]
        return self.random.choice(rows)()

    def index(self, indices):
        if self.numbers and self.random.random() < 0.7:  # an affine index
            i, j = self.random.choice(self.numbers), self.random.choice(self.numbers)
            index = i + self.random.randint(0, 3)
            if self.random.random() < 0.6:
                index = i * 3 + j + self.random.randint(0, 3)
            return 19 - index if self.random.random() < 0.2 else index
        i, j = self.pick(indices), self.pick(indices)
        return remainder(i + j * self.random.randint(0, 2) + self.random.randint(0, 3), SIZE)

    def condition(self, values):
        if len(self.numbers) > 1 and self.random.random() < 0.5:
            i, j = self.numbers[-1], self.numbers[-2]
            return self.random.choice([less, less_equal, equal, not_equal])(i, j)
        x = self.pick(values)
        if self.dtype.kind == "c":
            return less(abs(x), literal(0.6))
        return less(x, literal(self.random.uniform(-0.5, 1.0)))

    def statement(self, values, indices, arrays, depth):
        build, choose = self.build, self.random.random()
        variable = self.pick(self.variables)
        array = self.pick(arrays)
        if choose < 0.2:
            values.append(build.load(array, self.index(indices)))
        elif choose < 0.35:
            build.store(array, self.index(indices), self.value(values))
        elif choose < 0.4:
            index = self.index(indices)
            build.store(array, index, build.load(array, index) * 0.9 + self.value(values))
        elif choose < 0.48:
            values.append(build.read(variable))
        elif choose < 0.56:
            build.assign(variable, self.value([*values, build.read(variable)]))
        elif choose < 0.6:
            values.append(self.value(values))
        elif choose < 0.64:
            indices.append(build.load(self.places, self.index(indices)))
        elif choose < 0.67:
            counter = self.pick(self.counters)
            build.assign(counter, remainder(build.read(counter) * 3 + self.index(indices), 7))
            indices.append(build.read(counter))
        elif choose < 0.71:
            p, q = self.pointers
            first, second = build.read(p), build.read(q)
            if self.random.random() < 0.6:
                build.assign(p, second)
                build.assign(q, first)
            arrays.append(first)
        elif choose < 0.73:
            local = build.allocate("local", SIZE, self.dtype)
            with build.loop(SIZE) as i:
                build.store(local, i, self.value(values))
            arrays.append(local)
        elif choose < 0.77:
            self.apply(values, arrays)
        elif depth < 3 and choose < 0.9:
            count = self.random.choice([2, 5, 5, remainder(self.pick(indices), 4), self.pick(indices) - 2])
            if not isinstance(count, int):
                count = remainder(count, 4) if self.random.random() < 0.7 else -remainder(count, 2)
            if self.numbers and self.random.random() < 0.4:
                count = self.numbers[-1] + self.random.randint(0, 1)
            with build.loop(count) as i:
                self.numbers.append(i)
                self.block(values, [*indices, i], arrays, depth + 1)
                self.numbers.pop()
        elif depth < 3 and choose < 0.95:
            with build.branch(self.condition(values)) as branch:
                self.block(values, indices, arrays, depth + 1)
                build.start_otherwise(branch)
                if self.random.random() < 0.6:
                    self.block(values, indices, arrays, depth + 1)
        elif depth < 3:
            self.loop_while(values, indices, arrays, depth)

    def loop_while(self, values, indices, arrays, depth):
        build = self.build
        tries = build.variable("tries", 0)
        limit = remainder(self.pick(indices), 4)
        with build.loop_while() as loop:
            count = build.read(tries)
            tested = build.load(self.pick(arrays), self.index(indices))
            if self.random.random() < 0.4:  # a test with side effects
                build.store(self.pick(arrays), self.index([*indices, count]), sin(tested) * 0.8)
                build.assign(self.variables[0], build.read(self.variables[0]) * 0.9 + tested * tested * 0.1)
            build.start_body(loop, less(count, limit) & ~self.condition([*values, tested]))
            build.assign(tries, count + 1)
            self.block([*values, tested], [*indices, count], arrays, depth + 1)

    def apply(self, values, arrays):
        """Append a graph of arrays; its output does not overlap its inputs."""
        build, type_ = self.build, aval((2,), self.dtype)
        p, q = self.random.choice([(arrays[0], arrays[1]), (arrays[2], arrays[0]), (arrays[1], arrays[2])])
        x, s = Value(type_), Value(aval((), self.dtype))
        outputs = [sin(x) * x, x * x * 0.5 + x][: self.random.randint(1, 2)]
        nodes, _ = extract(outputs, [x, s])
        zero, two = literal(0, INT64), literal(2, INT64)
        spans = [Span(q, offset, type_) for offset in (zero, two)]
        given = Span(p, literal(self.random.randint(0, 2), INT64), type_)
        build.append(
            Apply(Body([x, s], nodes, outputs), (given, self.pick(values)), tuple(spans[: len(outputs)]))
        )


def random_procedure(seed, dtype=np.float64):
    """Return a random procedure and arguments."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=SIZE + 1)
    if np.dtype(dtype).kind == "c":
        x = x + 1j * rng.normal(size=SIZE + 1)
    x = 0.7 * x.astype(dtype)
    n = np.int64(rng.integers(0, 5))
    return Writer(seed, dtype).procedure(), [x[:-1], x[-1], n, rng.integers(0, 9, SIZE)]
