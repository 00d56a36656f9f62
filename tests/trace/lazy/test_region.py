"""Structural keys are equal exactly where regions of the graph compute the same."""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.graph import Value, literal
from gradtape.ir.types import FLOAT64, aval
from gradtape.trace.lazy import force
from gradtape.trace.lazy.literals import Structure
from gradtape.trace.lazy.region import begins, region_of


def record(function):
    """Return the region that a tape records of a function of two arrays, and the tape's tag."""
    with gt.GradientTape(persistent=True) as tape:
        x, y = tape.watch([gt.constant(np.arange(3.0)), gt.constant(np.ones(3))])
        results = function(x, y)
    ends = [each.value for each in (results if isinstance(results, tuple) else (results,))]
    return region_of(ends, tape.mark), tape.mark


RECORDS = {
    "product": lambda x, y: x * y,
    "square": lambda x, y: x * x,
    "same twice": lambda x, y: (x * y) + (x * y),
    "shared": lambda x, y: (lambda z: z + z)(x * y),
    "another operation": lambda x, y: x + y,
    "another number": lambda x, y: x * 2.0,
    "a number": lambda x, y: x * 3.0,
    "zero": lambda x, y: x * 0.0,
    "negative zero": lambda x, y: x * -0.0,
    "parameters": lambda x, y: np.cumsum(x[None] * y, axis=1),
    "other parameters": lambda x, y: np.cumsum(x[None] * y, axis=0),
    "a join": lambda x, y: np.concatenate([x, y]),
    "a longer join": lambda x, y: np.concatenate([x, y, x]),
    "two ends": lambda x, y: (x * y, x * x),
    "two other ends": lambda x, y: (x * x, x * y),
    "another dtype": lambda x, y: x * np.float32(1) * np.ones(3, np.float32),
    "one output": lambda x, y: np.linalg.eigh(np.outer(x, x) + np.diag(y))[0],
    "another output": lambda x, y: np.linalg.eigh(np.outer(x, x) + np.diag(y))[1],
    "a loop": lambda x, y: gt.fori_loop(0, 4, lambda k, s: s * y, x),
    "another loop": lambda x, y: gt.fori_loop(0, 4, lambda k, s: s + y, x),
}


def test_keys_tell_records_apart():
    keys, again = [
        [(region.key, Structure().numbers(region).key) for region, _ in map(record, RECORDS.values())]
        for _ in range(2)
    ]
    assert keys == again
    assert len(set(keys)) == len(keys)


def test_positions_are_those_of_the_walk():
    region, tag = record(lambda x, y: np.sin(x * 2.0) + y * 2.0)
    assert list(region.positions.values()) == list(range(len(region.positions)))
    assert [value.node.op.name for value in region.computed] == ["add", "sin", "multiply", "multiply"]
    assert all(begins(leaf, tag) for leaf in region.leaves)
    assert len(region.leaves) == 2


def test_equal_numbers_are_one_whether_they_are_one_object_or_two():
    x = gt.constant(np.arange(3.0)).value
    two, other_two = literal(2.0, np.dtype(float)), literal(2.0, np.dtype(float))
    keys = [region_of([(x * a) + (x * b)], None).key for a, b in ((two, two), (two, other_two))]
    assert keys[0] == keys[1]


def test_a_record_begins_at_what_was_watched():
    with gt.GradientTape() as tape:
        x = gt.constant(np.ones(2)) * 2.0
        tape.watch(x)
        y = np.sin(x)
    region = region_of([y.value], tape.mark)
    assert region.leaves == [x.value]


def test_what_is_pending_begins_at_known_values_and_not_at_placeholders():
    x = gt.constant(np.ones(2))
    y = np.exp(x)
    y.numpy()
    region = region_of([(y * x).value], None)
    assert set(region.leaves) == {x.value, y.value}
    assert region_of([Value(aval((2,), FLOAT64)) * 2.0], None) is None


def test_a_parameter_without_a_hash_is_no_key():
    @gt.custom_gradient
    def twice(x):
        return x * 2.0, lambda g: g * 2.0

    region, _ = record(lambda x, y: twice(x))
    with pytest.raises(TypeError):
        hash(region.key)


def test_seeds_that_are_one_array_are_not_taken_for_two():
    one, other = gt.constant(2.0), gt.constant(5.0)
    for seeds in (
        [one, one, other],
        [one, one, other],
        [one, one, other],
        [one, other, one],
        [other, one, one],
    ):
        with gt.GradientTape() as tape:
            x = tape.watch(gt.constant(3.0))
            targets = [x * x, x * x * x, np.sin(x)]
        found = float(tape.gradient(targets, x, output_gradients=seeds))
        slopes = [6.0, 27.0, np.cos(3.0)]
        assert np.isclose(found, sum(float(seed) * slope for seed, slope in zip(seeds, slopes, strict=True)))


def test_a_region_is_planned_while_something_unrelated_is_pending(monkeypatch):
    monkeypatch.setattr(force, "SMALL_WORK", 0)
    monkeypatch.setattr(force, "WORK_PER_NODE", 0)
    anew = []
    run_anew = force._run_anew
    monkeypatch.setattr(force, "_run_anew", lambda *given: anew.append(1) or run_anew(*given))
    leaked = []
    gt.jit(lambda x: leaked.append(x * 2.0) or x)(np.ones(3))
    x = gt.constant(np.ones(2))
    unrelated = np.cos(x) * 3.0
    for k in range(6):
        anew.clear()
        value = np.exp(x * float(k == 99)) * 2.0
        np.testing.assert_allclose(value.numpy(), [2.0, 2.0])
    assert anew == []
    np.testing.assert_allclose(unrelated.numpy(), 3.0 * np.cos([1.0, 1.0]))
