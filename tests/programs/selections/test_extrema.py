"""An extremum is one of the numbers that it is selected from, to the last bit, wherever a program computes these again.

LLVM fuses ``x * y + z`` in one loop and not in another one, where something else reads ``x * y``. Then no element was equal to it,
and the gradient was infinite.
"""

import numpy as np
import pytest

import gradtape as gt

ELEMENTS = {
    "sums of products": lambda x, y: (x * x, x * x + y),
    "differences of products": lambda x, y: (x * y, x * y - 1.3 * y),
    "functions": lambda x, y: (x * y, np.exp(x * y)),
    "magnitudes": lambda x, y: (x * y, np.abs(x * y + y)),
    "joined": lambda x, y: (x * y, np.concatenate([x * y + y, y - x * y])),
    "reversed": lambda x, y: (x * x, (x * x + y)[::-1]),
    "outer": lambda x, y: (x[:6, None] * y, x[:6, None] * y + x[:6, None]),
}
SELECTIONS = {
    "max": np.max,
    "ptp": np.ptp,
    "norm": lambda v: np.linalg.norm(v.ravel(), np.inf),
    "rows": lambda v: np.sum(np.min(v, axis=-1)),
    "above": lambda v: np.sum(np.where(v >= np.max(v), v**2, 0.0)),
}
OTHERS = {"cube": lambda s: np.sum(s**3), "sine": lambda s: np.sum(np.sin(s))}
SIZES = (7, 64)


def programs(elements, selection):
    for other in OTHERS.values():

        def program(x, y, other=other):
            product, v = ELEMENTS[elements](x, y)
            return SELECTIONS[selection](v) + other(product)

        yield program


def points():
    rng = np.random.default_rng(1)
    for size in SIZES:
        for _ in range(4):
            yield rng.normal(size=size), rng.normal(size=size)


def scanned(program):
    return lambda x, y: gt.scan(lambda total, _: (total + program(x, y), None), 0.0, length=3)[0] / 3


def looped(program):
    def loop(x, y):
        total = 0.0
        for _ in range(12):
            total = total + program(x + 0.0 * total, y)
        return total / 12

    return loop


@pytest.mark.parametrize("selection", SELECTIONS)
@pytest.mark.parametrize("elements", ELEMENTS)
def test_the_gradient_is_that_of_the_selected_element(elements, selection):
    for program in programs(elements, selection):
        gradients = [
            gt.jit(gt.grad(way, argnums=(0, 1)))
            for way in (program, gt.checkpoint(program), scanned(program), looped(program))
        ]
        for x, y in points():
            direction = np.cos(np.arange(x.size))
            step = 1e-6 * direction
            slope = (program(x + step, y + step) - program(x - step, y - step)) / 2e-6
            for gradient in [*gradients, lambda x, y, program=program: gt.vjp(program, x, y)[1](1.0)]:
                by_x, by_y = gradient(x, y)
                assert by_x @ direction + by_y @ direction == pytest.approx(slope, rel=1e-3, abs=1e-3)


@pytest.mark.parametrize("elements", ELEMENTS)
def test_one_element_is_equal_and_none_is_less(elements):
    def ties_and_roots(x, y):
        product, v = ELEMENTS[elements](x, y)
        return np.sum(v == np.max(v)), np.sum(np.sqrt(v - np.min(v))), np.sum(product**3)

    jitted = gt.jit(ties_and_roots)
    for x, y in points():
        for found, wanted in zip(jitted(x, y), ties_and_roots(x, y), strict=True):
            assert found == pytest.approx(wanted, rel=1e-9)


def written_loops(elements, select):
    """Yield loops over elements, which are stored and selected from later, or selected from one by one."""
    of_one = ELEMENTS[elements]

    def stored(x, y):
        v, total = np.zeros(len(x)), 0.0
        for i in range(len(x)):
            product, v[i] = of_one(x[i], y[i])
            total += product**3
        return select(v) + total

    def branches(x, y):
        product, best = of_one(x[0], y[0])
        total = product**3
        for i in range(1, len(x)):
            product, element = of_one(x[i], y[i])
            total += product**3
            if element > best:
                best = element
        return select(np.array([best, total]))

    def running(x, y):
        product, best = of_one(x[0], y[0])
        total = product**3
        for i in range(1, len(x)):
            product, element = of_one(x[i], y[i])
            total += product**3
            best = max(best, element)
        return best + total

    def twice(x, y):
        v, best, total = np.zeros(len(x)), -np.inf, 0.0
        for i in range(len(x)):
            product, v[i] = of_one(x[i], y[i])
            best = max(best, v[i])
            total += product**3
        for i in range(len(x)):
            if v[i] >= best:
                total += v[i] ** 2
        return total

    def position(x, y):
        k = 0
        for i in range(len(x)):
            if of_one(x[i], y[i])[1] > of_one(x[k], y[k])[1]:
                k = i
        return of_one(x[k], y[k])[1] + np.sum((x * y) ** 3)

    yield from (stored, branches, running, twice, position)


@pytest.mark.parametrize("selection", ["max", "ptp", "above"])
@pytest.mark.parametrize(
    "elements", ["sums of products", "differences of products", "functions", "magnitudes"]
)
def test_loops_that_are_compiled_from_their_code(elements, selection):
    for program in written_loops(elements, SELECTIONS[selection]):
        with gt.config.override(loops="compile"):
            value, gradient = gt.jit(program), gt.jit(gt.grad(program, argnums=(0, 1)))
            for x, y in points():
                direction = np.cos(np.arange(x.size))
                step = 1e-6 * direction
                slope = (program(x + step, y + step) - program(x - step, y - step)) / 2e-6
                by_x, by_y = gradient(x, y)
                assert value(x, y) == pytest.approx(program(x, y), rel=1e-9)
                assert by_x @ direction + by_y @ direction == pytest.approx(slope, rel=1e-3, abs=1e-3)
            small = (x[:7], y[:7])
            along = gt.jvp(program, small, (direction[:7], direction[:7]))[1]
            by_x, by_y = gradient(*small)
            assert along == pytest.approx((by_x + by_y) @ direction[:7], rel=1e-9)
