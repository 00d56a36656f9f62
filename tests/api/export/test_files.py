"""Functions as C files, libraries and Numba modules: written, compiled, run by a C program under the address sanitizer, and refused."""

from __future__ import annotations

import ctypes
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special

import gradtape as gt
from gradtape.errors import ArgumentError, LoweringError
from tests.support.other_kernels import COMPILER, run

needs_c = pytest.mark.skipif(COMPILER is None, reason="no C compiler")


def loss(params: Any, x: Any, y: Any, rate: float) -> Any:
    hidden = np.tanh(x @ params["w"] + params["b"])
    return np.mean((hidden.sum(axis=1) - y) ** 2) + rate * np.sum(np.sort(params["b"])[:2])


RNG = np.random.default_rng(1)
PARAMS = {"b": RNG.normal(size=4), "w": RNG.normal(size=(3, 4))}
X, Y = RNG.normal(size=(5, 3)), RNG.normal(size=5)

PROGRAM = """
#include "loss.h"
#include <stdio.h>
#include <stdlib.h>

int main(void)
{
    const double b[4] = {%s}, w[12] = {%s}, x[15] = {%s}, y[5] = {%s};
    double value, grad_b[4], grad_w[12];
    void *workspace = malloc(LOSS_WORKSPACE);
    int status = loss(b, w, x, y, 0.5, &value, grad_b, grad_w, workspace);
    free(workspace);
    printf("%%.17g", value);
    for (int i = 0; i < 4; i++)
        printf(" %%.17g", grad_b[i]);
    for (int i = 0; i < 12; i++)
        printf(" %%.17g", grad_w[i]);
    return status;
}
"""


def expected() -> Any:
    value, gradients = gt.value_and_grad(loss)(PARAMS, X, Y, 0.5)
    return [value, *gradients["b"], *gradients["w"].ravel()]


def written(array: Any) -> str:
    return ", ".join(map(repr, array.ravel().tolist()))


def program() -> str:
    return PROGRAM % tuple(map(written, (PARAMS["b"], PARAMS["w"], X, Y)))


SPECS: Any = ({"b": gt.spec(4), "w": gt.spec((3, 4))}, gt.spec((5, 3)), gt.spec(5), float)


@needs_c
def test_a_c_program_computes_the_gradient(tmp_path: Path) -> None:
    source, header = gt.export(gt.value_and_grad(loss), *SPECS, path=tmp_path / "loss.c", name="loss")
    assert source.name == "loss.c" and header.name == "loss.h"
    text = header.read_text()
    for line in ("params['w']: double[3][4]", "grad_params['b']: double[4]", "rate: double", "-lm"):
        assert line in text
    (tmp_path / "main.c").write_text(program())
    assert COMPILER is not None
    sanitizers = ["-fsanitize=address,undefined", "-fno-sanitize-recover=all", "-g", "-O1"]
    for options in (["-O3"], sanitizers):
        flags = ["-std=c99", "-Wall", "-Wextra", "-Wpedantic", "-Werror", *options]
        made = str(tmp_path / "main")
        run([COMPILER, *flags, str(tmp_path / "main.c"), str(source), "-o", made, "-lm"])
        np.testing.assert_allclose(np.array(run([made]).split(), float), expected(), 1e-12)


@needs_c
@pytest.mark.skipif(shutil.which("ar") is None, reason="no ar")
@pytest.mark.parametrize("suffix", [".o", ".a"])
def test_object_files_and_static_libraries(tmp_path: Path, suffix: str) -> None:
    library, header = gt.export(
        gt.value_and_grad(loss), *SPECS, path=tmp_path / f"loss{suffix}", name="loss", target="native"
    )
    assert header.name == "loss.h" and sorted(file.name for file in tmp_path.iterdir()) == sorted(
        [library.name, header.name]
    )
    (tmp_path / "main.c").write_text(program())
    made = str(tmp_path / "main")
    assert COMPILER is not None
    run([COMPILER, "-Wall", "-Werror", str(tmp_path / "main.c"), str(library), "-o", made, "-lm"])
    np.testing.assert_allclose(np.array(run([made]).split(), float), expected(), 1e-12)


