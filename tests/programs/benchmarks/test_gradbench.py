"""Our entry for GradBench, with a stand-in for the module that its repository has: values and derivatives of each eval."""

from __future__ import annotations

import importlib
import io
import json
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

TOOL = Path(__file__).resolve().parents[3] / "benchmarks" / "gradbench" / "tool"
PACKAGE = "gradbench.tools.gradtape"


class Wrapped:
    """What GradBench's decorators return: `wrapped` takes and gives what JSON has."""

    def __init__(
        self, function: Callable[[Any], Any], pre: Callable[[Any], Any], post: Callable[[Any], Any]
    ) -> None:
        self.function = function
        self.wrapped = lambda message: {
            "success": True,
            "output": post(function(pre(message))),
            "timings": [],
        }


@pytest.fixture
def tool(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], Any]]:
    """Imports modules of the tool by name."""
    before = set(sys.modules)
    for name in ("gradbench", "gradbench.tools", PACKAGE):
        package = types.ModuleType(name)
        package.__path__ = [str(TOOL)] if name == PACKAGE else []
        monkeypatch.setitem(sys.modules, name, package)

    def decorator(*, pre: Callable[[Any], Any], post: Callable[[Any], Any]) -> Any:
        return lambda function: Wrapped(function, pre, post)

    wrap = types.SimpleNamespace(function=decorator, multiple_runs=decorator)
    monkeypatch.setattr(sys.modules["gradbench"], "wrap", wrap, raising=False)
    yield lambda name: importlib.import_module(f"{PACKAGE}.{name}")
    for name in set(sys.modules) - before:
        if name.startswith(PACKAGE):
            del sys.modules[name]


RNG = np.random.default_rng(3)
INPUTS: dict[str, dict[str, Any]] = {
    "lse": {"x": RNG.normal(size=5).tolist()},
    "llsq": {"x": RNG.normal(size=3).tolist(), "n": 6},
    "det": {"A": RNG.normal(size=64).tolist(), "ell": 8},
    "gmm": {
        "alpha": RNG.normal(size=3).tolist(),
        "mu": RNG.normal(size=(3, 2)).tolist(),
        "q": RNG.normal(size=(3, 2)).tolist(),
        "l": RNG.normal(size=(3, 1)).tolist(),
        "x": RNG.normal(size=(5, 2)).tolist(),
        "k": 3,
        "m": 1,
        "gamma": 0.7,
    },
    "lstm": {
        "main_params": RNG.normal(size=(4, 12)).tolist(),
        "extra_params": RNG.normal(size=(3, 3)).tolist(),
        "state": RNG.normal(size=(4, 3)).tolist(),
        "sequence": RNG.integers(0, 2, size=(4, 3)).tolist(),
    },
}
UNKNOWNS = {"gmm": ("alpha", "mu", "q", "l"), "lstm": ("main_params", "extra_params"), "det": ("A",)}
FUNCTIONS = {"gmm": ("objective", "jacobian"), "lstm": ("objective", "jacobian")}


@pytest.mark.parametrize("name", INPUTS)
def test_gradients_are_those_of_differences(tool: Any, name: str) -> None:
    module, message = tool(name), INPUTS[name]
    value, derivative = FUNCTIONS.get(name, ("primal", "gradient"))
    result = getattr(module, derivative).wrapped(message)["output"]
    names = UNKNOWNS.get(name, ("x",))
    parts = [result[each] for each in names] if isinstance(result, dict) else [result]
    directions = {each: RNG.normal(size=np.shape(message[each])) for each in names}

    def moved(step: float) -> float:
        changed = {each: (np.array(message[each]) + step * directions[each]).tolist() for each in names}
        return float(getattr(module, value).wrapped(message | changed)["output"])

    slope = (moved(1e-5) - moved(-1e-5)) / 2e-5
    flat_parts, flat_direction = (
        np.concatenate([np.ravel(each) for each in all_]) for all_ in (parts, directions.values())
    )
    assert flat_direction @ flat_parts == pytest.approx(slope, rel=1e-6)


def test_the_determinant_is_that_of_lapack(tool: Any) -> None:
    matrix = np.array(INPUTS["det"]["A"]).reshape(8, 8)
    assert tool("det").primal.wrapped(INPUTS["det"])["output"] == pytest.approx(np.linalg.det(matrix))


def test_the_last_component_of_an_ode(tool: Any) -> None:
    module = tool("ode")
    message = {"x": RNG.normal(size=3).tolist(), "s": 4}
    gradient = module.gradient.wrapped(message)["output"]
    # By the equations the last component is the product of all x times t^3 / 3!, which steps of order 4 solve exactly.
    product = np.prod(message["x"]) * 2.0**3 / 6.0
    assert module.primal.wrapped(message)["output"][-1] == pytest.approx(product)
    np.testing.assert_allclose(gradient, product / np.array(message["x"]))


