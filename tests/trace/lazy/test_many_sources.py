"""Gradients of a tape by hundreds of numbers, arrays or variables: the loop that reads them is rolled."""

import numpy as np
import pytest

import gradtape as gt

COUNTS = 2, 300


def squares(items):
    return sum(np.sum(v * v) for v in items)


def stacked(items):
    return np.sum(np.stack(items) ** 2)


def by_position(items):
    total = items[0] ** 2
    for k in range(1, len(items)):
        total = total + items[k] * items[k]
    return np.sum(total)


BODIES = [squares, stacked, by_position]
KINDS = {
    "numbers": lambda n: [float(k) for k in range(n)],
    "arrays": lambda n: [np.full(2, float(k)) for k in range(n)],
    "variables": lambda n: [gt.Variable(float(k)) for k in range(n)],
}


def watched(tape, items):
    return [item if isinstance(item, gt.Variable) else tape.watch(item) for item in items]


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("body", BODIES)
def test_each_of_many_sources_has_its_gradient(body, kind, count):
    for _ in range(3):  # derived, with a template, and by it
        with gt.GradientTape() as tape:
            items = watched(tape, KINDS[kind](count))
            y = body(items)
        gradients = tape.gradient(y, items)
        np.testing.assert_array_equal([np.mean(g) for g in gradients], 2.0 * np.arange(count))


@pytest.mark.parametrize("count", COUNTS)
def test_some_of_many_sources_have_their_gradients(count):
    """The loop reads arrays that are watched, differentiated or neither."""
    for _ in range(3):
        with gt.GradientTape(persistent=True) as tape:
            items = [tape.watch(float(k)) if k % 3 else float(k) for k in range(count)]
            y = sum(v * v * v for v in items)
        sources = [item for k, item in enumerate(items) if k % 3 == 1]
        expected = [3.0 * k**2 for k in range(count) if k % 3 == 1]
        assert [float(g) for g in tape.gradient(y, sources)] == expected
        assert float(tape.gradient(y, sources[0])) == expected[0]
        assert [float(g) for g in tape.jacobian(y, sources)] == expected


@pytest.mark.parametrize("count", COUNTS)
def test_second_derivatives_by_many_sources(count):
    with gt.GradientTape() as outer:
        items = [outer.watch(float(k)) for k in range(count)]
        with gt.GradientTape() as inner:
            watched(inner, items)
            y = sum(v**3 for v in items)
        gradients = inner.gradient(y, items)
        total = sum(g * 2.0 for g in gradients)
    assert [float(g) for g in outer.gradient(total, items)] == [12.0 * k for k in range(count)]
