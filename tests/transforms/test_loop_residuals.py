"""What a scan keeps for its gradient: the same numbers, by less memory."""

import re
import tracemalloc
from math import comb
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.body import bodies_of
from gradtape.ir.evaluate import compute_outputs
from gradtape.lower.resident.memory import kept_bytes, trim_memory
from gradtape.passes.pipeline import optimise
from gradtape.passes.rewrite import closed
from gradtape.runtime.compile.program import program_for
from gradtape.transforms.loops.ops import scan
from tests.support.control_cases import counted as counted_body
from tests.support.control_cases import (
    graph_of,
    integers,
    like,
    looked_up,
    pendulum,
    rnn,
    row,
    scanned,
)
from tests.support.loop_derivatives import pulled, pushed, reverse_of
from tests.transforms.procedures.evaluator import Evaluator, run_procedure

POLICIES = [
    "all",
    1,
    2,
    3,
    7,
    13,
    40,
    "sqrt",
    ("treeverse", 1),
    ("treeverse", 2),
    ("treeverse", 4),
    ("treeverse", 99),
]
BODIES = {
    "rnn": (rnn, [(3, 3), (3,)], [(3,)], [(3,)]),
    "pendulum": (pendulum, [()], [(), ()], []),
    "counted": (counted_body, [], [np.asarray(1), np.asarray(True), ()], [()]),
    "looked-up": (looked_up, [(4,), (3,)], [()], [integers(4)]),
}


def graph_with(body, length, policy, reverse=False, orders="r"):
    case = scanned("policy", *BODIES[body], length, policy=policy, reverse=reverse)
    inputs = [like(x) for x in case.arrays]
    outs = list(case.loop(*inputs))
    for order in orders:
        outs = [*outs, *(pushed(outs, inputs) if order == "f" else pulled(outs, inputs))]
    return closed(graph_of(outs, inputs)), case.arrays


@pytest.mark.parametrize("reverse", [False, True])
@pytest.mark.parametrize("length", [0, 1, 2, 13, 26])
@pytest.mark.parametrize("body", BODIES)
def test_the_same_bits(body, length, reverse):
    graph, arrays = graph_with(body, length, "all", reverse)
    want = compute_outputs(graph, arrays)
    for policy in POLICIES[1:]:
        graph, _ = graph_with(body, length, policy, reverse)
        for one, other in zip(compute_outputs(graph, arrays), want, strict=True):
            np.testing.assert_array_equal(one, other, err_msg=str(policy))


@pytest.mark.parametrize("orders", ["rf", "rr", "fr"])
@pytest.mark.parametrize("policy", [1, 4, "sqrt", ("treeverse", 3)])
@pytest.mark.parametrize("body", ["rnn", "pendulum"])
def test_higher_orders(body, policy, orders):
    want = compute_outputs(*graph_with(body, 13, None, orders=orders))
    got = compute_outputs(*graph_with(body, 13, policy, orders=orders))
    for one, other in zip(got, want, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-8, atol=1e-8)


@pytest.mark.parametrize("policy", [None, "all", 1, 4, "sqrt", ("treeverse", 3)])
@pytest.mark.parametrize("body", BODIES)
def test_as_a_kernel(body, policy):
    graph, arrays = graph_with(body, 18, policy)
    program = program_for(graph)
    assert program.kernel.loaded is not None, program.kernel.reason
    for one, other in zip(program.run(list(arrays)), compute_outputs(graph, arrays), strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-10, atol=1e-10)


def memory(graph):
    """Return the bytes of all results of nodes, those of bodies included once."""
    whole = sum(out.size * out.dtype.itemsize for node in graph.nodes for out in node.outs)
    return whole + sum(memory(body) for node in graph.nodes for body in bodies_of(node))


