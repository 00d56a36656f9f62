"""A thousand random programs, run in all ways; and the smallest programs of what was found by them before.

More of them, with what is found shrunk and written down: ``python -m tests.fuzz --programs 1000000 --seed 1 --report found.md``.
"""

from __future__ import annotations

import os
import signal
import time

import numpy as np
import pytest

import gradtape as gt
from tests.fuzz import __main__ as command
from tests.fuzz.programs import (
    LIMITS,
    Failure,
    Program,
    Spec,
    failures,
    generate,
    minimised,
    optimised_by_llvm,
    outcome,
    report,
)

BLOCK = 40


@pytest.mark.parametrize("first", range(0, 1000, BLOCK))
def test_random_programs(first):
    found = {}
    for seed in range(first, first + BLOCK):
        program = generate(seed)
        for failure in failures(program, compiled=seed % 13 == 0):
            small, how = minimised(program, failure.bucket, compiled=seed % 13 == 0)
            found[failure.bucket] = (1, small, how)
    assert not found, report(found)


def spec(*shape: int, dtype: str = "f8", layout: str = "C", kind: str = "array") -> Spec:
    return Spec(shape, dtype, layout, kind)


FOUND = {
    "bincount of unsigned integers": ([spec(5, dtype="u4")], "v0 = np.bincount(np.ravel(a0) % 6)"),
    "bincount of 64 bits": ([spec(16, dtype="u8")], "v0 = np.bincount(np.ravel(a0) % 6)"),
    "bincount of nothing": (
        [spec(2, 3)],
        "v1 = np.ravel(a0[np.array([], dtype=int)])\n"
        "v0 = np.bincount(v1.astype(int), weights=v1 * 0.5, minlength=7)",
    ),
    "booleans squared": ([spec(3, 2, dtype="b1")], "v0 = a0**2"),
    "a comparison squared": ([spec(3)], "v0 = (a0 > 0) ** 2\nv0 = v0 // (np.abs(v0) + 1)"),
    "an array of a number": ([spec(kind="python")], "v0 = np.ascontiguousarray(a0 * 0.5 + a0 * 0.25)"),
    "reduceat of all": ([spec(3)], "v0 = np.add.reduceat(a0, [0, 1, 1], axis=None)"),
    "masked writes through views": ([spec(3, 1)], "v0 = a0[::2]\na0[a0 > 0] = a0[a0 > 0] * 2"),
    "a column's write": ([spec(4, 3, dtype="c16")], "a0[:, None][0] = 0.2\nv0 = np.cumsum(a0).imag"),
    "polynomials of rows": (
        [spec(1, 1), spec(4, 3)],
        "v0 = np.polyval(a1, a0)\nv0 = np.diff(v0, append=1.0)",
    ),
    "knots that repeat": (
        [spec(3)],
        "v1 = np.array([0.0, 0.0, 1.0, 1.0])\nv0 = np.interp(a0, v1, np.arange(4.0)) + np.interp(1.0, v1, v1)",
    ),
    "trapezoids over several axes": ([spec(4), spec(2, 2, 2)], "v0 = np.trapezoid(a0, a1)"),
    "trapezoids that broadcast": (
        [spec(3, 1), spec(4)],
        "v0 = np.trapezoid(a1, np.broadcast_arrays(a0, a1)[0] + 0)",
    ),
    "rounded numbers at a kink": ([spec(7)], "v0 = np.sqrt(np.abs(np.round(a0, 1)) + 0.1)"),
    "a view and its base": (
        [spec(3, 2), spec(1, 1)],
        "v1 = a0[1:]\nv0 = np.hypot(a0, a1 + 3.0)\nv1[:2] = np.arange(2)\nv0 = np.sinc(v0 * 0.3)",
    ),
    "traced indices of an ndarray": ([spec(3, dtype="i4")], "v0 = np.take(np.arange(4.0), np.abs(a0) % 4)"),
    "unsigned indices": ([spec(3, dtype="u8")], "v0 = np.take(np.arange(4.0), a0 % 4)"),
    "an integer too large in where": ([spec(3, dtype="i1")], "v0 = np.where(a0 > 0, a0, 300)"),
    "elements that change places": ([spec(4)], "v0 = a0[0]\na0[0] = a0[-1]\na0[-1] = v0\nv0 = a0"),
    "a reversed argument": ([spec(3, layout="reversed")], "np.ravel(a0)[0] = 2\nv0 = a0"),
    "an argument by columns": (
        [spec(2, 3, layout="F")],
        "v0 = a0.ravel('K') * a0.ravel()\na0.ravel('F')[0] = 1",
    ),
    "an argument with gaps": ([spec(4, 3, layout="strided")], "a0.reshape(2, 2, 3)[0] = 1\nv0 = a0"),
    "rows that were made to be written to": (
        [spec()],
        "v1 = np.ones((2, 3))\nv1.reshape(-1)[::2] = np.mean(a0)\nv2 = np.ascontiguousarray(v1)\n"
        "v0 = v1.reshape(-1)\nv2[0], v2[1] = v2[1], v2[0]",
    ),
}


