"""Gradients that lack a path because numbers left the tape: the gradient says where."""

from __future__ import annotations

import array
import copy
import importlib
import io
import json
import logging
import math
import os
import pickle
import re
import struct
import types
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import GradtapeWarning
from tests.support.differences import gradient_by_differences

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
    assert f"left the tape through {how}" in message and "stop_gradient" in message
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
    assert len(messages) == 1 and "re-enters as a constant" in messages[0]


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
    with pytest.warns(GradtapeWarning, match="re-enters as a constant"):
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
    with pytest.warns(GradtapeWarning, match="re-enters as a constant"):
        tape.jacobian(y, x)


def into_linspace(z):
    y = np.linspace(0.0, 1.0, 4)
    y[1:3] += z**2
    return np.sum(y * y)


def asked(z):
    """Give a part to code that is not followed, and make something of what else is no Array."""
    return np.sum(z) * float(np.prod(z)) if float(z[0]) > 0 else math.exp(z[1])


LEAVING = [
    lambda z: float(z[0]) * z[1],
    lambda z: (complex(z[0], z[1]) ** 2).imag * z[0],
    lambda z: math.sin(z[0]) * z[1],
    into_linspace,
    asked,
]


@pytest.mark.filterwarnings("error")
@pytest.mark.parametrize("taken", LEAVING)
@pytest.mark.parametrize("z", [np.array([1.5, 2.0]), np.array([-0.5, 0.25])])
def test_functions_that_are_recorded_follow_numbers_as_compiled_ones_do(taken, z):
    fresh = types.FunctionType(taken.__code__, globals())  # no program is shared with calls before
    expected = gradient_by_differences(taken, z)
    direction = np.array([0.5, -1.25])
    curved = gt.hessian(taken)(z)
    for _ in range(3):  # the first call records, the second one makes a program, the third one has it
        np.testing.assert_allclose(gt.vjp(fresh, z)[1](1.0)[0], expected, rtol=1e-6)
        y, moved = gt.jvp(fresh, (z,), (direction,))
        np.testing.assert_allclose([y, moved], [taken(z), expected @ direction], rtol=1e-6)
        np.testing.assert_allclose(gt.linearize(fresh, z)[1](direction), expected @ direction, rtol=1e-6)
        second = gt.jvp(gt.grad(fresh), (z,), (direction,))[1]
        np.testing.assert_allclose(second, curved @ direction, rtol=1e-10, atol=1e-12)
        (y, aux), pull = first_and_aux(fresh, z)
        np.testing.assert_array_equal(aux, 2 * z)
        np.testing.assert_allclose(pull(1.0)[0], expected, rtol=1e-6)


def first_and_aux(function, z):
    y, pull, aux = gt.vjp(lambda z: (function(z), 2 * z), z, has_aux=True)
    return (y, aux), pull


def test_a_function_that_leaves_is_run_once_where_it_writes():
    ran = []

    def counted(z):
        ran.append(1)
        return float(z[0]) * z[1]

    for way in (
        lambda z: gt.vjp(counted, z),
        lambda z: gt.jvp(counted, (z,), (z,)),
        lambda z: gt.linearize(counted, z),
    ):
        ran.clear()
        with pytest.warns(GradtapeWarning, match=r"part of the gradient is missing.*float\(x\)"):
            way(X)
        assert ran == [1]