def test_the_root_of_the_length_is_kept():
    length = 1_000_000
    sizes = {}
    for policy in ("all", "sqrt", ("treeverse", 20)):
        case = scanned("x", *BODIES["pendulum"], 2)
        body = case.loop(*[like(x) for x in case.arrays])[0].node.params["body"]
        inputs = [like(x) for x in case.arrays]
        outs = scan(body, inputs[:1], inputs[1:], [], length, policy=policy)[:2]
        graph = closed(graph_of([*outs, *pulled(outs, inputs)], inputs))
        sizes[policy] = memory(optimise(graph))
    assert sizes["sqrt"] < 0.01 * sizes["all"]
    assert sizes["treeverse", 20] < 0.01 * sizes["sqrt"] + 1_000_000


def executions(graph, name):
    """Return how often ops of this name run, if all loops have known lengths."""
    count = 0
    for node in graph.nodes:
        count += node.op.name == name
        count += node.params.get("length", 1) * sum(executions(body, name) for body in bodies_of(node))
    return count


@pytest.mark.parametrize("policy", [2, 4, "sqrt"])
def test_a_chunk_is_run_again_once(policy):
    everything, _ = graph_with("rnn", 16, "all")
    graph, _ = graph_with("rnn", 16, policy)
    assert executions(optimise(everything), "tanh") == 16
    assert executions(optimise(graph), "tanh") == 32


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 5, 11, 24])
def test_treeverse_runs_the_fewest_iterations(count, length, monkeypatch):
    """Griewank and Walther, equation 2: r l - (s + r)! / (s + 1)! (r - 1)! iterations with s checkpoints, each run at most r times."""
    case = scanned(
        "x", lambda i, c, s, e: (row("sinh")(s[0] * 0.1),), [], [()], [], length, policy=("treeverse", count)
    )
    inputs = [like(x) for x in case.arrays]
    outs = case.loop(*inputs)
    graph = graph_of([outs[0], *pulled(outs, inputs)], inputs)
    calls = []
    sinh = row("sinh")
    evaluate = sinh.evaluate
    monkeypatch.setattr(sinh, "evaluate", lambda *args: calls.append(1) or evaluate(*args))
    compute_outputs(graph, case.arrays)
    runs = next(r for r in range(length + 1) if comb(count + r, count) >= length)
    least = runs * length - (comb(count + runs, count + 1) if runs else 0)
    assert len(calls) - length == least


def run_backward(case, name="sin"):
    """Return the greatest length of the tape of a loop's derivative, in values, and how often a row is computed."""
    procedure, arguments = reverse_of(case)
    evaluator, calls, rows = Evaluator(), [], row(name)
    with pytest.MonkeyPatch.context() as patch:
        evaluate = rows.evaluate
        patch.setattr(rows, "evaluate", lambda *args: calls.append(1) or evaluate(*args))
        run_procedure(procedure, arguments, evaluator)
    return evaluator.most, len(calls)


def test_the_root_of_the_length_is_kept_on_the_tape():
    sizes = {
        policy: run_backward(scanned("x", *BODIES["pendulum"], 400, policy=policy))[0]
        for policy in ("all", "sqrt", ("treeverse", 4))
    }
    assert sizes["sqrt"] < 0.3 * sizes["all"]
    assert sizes["treeverse", 4] < 0.25 * sizes["sqrt"]


@pytest.mark.parametrize("policy", [2, 4, "sqrt"])
def test_a_chunk_of_a_procedure_is_run_again_once(policy):
    counts = [run_backward(scanned("x", *STEP, 16, policy=each), "sinh")[1] for each in ("all", policy)]
    assert counts == [16, 32]


STEP = (lambda i, c, s, e: (row("sinh")(s[0] * 0.1),), [], [()], [])


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("length", [1, 2, 5, 11, 24])
def test_treeverse_of_procedures_runs_the_fewest_iterations(count, length):
    """Griewank and Walther, equation 2: r l - (s + r)! / (s + 1)! (r - 1)! iterations with s checkpoints, each run at most r times.

    Besides these each iteration runs once in the forward sweep, and once just before it is reversed.
    """
    _, calls = run_backward(scanned("x", *STEP, length, policy=("treeverse", count)), "sinh")
    runs = next(r for r in range(length + 1) if comb(count + r, count) >= length)
    least = runs * length - (comb(count + runs, count + 1) if runs else 0)
    assert calls - 2 * length == least