@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_before(name):
    specs, text = FOUND[name]
    for seed in range(3):
        program = Program(tuple(specs), (text,), ("v0", "a0"), seed)
        program.function()(*program.arguments())  # NumPy takes it
        found = list(failures(program, compiled=seed == 0))
        assert not found, program.text + str(found)


@pytest.mark.parametrize(
    "write", [lambda x: x.__setitem__(0, 300), lambda x: np.full_like(x, 300), lambda x: x.fill(300)]
)
def test_integers_that_do_not_fit_are_refused(write):
    x = np.ones(2, np.int8)
    with pytest.raises(OverflowError):
        write(x.copy())
    with pytest.raises(OverflowError):
        gt.jit(lambda x: (write(x), x)[1])(x)


def test_a_wrong_result_is_found_and_shrunk(monkeypatch):
    monkeypatch.setattr(np, "tanh", lambda x: np.sin(x) if isinstance(x, gt.Array) else np.arctan(x))
    program = Program(
        (spec(3), spec(2, 3)), ("v0 = a0 * 2", "v1 = np.tanh(a0)", "v2 = v1 + 1"), ("v2", "v0"), 1
    )
    (failure, *_) = failures(program)
    small, how = minimised(program, failure.bucket, compiled=False)
    assert (failure.way, how.way) == ("jit-interpreted", "jit-interpreted")
    assert small.lines == ("v1 = np.tanh(a0)", "v2 = v1 + 1")
    assert small.outputs == ("v2",)


def test_a_limit_of_kernels_is_an_answer_and_another_warning_is_not():
    x = np.array([True, False])
    f = gt.jit(lambda x: np.sin(x) * 2)
    with pytest.warns(gt.errors.CompileWarning, match="float16"):
        f(x)
    assert outcome(lambda: gt.jit(lambda x: np.sin(x) * 2)(x)).dtype == np.float16
    assert not LIMITS.search("f could not be compiled and runs on the interpreter")


def test_programs_without_optimisations_of_llvm():
    program = Program((spec(7),), ("v0 = np.cumsum(np.sin(a0)) * a0[::-1]",), ("v0",), 0)
    with optimised_by_llvm(False):
        assert not list(failures(program, compiled=True))


@pytest.fixture
def three_fail(monkeypatch):
    """Of the programs 0 to 9, 3 ends its process, 5 hangs, and 7 gives a wrong result."""

    def findings(seed, compiled, seen, optimised):
        if seed == 3:
            os.kill(os.getpid(), signal.SIGKILL)
        if seed == 5:
            time.sleep(1000)
        if seed == 7:
            yield "wrong", generate(seed), Failure("way", "wrong")

    monkeypatch.setattr(command, "findings", findings)
    monkeypatch.setattr(command, "HANGS", 0.2)
    monkeypatch.setattr(command, "BLOCK", 4)


def test_a_program_that_crashes_or_hangs_costs_itself_alone(three_fail, capsys):
    done, buckets = command.run_all(range(10), processes=1, compiled=0.0, seconds=100.0)
    assert done == 10
    assert {name: entry[1].seed for name, entry in buckets.items()} == {
        "the process ended with -9": 3,
        "hang": 5,
        "wrong": 7,
    }
    assert "--- hang\nseed 5" in capsys.readouterr().out


def test_the_command_writes_a_report(tmp_path, capsys):
    file = tmp_path / "found.md"
    assert command.main(["--programs", "3", "--processes", "1", "--report", str(file)]) == 0
    assert capsys.readouterr().out.startswith("3 programs in ")
    assert file.read_text().startswith("# What random programs found")
