"""Gradients that lack a path because numbers left the tape: the gradient says where."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import GradtapeWarning

X = np.array([0.3, 0.7])
OUTSIDE = np.zeros(2)
Function = Callable[..., Any]


def stored(x: Any) -> Any:
    OUTSIDE[0] = x[0] ** 2
    return np.sum(OUTSIDE * x)


def at_a_line_of_its_own(x: Any) -> Any:
    scale = float(np.max(x))
    return np.sum(x / scale)


CUT: dict[str, tuple[Function, str]] = {
    "float": (lambda x: np.sum(x * float(x[0])), "float(x)"),
    "item": (lambda x: np.sum(np.sin(x)) * np.sum(x).item(), "x.item()"),
    "numpy": (lambda x: np.sum(x.numpy() * x), "x.numpy()"),
    "tolist": (lambda x: np.sum(x * x.tolist()), "x.tolist()"),
    "an element of numpy": (lambda x: np.sum(x * x.numpy()[1]), "x.numpy()"),
    "no other path": (lambda x: gt.constant(float(x[0])) * 2, "float(x)"),
    "store": (stored, "y[k] = x"),
    "a name": (at_a_line_of_its_own, "float(x)"),
}


def warned(function: Function, x: Any, unconnected: str = "none") -> tuple[Any, list[str]]:
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # the warning at the place itself
            y = function(watched)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        gradient = tape.gradient(y, watched, unconnected_gradients=unconnected)
    assert all(issubclass(warning.category, GradtapeWarning) for warning in caught)
    return gradient, [str(warning.message) for warning in caught]


@pytest.mark.parametrize("case", CUT)
def test_the_gradient_says_where_a_path_was_cut(case: str) -> None:
    function, how = CUT[case]
    _, (message,) = warned(function, X)
    assert f"taken out of the tape by {how}" in message and "stop_gradient" in message
    assert f"{__file__}:{function.__code__.co_firstlineno}" in message.splitlines()[1] or function in (
        stored,
        at_a_line_of_its_own,
    )


def test_round_numbers_are_recognised_where_they_are_not_written_down() -> None:
    _, messages = warned(lambda x: x * float(x), 3.0)
    assert len(messages) == 1
    gradient, messages = warned(lambda x: x * 3.0 if float(x) > 0 else x, 3.0)
    assert not messages and float(gradient) == 3.0


@pytest.mark.parametrize(
    "taken",
    [
        lambda x: x.tolist()[0] * x[1],
        lambda x: x.reshape(3, 1).tolist()[0][0] * x[1],
        lambda x: np.sum(x * [v * 1 for v in x.tolist()][2]),
        lambda x: x.item(0) * x[1],
        lambda x: x.reshape(3, 1).item(2, 0) * x[1],
        lambda x: x.reshape(3, 1).item((2, 0)) * x[1],
        lambda x: x[0].item() * x[1],
    ],
)
def test_round_elements_of_lists_and_items_are_recognised(taken: Function) -> None:
    _, messages = warned(taken, np.array([7.0, 1.5, -4.0]))
    assert len(messages) == 1 and "comes back as a constant" in messages[0]


def test_items_of_arrays_are_those_of_numpy() -> None:
    x = np.arange(6.0).reshape(2, 3)
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        for index in [(4,), (-1,), (1, 2), ((0, 1),), (np.int64(3),)]:
            assert watched.item(*index) == x.item(*index) and type(watched.item(*index)) is float
        for wrong in [(6,), (2, 0)]:
            with pytest.raises(IndexError):
                watched.item(*wrong)


def test_numbers_that_are_only_looked_at_cut_nothing() -> None:
    seen = []

    def logged(x: Any) -> Any:
        loss = np.sum(x**2)
        seen.append(float(loss))
        seen.append(f"{loss.item():.3f} {x.numpy().max()}")
        weight = 0.125
        return weight * loss + 1.7 * np.sum(np.abs(x)) if float(loss) < 10.0 else loss

    gradient, messages = warned(logged, X)
    assert not messages and len(seen) == 2
    np.testing.assert_allclose(gradient.numpy(), 0.25 * X + 1.7)


def test_what_has_nothing_to_do_with_the_source_cuts_nothing() -> None:
    with gt.GradientTape() as tape:
        x, z = tape.watch(X), tape.watch(np.array([0.9, 0.1]))
        y = np.sum(x * float(z[0]))
    tape.gradient(y, x)  # warnings are errors here
    with gt.GradientTape() as tape:
        x, z = tape.watch(X), tape.watch(np.array([0.9, 0.1]))
        y = np.sum(x * float(z[0]))
    with pytest.warns(GradtapeWarning, match="comes back as a constant"):
        tape.gradient(y, [x, z])


def test_stop_gradient_and_integers_say_that_it_is_meant() -> None:
    for function in (
        lambda x: np.sum(x / gt.stop_gradient(np.max(x))),
        lambda x: np.sum(x * int(10 * x[0])),
        lambda x: np.sum(x[: int(np.argmax(x)) + 1]),
    ):
        assert not warned(function, X)[1]


def test_zeros_in_place_of_a_cut_path_are_warned_of() -> None:
    gradient, (message,) = warned(lambda x: gt.constant(x.numpy()) * 2, X, "zero")
    assert not gradient.numpy().any() and "no other path" in message


def test_jacobians_say_it_too() -> None:
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = np.sin(x) * float(np.sum(np.exp(x)))
    with pytest.warns(GradtapeWarning, match="comes back as a constant"):
        tape.jacobian(y, x)


@pytest.mark.parametrize(
    "taken", [lambda z: float(z[0]) * z[1], lambda z: (complex(z[0], z[1]) ** 2).imag * z[0]]
)
def test_functions_that_are_recorded_warn_as_tapes_do(taken):
    z = np.array([1.5, 2.0])
    ways = [
        lambda: gt.vjp(taken, z),
        lambda: gt.jvp(taken, (z,), (z,)),
        lambda: with_tape(taken, z),
    ]
    for way in ways:
        with pytest.warns(gt.errors.GradtapeWarning, match=r"a gradient lacks a path.*(float|complex)\(x\)"):
            way()
    with (
        gt.config.override(jit=False),
        pytest.warns(gt.errors.GradtapeWarning, match="a gradient lacks a path"),
    ):
        gt.grad(taken)(z)
    assert np.all(gt.grad(taken)(z) != 0)  # jitted functions are translated


def with_tape(function, z):
    with gt.GradientTape() as tape:
        z = tape.watch(z)
        y = function(z)
    return tape.gradient(y, z)


def test_numbers_that_only_steer_python_are_no_lost_paths():
    z = np.array([1.5, 2.0])

    def steered(z):
        label = f"{float(z[0]):.2f} {z[1].item()}"
        return z[1] * 2 if float(z[0]) > 0 and label else z[0]

    with gt.config.override(jit=False):
        np.testing.assert_array_equal(gt.grad(steered)(z), [0.0, 2.0])