@pytest.mark.parametrize("policy", ["all", 3, "sqrt", ("treeverse", 3)])
def test_a_loop_over_integers_has_policies(policy: Any) -> None:
    def f(x: Any, checkpoint: Any = policy) -> Any:
        return np.sum(gt.fori_loop(2, 40, lambda k, c: np.sin(c * x + 0.01 * k), x, checkpoint=checkpoint))

    x = np.linspace(0.1, 1.0, 500)
    np.testing.assert_allclose(gt.jit(gt.grad(f))(x), gt.grad(lambda x: f(x, None))(x), rtol=1e-12)
    if policy != "all":

        def workspace(checkpoint: Any) -> int:
            loops = gt.inspect.loops(gt.grad(lambda x: f(x, checkpoint)), x)
            return sum(int(size) for size in re.findall(r"np\.empty\((\d+)", loops))

        assert workspace(policy) < workspace(None)


UNTIL_POLICIES: list[Any] = ["all", 1, 2, 5, 100, "sqrt", ("treeverse", 1), ("treeverse", 3)]
W, B = np.random.default_rng(3).normal(size=(2, 3, 3)) * 0.5


def settles(x: Any, p: Any) -> Any:
    """A fixed point: the trip count depends on values."""

    def body(h: Any, change: Any) -> Any:
        new = np.tanh(W * x[0] @ h + B[0])
        return new, np.sum((new - h) ** 2)

    return np.sum(gt.while_loop(lambda h, change: change > 1e-9, body, (x, 1.0), checkpoint=p)[0])


def indexed(x: Any, p: Any) -> Any:
    """Twenty iterations at most, that count themselves; with a branch."""

    def body(i: Any, h: Any) -> Any:
        return i + 1, gt.cond(i % 3 == 0, lambda: np.sin(h * x) + i, lambda: h * h * 0.1)

    ends = gt.while_loop(lambda i, h: np.sum(h) < 1e9, body, (0, x), max_iterations=20, checkpoint=p)
    return np.sum(ends[1]) * ends[0]


def within(x: Any, p: Any) -> Any:
    """A loop of unknown trip count in another, and a scan."""

    def body(i: Any, h: Any) -> Any:
        def inner(j: Any, y: Any) -> Any:
            return j + 1, np.sin(y * x)

        _, y = gt.while_loop(lambda j, y: j < i + 2, inner, (0, h), checkpoint=p)
        return i + 1, gt.scan(lambda y, _: (np.cos(y * x), None), y, length=4, checkpoint=p)[0]

    return np.sum(gt.while_loop(lambda i, h: i < 7, body, (0, x), checkpoint=p)[1])


def reversed_number(x: Any, p: Any) -> Any:
    """Complex numbers, and bounds that depend on an argument."""
    count = (x[0] * 20 + 0.5).astype(int)
    ends = gt.fori_loop(3, count, lambda i, z: z * np.exp(1j * x) * 0.9 + x / i, x + 0j, checkpoint=p)
    return np.sum(np.abs(ends))


def selected(x: Any, p: Any) -> Any:
    """Slopes that are infinite where nothing is selected."""
    signs = np.array([1.0, 0.0, 1.0])

    def body(i: Any, h: Any) -> Any:
        return i + 1, h + np.where(x * signs > 0, np.sqrt(x * signs), 0.0) * h

    return np.sum(gt.while_loop(lambda i, h: i < 9, body, (0, x), checkpoint=p)[1])


UNTIL = (settles, indexed, within, reversed_number, selected)
POINT = np.array([0.7, 0.9, 1.1])


@pytest.mark.parametrize("f", UNTIL)
def test_loops_of_unknown_trip_count_have_the_same_gradients(f: Any) -> None:
    want = gt.jit(gt.grad(lambda x: f(x, None)))(POINT)
    step = 1e-6 * np.eye(3)
    slopes = [(f(POINT + d, None) - f(POINT - d, None)) / 2e-6 for d in step]
    np.testing.assert_allclose(want, np.array(slopes, float), rtol=1e-5, atol=1e-6)
    for policy in UNTIL_POLICIES:
        got = gt.jit(gt.grad(lambda x, p=policy: f(x, p)))(POINT)
        np.testing.assert_allclose(got, want, rtol=1e-12, atol=1e-12, err_msg=str(policy))
        with gt.config.override(jit=False):
            np.testing.assert_allclose(gt.grad(lambda x, p=policy: f(x, p))(POINT), want, rtol=1e-10)