@needs_c
def test_shared_libraries(tmp_path: Path) -> None:
    scale = np.array([2.0, 3.0])
    library, _ = gt.export(
        lambda x, n: (np.sum(x * scale) * n, x[::-1]), gt.spec(2), int, path=tmp_path / "f.so", name="f"
    )
    made = ctypes.CDLL(str(library))
    total, turned, x = ctypes.c_double(), np.zeros(2), np.array([1.0, 5.0])
    pointer = ctypes.c_void_p
    status = made.f(
        x.ctypes.data_as(pointer),
        ctypes.c_int64(10),
        ctypes.byref(total),
        turned.ctypes.data_as(pointer),
        None,
    )
    assert (status, total.value, turned.tolist()) == (0, 170.0, [5.0, 1.0])


def test_numba_modules(tmp_path: Path) -> None:
    (file,) = gt.export(gt.value_and_grad(loss), *SPECS, path=tmp_path / "loss.py", name="loss")
    text = file.read_text()
    assert "def loss(params_b, params_w, x, y, rate):" in text and "gradtape" not in text
    compile(text, str(file), "exec")


def test_names(tmp_path: Path) -> None:
    def f(double: Any, *rest: Any) -> Any:
        return {"a": double, "b c": (rest[0] + rest[1],)}

    _, header = gt.export(f, float, gt.spec(2), gt.spec(2), path=tmp_path / "f.c")
    assert (
        "int f(double double_, const double *rest_0, const double *rest_1, double *result_a, double *result_b_c_0, void *workspace);"
        in header.read_text()
    )
    both = gt.grad(lambda u, v: (np.sum(u * v), u), argnums=(1, 0), has_aux=True)
    _, header = gt.export(both, gt.spec(2), gt.spec(2), path=tmp_path / "g.c", name="g")
    assert "double *grad_v, double *grad_u, double *aux, void" in header.read_text()


@needs_c
def test_names_that_c_keeps_for_itself(tmp_path: Path) -> None:
    def f(NAN: Any, unix: Any, exp: Any) -> Any:
        return {"a */": np.exp(NAN) + unix["*/"] + exp}

    gt.export(f, float, {"*/": float}, gt.spec(2), path=tmp_path / "f.so")
    _, header = gt.export(np.sin, gt.spec(2), path=tmp_path / "s.so")
    assert "int sin_(const double *" in header.read_text()


def test_what_cannot_be_exported_says_why(tmp_path: Path) -> None:
    path = tmp_path / "f.c"
    x = gt.spec(3)
    with pytest.raises(ArgumentError, match=r"(?s)unknown format '.txt' of 'f.txt'.*\.c, \.o"):
        gt.export(np.sin, x, path=tmp_path / "f.txt")
    with pytest.raises(ArgumentError, match="format must be one of c, object"):
        gt.export(np.sin, x, path=path, format="cpp")
    with pytest.raises(ArgumentError, match="target must be one of generic, native"):
        gt.export(np.sin, x, path=path, target="haswell")
    with pytest.raises(ArgumentError, match=r"(?s)name must be a C identifier .*; got 'a b'.*name='a_b'"):
        gt.export(np.sin, x, path=path, name="a b")
    with pytest.raises(ArgumentError, match=r"(?s)that the C library does not use; got 'exp'.*name='exp_'"):
        gt.export(np.sin, x, path=path, name="exp")
    with pytest.raises(ArgumentError, match="there is no folder"):
        gt.export(np.sin, x, path=tmp_path / "none" / "f.c")
    with pytest.raises(ArgumentError, match="branches on a value, but"):
        gt.export(lambda x: x if x[0] > 0 else -x, x, path=path)
    with pytest.raises(ArgumentError, match="draws random numbers"):
        gt.export(lambda x: x + np.random.normal(), x, path=path)
    with pytest.raises(ArgumentError, match="bool is not a spec"):
        gt.export(lambda x, b: x * b, x, bool, path=path)
    with pytest.raises(ArgumentError, match="returns a str"):
        gt.export(lambda x: (x, "text"), x, path=path)
    state = gt.Variable(1.0)
    with pytest.raises(ArgumentError, match="variables"):
        gt.export(lambda x: x * state, x, path=path)
    with pytest.raises(LoweringError, match=r"(?s)j0 cannot be exported as C.*what to do"):
        gt.export(lambda x: scipy.special.j0(x), x, path=path)
    with pytest.raises(ArgumentError, match="no C compiler was found: nocc"):
        gt.export(np.sin, x, path=tmp_path / "f.so", compiler="nocc")
    assert not list(tmp_path.iterdir())
