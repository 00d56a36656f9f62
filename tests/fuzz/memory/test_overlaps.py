"""Random assignments whose sides overlap, in a few ways each, and the smallest programs of what was found by them.

More of them, in all ways: ``python -m tests.fuzz.memory.overlaps --programs 10000``.
"""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt
from tests.fuzz.memory.overlaps import Program, failures, generate, report

BLOCK = 30


@pytest.mark.parametrize("first", range(0, 300, BLOCK))
def test_random_overlaps(first):
    found = []
    for seed in range(first, first + BLOCK):
        program = generate(seed)
        if program is None:
            continue
        for compiled in (False, True)[: 1 + (seed % 15 == 0)]:
            failed = list(failures(program, compiled=compiled, most=3))
            if failed:
                found.append(report(seed, program, failed))
    assert not found, "\n".join(found)


FOUND = {
    "an array that is reversed": ((6,), "C", "y = np.exp(x)\ny[::-1] = {y}"),
    "an array that is rolled": ((6,), "C", "y = np.exp(x)\ny[np.array([1, 2, 3, 4, 5, 0])] = {y}"),
    "a matrix that is transposed": ((3, 3), "C", "y = np.exp(x)\ny[...] = {y.T}"),
    "steps that differ": (
        (6,),
        "C",
        "y = np.exp(x)\ny[1:4:2] -= 0.5 * y[0:3:2]\ny[1:4] -= 0.5 * y[4::-2]\ny[0:5:2] = {y[0:3]}",
    ),
    "reversals in a loop": (
        (6,),
        "C",
        "y = np.exp(x)\nfor k in range(3):\n    y[0:5:2] *= y[0:5:2][::-1]\n    y[::-1] *= np.sin(y[np.arange(6)[::-1]])",
    ),
    "masked elements": (
        (5,),
        "C",
        "y = np.array(x)\ny[np.array([False, False, True, True, True])] = {y[0:3]}",
    ),
    "a row of columns": ((4, 3), "F", "y = x.ravel()\ny[0] = 2.0"),
    "a row of a transposed array": ((4, 3), "F", "y = x.T.reshape(-1)\ny[0] = 2.0"),
    "gaps": ((4, 3), "strided", "y = x.reshape(2, 2, 3)\ny[0] = 2.0\nv = x.ravel()\nv[5] = 1.0"),
    "a reversed vector": ((6,), "reversed", "y = x.ravel()\ny[0] = 2.0"),
    "the order of a result": (
        (3, 4),
        "C",
        "y = (x.T * 2.0).reshape(-1)\nv = 2.0 * x.T\nw = v.ravel()\nw[1] = 3.0\ny = v",
    ),
    "a grid": ((3, 3), "F", "v, y = np.meshgrid(x[0], x[1], copy=False)\nx[1, 0] = 5.0"),
}


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("name", FOUND)
def test_what_was_found_before(name, compiled):
    shape, layout, text = FOUND[name]
    for outputs in (("x",), ("y",)):
        program = Program(shape, layout, tuple(text.split("\n")), outputs, 1)
        failed = list(failures(program, compiled=compiled, most=2 if compiled else None))
        assert not failed, report(1, program, failed)


def test_a_wrong_result_is_found(monkeypatch):
    monkeypatch.setattr(np, "exp", lambda x: np.sin(x) if isinstance(x, gt.Array) else np.cos(x))
    program = Program((3,), "C", ("y = np.exp(x)",), ("y",), 1)
    assert {failure.way for failure in failures(program, compiled=False, only="jit-trace")} == {"jit-trace"}