@pytest.mark.parametrize(
    ("f", "policy"),
    [(settles, 3), (indexed, "sqrt"), (indexed, ("treeverse", 2)), (within, "sqrt")],
)
def test_loops_of_unknown_trip_count_in_transforms(f: Any, policy: Any) -> None:
    many = np.stack([POINT, POINT * 0.8, POINT * 1.3])
    for transform, x in (
        (lambda f: gt.vmap(gt.grad(f)), many),
        (lambda f: gt.jacfwd(gt.grad(f)), POINT),
        (lambda f: gt.grad(lambda y: np.sum(gt.grad(f)(y) ** 2)), POINT),
    ):
        got, want = (gt.jit(transform(lambda x, p=p: f(x, p)))(x) for p in (policy, None))
        np.testing.assert_allclose(got, want, rtol=1e-10, atol=1e-10)


@pytest.mark.parametrize("count", [0, 1, 2, 3, 6, 7, 50])
def test_any_trip_count(count: int) -> None:
    def power(x: Any, n: Any, p: Any) -> Any:
        return gt.fori_loop(1, n, lambda i, c: np.sin(c) * x, x, checkpoint=p)

    want = gt.value_and_grad(lambda x: power(x, count, None))(1.1)
    for policy in UNTIL_POLICIES[1:]:
        got = COUNTED.setdefault(policy, gt.jit(gt.value_and_grad(power), static_argnums=2))(
            1.1, count, policy
        )
        np.testing.assert_allclose(got, want, rtol=1e-12)


COUNTED: dict[Any, Any] = {}


def peak(function: Any, *args: Any) -> int:
    """Return the most bytes that a first run takes, with the stacks of kernels, which the memory pool keeps: what is compiled is warm."""
    trim_memory()
    tracemalloc.start()
    try:
        function(*args)
        return tracemalloc.get_traced_memory()[1] + kept_bytes()
    finally:
        tracemalloc.stop()


def most_bytes(function: Any, x: Any) -> int:
    """Return the most bytes that a compiled gradient takes."""
    gradient = gt.jit(gt.grad(function))
    gradient(x)
    return peak(gradient, x)


def test_the_memory_of_loops_of_unknown_trip_count() -> None:
    def f(x: Any, n: Any, p: Any) -> Any:
        return np.sum(gt.fori_loop(0, n, lambda i, c: np.sin(c * x) * np.exp(0.1 * c), x, checkpoint=p))

    x, n = np.linspace(0.1, 1.0, 100), 10_000
    bytes_ = {}
    for policy in ("all", 1, 100, "sqrt", ("treeverse", 10)):
        gradient = gt.jit(gt.grad(lambda x, n, p=policy: f(x, n, p)))
        gradient(x, 2)
        bytes_[policy] = peak(gradient, x, n)
    assert bytes_[1] < 0.6 * bytes_["all"]
    assert bytes_["sqrt"] < 0.05 * bytes_["all"]
    assert bytes_[100] < 0.05 * bytes_["all"]
    assert bytes_["treeverse", 10] < 60_000  # of which some 40,000 are what Python allocates for a first call


@gt.custom_vjp
def sine(x: Any) -> Any:
    return np.sin(x)


sine.defvjp(lambda x: (np.sin(x), x), lambda x, cotangent: (cotangent * np.cos(x),))


