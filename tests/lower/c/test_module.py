"""C source: rows, loops, branches, stacks and routines, compiled with warnings as errors and compared with the interpreter."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy

import gradtape as gt
from gradtape.api.export.closed import TracedCall, closed_graph, trace_call
from gradtape.api.export.toolchain import FLAGS
from gradtape.errors import LoweringError
from gradtape.ir.graph import Graph, constant
from gradtape.kinds.registry import ROWS
from gradtape.lower.c.writer import FunctionWriter
from tests.registry.test_kernels import operands_of, structural_cases
from tests.support.lowering import array_input, assert_same, graph_of, inputs_like, interpret, with_gradient
from tests.support.other_kernels import CKernels, needs_c
from tests.support.registry_cases import cases, smooth_cases

STEP = 31
"""Of so many cases of the registry one runs where time matters."""


def traced_call(function: Any, *args: Any) -> TracedCall:
    return trace_call(gt.jit(function), args, {})


class Compared:
    """Graphs that run as C and by the interpreter."""

    def __init__(self, folder: Path, options: Sequence[str]) -> None:
        self.kernels = CKernels(folder, options=options)
        self.pending: list[tuple[int, Graph, Any, str]] = []

    def add(self, graph: Graph, arrays: Any, what: str) -> None:
        try:
            self.pending.append((self.kernels.add(graph), graph, arrays, what))
        except LoweringError as error:
            assert error.why

    def check(self) -> None:
        for number, graph, arrays, what in self.pending:
            status, outputs = self.kernels.call(number, arrays)
            assert status == 0, what
            assert_same(outputs, interpret(graph, arrays), 1e-10, what)


VECTORS = [option for option in FLAGS if option.startswith(("-D", "-f"))]
both = pytest.mark.parametrize(
    "options", [["-O1"], ["-O2", "-ftree-vectorize", *VECTORS]], ids=["plain", "vectors"]
)


@needs_c
@both
def test_rows_and_their_gradients(tmp_path: Path, exhaustive: bool, options: list[str]) -> None:
    compared = Compared(tmp_path, options)
    step = 1 if exhaustive else STEP
    for case in structural_cases()[::step]:
        row, sample = case.values
        arrays, params = operands_of(row, sample)
        inputs = inputs_like(arrays)
        out = row(*inputs, **params)
        compared.add(graph_of(inputs, [out]), arrays, str(case.id))
        if out.dtype.kind == "f" and row.name not in ("reduce_prod", "cumprod"):
            bent = ROWS["tanh"](out)
            total = ROWS["reduce_sum"](bent, axes=tuple(range(bent.ndim))) if bent.ndim else bent
            floats = [value for value in inputs if value.dtype.kind == "f"]
            compared.add(graph_of(inputs, with_gradient(floats, total).outputs), arrays, f"{case.id}'")
    for case in cases()[::step]:
        arrays = case.arrays((5,))
        inputs = inputs_like(arrays)
        compared.add(graph_of(inputs, [case.apply(*inputs)]), arrays, str(case))
    for case in smooth_cases()[::step]:
        arrays = case.arrays((5,))
        inputs = inputs_like(arrays)
        total = ROWS["reduce_sum"](case.apply(*inputs), axes=(0,))
        chosen = [inputs[k] for k in case.smooth_positions()]
        compared.add(graph_of(inputs, with_gradient(chosen, total).outputs), arrays, f"{case}'")
    assert len(compared.pending) > 25
    compared.check()


def halves(x: Any) -> Any:
    return gt.while_loop(lambda a, b: a > 1.0, lambda a, b: (a / 2.0, b + np.sin(a)), (x, 0.0 * x))[1]


def recurrence(x: Any, n: int) -> Any:
    def step(carry: Any, _: Any) -> Any:
        a, b = carry
        return (b, np.roll(a, 1) + np.sin(b)), np.sum(a)

    (a, b), ys = gt.scan(step, (x, 2.0 * x), None, length=n)
    return np.sum(ys) + np.sum(a * b)


def branches(i: Any, x: Any) -> Any:
    return np.sum(gt.switch(i, [np.sin, lambda y: y * y, lambda y: y / 3.0], x))


def solves(a: Any, b: Any) -> Any:
    spd = a @ a.T + 3.0 * np.eye(4)
    _, size = np.linalg.slogdet(spd)
    return np.sum(np.linalg.solve(a, b)) + size + np.sum(np.linalg.cholesky(spd)) + np.linalg.inv(spd)[0, 1]


def spectra(a: Any) -> Any:
    """Functions of a matrix and its parts that no sign of a vector changes."""
    numbers, vectors = np.linalg.eigh(a @ a.T)
    left, sizes, right = np.linalg.svd(a, full_matrices=False)
    columns, triangle = np.linalg.qr(a[:, :2])
    whole = (vectors * np.exp(-numbers)) @ vectors.T, (left * np.log1p(sizes)) @ right
    return sum(np.sum(np.sin(part)) for part in (*whole, numbers, sizes, columns, triangle))


def spectra_of_low_rank(a: Any) -> Any:
    low = np.outer(a, a[::-1])
    left, sizes, right = np.linalg.svd(low)
    numbers, vectors = np.linalg.eigh(low + low.T)
    recomposed = (left * sizes) @ right, (vectors * numbers) @ vectors.T
    return (
        left.T @ left,
        right @ right.T,
        vectors.T @ vectors,
        *recomposed,
        sizes,
        numbers,
        np.linalg.eigvalsh(0 * low),
    )


def mixed(x: Any, k: Any) -> Any:
    picked = np.sort(x)[k]
    return np.sum(np.maximum(picked, 0.0)) * np.sum(np.searchsorted(np.arange(4.0), x)) + np.sum(
        np.interp(x, [0.0, 1.0], [2.0, 5.0])
    )


def special(x: Any) -> Any:
    import scipy.special

    return np.sum(scipy.special.gammaln(x) * scipy.special.erf(x) + scipy.special.gamma(x / 3.0))


RNG = np.random.default_rng(7)
PROGRAMS = [
    (gt.value_and_grad(halves), (37.5,)),
    (gt.value_and_grad(lambda x: recurrence(x, 7)), (RNG.normal(size=6),)),
    (gt.jit(recurrence), (RNG.normal(size=6), 4)),
    *[(gt.value_and_grad(branches, argnums=1), (i, RNG.normal(size=3))) for i in (-1, 0, 1, 2, 5)],
    (gt.value_and_grad(solves, argnums=(0, 1)), (RNG.normal(size=(4, 4)), RNG.normal(size=(4, 2)))),
    *[(gt.value_and_grad(spectra), (RNG.normal(size=shape),)) for shape in ((3, 5), (4, 4), (7, 3))],
    (gt.jit(spectra_of_low_rank), (RNG.normal(size=4),)),
    (gt.jit(lambda a: (np.linalg.svd(a)[1], np.linalg.eigvalsh(a, "U"))), (RNG.normal(size=(5, 5)).astype("f4"),)),
    (gt.jit(lambda a: np.linalg.svd(a * 1e200)[1] / 1e200), (RNG.normal(size=(3, 3)),)),
    (gt.value_and_grad(mixed), (RNG.normal(size=9), np.array([0, -1, 4]))),
    (gt.value_and_grad(special), (np.array([0.2, 1.4616, 1.47, 2.0, 7.5, 30.0]),)),
    (gt.value_and_grad(lambda x: np.sum(np.exp(np.sin(x)) / (2.0 + x[::-1] ** 2)) + np.mean(np.log1p(x * x))), (RNG.normal(size=300),)),
    (gt.value_and_grad(lambda x: np.sum(np.cumsum(x) * np.max(x)) + np.prod(x[:20])), (RNG.normal(size=100),)),
    (gt.jit(lambda z: np.exp(z) * z.conj()), (np.array([0.5 + 1j, -0.2j]),)),
    (gt.grad(lambda x, y: np.sum(np.tanh(x @ y))), (RNG.normal(size=(90, 70)), RNG.normal(size=(70, 80)))),
    (gt.grad(lambda x: np.sum((x.T @ x) ** 2)), (RNG.normal(size=(70, 66)).astype("f4"),)),
    (gt.jit(lambda i: (i * 2**62 + i // 3, i.astype("i2") * i.astype("i2"), i % 7, i << 3, ~i)), (np.array([5, -9, 2**40]),)),
    (gt.jit(lambda b, u: (b & ~(u > 1), u.astype("u1") - u.astype("u1") * np.uint8(2))), (np.array([True, False]), np.array([1, 250]))),
]  # fmt: skip


@needs_c
@both
def test_programs(tmp_path: Path, options: list[str]) -> None:
    kernels = CKernels(tmp_path, options=options)
    made = []
    for function, args in PROGRAMS:
        traced = traced_call(function, *args)
        graph = closed_graph(traced)
        made.append((kernels.add(graph), graph, [*traced.call.dynamic(), *traced.hidden]))
    for number, graph, arrays in made:
        status, outputs = kernels.call(number, arrays)
        assert status == 0
        for actual, wanted in zip(outputs, interpret(graph, arrays), strict=True):
            tolerance = 1e-4 if wanted.dtype == np.float32 else 1e-11
            np.testing.assert_allclose(actual, wanted, tolerance, tolerance)


@needs_c
def test_statuses(tmp_path: Path) -> None:
    kernels = CKernels(tmp_path)
    taken = kernels.add(closed_graph(traced_call(lambda x, k: x[k], np.ones(3), np.array([0]))))
    solved = kernels.add(closed_graph(traced_call(np.linalg.inv, np.eye(2))))
    guarded = kernels.add(closed_graph(traced_call(lambda x: x if x[0] > 0 else -x, np.ones(2))))
    functions = np.linalg.eigvalsh, lambda a: np.linalg.svd(a)[1]
    spectra = [kernels.add(closed_graph(traced_call(function, np.eye(2)))) for function in functions]
    assert kernels.call(taken, [np.ones(3), np.array([-3])])[0] == 0
    assert kernels.call(taken, [np.ones(3), np.array([3])])[0] == -1
    assert kernels.call(solved, [np.zeros((2, 2))])[0] == -1
    for decomposed in spectra:
        assert kernels.call(decomposed, [np.array([[1.0, np.nan], [np.nan, 1.0]])])[0] == -1
    assert kernels.call(guarded, [np.ones(2)])[0] == 0
    assert kernels.call(guarded, [-np.ones(2)])[0] > 0


def test_what_c_does_not_have_is_refused(tmp_path: Path) -> None:
    kernels = CKernels(tmp_path)
    x = array_input(3)
    with pytest.raises(
        LoweringError, match=r"(?s)airy_ai cannot be exported as C.*scipy.special.airy.*gradtape"
    ):
        kernels.add(graph_of([x], [ROWS["airy_ai"](x)]))
    with pytest.raises(LoweringError, match=r"(?s)eig cannot be exported as C.*Python computes it"):
        kernels.add(closed_graph(traced_call(np.linalg.eig, np.eye(3))))
    large = constant(np.zeros(200_000))
    with pytest.raises(LoweringError, match="captured array of 200000 elements"):
        kernels.add(graph_of([x], [ROWS["negative"](large), x]))


def test_products_may_be_left_to_blas(tmp_path: Path) -> None:
    kernels = CKernels(tmp_path, blas=True)
    kernels.add(closed_graph(traced_call(np.dot, np.ones((90, 90)), np.ones((90, 90)))))
    assert "extern void dgemm_(" in kernels.module.text() and kernels.module.libraries == ("-lm", "-lblas")


@needs_c
def test_decompositions_may_be_left_to_lapack(tmp_path: Path) -> None:
    """SciPy's own LAPACK, whose names have a prefix, stands in for that of the system."""
    found = list(Path(scipy.__file__).parents[1].glob("scipy.libs/libscipy_openblas-*.so"))
    if not found:
        pytest.skip("this SciPy has no library of this kind")
    routines = ("gemm", "syevd", "gesdd", "geqrf", "orgqr", "potrf", "getrf")
    names = [f"-D{letter}{name}_=scipy_{letter}{name}_" for name in routines for letter in "ds"]
    linked = ["-Wl,--no-as-needed", f"-Wl,-rpath,{found[0].parent}", str(found[0])]
    kernels = CKernels(tmp_path, blas=True, options=(*names, *linked))
    programs = [
        (gt.value_and_grad(spectra), (RNG.normal(size=(5, 4)),)),
        (gt.value_and_grad(spectra), (RNG.normal(size=(3, 5)),)),
        (gt.jit(spectra_of_low_rank), (RNG.normal(size=4),)),
        (gt.jit(lambda a: (np.linalg.svd(a)[1], np.linalg.eigvalsh(a, "U"))), (RNG.normal(size=(5, 5)).astype("f4"),)),
        (gt.value_and_grad(solves, argnums=(0, 1)), (RNG.normal(size=(4, 4)), RNG.normal(size=(4, 2)))),
    ]  # fmt: skip
    made = []
    for function, args in programs:
        traced = traced_call(function, *args)
        graph = closed_graph(traced)
        made.append((kernels.add(graph), graph, [*traced.call.dynamic(), *traced.hidden]))
    failing = kernels.add(closed_graph(traced_call(np.linalg.cholesky, np.eye(2))))
    singular = kernels.add(closed_graph(traced_call(np.linalg.inv, np.eye(2))))
    assert kernels.module.libraries == ("-lm", "-llapack", "-lblas")
    for number, graph, arrays in made:
        status, outputs = kernels.call(number, arrays)
        assert status == 0
        for actual, wanted in zip(outputs, interpret(graph, arrays), strict=True):
            tolerance = 1e-4 if wanted.dtype == np.float32 else 1e-11
            np.testing.assert_allclose(actual, wanted, tolerance, tolerance)
    assert kernels.call(failing, [-np.eye(2)])[0] == -1
    assert kernels.call(singular, [np.zeros((2, 2))])[0] == -1


