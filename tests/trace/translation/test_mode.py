"""gt.config.loops: when functions are traced, and when their code is compiled."""

import functools
import math
import random

import numpy as np
import pytest

import gradtape as gt
from gradtape.config import Config
from gradtape.errors import CompileWarning, ConcretizationError, InternalError
from tests.support.processes import words_printed


def decay(x):
    y = 0.0
    for _ in range(100_000):
        y = 0.5 * y + x
    return y


def halvings(x):
    count = 0.0
    while x > 1.0:
        x = x / 2.0
        count = count + float(x)
    return count


def test_the_setting():
    assert Config({}).loops == "auto"
    assert Config({"GRADTAPE_LOOPS": "trace"}).loops == "trace"
    with pytest.raises(ValueError, match='"trace", "compile" or "auto"'):
        gt.config.loops = "never"
    with pytest.raises(ValueError, match="GRADTAPE_LOOPS"):
        Config({"GRADTAPE_LOOPS": "never"})


def test_a_loop_that_goes_on_for_long_is_compiled():
    function = gt.jit(decay)
    assert np.isclose(function(2.0), 4.0)
    assert np.isclose(gt.grad(decay)(2.0), 2.0)
    text = gt.inspect.explain(function)
    assert "decay was compiled from its code: the loop at" in text and "test_mode.py" in text


def test_a_loop_that_stores_many_elements_is_a_long_one():
    def swept(x):
        y = x.copy()
        for k in range(20):
            for i in range(1, len(y)):
                y[i] = 0.5 * y[i - 1] + y[i] * (0.1 * k)
        return y[-1]

    x = np.arange(1.0, 6.0)
    function = gt.jit(swept)
    assert np.isclose(function(x), swept(x))
    text = gt.inspect.explain(function)
    assert "swept was compiled from its code" in text and " elements, and went on" in text


def test_a_short_loop_is_not():
    function = gt.jit(lambda x: sum(x * k for k in range(10)))
    assert function(2.0) == 90.0
    assert "compiled from" not in gt.inspect.explain(function)


def test_numbers_that_a_trace_does_not_have():
    assert np.isclose(gt.jit(halvings)(10.0), halvings(10.0))
    assert np.isclose(gt.grad(halvings)(10.0), 0.5 + 0.25 + 0.125 + 0.0625)
    with gt.config.override(loops="trace"), pytest.raises(ConcretizationError):
        gt.jit(halvings)(10.0)


def test_on_demand():
    with gt.config.override(loops="compile"):
        function = gt.jit(lambda x: x * 2.0)
        assert function(3.0) == 6.0
        assert "compiled from its code" in gt.inspect.explain(function)


def refused(x):
    table = {"a": x}
    y = 0.0
    for _ in range(3):
        y = y + table["a"]
    return y


def test_what_cannot_be_compiled_is_traced():
    with gt.config.override(loops="compile"):
        function = gt.jit(refused)
        assert function(3.0) == 9.0
        text = gt.inspect.explain(function)
        assert "refused was run and recorded, since its code could not be compiled" in text


def test_a_trace_that_was_given_up_leaves_nothing_behind():
    seen, table, generator = [], {}, random.Random(0)
    first = random.Random(0).gauss()

    def function(x):
        seen.append(1)
        table[len(seen)] = generator.gauss()
        y = 0.0
        for _ in range(5_000):
            y = 0.5 * y + x
        return y

    with pytest.warns(gt.errors.SideEffectWarning):
        assert np.isclose(gt.jit(function)(2.0), 4.0)
    assert seen == [1] and table == {1: first}


def test_changed_globals_are_seen():
    factor = 2.0

    def function(x):
        y = 0.0
        for _ in range(5_000):
            y = 0.5 * y + x * factor
        return y

    compiled = gt.jit(function)
    assert np.isclose(compiled(1.0), 4.0)
    factor = 3.0
    assert np.isclose(compiled(1.0), 6.0)


def test_vectorised_code_needs_no_numba():
    code = """
import sys, numpy as np, gradtape as gt
gt.jit(gt.grad(lambda x: np.sum(np.sin(x) ** 2)))(np.ones(3))
gt.grad(lambda x: sum(x * k for k in range(50)))(1.0)
print("numba" in sys.modules)
"""
    assert words_printed(code) == ["False"]


def test_a_second_process_needs_no_numba(tmp_path):
    program = tmp_path / "program.py"
    program.write_text("""
import sys, gradtape as gt
def decay(x):
    y = 0.0
    for k in range(20_000):
        y = abs(0.5 * y + x) if k % 2 else (y, x)[0] * 0.5 + x
    return y
print(gt.grad(decay)(2.0), "numba" in sys.modules)
""")
    code = f"""
import runpy, gradtape
gradtape.config.cache_dir = {str(tmp_path)!r}
gradtape.config.disk_cache = True
runpy.run_path({str(program)!r})
"""
    first, second = [words_printed(code) for _ in range(2)]
    assert first[1] == "True" and second == [first[0], "False"]