@pytest.mark.parametrize("policy", [20, "sqrt", ("treeverse", 6)])
@pytest.mark.parametrize("counted", [True, False])
@pytest.mark.parametrize("step", [lambda c: sine(c) * 0.9, lambda c: np.sin(c) * (0.9 + 0.1j)])
def test_policies_hold_for_complex_numbers_and_derivatives_given_by_the_user(
    step: Any, counted: bool, policy: Any
) -> None:
    x = np.linspace(0.1, 1.0, 1000)

    def f(x: Any, n: Any, policy: Any) -> Any:
        n = 400 if counted else n
        carry = gt.fori_loop(0, n, lambda i, c: step(c) + x, step(x), checkpoint=policy)
        return np.sum(np.abs(carry) ** 2)

    gradients = [gt.jit(gt.grad(lambda x, n, p=each: f(x, n, p))) for each in ("all", policy)]
    results = [gradient(x, 400) for gradient in gradients]
    np.testing.assert_allclose(*results, rtol=1e-10)
    everything, less = (peak(gradient, x, 400) for gradient in gradients)
    assert less < 0.3 * everything


def test_a_million_iterations_keep_the_root_of_their_number() -> None:
    def f(x: Any, policy: Any) -> Any:
        def step(i: Any, state: Any) -> Any:
            angle, speed = state
            return angle + 1e-5 * speed, speed - 1e-5 * np.sin(angle)

        angle, _ = gt.fori_loop(0, 1_000_000, step, (x, 0.0), checkpoint=policy)
        return angle

    bytes_ = {
        policy: most_bytes(lambda x, p=policy: f(x, p), 0.3) for policy in ("all", "sqrt", ("treeverse", 20))
    }
    assert bytes_["sqrt"] < 0.01 * bytes_["all"]
    assert bytes_["treeverse", 20] < 0.01 * bytes_["all"]


def unrolled_steps(x: Any) -> Any:
    c = x
    for i in range(120):
        c = np.sin(c * x + 0.01 * i) * np.exp(0.1 * c)
    return np.sum(c)


def unrolled_until(x: Any) -> Any:
    c = x
    while np.max(np.abs(c)) > 1e-2:
        c = c * 0.98 * np.cos(0.01 * c * x)
    return np.sum(c) * 100


@pytest.mark.parametrize("f", [unrolled_steps, unrolled_until])
def test_loops_of_python_have_the_policy_of_the_setting(f: Any) -> None:
    x = np.linspace(0.1, 1.0, 100)
    compiled, plain = gt.jit(gt.grad(f)), gt.grad(f)
    want, bytes_ = compiled(x), {}
    for policy in (None, "1", "sqrt", "treeverse:4"):
        with gt.config.override(reroll_checkpoint=policy):
            function = gt.jit(gt.grad(f))
            function(x)
            np.testing.assert_allclose(plain(x), want, rtol=1e-12)
            with gt.GradientTape() as tape:
                v = gt.constant(x)
                tape.watch(v)
                y = f(v)
            np.testing.assert_allclose(tape.gradient(y, v), want, rtol=1e-12)
            if f is unrolled_steps:
                loops = gt.inspect.loops(gt.grad(lambda x: f(x)), x)
                bytes_[policy] = sum(int(size) for size in re.findall(r"np\.empty\((\d+)", loops))
            # A function that was traced under another setting is traced again, once for each.
            traces = compiled.site.traces
            np.testing.assert_allclose(compiled(x), want, rtol=1e-12)
            compiled(x)
            assert compiled.site.traces == traces + (policy is not None)
    traces = compiled.site.traces
    compiled(x)
    assert compiled.site.traces == traces
    if bytes_:
        assert bytes_["1"] < bytes_[None]
        assert bytes_["sqrt"] < 0.3 * bytes_[None]
        assert bytes_["treeverse:4"] < 0.1 * bytes_[None]


@pytest.mark.parametrize("text", ["sqr", "0", "-3", "treeverse", "treeverse:0", "a:3"])
def test_a_policy_that_does_not_exist_is_no_setting(text: str) -> None:
    with pytest.raises(ValueError, match="every k-th"):
        gt.config.reroll_checkpoint = text
    assert gt.config.reroll_checkpoint is None
    with pytest.raises(gt.errors.ArgumentError, match="did you mean"):
        gt.while_loop(lambda x: x < 1, lambda x: x + 1, 0.0, checkpoint="sqr")