def test_sums_that_nothing_reads_are_no_lanes() -> None:
    """A pragma that names them does not compile: they are not declared."""
    for read, pragma in (("a", "SUM_LANES(a)"), ("0.0", "LANES")):
        writer = FunctionWriter(lambda file, **places: file)
        for name in ("a", "b"):
            writer.write(f"double {name} = 0.0;")
        writer.write("SUM_LANES(a, b)")
        with writer.block(writer.counted("i", 9)):
            for name in ("a", "b"):
                writer.write(f"const double {name}1 = {name} + x[i];")
                writer.write(f"{name} = {name}1;")
        writer.write(f"y[0] = {read};")
        text = writer.text("f", [("const double *", "x"), ("double *", "y")])
        assert f"    {pragma}\n" in text and "double b" not in text and "b1" not in text


def test_what_is_written_through_pointers_and_what_may_fail_stays() -> None:
    writer = FunctionWriter(lambda file, **places: file)
    writer.fails = True
    writer.declare("double m[4];")
    writer.write("double *const p = r;")
    writer.write("m[2] = 1.0;")
    writer.write("p[1] = 2.0;")
    writer.write("const int64_t k = wrapped(i, 4, &failed);")
    text = writer.text("f", [("double *", "r"), ("int64_t ", "i")])
    assert "p[1] = 2.0;" in text and "    wrapped(i, 4, &failed);" in text
    assert "m[" not in text and "k =" not in text
