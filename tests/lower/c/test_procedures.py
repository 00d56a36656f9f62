"""Procedures as C functions: random ones with their pullbacks, loops of user's code, and what fails."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gradtape as gt
from gradtape.api.export.closed import closed_graph, trace_call
from gradtape.ir.graph import literal
from gradtape.ir.types import FLOAT64
from gradtape.lower.c.module import CModule
from gradtape.lower.c.procedures import print_procedure
from gradtape.ops.core.elementwise.logic import greater
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.ir import Procedure
from gradtape.runtime.interpret import interpret
from gradtape.transforms.procedures.vjp import vjp_procedure
from tests.fuzz.procedures import flags, generate, is_inexact, same
from tests.support.other_kernels import COMPILER, WARNINGS, CKernels, needs_c, run

UNDEFINED = ("-O1", "-fsanitize=undefined", "-fno-sanitize-recover=all")


class Functions:
    """Procedures as functions of one shared library."""

    def __init__(self, folder: Path, procedures: Sequence[Procedure], *options: str) -> None:
        module = CModule()
        for number, procedure in enumerate(procedures):
            text = print_procedure(procedure, f"procedure{number}", module.helper, module.body)
            module.parts[f"procedure{number}"] = text.removeprefix("static ")
        source, made = folder / "procedures.c", folder / "procedures.so"
        heads = [text.split("\n{")[0] for text in module.parts.values() if text.startswith("int ")]
        declared = "".join([f"{head};\n" for head in heads])
        source.write_text(module.text().replace("\n\n", f"\n\n{declared}\n", 1))
        assert COMPILER is not None
        run(
            [
                COMPILER,
                *WARNINGS,
                *UNDEFINED,
                *options,
                "-shared",
                "-fPIC",
                str(source),
                "-o",
                str(made),
                "-lm",
            ]
        )
        self.procedures = procedures
        self.library = ctypes.CDLL(str(made))

    def call(self, number: int, arguments: Sequence[Any]) -> tuple[int, list[np.ndarray[Any, Any]]]:
        """Return the status and the results."""
        procedure = self.procedures[number]
        given = [
            np.ascontiguousarray(x, type_.dtype) for x, type_ in zip(arguments, procedure.types, strict=True)
        ]
        results = [np.empty(type_.shape, type_.dtype) for type_ in procedure.result_types]
        addresses = [array.ctypes.data_as(ctypes.c_void_p) for array in (*given, *results)]
        return getattr(self.library, f"procedure{number}")(*addresses), results


@needs_c
def test_random_procedures_and_their_pullbacks(tmp_path: Path) -> None:
    cases = []
    for seed in range(5):
        procedure, arguments = generate(seed)
        cases.append((procedure, arguments))
        pulled = vjp_procedure(procedure, flags(procedure.types), flags(procedure.result_types))
        seeds = [np.ones(type_.shape) for type_ in procedure.result_types if is_inexact(type_.dtype)]
        cases.append((pulled, [*arguments, *seeds]))
    functions = Functions(tmp_path, [procedure for procedure, _ in cases])
    for number, (procedure, arguments) in enumerate(cases):
        status, results = functions.call(number, arguments)
        assert status == 0
        same(results, run_procedure(procedure, arguments), f"case {number}")


@needs_c
def test_checks_fail_and_end_loops(tmp_path: Path) -> None:
    build = ProcedureBuilder("halved")
    x = build.scalar("x")
    left = build.variable("left", 1.0)
    with build.loop_while() as loop:
        build.start_body(loop, greater(build.read(left), literal(0.0, FLOAT64)))
        build.check(greater(x, literal(0.0, FLOAT64)), "ValueError", "x is negative")
        build.assign(left, build.read(left) - x)
    functions = Functions(tmp_path, [build.finish([build.read(left)])])
    assert functions.call(0, [0.75])[0] == 0
    assert functions.call(0, [-0.75])[0] == 1


COUNTED = """
#include <stdlib.h>
int reallocations = 0;
static inline void *counted(void *memory, size_t bytes)
{
    reallocations++;
    return realloc(memory, bytes);
}
#define realloc counted
"""


@needs_c
def test_a_tape_gets_room_for_the_records_of_a_loop_at_once(tmp_path: Path) -> None:
    build = ProcedureBuilder("powers")
    x, count = build.scalar("x"), build.scalar("count", np.int64)
    power = build.variable("power", x)
    with build.loop(count), build.loop(3):
        build.assign(power, build.read(power) * build.read(power) * x)
    powers = build.finish([build.read(power)])
    pulled = vjp_procedure(powers, flags(powers.types), flags(powers.result_types))
    header = tmp_path / "counted.h"
    header.write_text(COUNTED)
    functions = Functions(tmp_path, [pulled], "-include", str(header))
    reallocations = ctypes.c_int.in_dll(functions.library, "reallocations")
    for trips, expected in ((-1, 0), (0, 0), (1, 1), (200, 1)):
        reallocations.value = 0
        arguments = [0.999, trips, 1.0]
        status, results = functions.call(0, arguments)
        assert status == 0
        same(results, run_procedure(pulled, arguments), f"{trips} trips")
        assert reallocations.value == expected, trips


def heat(u: Any, k: float) -> Any:
    for _ in range(20):
        new = u.copy()
        for i in range(1, u.shape[0] - 1):
            new[i] = u[i] + k * (u[i - 1] - 2 * u[i] + u[i + 1]) if u[i] > 0.2 else np.sin(u[i])
        u = new
    return np.sum(u**2)


def root(x: float) -> Any:
    z, n = x, 0
    while abs(z * z - x) > 1e-12:
        z = 0.5 * (z + x / z)
        n += 1
    return z * n


def accepted(x: Any) -> Any:
    out = []
    for i in range(x.shape[0]):
        if x[i] > 0.0:
            out.append(x[i] ** 2)  # noqa: PERF401
    return np.sum(np.array(out) * np.arange(1, len(out) + 1))


def power(a: Any, x: Any) -> Any:
    total = 0.0
    for _ in range(15):
        x = a @ x
        x = x / np.sqrt(np.sum(x * x))
        total += x[0]
    return total


RNG = np.random.default_rng(3)
LOOPS = [
    (heat, (RNG.normal(size=40) ** 2, 0.1)),
    (root, (2.5,)),
    (accepted, (RNG.normal(size=30),)),
    (power, (RNG.normal(size=(8, 8)), np.ones(8))),
]


@needs_c
def test_loops_that_were_compiled_from_source(tmp_path: Path) -> None:
    kernels = CKernels(tmp_path, options=UNDEFINED)
    made = []
    with gt.config.override(loops="compile"):
        for function, args in LOOPS:
            for wanted in (function, gt.value_and_grad(function)):
                traced = trace_call(gt.jit(wanted), args, {})
                graph = closed_graph(traced)
                made.append((kernels.add(graph), graph, [*traced.call.dynamic(), *traced.hidden]))
    assert "_procedure0(" in kernels.module.text()
    for number, graph, arrays in made:
        status, outputs = kernels.call(number, arrays)
        assert status == 0
        for output, wanted in zip(outputs, interpret(graph, arrays), strict=True):
            np.testing.assert_allclose(output, wanted, 1e-11, 1e-12)
    for (function, args), number in zip(LOOPS, range(0, len(made), 2), strict=True):
        _, (value,) = kernels.call(number, made[number][2])
        np.testing.assert_allclose(value, function(*args), 1e-11)