def test_the_infinite_slope_of_an_element_that_nobody_uses():
    """The cotangent of the root of 0 goes through memory, where it has no mask."""

    def distances(x):
        n = len(x)
        r = np.zeros((n, n))
        for i in range(n):
            for j in range(n):
                r[i, j] = math.sqrt((x[i] - x[j]) ** 2)
        total = 0.0
        for i in range(n):
            for j in range(n):
                if i != j:
                    total += 1.0 / r[i, j]
        return total

    with gt.config.override(loops="compile"):
        gradient = gt.grad(distances)(np.array([0.0, 1.0, 3.0]))
    np.testing.assert_allclose(gradient, [2 + 2 / 9, -2 + 2 / 4, -2 / 4 - 2 / 9])


def test_a_changed_setting_traces_anew():
    def function(x):
        y = 0.0
        for _ in range(50):
            y = 0.5 * y + x
        return y

    compiled, gradient = gt.jit(function), gt.grad(function)

    def ways():
        assert np.isclose(compiled(2.0), 4.0) and np.isclose(compiled(3.0), 6.0)
        assert np.isclose(gradient(2.0), 2.0)
        texts = gt.inspect.explain(compiled), gt.inspect.explain(gradient)
        return ["compiled from its code" in text for text in texts]

    assert ways() == [False, False]
    with gt.config.override(loops="compile"):
        assert ways() == [True, True]
        assert compiled.site.traces == 2
    traces = compiled.site.traces
    assert np.isclose(compiled(4.0), 8.0) and compiled.site.traces == traces


def test_what_was_translated_on_demand_is_traced_where_the_setting_says_so():
    compiled = gt.jit(decay_of_thousands)
    assert np.isclose(compiled(2.0), 4.0)
    assert "compiled from its code" in gt.inspect.explain(compiled)
    with gt.config.override(loops="trace"):
        before = compiled.site.traces
        assert np.isclose(compiled(2.0), 4.0) and compiled.site.traces == before + 1
        assert not compiled.site.specialisations()[-1].ways
    assert np.isclose(compiled(3.0), 6.0) and compiled.site.traces == before + 1


def decay_of_thousands(x):
    y = 0.0
    for _ in range(5_000):
        y = 0.5 * y + x
    return y


def signed(matrices, scales):
    total = np.zeros(3)
    for matrix, scale in zip(matrices, scales, strict=True):
        part = np.linalg.solve(matrix, np.ones(3)) * scale
        if scale < 0.5:
            part = -part
        total += part
    return np.sum(total**2)


def test_a_branch_that_goes_both_ways_is_compiled():
    random = np.random.default_rng(1)
    matrices, scales = random.normal(size=(40, 3, 3)) + 4 * np.eye(3), random.uniform(size=40)
    compiled = gt.jit(signed)
    for given in (scales, random.permutation(scales)):
        assert np.isclose(compiled(matrices, given), signed(matrices, given))
    text = gt.inspect.explain(compiled)
    assert "signed was compiled from its code: the branch at" in text and "1 trace for" in text


def test_a_branch_that_ends_a_loop_is_not():
    def root(x):
        y = x
        for _ in range(100):
            y, before = 0.5 * (y + x / y), y
            if np.max(np.abs(y - before)) < 1e-12:
                break
        return np.sum(y)

    function, x = gt.jit(root), np.array([2.0, 1e7])
    assert np.isclose(function(x), np.sum(np.sqrt(x)))
    assert "compiled from its code" not in gt.inspect.explain(function)


def powers(z, weights, steps):
    """Iterate a polynomial, with an array of complex numbers that is written in place."""
    out = np.zeros((steps, len(z)), dtype=np.complex128)
    for k in range(steps):
        for i in range(len(z)):
            out[k, i] = weights[k % 2] * z[i] ** 2 + (out[k - 1, i] if k else 1.0)
        z = out[k] * 0.25
    return np.sum(out.real), out


