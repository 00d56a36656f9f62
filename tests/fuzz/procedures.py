"""Random procedures: nests of loops with carried numbers and arrays, branches, while loops and pointers, and what must agree on them.

``python -m tests.fuzz.procedures --programs 1000 --seed 1`` runs many of them.
"""

from __future__ import annotations

import argparse
import random
import time
import traceback
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numba
import numpy as np

from gradtape.ir.graph import Value, literal
from gradtape.ir.types import FLOAT64, INT64, aval, is_inexact
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.elementwise.exponential import exp, sin, tanh
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.integer import remainder
from gradtape.ops.core.elementwise.logic import equal, less
from gradtape.ops.core.elementwise.roots import sqrt
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import Allocate, Pointer, Procedure, Variable
from gradtape.procedures.printer import source_of
from gradtape.procedures.verifier import verify_procedure
from gradtape.statements import walk
from gradtape.transforms.procedures.batch import batch_procedure
from gradtape.transforms.procedures.jvp import jvp_procedure
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.lower.procedures.standalone import compile_procedure
from tests.transforms.procedures import evaluator

Arrays = list[Any]

SIZE = 4
"""Elements of every array: indices are taken modulo this."""


class Generator:
    """Makes one procedure: all numbers in it stay moderate, all indices are in range, all loops end."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.build = ProcedureBuilder("program")
        self.arguments: Arrays = []
        self.floats: list[Value] = []
        self.integers: list[Value] = []
        self.numbers: list[Variable] = []
        self.counters: list[Variable] = []
        self.fixed: list[Pointer] = []
        self.arrays: list[Pointer] = []
        self.views: list[Variable] = []
        self.small: Pointer | None = None
        self.depth = 0
        self.draw = np.random.default_rng(seed)

    def procedure(self) -> tuple[Procedure, Arrays]:
        """Return the procedure and arguments."""
        build, choose = self.build, self.random
        for k in range(choose.randint(1, 2)):
            self.fixed.append(build.array(f"x{k}", (SIZE,)))
            self.arguments.append(self.draw.normal(size=SIZE))
        for k in range(choose.randint(0, 2)):
            self.floats.append(build.scalar(f"p{k}"))
            self.arguments.append(np.float64(self.draw.normal()))
        self.places = build.array("places", (SIZE,), np.int64)
        self.arguments.append(self.draw.integers(0, SIZE, SIZE))
        self.integers.append(build.scalar("n", np.int64))
        self.arguments.append(np.int64(choose.randint(0, 3)))
        if choose.random() < 0.3:
            self.small = build.allocate("small", SIZE, np.float32, zero=True)
        for k in range(choose.randint(1, 3)):
            memory = self.arrays[0].memory if self.arrays and choose.random() < 0.4 else None
            pointer = build.allocate(f"a{k}", SIZE, zero=choose.random() < 0.3, memory=memory)
            self.arrays.append(pointer)
            source = choose.choice(self.fixed)
            with build.loop(SIZE) as i:
                build.store(pointer, i, build.load(source, i) * choose.choice([0.5, 1.0, -0.7]))
        self.counters.append(build.variable("c", 0))
        for k in range(choose.randint(1, 3)):
            self.numbers.append(build.variable(f"s{k}", self.float(1)))
        if choose.random() < 0.5:
            pointer = choose.choice(self.arrays)
            self.views.append(build.variable("view", pointer))
        self.block(choose.randint(2, 5))
        return self.finish()

    def finish(self) -> tuple[Procedure, Arrays]:
        build = self.build
        results: list[Any] = list(self.arrays[: self.random.randint(1, len(self.arrays))])
        types = [aval((SIZE,), FLOAT64)] * len(results)
        for variable in self.numbers:
            results.append(build.read(variable))
            types.append(aval((), FLOAT64))
        results.append(build.read(self.counters[0]))
        types.append(aval((), INT64))
        return build.finish(results, types), self.arguments

    # Expressions

    def float(self, depth: int) -> Value:
        """Return a random number of moderate size."""
        choose = self.random
        if depth == 0 or choose.random() < 0.15:
            return self.leaf()
        kind = choose.randrange(12)
        x = self.float(depth - 1)
        if kind < 2:
            return sin(x)
        if kind == 2:
            return tanh(x)
        if kind == 3:
            return exp(-(x * x))
        if kind == 4:
            return sqrt(1.0 + x * x)
        y = self.float(depth - 1)
        if kind == 5:
            return x + 0.3 * y
        if kind == 6:
            return 0.4 * x * tanh(y)
        if kind == 7:
            return x / (1.0 + y * y)
        if kind == 8:
            return where(less(x, y), x, 0.5 * y)
        if kind == 9:
            return choose.choice([maximum, minimum])(x, y)
        if kind == 10:
            return 0.7 * x - convert(self.index(), FLOAT64) * 0.1
        return x - 0.6 * y

    def leaf(self) -> Value:
        choose, build = self.random, self.build
        kind = choose.randrange(6)
        if kind == 0 and self.floats:
            return choose.choice(self.floats)
        if kind in (1, 2) and self.numbers:
            return build.read(choose.choice(self.numbers))
        if kind == 5 and self.small is not None:
            return convert(build.load(self.small, self.index()), FLOAT64)
        return build.load(self.pointer(), self.index())

    def pointer(self) -> Pointer:
        """Return an array to read from."""
        choose = self.random
        if self.views and choose.random() < 0.3:
            found = self.build.read(choose.choice(self.views))
            assert isinstance(found, Pointer)
            return found
        return choose.choice([*self.fixed, *self.arrays])

    def index(self) -> Value:
        """Return an index that is in range."""
        choose = self.random
        kind = choose.randrange(5)
        if kind == 4:
            return self.build.load(self.places, choose.choice(self.integers[:1]))
        if kind == 0:
            return literal(choose.randrange(SIZE), INT64)
        if kind == 1:
            return remainder(self.build.read(self.counters[0]), SIZE)
        index = choose.choice(self.integers)
        if kind == 2 and len(self.integers) > 1:
            index = index + choose.choice(self.integers) * choose.choice([1, 2, -1])
        return remainder(index + choose.randrange(3), SIZE)

    # Statements

    def block(self, count: int) -> None:
        """Append statements; values that they define are forgotten at the end."""
        floats, integers = len(self.floats), len(self.integers)
        for _ in range(count):
            self.statement()
        del self.floats[floats:], self.integers[integers:]

    def statement(self) -> None:
        choose = self.random
        kind = choose.randrange(13 if self.depth < 3 else 7)
        if kind in (0, 1):
            self.store()
        elif kind == 2:
            self.build.assign(choose.choice(self.numbers), self.float(2))
        elif kind == 3:
            number = choose.choice(self.numbers)
            self.build.assign(number, 0.9 * self.build.read(number) + 0.1 * self.float(2))
        elif kind == 4:
            self.floats.append(self.float(2))
        elif kind == 5:
            self.step()
        elif kind == 6:
            self.turn()
        elif kind in (7, 8):
            self.branch()
        elif kind in (9, 10, 11):
            self.loop()
        else:
            self.loop_while()

    def store(self) -> None:
        build, choose = self.build, self.random
        pointer = choose.choice(self.arrays)
        if self.small is not None and choose.random() < 0.2:
            build.store(self.small, self.index(), self.float(1))
        if self.views and choose.random() < 0.4:
            pointer = build.read(choose.choice(self.views))
        index, value = self.index(), self.float(2)
        if choose.random() < 0.3:
            value = 0.5 * build.load(pointer, index) + 0.3 * value
        build.store(pointer, index, value)

    def step(self) -> None:
        """Move the counter."""
        counter = self.counters[0]
        now = self.build.read(counter)
        self.build.assign(counter, remainder(now * 3 + self.random.choice(self.integers) + 1, 1000))

    def turn(self) -> None:
        """Let the view show another array, if it can."""
        if self.views:
            variable = self.random.choice(self.views)
            fitting = [pointer for pointer in self.arrays if pointer.memory is variable.type]
            self.build.assign(variable, self.random.choice(fitting))

    @contextmanager
    def nested(self) -> Iterator[None]:
        self.depth += 1
        yield
        self.depth -= 1

    def condition(self) -> Value:
        choose = self.random
        if choose.random() < 0.3:
            return equal(remainder(choose.choice(self.integers), 2), choose.randrange(2))
        return less(self.float(1), self.float(1))

    def branch(self) -> None:
        choose = self.random
        with self.nested(), self.build.branch(self.condition()) as branch:
            self.block(choose.randint(1, 2))
            if choose.random() < 0.6:
                self.build.start_otherwise(branch)
                self.block(choose.randint(1, 2))

    def loop(self) -> None:
        choose = self.random
        count: Any = choose.randint(1, 4)
        if choose.random() < 0.4:
            count = choose.choice(self.integers) + choose.randint(-1, 1)
            count = minimum(count, 4)
        with self.nested(), self.build.loop(count) as i:
            self.integers.append(i)
            self.block(choose.randint(1, 3))
            self.integers.pop()

    def loop_while(self) -> None:
        """Append a loop that ends after some iterations, or when a number that is computed says so."""
        build, choose = self.build, self.random
        trips = build.variable("trips", 0)
        with self.nested(), build.loop_while() as loop:
            now = build.read(trips)
            goes_on = less(now, choose.randint(1, 5))
            if choose.random() < 0.7:
                goes_on = goes_on & less(self.float(1), 0.6)
            build.start_body(loop, goes_on)
            self.integers.append(now)
            self.block(choose.randint(1, 3))
            self.integers.pop()
            build.assign(trips, now + 1)


def generate(seed: int) -> tuple[Procedure, Arrays]:
    """Return a random procedure with arguments."""
    return Generator(seed).procedure()


# What must agree


def flags(types: Any) -> list[bool]:
    return [is_inexact(type_.dtype) for type_ in types]


def inexact(arrays: Arrays) -> Arrays:
    return [array for array in arrays if is_inexact(np.asarray(array).dtype)]


def same(actual: Arrays, expected: Arrays, what: str, rtol: float = 1e-9) -> None:
    assert len(actual) == len(expected), what
    for one, other in zip(actual, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=rtol, atol=rtol, err_msg=what)


def dot(xs: Arrays, ys: Arrays) -> Any:
    return sum(np.sum(x * y) for x, y in zip(xs, ys, strict=True))


def check(procedure: Procedure, arguments: Arrays, seed: int = 0, compiled: bool = True) -> None:
    """Assert that all ways to compute a procedure and its derivatives agree."""
    verify_procedure(procedure)
    rng = np.random.default_rng(seed)
    expected = evaluator.run_procedure(procedure, arguments)
    same(run_procedure(procedure, arguments), expected, "printed")
    active = flags(procedure.types)
    seeded = flags(procedure.result_types)
    directions = [rng.normal(size=np.shape(x)) for x in inexact(arguments)]
    seeds = [rng.normal(size=np.shape(x)) for x in inexact(expected)]
    pushed = jvp_procedure(procedure, active)
    verify_procedure(pushed, "jvp")
    images = run_procedure(pushed, [*arguments, *directions])
    same(images[: len(expected)], expected, "results of jvp")
    images = images[len(expected) :]
    small = any(
        isinstance(statement, Allocate) and statement.out.dtype == np.float32
        for statement in walk(procedure.body)
    )
    if not small:  # differences of float32 are no measure
        check_differences(procedure, arguments, directions, images)
    pulled = vjp_procedure(procedure, active, seeded)
    verify_procedure(pulled, "vjp")
    results = run_procedure(pulled, [*arguments, *seeds])
    same(results[: len(expected)], expected, "results of vjp")
    same(
        [dot(results[len(expected) :], directions)],
        [dot(seeds, images)],
        "vjp against jvp",
        1e-3 if small else 1e-8,
    )
    mixed = vjp_procedure(pushed, flags(pushed.types), flags(pushed.result_types))
    verify_procedure(mixed, "vjp of jvp")
    check_second_order(pushed, mixed, arguments, directions, rng, 1e-3 if small else 1e-7)
    if compiled:
        same(compile_procedure(procedure)(*arguments), expected, "compiled")
        same(compile_procedure(pulled)(*arguments, *seeds), results, "compiled vjp", 1e-8)
        same(
            compile_procedure(pushed)(*arguments, *directions)[len(expected) :], images, "compiled jvp", 1e-8
        )
        batch = batch_procedure(procedure, 2, active)
        stacked = [np.stack([x, 0.5 * x]) if flag else x for x, flag in zip(arguments, active, strict=True)]
        halves = [0.5 * x if flag else x for x, flag in zip(arguments, active, strict=True)]
        other = run_procedure(procedure, halves)
        pairs = [np.stack(pair) for pair in zip(expected, other, strict=True)]
        same(run_procedure(batch, stacked), pairs, "batched")


def check_second_order(
    pushed: Procedure,
    mixed: Procedure,
    arguments: Arrays,
    directions: Arrays,
    rng: np.random.Generator,
    rtol: float,
) -> None:
    """The pullback of the tangents is the transpose of their tangents."""
    given = [*arguments, *directions]
    further = [rng.normal(size=np.shape(x)) for x in inexact(given)]
    twice = jvp_procedure(pushed, flags(pushed.types))
    outs = run_procedure(twice, [*given, *further])[len(pushed.results) :]
    seeds = [rng.normal(size=np.shape(x)) for x in outs]
    back = run_procedure(mixed, [*given, *seeds])[len(pushed.results) :]
    same([dot(back, further)], [dot(seeds, outs)], "vjp of jvp against jvp of jvp", rtol)


def check_differences(procedure: Procedure, arguments: Arrays, directions: Arrays, images: Arrays) -> None:
    """Compare tangents with differences; a step may meet a branch, so that one of several has to agree."""
    failure = None
    for step in (1e-6, 1e-7, 3e-8):
        ends = []
        for sign in (step, -step):
            moving = iter(directions)
            moved = [x + sign * next(moving) if is_inexact(np.asarray(x).dtype) else x for x in arguments]
            ends.append(inexact(run_procedure(procedure, moved)))
        slopes = [(ahead - behind) / (2 * step) for ahead, behind in zip(*ends, strict=True)]
        try:
            same(images, slopes, "jvp against differences", 2e-4)
            return
        except AssertionError as error:
            failure = error
    assert failure is not None
    raise failure


def check_numba(procedure: Procedure, arguments: Arrays) -> None:
    """Assert that Numba compiles the printed pullback to the same."""
    pulled = vjp_procedure(procedure, flags(procedure.types), flags(procedure.result_types))
    seeds = [np.ones(type_.shape) for type_ in procedure.result_types if is_inexact(type_.dtype)]
    given = [*arguments, *[np.float64(x) if x.ndim == 0 else x for x in seeds]]
    source = source_of(pulled)
    names: dict[str, Any] = {"np": np}
    exec(source.text, names)
    results = numba.njit(error_model="numpy")(names[source.name])(*given)
    same(list(results), run_procedure(pulled, given), "Numba")


def main() -> None:
    """Run programs and print those that fail."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.procedures", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", type=float, default=0.2)
    parser.add_argument("--numba", type=float, default=0.0)
    parser.add_argument("--seconds", type=float, default=1e9)
    options = parser.parse_args()
    begin, failed = time.monotonic(), []
    for seed in range(options.seed, options.seed + options.programs):
        procedure, arguments = generate(seed)
        chance = random.Random(seed).random()
        try:
            check(procedure, arguments, seed, chance < options.compiled)
            if chance < options.numba:
                check_numba(procedure, arguments)
        except Exception as error:
            failed.append(seed)
            lines = traceback.format_exception_only(error)[-1].strip().splitlines()
            print(seed, [line for line in lines if line.strip()][:3], flush=True)
        if time.monotonic() - begin > options.seconds:
            break
    print(f"{seed - options.seed + 1} programs in {time.monotonic() - begin:.0f} s, failed: {failed}")


if __name__ == "__main__":
    main()
