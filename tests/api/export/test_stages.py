"""Functions that are lowered and compiled ahead of time, for one signature."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArgumentError, CompileWarning, DtypeError, LoweringError, StructureError


def energy(params: Any, x: Any) -> Any:
    return np.sum(np.tanh(x @ params["w"]) ** 2)


PARAMS, X = {"w": np.arange(3.0)}, np.linspace(0.0, 1.0, 12).reshape(4, 3)


def test_lowering_needs_no_data() -> None:
    lowered = gt.value_and_grad(energy).lower({"w": gt.spec(3)}, gt.spec((4, 3)))
    assert lowered.out_specs == (gt.spec(()), {"w": gt.spec(3)})
    assert lowered.in_specs == ({"w": gt.spec(3)}, gt.spec((4, 3)))
    compiled = lowered.compile()
    value, gradient = compiled(PARAMS, X)
    wanted, slope = gt.value_and_grad(energy)(PARAMS, X)
    assert value == wanted
    np.testing.assert_array_equal(gradient["w"], slope["w"])
    np.testing.assert_allclose(compiled(PARAMS, np.asfortranarray(X))[0], wanted, 1e-14)


def test_texts() -> None:
    lowered = gt.jit(energy).lower(PARAMS, X)
    assert "tanh" in lowered.as_text() and "for i" in lowered.as_text("loops")
    assert "define" in lowered.as_text("llvm")
    compiled = lowered.compile()
    assert "define" in compiled.as_text() and "kernel:" in compiled.as_text("asm")
    with pytest.raises(ArgumentError, match="dialect must be one of graph, loops, llvm; got 'hlo'"):
        lowered.as_text("hlo")
    assert "gradtape lowered energy" in repr(lowered) and "gradtape compiled energy" in repr(compiled)


@pytest.mark.parametrize(
    ("args", "message"),
    [
        (
            ({"w": np.ones(4)}, X),
            r"params\['w'\] is float64\[4\], and the function was compiled for float64\[3\]",
        ),
        (({"w": np.ones(3, "f4")}, X), r"params\['w'\] is float32\[3\]"),
        ((PARAMS, 2.0), "x is a Python float"),
        ((PARAMS, "a"), "x is 'a'"),
    ],
)
def test_other_signatures_are_errors(args: Any, message: str) -> None:
    compiled = gt.jit(energy).lower(PARAMS, X).compile()
    with pytest.raises(ArgumentError, match=message):
        compiled(*args)


def test_other_structures_are_errors() -> None:
    compiled = gt.jit(energy).lower(PARAMS, X).compile()
    with pytest.raises(StructureError, match=r"compiled for the arguments .*'w'.* got .*'v'"):
        compiled({"v": np.ones(3)}, X)
    with pytest.raises(StructureError):
        compiled(PARAMS)


def test_native_entry_and_its_fallback() -> None:
    compiled = gt.jit(lambda x, n: np.sum(x) * n).lower(gt.spec(3), int).compile()
    assert compiled(np.ones(3), 2) == 6.0
    assert compiled(np.ones(6)[::2], 2) == 6.0
    with pytest.raises(
        ArgumentError, match="n is a Python float, and the function was compiled for a Python int"
    ):
        compiled(np.ones(3), 2.0)


def test_values_that_take_another_way() -> None:
    def f(x: Any) -> Any:
        return 2 * x if x[0] > 0 else x

    with pytest.raises(ArgumentError, match="branches on a value, but"):
        gt.jit(f).lower(gt.spec(3))
    compiled = gt.jit(f).lower(np.ones(3)).compile()
    np.testing.assert_array_equal(compiled(np.full(3, 5.0)), 10.0)
    with pytest.raises(ArgumentError, match=r"(?s)other branches than these.*the value there is 0"):
        compiled(-np.ones(3))


def test_what_is_read_from_outside_is_kept_but_for_variables() -> None:
    scale, state = np.array([2.0]), gt.Variable(3.0)
    compiled = gt.jit(lambda x: x * scale).lower(gt.spec(1)).compile()
    with_state = gt.jit(lambda x: x * state).lower(gt.spec(1)).compile()
    scale[0] = 7.0
    state.assign(5.0)
    assert compiled(np.ones(1)) == 2.0 and with_state(np.ones(1)) == 5.0


def test_tapes_cannot_look_into_compiled_code() -> None:
    x, state = gt.Variable(np.ones(3)), gt.Variable(2.0)
    compiled = gt.jit(lambda x: np.sum(x)).lower(gt.spec(3)).compile()
    with_state = gt.jit(lambda x: x * state).lower(gt.spec(3)).compile()
    with gt.GradientTape(), pytest.raises(ArgumentError, match="x is recorded by a tape"):
        compiled(x * 2.0)
    with gt.GradientTape(), pytest.raises(ArgumentError, match="a variable that it reads is recorded"):
        with_state(np.ones(3))
    with pytest.raises(ArgumentError, match="x is recorded by a tape"):
        gt.grad(lambda x: compiled(x) + 0.0)(np.ones(3))
    assert compiled(gt.asarray(np.ones(3))) == 3.0


def test_what_cannot_be_compiled() -> None:
    with pytest.raises(ArgumentError, match="draws random numbers"):
        gt.jit(lambda x: x + np.random.normal()).lower(gt.spec(3))
    with pytest.warns(CompileWarning, match="interpreter"), pytest.raises(LoweringError, match="float16"):
        gt.jit(lambda x: x + x).lower(gt.spec(3, "f2")).compile()


def test_specs() -> None:
    assert gt.spec(3) == gt.spec((3,), "f8") == gt.spec([3], np.float64)
    assert repr(gt.spec((2, 0), "f4")) == "gt.spec((2, 0), 'float32')"
    for shape in ((-1,), (2.5,), "3", (True,)):
        with pytest.raises(ArgumentError, match="shape must be a tuple of non-negative integers"):
            gt.spec(shape)  # type: ignore[arg-type]
    with pytest.raises(ArgumentError, match="dtype must be a NumPy dtype; got 'zz'"):
        gt.spec(3, "zz")
    with pytest.raises(DtypeError, match="object"):
        gt.spec(3, object)