def test_newtons_direction_of_clusters(tool: Any) -> None:
    points = RNG.normal(size=(9, 2))
    centroids = points[:3] + 0.1
    message = {"points": points.tolist(), "centroids": centroids.tolist()}
    # A full step from the centroids leads to the means of their points.
    nearest = np.argmin(np.sum((points[:, None] - centroids) ** 2, axis=2), axis=1)
    means = np.array([np.mean(points[nearest == k], axis=0) for k in range(3)])
    np.testing.assert_allclose(centroids - np.array(tool("kmeans").dir.wrapped(message)["output"]), means)


def test_blocks_of_bundle_adjustment(tool: Any) -> None:
    module = tool("ba")
    message = {"n": 2, "m": 3, "p": 4, "cam": RNG.normal(size=11).tolist(), "w": 0.7, "feat": [0.1, 0.2]}
    message["x"] = [0.3, 0.2, 4.0]
    matrix = module.jacobian.wrapped(message)["output"]
    assert matrix["rows"][:10] == [0, 15, 30, 45, 60, 75, 90, 105, 120, 121]
    assert matrix["cols"][:15] == [*range(11), 22, 23, 24, 31]
    assert matrix["vals"][-1] == pytest.approx(-1.4)

    def errors(step: float) -> Any:
        moved = message | {"x": [0.3 + step, 0.2, 4.0]}
        return np.array(module.objective.wrapped(moved)["output"]["reproj_error"]["elements"])

    slope = (errors(1e-6) - errors(-1e-6)) / 2e-6
    np.testing.assert_allclose([matrix["vals"][11], matrix["vals"][26]], slope, rtol=1e-6)


@pytest.mark.parametrize("us", [None, RNG.uniform(size=(2, 2)).tolist()], ids=["simple", "complicated"])
def test_hand_tracking(tool: Any, us: Any) -> None:
    bones = 22
    model = {
        "parents": [-1, *range(bones - 1)],
        "base_relatives": RNG.normal(size=(bones, 4, 4)).tolist(),
        "inverse_base_absolutes": RNG.normal(size=(bones, 4, 4)).tolist(),
        "base_positions": RNG.normal(size=(5, 4)).tolist(),
        "weights": RNG.uniform(size=(5, bones)).tolist(),
        "triangles": [[0, 1, 2], [1, 2, 3]],
        "is_mirrored": False,
    }
    data = {"model": model, "correspondences": [0, 1], "points": RNG.normal(size=(2, 3)).tolist()}
    theta = RNG.normal(size=26)
    message = {"theta": theta.tolist(), "us": us, "data": data}
    module = tool("ht")
    jacobian = np.array(module.jacobian.wrapped(message)["output"])
    direction = RNG.normal(size=26)

    def errors(step: float) -> Any:
        return np.array(
            module.objective.wrapped(message | {"theta": (theta + step * direction).tolist()})["output"]
        )

    slope = (errors(1e-6) - errors(-1e-6)) / 2e-6
    np.testing.assert_allclose(
        jacobian[:, -26:] @ direction, slope, rtol=1e-5, atol=1e-6 * np.max(np.abs(slope))
    )
    assert jacobian.shape == (6, 26 if us is None else 28)


def test_nested_descents(tool: Any) -> None:
    # The results that GradBench expects.
    assert tool("particle").rf.wrapped({"w": 0.0})["output"] == pytest.approx(0.2071918746486116, rel=1e-4)
    saddle = tool("saddle").fr.wrapped({"start": [1.0, 1.0]})["output"]
    np.testing.assert_allclose(saddle, [8.246324826140356e-06] * 4, atol=1e-9)


def test_messages_are_answered(
    tool: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    messages = [
        {"kind": "start", "eval": "hello"},
        {"kind": "define", "module": "hello"},
        {"kind": "evaluate", "module": "hello", "function": "double", "input": 3.0},
        {"kind": "analysis", "of": 2, "valid": True},
        {"kind": "evaluate", "module": "hello", "function": "triple", "input": 3.0},
    ]
    lines = "\n".join(json.dumps({"id": number} | message) for number, message in enumerate(messages))
    monkeypatch.setattr(sys, "stdin", io.StringIO(lines))
    tool("run").main()
    answers = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert [each["id"] for each in answers] == [0, 1, 2, 3, 4]
    assert answers[0]["tool"] == "gradtape"
    assert answers[2]["output"] == 6.0
    assert not answers[4]["success"]
    assert "triple" in answers[4]["error"]


def test_all_evals_are_listed() -> None:
    modules = {path.stem for path in TOOL.glob("*.py")} - {"run", "descent"}
    assert (TOOL / "evals.txt").read_text().split() == sorted(modules)