def test_complex_arguments_and_results_of_compiled_code():
    random = np.random.default_rng(2)
    weights = np.array([0.3, 0.2 - 0.1j])
    z = random.normal(size=4) + 1j * random.normal(size=4)
    with gt.config.override(loops="compile"):
        compiled = gt.jit(lambda z, weights: powers(z, weights, 5))
        total, out = compiled(z, weights)
        expected = powers(z, weights, 5)
        np.testing.assert_allclose(total, expected[0])
        np.testing.assert_allclose(out, expected[1])
        gradient = gt.jit(gt.grad(lambda z, weights: powers(z, weights, 5)[0], argnums=(0, 1)))
        by_z, by_weights = gradient(z, weights)
    for text in map(gt.inspect.explain, (compiled, gradient)):
        assert "called natively" in text
    step = 1e-6
    for direction in (1.0, 1j):
        for k in range(2):
            moved = np.eye(2)[k] * step * direction
            difference = powers(z, weights + moved, 5)[0] - powers(z, weights - moved, 5)[0]
            assert np.isclose((by_weights[k] * np.conj(direction)).real, difference / (2 * step), rtol=1e-6)
        moved = np.eye(4)[1] * step * direction
        difference = powers(z + moved, weights, 5)[0] - powers(z - moved, weights, 5)[0]
        assert np.isclose((by_z[1] * np.conj(direction)).real, difference / (2 * step), rtol=1e-6)


def tripled(x):
    y = 0.0
    for _ in range(3):
        y = y + x
    return y


def long_sum(x):
    y = 0.0
    for _ in range(9_000):
        y = y + x
    return y


@pytest.mark.parametrize(
    "error", [KeyError("b"), AssertionError("no block"), InternalError("a leaf is lost")]
)
def test_a_defect_of_the_translation_is_reported(monkeypatch, error):
    def fail(self, name):
        raise error

    monkeypatch.setattr("gradtape.frontend.interpreter.Interpreter.value", fail)
    pattern = rf"(?s)tripled could not be compiled.*where: .*test_mode\.py:.*{type(error).__name__}: .*please report it"
    with gt.config.override(loops="compile"):
        function = gt.jit(tripled)
        with pytest.warns(CompileWarning, match=pattern):
            assert function(2.0) == 6.0
        assert f"an internal error, {type(error).__name__}" in gt.inspect.explain(function)
        with pytest.warns(CompileWarning, match=pattern):
            assert gt.grad(tripled)(2.0) == 3.0
        with pytest.warns(CompileWarning, match=pattern):
            assert gt.vjp(tripled, 2.0)[0] == 6.0
    with pytest.warns(CompileWarning, match="long_sum could not be compiled"):
        assert gt.jit(long_sum)(0.5) == 4500.0


def test_a_defect_behind_the_translation_is_reported(monkeypatch):
    def fail(*args):
        raise ZeroDivisionError("of ours")

    monkeypatch.setattr("gradtape.trace.translation.calls.reference_to", fail)
    with (
        gt.config.override(loops="compile"),
        pytest.warns(CompileWarning, match="ZeroDivisionError: of ours"),
    ):
        assert gt.jit(tripled)(2.0) == 6.0


def test_an_error_of_the_users_is_no_defect():
    def wrong(x):
        for _ in range(3):
            x = x + (1, 2)[5]
        return x

    def unequal(x):
        return x + np.ones(3) @ np.ones(4)

    with gt.config.override(loops="compile"):
        with pytest.raises(IndexError):
            gt.jit(wrong)(2.0)
        with pytest.raises(ValueError, match="mismatch in its core dimension"):
            gt.jit(unequal)(2.0)


def test_a_defect_is_noted_where_a_number_is_missing(monkeypatch):
    def fail(self, name):
        raise KeyError(name)

    monkeypatch.setattr("gradtape.frontend.interpreter.Interpreter.value", fail)
    with pytest.warns(CompileWarning, match="an internal error: KeyError"):
        assert np.isclose(gt.jit(halvings)(10.0), halvings(10.0))
    with pytest.raises(ConcretizationError) as caught:
        gt.vmap(halvings)(np.array([10.0, 3.0]))
    assert "KeyError" in "".join(caught.value.__notes__)


def test_arguments_without_an_implementation_are_no_defect():
    def pairs(x):
        return np.multiply.outer(x, x, dtype=np.float32)

    def quotient(x):
        return math.hypot(x[0], x[1], x[2], 1.0) + len([x]) + int("7", base=8)

    x = np.arange(1.0, 4.0)
    with gt.config.override(loops="compile"):
        for function in (pairs, quotient):
            np.testing.assert_array_equal(gt.jit(function)(x), function(x))


class Pendulum:
    """An object whose methods have long loops."""

    def __init__(self, damping):
        self.damping = damping
        self.calls = 0

    def swing(self, angle, steps=3000):
        speed = 0.0 * angle
        for _ in range(steps):
            speed = speed - 0.01 * (self.damping * speed + 9.81 * np.sin(angle))
            angle = angle + 0.01 * speed
        return np.sum(angle)

    def counted(self, angle):
        self.calls += 1
        return self.swing(angle)

    def __call__(self, angle):
        return self.swing(angle)


