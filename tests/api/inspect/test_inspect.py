"""Looking into compiled functions: what is said, and of whom."""

from __future__ import annotations

import sys
import types
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.trace.source.sites import notebook_cell, user_site

PAIR = np.array([0.5, 2.0])


class Model:
    scale = 2.0

    @gt.jit
    def scaled(self, x: Any) -> Any:
        return np.sum(np.tanh(x) * self.scale)


@pytest.mark.parametrize("look", [gt.inspect.graph, gt.inspect.loops, gt.inspect.llvm, gt.inspect.asm])
def test_bound_methods(look: Any) -> None:
    model = Model()
    assert look(model.scaled, PAIR) == look(model.scaled)
    assert gt.inspect.explain(model.scaled).startswith("scaled: ")


def test_traces_that_later_ones_replaced() -> None:
    def root(x: Any) -> Any:
        guess = x
        while abs(guess * guess - x) > 1e-12 * x:
            guess = 0.5 * (guess + x / guess)
        return guess

    slope = gt.grad(root)
    for x in (2.0, 50.0, 1e6):
        slope(x)
    first = gt.inspect.explain(slope).splitlines()[0]
    kept = sum(line.startswith("  trace") for line in gt.inspect.explain(slope).splitlines())
    assert first.startswith(f"grad(root): {kept} trace{'s' * (kept > 1)} for 1 signature")
    assert slope.site.traces > kept and f"{slope.site.traces} were made" in first


def test_notes_that_repeat_are_counted() -> None:
    def step(c: Any, x: Any) -> Any:
        a = np.tanh(c[0] * x)
        return (np.sin(a + c[1]), np.cos(a * c[1])), a

    slope = gt.grad(lambda x: np.sum(gt.scan(step, (1.0, 2.0), x)[1]))
    slope(np.linspace(0.0, 1.0, 50))
    lines = gt.inspect.explain(slope).splitlines()
    assert len(lines) == len(set(lines)) and any(line.endswith(" times") for line in lines)


def test_where_machine_code_calls_python_is_said() -> None:
    def doubled(x: Any) -> Any:
        return 2.0 * x

    f = gt.jit(lambda x: np.sum(gt.callback(doubled, x, x)))
    f(PAIR)
    (line,) = [line for line in gt.inspect.explain(f).splitlines() if "leaves machine code" in line]
    assert "test_inspect.py" in line and "a Python function is called" in line
    rooted = gt.grad(lambda x: np.sum(np.linalg.eigvalsh(np.outer(x, x))))
    rooted(PAIR)
    assert "leaves machine code" not in gt.inspect.explain(rooted)


def test_calls_that_ended_in_an_error_are_listed_with_the_line_of_the_package() -> None:
    import fractions

    f = gt.jit(lambda x: fractions.Fraction(x[0]))
    for _ in range(2):
        with pytest.raises(TypeError):
            f(PAIR)
    (line,) = [line for line in gt.inspect.explain(f).splitlines() if line.startswith("a call failed at")]
    assert "fractions.py" in line and "Error: " in line and line.endswith(", 2 times")


def test_places_in_notebooks(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "/tmp/ipykernel_12/3456.py"

    class Compiler:
        def format_code_name(self, filename: str) -> tuple[str, str] | None:
            return ("Cell", "In[7]") if filename == name else None

    shell = types.SimpleNamespace(compile=Compiler())
    space: dict[str, Any] = {"user_site": user_site, "__name__": "__main__"}
    exec(compile("def here():\n    return user_site()\nsite = here()", name, "exec"), space)
    assert notebook_cell(name) == "" and repr(space["site"]) == f"{name}:3 in <module>"
    monkeypatch.setitem(sys.modules, "IPython", types.SimpleNamespace(get_ipython=lambda: shell))  # type: ignore[arg-type]
    assert repr(space["site"]) == "Cell In[7]:3 in <module>"
    assert notebook_cell("/tmp/ipykernel_12/other.py") == notebook_cell(__file__) == ""
