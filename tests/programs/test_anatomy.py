"""The anatomy: it runs on its own, its derivatives are gradtape's, and the modules and names that it speaks of exist."""

from __future__ import annotations

import ast
import importlib.util
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

import numpy as np
import pytest

import gradtape as gt

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "anatomy.py"
SOURCE = PAGE.read_text()
PACKAGE = ROOT / "src" / "gradtape"
PATHS = sorted(
    set(re.findall(r"(?<!\w|/)(?:[a-z_]+/)*(?:[a-z_]+/|[a-z_]+\.py\b)", SOURCE)) - {"docs/anatomy.py", "src/"}
)

OWN = {"TRANSPOSES", "adjoint", "emit_nest", "leaves", "loss", "loss_and_slope", "settle"}
"""Names that no module has."""

FUNCTIONS: list[Callable[[Any], Any]] = [
    lambda x: np.sum(np.exp(x) * x),
    lambda x: np.sum(np.log1p(x * x) / (1.0 + np.exp(-x))),
    lambda x: np.sum(np.where(x > 1.0, np.sqrt(x - 1.0), 0.5) * x),
    lambda x: np.sum((x[1:] - x[:-1]) * x[::-2][0] + x[-1]),
    lambda x: np.sum(np.sum(M @ x) * x + (M * x) @ np.exp(-x) @ M),
    lambda x: np.sum(np.transpose(M * x) @ np.exp(M * x)),
]
M = np.array([[1.0, 2.0, 0.5, -1.0], [0.3, -0.2, 0.1, 1.5]])
X = np.array([0.5, 1.0, 1.5, 2.0])


@pytest.fixture(scope="module")
def anatomy() -> Any:
    """The file as an imported module."""
    spec = importlib.util.spec_from_file_location("anatomy", PAGE)
    assert spec is not None and spec.loader is not None
    module = sys.modules["anatomy"] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    yield module
    del sys.modules["anatomy"]


def test_it_runs_on_its_own(tmp_path: Path) -> None:
    command = [sys.executable, "-W", "error", str(PAGE)]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "reduce_sum(" in done.stdout and "for i0 in range(4):" in done.stdout
    assert "tape.append(t3)" in done.stdout and "for i1 in reversed(range(5)):" in done.stdout


def test_it_is_short_and_imports_numpy_and_llvmlite_alone() -> None:
    assert len(SOURCE.splitlines()) <= 1110
    imports = [node for node in ast.walk(ast.parse(SOURCE)) if isinstance(node, ast.Import | ast.ImportFrom)]
    names = {name.name for node in imports if isinstance(node, ast.Import) for name in node.names}
    names |= {node.module or "" for node in imports if isinstance(node, ast.ImportFrom)}
    outside = {name.partition(".")[0] for name in names} - sys.stdlib_module_names
    assert outside == {"numpy", "llvmlite"}


def test_modules_that_it_names_exist() -> None:
    assert len(PATHS) > 20
    assert [path for path in PATHS if not (PACKAGE / path).exists()] == []


def test_it_has_the_names_of_the_modules_that_it_names() -> None:
    known: set[str] = set()
    for path in PATHS:
        for file in [PACKAGE / path] if path.endswith(".py") else sorted((PACKAGE / path).rglob("*.py")):
            known = known.union(*names_in(file.read_text()))
    definitions, variables = names_in(SOURCE)
    public = definitions | {name for name in variables if not name.islower()}
    assert {name for name in public - known if not name.startswith("_")} <= OWN


def names_in(source: str) -> tuple[set[str], set[str]]:
    """Return the names of the classes and functions of a module, and those of its variables."""
    statements = ast.parse(source).body
    definitions = {node.name for node in statements if isinstance(node, ast.ClassDef | ast.FunctionDef)}
    assigned = [node.target for node in statements if isinstance(node, ast.AnnAssign)]
    assigned += [target for node in statements if isinstance(node, ast.Assign) for target in node.targets]
    return definitions, {target.id for target in assigned if isinstance(target, ast.Name)}


@pytest.mark.parametrize("function", FUNCTIONS)
def test_gradients_are_those_of_gradtape(anatomy: ModuleType, function: Callable[[Any], Any]) -> None:
    x = anatomy.Array(X)
    with anatomy.GradientTape() as tape:
        tape.watch(x)
        first = tape.gradient(function(x), x)
    second = tape.gradient(first, x)
    slope = gt.grad(function)
    np.testing.assert_allclose(anatomy.force(first.value), slope(X), rtol=1e-12)
    np.testing.assert_allclose(
        anatomy.force(second.value), gt.grad(lambda x: np.sum(slope(x)))(X), rtol=1e-12, atol=1e-12
    )