class Heavier(Pendulum):
    """Inherits `__call__`."""


CALLABLES = {
    "method": lambda pendulum: pendulum.swing,
    "method that counts": lambda pendulum: pendulum.counted,
    "object": lambda pendulum: pendulum,
    "object of a subclass": lambda pendulum: Heavier(pendulum.damping),
    "partial": lambda pendulum: functools.partial(pendulum.swing, steps=2000),
    "partial of a partial": lambda pendulum: functools.partial(
        functools.partial(pendulum.swing, steps=1), steps=2000
    ),
    "partial of a function": lambda pendulum: functools.partial(Pendulum.swing, pendulum),
}


@pytest.mark.parametrize("name", CALLABLES)
@pytest.mark.parametrize("angle", [1.0, np.array([1.0, 0.5])], ids=["number", "array"])
def test_long_loops_of_methods_partials_and_objects_are_compiled_from_their_code(name, angle):
    pendulum = Pendulum(0.1)
    function = gt.value_and_grad(CALLABLES[name](pendulum))
    function(angle)
    assert "compiled from its code" in str(gt.inspect.explain(function))
    for damping in (0.1, 0.3):
        pendulum = Pendulum(damping)
        function = CALLABLES[name](pendulum)
        value, slope = gt.value_and_grad(function)(angle)
        plain = CALLABLES[name](Pendulum(damping))
        np.testing.assert_allclose(value, plain(angle), rtol=1e-12)
        h = 1e-6 * np.ones_like(angle)
        np.testing.assert_allclose(
            np.sum(slope), (plain(angle + h) - plain(angle - h)) / 2e-6, rtol=1e-6, atol=1e-8
        )
    if name == "method that counts":
        assert pendulum.calls == 1


def test_attributes_that_change_between_calls_are_seen_in_compiled_loops_of_methods():
    pendulum = Pendulum(np.array([0.1, 0.2]))
    slope = gt.grad(pendulum.swing)
    angle = np.array([1.0, 2.0])
    slope(angle)
    pendulum.damping[0] = 0.7
    np.testing.assert_allclose(slope(angle), gt.grad(Pendulum(np.array([0.7, 0.2])).swing)(angle), rtol=1e-12)
    pendulum.damping = np.array([0.3, 0.1])
    np.testing.assert_allclose(slope(angle), gt.grad(Pendulum(np.array([0.3, 0.1])).swing)(angle), rtol=1e-12)


def test_keywords_of_a_call_outdo_those_of_a_partial():
    partial = functools.partial(Pendulum(0.1).swing, steps=2500)
    np.testing.assert_allclose(gt.jit(partial)(1.0, steps=2000), Pendulum(0.1).swing(1.0, 2000), rtol=1e-12)


class Box:
    """An object that a function makes: its code is not compiled from its source then."""

    def __init__(self, content):
        self.content = content


def by_float(x):
    return float(Box(x).content[0] * x[1]) * Box(x[2]).content


def by_item(x):
    content = Box(x).content
    return (content[0] * content[1]).item() * content.item(2)


def by_tolist(x):
    first, second, third = Box(np.sin(x)).content.tolist()
    return first * second + third


def by_branch(x):
    box = Box(x)
    return box.content[0].item() * x[1] if float(box.content[2]) > 0.0 else x[2]


@pytest.mark.parametrize("function", [by_float, by_item, by_tolist, by_branch])
def test_numbers_stay_traced_in_code_that_cannot_be_compiled(function):
    x = np.array([1.0, 2.0, 3.0])
    steps = 1e-6 * np.eye(3)
    slope = [(function(x + step) - function(x - step)) / 2e-6 for step in steps]
    assert np.isclose(gt.jit(function)(x), function(x))
    for derivative in (gt.grad, gt.jacfwd, lambda f: lambda x: gt.vmap(gt.grad(f))(x[None])):
        np.testing.assert_allclose(np.ravel(derivative(function)(x)), slope, rtol=1e-8)


def fill(box, z):
    box.content[int(z[2]), 0] = math.sin(by_item(np.asarray([box.start, z[0], 1.0])))
    return box


def filled(x):
    box = Box(np.zeros((3, 2)))
    box.start = x[0]
    box = fill(box, np.array([1.5, 0.3, 0.0]))
    return np.sum(box.content) * x[1]


def test_a_refused_translation_leaves_arrays_writable():
    x = np.array([0.5, 2.0])
    np.testing.assert_allclose(gt.grad(filled)(x), [3.0 * math.cos(0.75), math.sin(0.75)])
