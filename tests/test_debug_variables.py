"""Why the gradient in a variable is None."""

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.debug import explain_gradient


def explained(function, *, persistent=True, tape=None, **kwargs):
    w = gt.Variable(np.array([1.0, 2.0]), name="w", **kwargs)
    other = gt.Variable(3.0)
    tape = tape or gt.GradientTape(persistent=persistent)
    with tape:
        y = function(w, other)
    if not persistent:
        tape.gradient(y, w)
    return explain_gradient(tape, y, w)


@pytest.mark.parametrize(
    ("function", "reason", "words"),
    [
        (lambda w, other: np.sum(w) * other, "connected", ""),
        (lambda w, other: w.numpy().sum() * other, "left the graph", "numpy"),
        (lambda w, other: float(w[0]) * other, "left the graph", "float"),
        (lambda w, other: np.sum(gt.stop_gradient(w)) * other, "stop_gradient", ""),
        (lambda w, other: np.sum(w.astype(int)) * other, "integer", "int64"),
        (lambda w, other: np.sum(w > 0) * other, "not differentiable", "greater"),
        (lambda w, other: np.sum(np.floor(w)) * other, "zero derivative", "floor"),
        (lambda w, other: other * 2.0, "not used", "'w' was not read while the tape recorded"),
    ],
)
def test_what_cut_the_path_is_named(function, reason, words):
    found = explained(function)
    assert found.reason == reason
    assert words in repr(found)


def test_what_was_read_for_something_else():
    kept = []
    found = explained(lambda w, other: (kept.append(w * 2.0), other * 2.0)[1])
    assert (found.reason, found.text) == (
        "not used",
        "the target was not computed from what was read of the variable 'w'",
    )


def test_variables_that_the_tape_does_not_follow():
    found = explained(lambda w, other: np.sum(w), trainable=False)
    assert (found.reason, "not trainable" in found.text) == ("never watched", True)
    tape = gt.GradientTape(persistent=True, watch_accessed_variables=False)
    found = explained(lambda w, other: np.sum(w), tape=tape)
    assert (found.reason, "watch_accessed_variables=False" in found.text) == ("never watched", True)
    assert explained(lambda w, other: np.sum(w) * 1.0, dtype=int).reason == "integer"


def test_a_used_record_is_gone():
    assert explained(lambda w, other: np.sum(w), persistent=False).reason == "record used"


def test_one_of_several_readings_is_enough():
    def function(w, other):
        whole = np.sum(w.astype(int))
        w.assign([3.0, 4.0])
        return np.sum(w**2) + whole

    assert explained(function).reason == "connected"


def test_an_assignment_is_where_a_value_leaves():
    w = gt.Variable(1.0)
    with gt.GradientTape(persistent=True) as tape:
        x = tape.watch(2.0)
        w.assign(x * 2)
        y = w * 3
    assert tape.gradient(y, x) is None
    found = explain_gradient(tape, y, x)
    assert found.reason == "left the graph"
    assert "an assignment to a variable" in found.text
    assert "w.assign(x * 2)" in repr(found)
    assert "no step of a derivative" in found.remedy
