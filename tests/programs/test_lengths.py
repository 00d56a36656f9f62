"""Symbolic kernels: arrays of many lengths share machine code, and have the results of exact kernels."""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt
from gradtape.runtime.compile import kernel as compiling
from gradtape.runtime.compile.symbolic import Template, parse

LENGTHS = (0, 1, 2, 3, 4, 5, 7, 8, 9, 16, 17, 31, 64, 100, 101, 137, 200, 251, 256, 300, 301, 1000, 1001)


def second(f):
    return gt.grad(lambda x: np.sum(gt.grad(f)(x) ** 2))


def rosenbrock(x):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def looks(x):
    return np.sum(x) * (2.0 if len(x) > 100 else 3.0) + x.shape[0] ** 2 + (len(x) % 2) * np.sum(x**2)


def loops(x):
    total = 0.0
    for k in range(len(x) // 2):
        total = total + x[k] * x[len(x) - 1 - k] * k
    return total


def scanned(x):
    def step(carry, y):
        return 0.5 * carry + np.sin(y), carry

    last, ys = gt.scan(step, 0.0, x)
    return last + np.sum(ys**2)


ONE = {
    "elementwise": lambda x: np.tanh(x) * np.exp(-(x**2)),
    "mean": lambda x: np.sum(x * np.arange(len(x))) / max(len(x), 1),
    "rosenbrock": rosenbrock,
    "gradient": gt.value_and_grad(rosenbrock),
    "second": second(rosenbrock),
    "outer": lambda x: x[:, None] * np.sin(x),
    "axes": lambda x: (np.sum(x[:, None] * x, axis=0), np.sum(x[:, None] + x, axis=1)),
    "strides": lambda x: (x[::2], x[::-1], x[1::3] * 2),
    "concatenate": lambda x: np.concatenate([x, x[::2], np.zeros(len(x))]),
    "cumulative": gt.grad(lambda x: np.sum(np.cumsum(x) ** 2 * np.where(x > 0, x, 0.1 * x))),
    "products": lambda x: (x[:, None] * x) @ np.cos(x),
    "matrices": gt.grad(lambda x: np.sum(np.tanh((x[:, None] * x) @ (x[:, None] - x)))),
    "gather": gt.grad(lambda x: np.sum(x[np.arange(len(x))[::-1]] * x)),
    "sort": lambda x: (np.sort(x), np.argsort(x)),
    "looks": gt.value_and_grad(looks),
    "loops": gt.value_and_grad(loops),
    "scan": gt.value_and_grad(scanned),
    "vmap": gt.vmap(lambda y: np.sin(y) * y),
}


@pytest.fixture
def compiled(monkeypatch):
    """The number of modules that LLVM has compiled."""
    counts = []
    compile_object = compiling.compile_object

    def counted(*args, **kwargs):
        counts.append(args[1])
        return compile_object(*args, **kwargs)

    monkeypatch.setattr(compiling, "compile_object", counted)
    with gt.config.override(disk_cache=False):
        yield counts


def same(found, wanted):
    found, wanted = (one if isinstance(one, tuple) else (one,) for one in (found, wanted))
    for left, right in zip(found, wanted, strict=True):
        assert np.shape(left) == np.shape(right)
        np.testing.assert_allclose(left, right, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ONE)
def test_every_length_has_the_results_of_an_exact_kernel(name, compiled):
    f = gt.jit(ONE[name], shapes="symbolic")
    rng = np.random.default_rng(0)
    for n in LENGTHS:
        if name == "loops" and n > 64:
            continue
        x = rng.normal(size=n)
        with gt.config.override(jit=False):
            wanted = ONE[name](x)
        same(f(x), wanted)
        same(f(x), wanted)  # by the native entry


def test_two_arguments_of_lengths_that_are_equal_at_times(compiled):
    def f(x, y):
        return np.sum(np.outer(x, y) ** 2, axis=0) + y[0] * np.sum(x[: len(y)])

    both, rng = gt.jit(f, shapes="symbolic"), np.random.default_rng(1)
    for n, m in [
        (20, 20),
        (30, 30),
        (40, 40),
        (40, 30),
        (30, 40),
        (1, 30),
        (30, 1),
        (2, 2),
        (50, 30),
        (30, 50),
    ]:
        x, y = rng.normal(size=n), rng.normal(size=m)
        same(both(x, y), f(x, y))
        same(both(x, y), f(x, y))


def test_exact_kernels_are_compiled_for_each_length(compiled):
    f = gt.jit(lambda x: np.sum(np.cos(x) * 3), shapes="exact")
    for n in (301, 302, 303, 304):
        f(np.ones(n))
    assert len(compiled) == 4


def test_lengths_that_were_seen_before_keep_their_machine_code(compiled):
    f = gt.jit(lambda x: np.exp(np.sin(x)) * 5, shapes="symbolic")
    xs = [np.linspace(0, 1, n) for n in range(400, 420)]
    for x in (*xs, *reversed(xs)):
        same(f(x), np.exp(np.sin(x)) * 5)
    assert len(compiled) == 2
    assert "symbolic: the machine code" in gt.inspect.explain(f)


def test_captured_arrays_guards_and_tapes(compiled):
    table = np.arange(2000.0)

    def f(x):
        return np.sum(x * table[: len(x)]) if x[0] > 0 else np.sum(x)

    g = gt.jit(f, shapes="symbolic")
    for n in (500, 510, 520, 530):
        for sign in (1.0, -1.0):
            x = np.full(n, sign)
            same(g(x), f(x))
    with gt.config.override(shapes="symbolic"):
        for n in (600, 610, 620, 630):
            x = gt.asarray(np.linspace(0, 1, n))
            with gt.GradientTape() as tape:
                x = tape.watch(x)
                y = np.sum(np.sin(x) * x)
            same(
                np.asarray(tape.gradient(y, x)), np.sin(np.asarray(x)) + np.asarray(x) * np.cos(np.asarray(x))
            )


def test_symbolic_kernels_come_from_the_disk(tmp_path):
    from gradtape.runtime.compile.program import kernels

    def f(x):
        return np.sum(np.sin(x) ** 3)

    with gt.config.override(disk_cache=True, cache_dir=str(tmp_path)):
        for _ in range(2):
            g = gt.jit(f, shapes="symbolic")
            for n in (700, 701, 702):
                x = np.linspace(0, 1, n)
                same(g(x), f(x))
            kernels.clear()
        assert gt.inspect.explain(g).count("loaded from the disk cache") == 3


def test_integers_and_small_floats(compiled):
    for dtype in (np.float32, np.int64, np.complex128):
        f = gt.jit(lambda x: (x * 3 + 1)[::-1] * np.sum(x), shapes="symbolic")
        for n in (0, 1, 5, 80, 90, 91, 92):
            x = np.arange(n).astype(dtype)
            found = f(x)
            assert found.dtype == dtype
            np.testing.assert_allclose(found, (x * 3 + 1)[::-1] * np.sum(x), rtol=1e-4)


def test_threads_of_different_lengths(compiled):
    from concurrent.futures import ThreadPoolExecutor

    f = gt.jit(lambda x: np.sum(np.exp(-(x**2))), shapes="symbolic")
    xs = [np.linspace(0, 1, n) for n in range(10000, 10040)]
    with ThreadPoolExecutor(4) as pool:
        for _ in range(3):
            for x, found in zip(xs, pool.map(f, xs), strict=True):
                assert float(found) == pytest.approx(float(np.sum(np.exp(-(x**2)))))


# By default


@pytest.mark.parametrize("name", ["products", "gather", "looks", "scan"])
def test_by_default_every_length_has_the_results_of_an_exact_kernel(name, compiled):
    f = gt.jit(ONE[name])
    rng = np.random.default_rng(0)
    for n in LENGTHS:
        x = rng.normal(size=n)
        with gt.config.override(jit=False):
            wanted = ONE[name](x)
        same(f(x), wanted)


def test_by_default_the_fourth_length_has_a_symbolic_kernel(compiled):
    f = gt.jit(lambda x, c: np.sum(np.sin(x) ** 2) * c)
    for n in (800, 801, 802):
        same(f(np.linspace(0, 1, n), 2), 2 * np.sum(np.sin(np.linspace(0, 1, n)) ** 2))
        same(f(np.linspace(0, 1, n), 3), 3 * np.sum(np.sin(np.linspace(0, 1, n)) ** 2))
    assert len(compiled) == 3
    for n in range(803, 843):
        same(f(np.linspace(0, 1, n), 2), 2 * np.sum(np.sin(np.linspace(0, 1, n)) ** 2))
    assert len(compiled) == 4
    assert gt.inspect.explain(f).count("symbolic: the machine code") == 40
    for n in (900, 901, 902, 903):  # other dtypes and other ranks have lengths of their own
        f(np.ones(n, np.float32), 2)
        f(np.ones((n, 2)), 2)
    assert len(compiled) == 12


def test_by_default_a_stream_of_lengths_compiles_a_handful_of_kernels(compiled):
    f = gt.value_and_grad(rosenbrock)
    for n in range(2, 1002, 7):
        value, slope = f(np.full(n, 0.5))
        assert float(value) == pytest.approx((n - 1) * 6.5)
        assert slope.shape == (n,)
    assert len(compiled) <= 8


def test_by_default_what_python_makes_of_a_length_is_kept(compiled):
    def f(x, t):
        n = len(x)
        middle = n // 2 if n % 3 else 0
        weights = np.arange(n) / n
        y = np.sum(weights * x[:: 1 + n % 2]) if n % 2 == 0 else np.sum(x[middle:]) * n
        for _ in range(n % 4):
            y = y * 0.5 + n
        return y + np.linspace(0, 1, n) @ x + t[n % 5] + x.size * 1.5

    g, t = gt.jit(f), np.arange(5.0)
    for n in (*range(40, 100), *range(99, 39, -1)):
        x = np.cos(np.arange(n))
        same(g(x, t), f(x, t))
    assert len(compiled) < 60  # each way has kernels of its own, which lengths share


def test_loops_that_carry_arrays_share_machine_code(compiled):
    def heat(u):
        def step(u, _):
            return u + 0.1 * (np.roll(u, 1) - 2 * u + np.roll(u, -1)), None

        return np.sum(gt.scan(step, u, None, length=5)[0] ** 2) / len(u)

    f = gt.jit(gt.value_and_grad(heat), shapes="symbolic")
    for n in range(300, 330):
        u = np.cos(np.arange(n))
        found, wanted = f(u), gt.value_and_grad(heat)
        with gt.config.override(jit=False):
            same(found, wanted(u))
    assert len(compiled) <= 3


def test_numbers_of_vectors_are_read_from_the_table(compiled):
    def f(
        rows,
    ):  # rows of a fixed length, which are vectors in the loop, and a number that depends on how many there are
        def step(carry, row):
            return carry * 0.5 + np.tanh(row) / len(rows), None

        return gt.scan(step, np.zeros(8), rows)[0]

    g = gt.jit(f, shapes="symbolic")
    for n in range(300, 312):
        rows = np.sin(np.arange(8.0 * n)).reshape(n, 8)
        with gt.config.override(jit=False):
            wanted = f(rows)
        same(g(rows), wanted)
    assert len(compiled) == 2


def test_short_and_long_calls_share_machine_code(compiled):
    def f(x):  # calls of long arrays let other threads run
        return np.log(np.sum(np.exp(x)))

    g = gt.jit(f, shapes="symbolic")
    for n in (20, 30, 40, 2000, 50, 30000, 12, 9, 4000, 5, 2):
        x = np.linspace(0, 1, n)
        same(g(x), f(x))
        same(g(x), f(x))
    assert len(compiled) == 2


def test_exact_shapes_stay_exact(compiled):
    f = gt.jit(lambda x: np.sum(np.cos(x) * 7), shapes="exact")
    with gt.config.override(shapes="symbolic"):
        for n in range(300, 308):
            f(np.ones(n))
    assert len(compiled) == 8
    with gt.config.override(shapes="exact"):
        g = gt.jit(lambda x: np.sum(np.cos(x) * 9))
        for n in range(300, 308):
            g(np.ones(n))
    assert len(compiled) == 16


# Declared shapes


def test_declared_shapes_are_checked():
    n = gt.Dim("n", min=2, max=50)
    f = gt.jit(lambda X, y: X @ np.ones(3) - y, shapes={"X": (n, 3), "y": n})
    same(f(np.ones((4, 3)), np.zeros(4)), np.full(4, 3.0))
    for X, y, match in [
        ((4, 3), 5, "argument 'y' has shape .5,., which is not .n,.: n is 4 in this call"),
        ((4, 2), 4, "2 is not 3"),
        ((1, 3), 1, "n must be at least 2"),
        ((51, 3), 51, "n must be at most 50"),
    ]:
        with pytest.raises(gt.errors.ShapeError, match=match):
            f(np.ones(X), np.zeros(y))
    with pytest.raises(gt.errors.ShapeError, match="it is no array"):
        f(np.ones((4, 3)), 1.0)


@pytest.mark.parametrize(
    "shapes, match",
    [
        ("exakt", "shapes is 'exakt'"),
        (3, "shapes is 3 of type int"),
        ({"z": (gt.Dim("n"),)}, "no such parameter"),
        (((gt.Dim("n"), "3"),), "'3' is neither"),
        (((-1,),), "-1 is neither"),
    ],
)
def test_wrong_shapes_are_refused(shapes, match):
    with pytest.raises(gt.errors.ArgumentError, match=match):
        gt.jit(lambda x: x, shapes=shapes)


def test_wrong_dimensions_are_refused():
    for wrong in (
        lambda: gt.Dim(3),
        lambda: gt.Dim("n", min=-1),
        lambda: gt.Dim("n", min=3, max=2),
        lambda: gt.Dim("n", min=1.5),
    ):
        with pytest.raises(gt.errors.ArgumentError, match="Dim"):
            wrong()


# Templates

TEXT = """\
define i32 @kernel(ptr noalias dereferenceable(80) %x) nounwind {{
entry:
  %y = add nsw i64 %i, {n}
  %z = phi i64 [ 0, %entry ], [ {m}, %loop ]
  call void @blas(ptr @int.{n}, ptr @int.4, i64 {n})
  %d = fdiv double %q, {d}
  ret i32 0
}}
@int.{n} = internal constant i32 {n}
@int.4 = internal constant i32 4
"""


def text(n, m, d=3.0):
    return TEXT.format(n=n, m=m, d=f"0x{np.float64(d).view(np.uint64):016X}")


def test_a_template_reads_the_numbers_that_differ():
    modules = [parse(text(7, 9)), parse(text(8, 11))]
    assert modules[0].form == modules[1].form
    template = Template(modules[0].form, [module.numbers for module in modules])
    assert "7" not in template.text.replace("2147483647", "").replace("9223372036854775807", "")
    assert "@int.4 = internal constant i32 4" in template.text
    table = template.table(parse(text(100, 50)).numbers)
    assert table is not None
    assert sorted(table) == [50, 100, 100]


def test_a_template_reads_vectors_of_one_number_and_the_flag_of_an_entry():
    text = """\
define i32 @kernel(ptr %x) {{
  %v = fmul <4 x double> %w, <double {d}, double {d}, double {d}, double {d}>
  %s = shufflevector <4 x double> %v, <4 x double> poison, <4 x i32> <i32 0, i32 0, i32 0, i32 0>
  %heavy = icmp ne i32 {heavy}, 0
  ret i32 0
}}
"""
    modules = [parse(text.format(d=d, heavy=1)) for d in ("0x3FF0000000000000", "0x4000000000000000")]
    template = Template(modules[0].form, [module.numbers for module in modules])
    assert "fmul <4 x double> %w, %size.0.x4" in template.text
    assert "<4 x i32> <i32 0, i32 0, i32 0, i32 0>" in template.text
    other = parse(text.format(d="0x4008000000000000", heavy=0))
    assert template.table(other.numbers) == (int(np.float64(3.0).view(np.int64)), 0)
    template = Template(modules[0].form, [modules[0].numbers, other.numbers])
    assert template.table(modules[1].numbers) is not None
    same_d = Template(
        modules[0].form, [modules[0].numbers, parse(text.format(d="0x3FF0000000000000", heavy=0)).numbers]
    )
    assert same_d.text.count("double 0x3FF0000000000000") == 4


def test_a_template_refuses_other_constants_and_unequal_numbers():
    template = Template(parse(text(7, 7)).form, [parse(text(7, 7)).numbers, parse(text(8, 8)).numbers])
    assert template.table(parse(text(9, 9)).numbers) is not None
    assert template.table(parse(text(9, 10)).numbers) is None
    assert template.table(parse(text(9, 9, 4.0)).numbers) is None
    assert template.table(parse(text(-9, -9)).numbers) is None


def test_a_template_of_equal_numbers_reads_nothing_of_floats():
    modules = [parse(text(7, 9, 2.5)), parse(text(8, 11, -0.0))]
    template = Template(modules[0].form, [module.numbers for module in modules])
    table = template.table(modules[1].numbers)
    assert table is not None
    assert int(np.float64(-0.0).view(np.int64)) in table