@pytest.mark.parametrize("function", FUNCTIONS)
def test_compiled_gradients_are_those_of_gradtape(
    anatomy: ModuleType, function: Callable[[Any], Any]
) -> None:
    def both(x: Any) -> Any:
        with anatomy.GradientTape() as tape:
            tape.watch(x)
            value = function(x)
        return value, tape.gradient(value, x)

    value, slope = anatomy.jit(both)(X)
    wanted_value, wanted_slope = gt.value_and_grad(function)(X)
    np.testing.assert_allclose(value, wanted_value, rtol=1e-12)
    np.testing.assert_allclose(slope, wanted_slope, rtol=1e-12)


def test_forward_mode_and_jacobians_are_those_of_gradtape(anatomy: ModuleType) -> None:
    def vector(x: Any) -> Any:
        return np.exp(M @ (x * x)) + x[0]

    x = anatomy.Array(X)
    with anatomy.GradientTape() as tape:
        tape.watch(x)
        target = vector(x)
        rows = tape.jacobian(target, x)
    np.testing.assert_allclose(anatomy.force(rows.value), gt.jacobian(vector)(X), rtol=1e-12)
    tangent = anatomy.as_value(np.array([1.0, -2.0, 0.5, 0.0]))
    pushed = anatomy.jvp(target.value, [x.value], [tangent], lambda value: False)
    np.testing.assert_allclose(anatomy.force(pushed), gt.jvp(vector, (X,), (tangent.data,))[1], rtol=1e-12)


def test_branches_are_guarded(anatomy: ModuleType) -> None:
    signs = []

    def distance(x: Any) -> Any:
        signs.append(bool(np.sum(x) > 0))
        return [np.sum(x) if signs[-1] else -np.sum(x)]

    function = anatomy.jit(distance)
    assert [function([number])[0].item() for number in (2.0, -3.0, 4.0, -5.0)] == [2.0, 3.0, 4.0, 5.0]
    assert signs == [True, False]


def recurrence(x: Any, y: Any) -> Any:
    x[0] = np.exp(x[0])
    for i in range(len(x) - 1):
        x[i + 1] = x[i + 1] + x[i] * x[i] * y[i]
    return x[3] * x[2]


def exchange(x: Any, y: Any) -> Any:
    total = 1.0  # what is loaded is overwritten before it is used
    for _ in range(3):
        for i in range(3):
            old = x[i]
            x[i] = x[i + 1] * y[i]
            x[i + 1] = old * total
            total = total * (old + 0.5)
    return total + x[3]


def products(x: Any, y: Any) -> Any:
    power = 2.0  # elements are loaded in more loops than they are stored; variables change in nested loops
    for i in range(4):
        s = 0.25
        for j in range(4):
            s = s + x[j] * x[j] * y[i]
        x[i] = -np.sqrt(s) / power
        power += s
    return power * x[1]


def smoothing(x: Any, y: Any) -> Any:
    for _ in range(5):
        for i in range(2):
            x[i + 1] = (x[i] * y[i] + np.log1p(x[i + 2] * x[i + 2])) / 2.0
    return x[1] - x[2]


@pytest.mark.parametrize("function", [recurrence, exchange, products, smoothing])
def test_gradients_of_loops_are_those_of_gradtape(
    anatomy: ModuleType, function: Callable[[Any, Any], Any]
) -> None:
    y = np.array([0.3, 0.7, 1.2, 0.5])
    primal = anatomy.translate(function, [X.shape, y.shape])
    reverse = anatomy.simplify_scalars(anatomy.vjp_procedure(primal))
    value, *slopes = anatomy.run_procedure(reverse, [X, y])
    wanted, wanted_slopes = gt.value_and_grad(function, argnums=(0, 1))(X, y)
    np.testing.assert_allclose(anatomy.run_procedure(primal, [X, y]), [wanted], rtol=1e-12)
    np.testing.assert_allclose(value, [wanted], rtol=1e-12)
    np.testing.assert_allclose(slopes, wanted_slopes, rtol=1e-12)