@pytest.mark.parametrize("taken", LEAVING[:2])
def test_functions_whose_numbers_no_program_follows_warn_as_tapes_do(taken):
    z = np.array([1.5, 2.0])
    with pytest.warns(GradtapeWarning, match=r"part of the gradient is missing.*(float|complex)\(x\)"):
        with_tape(taken, z)
    with (
        gt.config.override(jit=False),
        pytest.warns(GradtapeWarning, match="part of the gradient is missing"),
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


def slope_of(x: Any) -> float:
    return float(np.sum(x * X)) / float(np.sum(x * x))


def ratio_of(x: Any) -> float:
    return 0.5 + slope_of(x)


def scaled(x: Any, factor: Any, *, power: Any = 1) -> Any:
    return np.sum(x * factor) ** power


class Model:
    scale = 1.0

    def fit(self, x: Any) -> Model:
        self.scale = 2.0 * float(np.max(x))
        return self

    def predict(self, x: Any) -> Any:
        return np.sum(x / self.scale)


def in_a_loop(x: Any) -> Any:
    total, weight = 0.0, 1.0
    for k in range(3):
        total = total + weight * x[k % 2]
        weight = 0.5 * weight + float(x[0])
    return total


def in_a_container(x: Any) -> Any:
    found = {}
    found["scale"] = 3.0 * float(x[1])
    history: list[float] = []
    history.append(x[0].item() + found["scale"])
    return np.sum(x * np.mean(history))


def unpacked(x: Any) -> Any:
    (first, second), third = (1.0, -float(x[0])), 2.0
    return np.sum(x * (first + second) * third)


def with_a_closure(x: Any) -> Any:
    scale = 1.0 / float(np.sum(x))

    def inner(y: Any) -> Any:
        return np.sum(y * scale)

    return inner(x)


def by_compiled_code(x: Any) -> Any:
    (first,) = struct.unpack("d", struct.pack("d", x[0]))
    return np.sum(x * (first + 1.0))


COMPUTED: dict[str, Function] = {
    "a multiple": lambda x: np.sum(x * (0.5 * float(x[0]))),
    "a quotient of two": lambda x: np.sum(x) * (float(x[0]) / float(x[1])),
    "returned": lambda x: np.sum(x) * slope_of(x),
    "returned twice": lambda x: np.sum(x) * ratio_of(x),
    "a sum of a list": lambda x: sum(v * v for v in x.tolist()) + np.sum(x),
    "a comprehension": lambda x: np.sum(x * [2 * v for v in x.tolist()]),
    "an argument": lambda x: scaled(x, 2 * float(x[0])),
    "a keyword": lambda x: scaled(x, 2.0, power=1 + float(x[0])),
    "an assigned expression": lambda x: np.sum(x * ((k := float(x[0])) + k)),
    "an attribute": lambda x: Model().fit(x).predict(x),
    "one of two": lambda x: np.sum(x * (2 * float(x[0]) if x[1] > 0 else 1.0)),
    "a bytes object": lambda x: np.sum(pickle.loads(pickle.dumps(x)) ** 2) + np.sum(x),
    "text": lambda x: np.sum(x) * (1 + float("%.17g" % x[0])),  # noqa: UP031 - one of the ways
    "an array of Python's": lambda x: sum(v * v for v in array.array("d", x)) + np.sum(x),
    "map": lambda x: sum(v * v for v in map(float, x)) + np.sum(x),
    "compiled code": by_compiled_code,
    "a loop": in_a_loop,
    "containers": in_a_container,
    "unpacked": unpacked,
    "a closure": with_a_closure,
}


def by_a_file(x: Any, folder: str) -> Any:
    path = folder + "/x.npy"
    np.save(path, x)
    return np.sum(x * np.load(path))


def by_the_text_of_a_file(x: Any, folder: str) -> Any:
    path = os.path.join(folder, "x.txt")
    np.savetxt(path, x)
    return np.sum(x * (1.0 + np.loadtxt(path)))


def by_an_open_file(x: Any, folder: str) -> Any:
    place = os.path.join(folder, "x.txt")
    with open(place, "w") as file:
        file.write(str(x[0]))
    with open(place) as file:
        text = file.read()
    return np.sum(x) * float(text)


def by_memory(x: Any, folder: str) -> Any:
    memory = io.BytesIO()
    np.savez(memory, x=x)
    memory.seek(0)
    return np.sum(x * np.load(memory)["x"])


WRITTEN: dict[str, Callable[[Any, str], Any]] = {
    "an f-string": lambda x, _: np.sum(x) * float(f"{x[0]}"),
    "digits": lambda x, _: np.sum(x) * (1 + float(f"{x[0]:.3f}")),
    "str": lambda x, _: np.sum(x) * float(str(x[0])),
    "repr": lambda x, _: np.sum(x) * float(repr(x[0])[6:-1]),
    "str.format": lambda x, _: np.sum(x) * float("{}".format(x[0])),  # noqa: UP032 - one of the ways
    "format": lambda x, _: np.sum(x) * float(format(x[0], ".5f")),
    "a number that left": lambda x, _: np.sum(x) * float(f"{2 * float(x[0])}"),
    "a whole array": lambda x, _: np.sum(x * np.fromstring(str(x)[1:-1], sep=" ")),
    "np.array2string": lambda x, _: np.sum(x * np.fromstring(np.array2string(x)[1:-1], sep=" ")),
    "json": lambda x, _: np.sum(x) * float(json.loads(json.dumps({"a": f"{x[0]}"}))["a"]),
    "np.save": by_a_file,
    "np.savetxt": by_the_text_of_a_file,
    "open": by_an_open_file,
    "memory": by_memory,
}


@pytest.mark.parametrize("case", WRITTEN)
def test_numbers_that_come_back_from_text_and_files_are_recognised(case: str, tmp_path: Path) -> None:
    _, messages = warned(lambda x: WRITTEN[case](x, str(tmp_path)), X)
    assert len(messages) == 1 and "re-enters as a constant" in messages[0]
    assert __file__ in messages[0].splitlines()[1]


def test_text_that_is_shown_and_files_that_are_kept_cut_nothing(tmp_path: Path) -> None:
    history, log = [], logging.getLogger("nobody listens")

    def step(x: Any) -> tuple[Any, dict[str, str]]:
        loss = np.sum((x - X) ** 2) * 0.5
        history.append(f"{loss:.3f}")
        log.info("loss %s", loss)
        log.info(f"loss {float(loss)}")
        print(f"{loss} {x}", str(x), repr(loss), end="")
        np.save(tmp_path / "x.npy", x)
        (tmp_path / "x.txt").write_text(str(x))
        return 0.7 * loss, {"loss": f"{loss}", "more": str(2 * float(loss))}

    def total(x: Any) -> Any:
        loss, shown = step(x)
        return 0.3 * loss * len(shown) + np.sum(x * X)

    _, messages = warned(total, X)
    assert not messages
    with gt.GradientTape() as tape:
        x, z = tape.watch(X), tape.watch(X)
        print(f"{z}", end="")
        y = np.sum(x)
    assert tape.gradient(y, z) is None  # warnings are errors here: text is no lost path


def test_copies_of_variables_are_other_variables() -> None:
    for taken, name in ((copy.copy, "copy.copy"), (copy.deepcopy, "copy.deepcopy")):
        v = gt.Variable(X)
        with gt.GradientTape() as tape:
            w = taken(v)
            y = np.sum(w**2)
        with pytest.warns(GradtapeWarning, match=re.escape(f"through {name}(v)")):
            assert tape.gradient(y, v) is None
        with gt.GradientTape() as tape:
            w = taken(v)
            y = np.sum((v - w) ** 2) * 0.5 + np.sum(w**2)
        before, own = tape.gradient(y, [v, w])  # warnings are errors here
        np.testing.assert_array_equal(before, np.zeros(2))
        np.testing.assert_array_equal(own, 2 * X)


@pytest.mark.parametrize("case", COMPUTED)
def test_what_is_computed_of_a_number_that_left_is_recognised(case: str) -> None:
    function = COMPUTED[case]
    gradient, messages = warned(function, X)
    assert not np.allclose(
        gradient.numpy(), gradient_by_differences(function, X)
    )  # it is wrong, and said to be
    assert messages and "re-enters as a constant" in messages[0]
    assert __file__ in messages[0].splitlines()[1]


def test_complex_numbers_that_left_are_recognised() -> None:
    z = np.array([1.5 + 0.5j, 2.0 - 1.0j])
    for function in (
        lambda z: (z[0].item() * z[1]).real,
        lambda z: ((1 + z[0].item()) * z[1]).real,
        lambda z: np.sum(z * z.numpy()).real,
        lambda z: (z[1] * abs(z.tolist()[0])).real,
    ):
        _, messages = warned(function, z)
        assert len(messages) == 1 and "re-enters as a constant" in messages[0]


def test_numbers_that_are_logged_and_compared_are_not_taken_for_factors() -> None:
    running, best, history, rate = 0.0, np.inf, [], 0.1

    def step(x: Any) -> Any:
        nonlocal running, best, rate
        loss = np.mean((x - 0.25) ** 2) * 3.5
        running = 0.9 * running + 0.1 * float(loss)
        history.append({"loss": float(loss), "norm": 2 * np.linalg.norm(x).item()})
        if float(loss) < 0.5 * best:
            best = min(best, float(loss))
        rate = 0.25 if running > 0.375 else rate
        print(f"{float(loss):.3f}", "%.2f" % loss, end="")  # noqa: UP031 - one of the ways
        length = 1 + int(float(x[0]))
        tolerance = 1e-3 * float(np.max(np.abs(x)))
        return rate * loss + 0.75 * np.sum(x[:length]) + np.sum(np.where(x > tolerance, x, 1.25)) / 7.0

    gradient, messages = warned(step, X)
    assert not messages
    np.testing.assert_allclose(gradient.numpy(), 0.35 * (X - 0.25) + [1 / 7.0 + 0.75, 1 / 7.0])


def test_code_without_source_is_passed_over() -> None:
    namespace: dict[str, Any] = {"np": np}
    exec("def function(x):\n    return np.sum(x * (0.5 * float(x[0])))", namespace)
    assert not warned(namespace["function"], X)[1]


def test_functions_of_packages_are_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    place = tmp_path / "lib" / "site-packages"
    (place / "takes_numbers").mkdir(parents=True)
    (place / "takes_numbers" / "__init__.py").write_text(
        "def beta(x, y):\n"
        "    variance = list(map(float, [sum(x * x), 1]))[0]\n"
        "    covariance = '%.17g' % sum(x * y)\n"
        "    return float(covariance) / variance\n"
    )
    monkeypatch.syspath_prepend(os.fspath(place))
    beta = importlib.import_module("takes_numbers").beta
    gradient, messages = warned(lambda x: np.sum(x * X) - beta(x, X) * np.sum(x), X)
    assert not np.allclose(
        gradient.numpy(), gradient_by_differences(lambda x: np.sum(x * X) - beta(x, X) * np.sum(x), X)
    )
    assert (
        len(messages) == 1
        and "part of the gradient is missing" in messages[0]
        and __file__ in messages[0].splitlines()[1]
    )
