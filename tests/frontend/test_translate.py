"""The contract of `translate`: which leaves are parameters, what is captured, noted, written and returned."""

from __future__ import annotations

import numpy as np

from gradtape.frontend.translate import translate
from gradtape.ir.types import FLOAT64, INT64, aval
from gradtape.procedures.interpret import run_procedure

VECTOR = aval((3,), FLOAT64)
NUMBER = aval((), FLOAT64)
WEIGHTS = np.array([1.0, 2.0, 4.0])
SCALE = 3.0


def weighted(x, options, n):
    y, scale = options
    total = 0.0
    for i in range(n):
        total += WEIGHTS[i] * x[i] * SCALE * scale
    y[0] = total
    return {True: total}[True] if False else (total, n, None, "done", y)


def test_leaves_captures_and_results_have_their_places():
    translation = translate(weighted, (VECTOR, [VECTOR, NUMBER], 2))
    assert translation.leaves == (0, 1, 2)
    assert [array is WEIGHTS for array in translation.captured] == [True]
    total, n, nothing, text, y = translation.result
    assert (nothing, text) == (None, "done")
    assert set(translation.mutated) == {1}
    x, old = np.array([1.0, 2.0, 3.0]), np.array([7.0, 8.0, 9.0])
    outs = run_procedure(translation.procedure, [x, old, np.array(2.0), WEIGHTS])
    assert outs[total] == 30.0 and outs[n] == 2
    np.testing.assert_array_equal(outs[y], [30.0, 8.0, 9.0])
    np.testing.assert_array_equal(outs[translation.mutated[1]], [30.0, 8.0, 9.0])
    np.testing.assert_array_equal(old, [7.0, 8.0, 9.0])


def test_what_is_taken_for_constant_is_noted():
    notes = translate(weighted, (VECTOR, [VECTOR, NUMBER], 2)).notes
    assert any(name == "SCALE" and value == 3.0 and place is globals() for place, name, value in notes)
    assert not any(value is WEIGHTS for _, _, value in notes)


def test_types_follow_from_the_arguments():
    def f(n, x):
        total = 0
        for i in range(n):
            total += i
        return total, total * x

    translation = translate(f, (aval((), INT64, True), aval((), np.dtype(np.float32))))
    assert [str(type_) for type_ in translation.procedure.result_types] == ["i64[]*", "f32[]"]


def test_an_array_is_a_result_once_and_no_parameter_is_one():
    def f(x):
        y = x * 2.0
        return x, y, y

    translation = translate(f, (VECTOR,))
    results = translation.procedure.results
    assert len(set(results)) == 3 and not set(results) & set(translation.procedure.parameters)
    for out, wanted in zip(run_procedure(translation.procedure, [np.ones(3)]), (1.0, 2.0, 2.0), strict=True):
        np.testing.assert_array_equal(out, np.full(3, wanted))


def test_a_loop_is_translated_once_and_not_unrolled():
    def f(x):
        for _ in range(100_000):
            x = x * 0.5 + 1.0
        return x

    assert len(translate(f, (NUMBER,)).procedure.body) < 10
