"""Optimisers: their formulas, on variables and on nests of arrays, eagerly and compiled."""

from __future__ import annotations

import copy
import gc
import pickle
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape import errors
from gradtape.api.optimizers import Optimizer
from tests.support.ways import PAIR, expect

MAKE = {
    "descent": lambda: gt.optimizers.GradientDescent(0.1),
    "momentum": lambda: gt.optimizers.Momentum(0.1, 0.8),
    "nesterov": lambda: gt.optimizers.Momentum(0.1, 0.8, nesterov=True),
    "adam": lambda: gt.optimizers.Adam(0.1, 0.8, 0.95, 1e-6),
    "sgd": lambda: gt.optimizers.SGD(0.1),
    "sgd momentum": lambda: gt.optimizers.SGD(0.1, 0.8),
    "rmsprop": lambda: gt.optimizers.RMSprop(0.1, 0.95, 1e-6),
}
optimizers = pytest.mark.parametrize("make", MAKE.values(), ids=MAKE)


def reference(name: str, w: Any, slope: Any, steps: int) -> Any:
    """Return the parameters after some steps, by the formulas as they are published."""
    w, v, m, s = np.array(w), np.zeros_like(w), np.zeros_like(w), np.zeros(np.shape(w), np.real(w).dtype)
    for t in range(1, steps + 1):
        g = slope(w)
        v = 0.8 * v + g
        m, s = 0.8 * m + 0.2 * g, 0.95 * s + 0.05 * np.abs(g) ** 2
        w = {
            "descent": lambda g=g, w=w: w - 0.1 * g,
            "momentum": lambda v=v, w=w: w - 0.1 * v,
            "nesterov": lambda g=g, v=v, w=w: w - 0.1 * (g + 0.8 * v),
            "adam": lambda m=m, s=s, t=t, w=w: (
                w - 0.1 * (m / (1 - 0.8**t)) / (np.sqrt(s / (1 - 0.95**t)) + 1e-6)
            ),
            "sgd": lambda g=g, w=w: w - 0.1 * g,
            "sgd momentum": lambda v=v, w=w: w - 0.1 * v,
            "rmsprop": lambda g=g, s=s, w=w: w - 0.1 * g / (np.sqrt(s) + 1e-6),
        }[name]()
    return w


def bowl(w: Any) -> Any:
    return np.sum((w - 3) ** 2 * np.array([1.0, 0.5]))


def slope(w: Any) -> Any:
    return 2 * (w - 3) * np.array([1.0, 0.5])


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("compiled", [False, True], ids=["eager", "jit"])
def test_the_formulas_on_variables(name: str, compiled: bool) -> None:
    expected = reference(name, PAIR, slope, 5)
    w = gt.Variable(PAIR, name="w")
    optimizer = MAKE[name]()

    def step() -> Any:
        return optimizer.minimize(lambda: bowl(w), [w])

    run = gt.jit(step) if compiled else step
    losses = [float(run()) for _ in range(5)]
    np.testing.assert_allclose(w, expected, rtol=1e-12)
    assert losses[0] == bowl(PAIR) and losses[-1] < 3.0
    assert int(optimizer.iterations) == 5
    assert len(optimizer.variables) == 1 + len(optimizer.slots)
    if compiled:
        assert run.site.traces <= 2


@pytest.mark.parametrize("name", MAKE)
@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.complex128], ids=lambda dtype: dtype.__name__)
def test_the_formulas_on_nests(name: str, dtype: Any) -> None:
    optimizer = MAKE[name]()
    w = {"a": PAIR.astype(dtype), "b": [dtype(1.0)]}
    state = optimizer.init(w)

    @gt.jit
    def step(w: Any, state: Any) -> Any:
        return optimizer.update(
            gt.grad(lambda w: np.real(np.sum(np.abs(w["a"] - 3) ** 2) + np.abs(w["b"][0]) ** 2))(w), state, w
        )

    for _ in range(4):
        w, state = step(w, state)
    tolerance = 1e-5 if dtype is np.float32 else 1e-12
    np.testing.assert_allclose(
        w["a"], reference(name, PAIR.astype(dtype), lambda w: 2 * (w - 3), 4), rtol=tolerance
    )
    np.testing.assert_allclose(w["b"][0], reference(name, dtype(1.0), lambda w: 2 * w, 4), rtol=tolerance)
    assert w["a"].dtype == w["b"][0].dtype == dtype and state["step"] == 4
    assert all(
        state[slot]["a"].dtype == (np.float64 if slot == "square" and dtype is np.complex128 else dtype)
        for slot in optimizer.slots
    )
    assert step.site.traces <= 2


@optimizers
def test_nothing_is_changed_in_place(make: Any) -> None:
    optimizer = make()
    w = PAIR.copy()
    state = optimizer.init(w)
    kept = {key: np.array(value) for key, value in state.items()}
    new, after = optimizer.update(PAIR, state, w)
    np.testing.assert_array_equal(w, PAIR)
    for key in state:
        np.testing.assert_array_equal(state[key], kept[key])
    assert new is not w and after["step"] == 1


@optimizers
def test_sparse_gradients_do_what_dense_ones_do(make: Any) -> None:
    rows = gt.IndexedSlices(np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), [0, 2, 0], (3, 2))
    table = np.arange(6.0).reshape(3, 2)
    sparse, dense, by_sparse, by_dense = gt.Variable(table), gt.Variable(table), make(), make()
    functional, state = table, make().init(table)
    for _ in range(3):
        by_sparse.apply_gradients([(rows, sparse)])
        by_dense.apply_gradients([(rows.numpy(), dense)])
        functional, state = make().update(rows, state, functional)
    np.testing.assert_allclose(sparse, dense, rtol=1e-12)
    np.testing.assert_allclose(functional, dense, rtol=1e-12)


def test_descent_touches_only_the_rows_of_a_sparse_gradient() -> None:
    table = gt.Variable(np.ones((4, 2)))
    optimizer = gt.optimizers.GradientDescent(0.5)
    optimizer.minimize(lambda: np.sum(gt.gather(table, [1, 1, 3]) ** 2), [table])
    np.testing.assert_array_equal(table, [[1, 1], [-1, -1], [1, 1], [0, 0]])


def test_the_ways_to_give_a_loss() -> None:
    w, b = gt.Variable(1.0), gt.Variable(2.0)
    optimizer = gt.optimizers.GradientDescent(0.5)
    with gt.GradientTape() as tape:
        loss = w * w + 0 * b
    pairs = optimizer.compute_gradients(loss, tape=tape)
    assert [variable is other for (_, variable), other in zip(pairs, (w, b), strict=True)] == [True, True]
    optimizer.apply_gradients(pairs)
    assert float(w) == 0.0 and float(b) == 2.0

    @gt.jit
    def step() -> Any:
        return optimizer.minimize((b - 1) ** 2, var_list=[b])

    assert step() == 1.0 and float(b) == 1.0
    optimizer.minimize(lambda: (w - 1) ** 2, lambda: [w])
    optimizer.minimize(lambda: (w - 1) ** 2, w)
    optimizer.minimize(lambda: (w - 1) ** 2)
    assert float(w) == 1.0


def test_missing_gradients_leave_variables_alone() -> None:
    w, b = gt.Variable(1.0), gt.Variable(2.0)
    optimizer = gt.optimizers.Adam(0.5)
    with pytest.warns(errors.GradtapeWarning, match="1 variable of 2 .* None: number 1, of shape \\(\\)"):
        optimizer.minimize(lambda: w * w, [w, b])
    assert float(b) == 2.0 and len(optimizer.variables) == 3
    new, _ = optimizer.update(
        {"a": None, "b": 2.0}, optimizer.init({"a": 1.0, "b": 1.0}), {"a": 1.0, "b": 1.0}
    )
    assert new["a"] == 1.0 and abs(new["b"] - 0.5) < 1e-7
    expect(errors.ArgumentError, lambda: optimizer.minimize(lambda: w * w, [b]), "None")
    expect(errors.ArgumentError, lambda: optimizer.apply_gradients([]), "no gradients")


@pytest.mark.parametrize("compiled", [False, True])
def test_a_missing_gradient_is_warned_of_with_the_name_and_the_line(compiled: bool) -> None:
    w, b = gt.Variable([1.0, 2.0]), gt.Variable([1.0, 2.0], name="bias")
    optimizer = gt.optimizers.GradientDescent(0.5)

    def step() -> None:
        optimizer.apply_gradients([(np.ones(2), w), (None, b)])

    with pytest.warns(errors.GradtapeWarning, match="'bias'") as caught:
        (gt.jit(step) if compiled else step)()
    assert caught[0].filename == __file__
    np.testing.assert_array_equal(w.numpy(), [0.5, 1.5])
    np.testing.assert_array_equal(b.numpy(), [1.0, 2.0])


def test_learning_rates_that_change() -> None:
    rate, w = gt.Variable(0.5), gt.Variable(1.0)
    by_variable = gt.jit(lambda o=gt.optimizers.GradientDescent(rate): o.minimize(lambda: w * 1.0, [w]))  # noqa: B008
    by_variable()
    rate.assign(0.25)
    by_variable()
    assert float(w) == 0.25
    schedule = gt.optimizers.Momentum(lambda step: 1.0 / step, momentum=0.0)
    state, x = schedule.init(0.0), 0.0
    step = gt.jit(lambda x, state: schedule.update(1.0, state, x))
    for _ in range(3):
        x, state = step(x, state)
    np.testing.assert_allclose(x, -(1 + 1 / 2 + 1 / 3))
    w.assign(0.0)
    for _ in range(2):
        schedule.apply_gradients([(1.0, w)])
    assert float(w) == -1.5


def test_a_learning_rate_that_is_set_is_seen_by_compiled_steps() -> None:
    w, optimizer = gt.Variable(1.0), gt.optimizers.GradientDescent(0.5)
    step = gt.jit(lambda: optimizer.minimize(lambda: w * 1.0, [w]))
    update = gt.jit(lambda x: optimizer.update(1.0, optimizer.init(0.0), x)[0])
    step()
    assert update(0.0) == -0.5
    optimizer.learning_rate = 0.25
    step()
    assert float(w) == 0.25 and update(0.0) == -0.25 and optimizer.learning_rate == 0.25
    expect(
        errors.ArgumentError,
        lambda: setattr(optimizer, "learning_rate", lambda step: 1.0),
        "another optimiser",
    )
    expect(errors.DtypeError, lambda: setattr(optimizer, "learning_rate", "fast"), "learning_rate")
    for other, name in ((gt.optimizers.Momentum(), "nesterov"), (gt.optimizers.Adam(), "beta_1")):
        expect(AttributeError, lambda other=other, name=name: setattr(other, name, 0.5))
    assert (gt.optimizers.Adam().beta_2, gt.optimizers.Momentum(momentum=0.5).momentum) == (0.999, 0.5)


def test_updates_are_differentiated_and_mapped() -> None:
    optimizer = gt.optimizers.Momentum(0.1)
    state = optimizer.init(PAIR)

    def after(w: Any) -> Any:
        return bowl(optimizer.update(gt.grad(bowl)(w), state, w)[0])

    gt.check_grads(after, (PAIR,), order=1)
    stack = np.stack([PAIR, 2 * PAIR])
    mapped = gt.vmap(lambda w: optimizer.update(slope(w), state, w)[0])(stack)
    np.testing.assert_allclose(mapped, stack - 0.1 * slope(stack))


def test_slots_go_with_their_variables() -> None:
    optimizer = gt.optimizers.Adam()
    for _ in range(5):
        optimizer.apply_gradients([(1.0, gt.Variable(1.0))])
    gc.collect()
    assert len(optimizer.variables) == 3
    names = [v.name for v in optimizer.variables]
    assert names == ["iterations", "variable/mean", "variable/square"]


def test_reprs() -> None:
    assert repr(gt.optimizers.Adam(0.1)) == "Adam(learning_rate=0.1, beta_1=0.9, beta_2=0.999, epsilon=1e-08)"
    assert repr(gt.optimizers.Momentum(0.5)) == "Momentum(learning_rate=0.5, momentum=0.9, nesterov=False)"


@pytest.mark.parametrize("kind", [gt.optimizers.GradientDescent, gt.optimizers.Momentum, gt.optimizers.Adam])
def test_wrong_settings(kind: type[Optimizer]) -> None:
    for wrong in ("0.1", None, True, [0.1], np.ones(1)):
        expect(errors.DtypeError, lambda w=wrong: kind(w), kind.__name__, "learning_rate")
    for wrong in (-1.0, float("nan"), float("inf")):
        expect(errors.ArgumentError, lambda w=wrong: kind(w), "learning_rate")
    expect(errors.ArgumentError, lambda: gt.optimizers.Momentum(momentum=1.0), "momentum")
    expect(errors.ArgumentError, lambda: gt.optimizers.Adam(beta_2=1.5), "beta_2")
    expect(errors.DtypeError, lambda: gt.optimizers.Adam(epsilon="small"), "epsilon")


def test_wrong_arguments() -> None:
    optimizer, w, n = gt.optimizers.Momentum(0.1), gt.Variable(PAIR), gt.Variable([1, 2])
    apply = optimizer.apply_gradients
    expect(errors.DtypeError, lambda: apply([(PAIR, PAIR)]), "ndarray", "optimizer.update")
    expect(errors.DtypeError, lambda: apply([PAIR[0]]), "pairs")
    expect(errors.DtypeError, lambda: apply(w), "pairs")
    expect(errors.DtypeError, lambda: apply([(PAIR, n)]), "int64", "astype(float)")
    expect(errors.DtypeError, lambda: apply([("x", w)]), "a gradient has dtype")
    expect(errors.ShapeError, lambda: apply([(np.ones(3), w)]), "(3,)", "(2,)")
    expect(errors.ArgumentError, lambda: apply([(PAIR, w), (PAIR, w)]), "twice")
    expect(errors.ArgumentError, lambda: optimizer.minimize(w * 1.0, [w]), "tape=tape")
    expect(errors.DtypeError, lambda: optimizer.minimize(3.0, [w]), "loss is a float")
    expect(errors.DtypeError, lambda: optimizer.minimize(lambda: np.sum(w), [PAIR]), "var_list")
    expect(errors.DtypeError, lambda: gt.jit(lambda x: optimizer.minimize(x))(1.0), "var_list", "none")
    assert int(optimizer.iterations) == 0
    np.testing.assert_array_equal(w, PAIR)
    state = optimizer.init(PAIR)
    expect(errors.ArgumentError, lambda: gt.optimizers.Adam().update(PAIR, state, PAIR), "velocity", "mean")
    expect(errors.ArgumentError, lambda: optimizer.update(PAIR, None, PAIR), "None")
    expect(
        errors.StructureError,
        lambda: optimizer.update([PAIR, PAIR], optimizer.init([PAIR]), [PAIR]),
        "gradients",
    )
    expect(errors.ShapeError, lambda: optimizer.update(np.ones(3), state, PAIR), "(3,)")
    expect(errors.DtypeError, lambda: optimizer.init(np.array([1, 2])), "int64")
    expect(errors.DtypeError, lambda: optimizer.init({"w": "x"}), "str")
    expect(errors.DtypeError, lambda: optimizer.init(w), "Variable", "apply_gradients")


@optimizers
@pytest.mark.parametrize("copied", [copy.deepcopy, lambda pair: pickle.loads(pickle.dumps(pair))])
def test_copies_go_on_with_the_state(make: Any, copied: Any) -> None:
    w, optimizer = gt.Variable(PAIR), make()
    for _ in range(3):
        optimizer.minimize(lambda: bowl(w), [w])
    v, other = copied((w, optimizer))
    for _ in range(2):
        optimizer.minimize(lambda: bowl(w), [w])
    assert len(other.variables) == len(optimizer.variables) and int(other.iterations) == 3
    for _ in range(2):
        other.minimize(lambda: bowl(v), [v])
    np.testing.assert_array_equal(v, w)


def test_a_copy_of_the_optimiser_alone_is_for_the_same_variables() -> None:
    w, optimizer = gt.Variable(PAIR), gt.optimizers.Momentum(0.1)
    optimizer.minimize(lambda: bowl(w), [w])
    start, other = w.numpy(), copy.deepcopy(optimizer)
    optimizer.minimize(lambda: bowl(w), [w])
    expected = w.numpy()
    w.assign(start)
    other.minimize(lambda: bowl(w), [w])
    np.testing.assert_array_equal(w, expected)


def test_what_a_schedule_reads_is_looked_at_in_each_call() -> None:
    scale = {"now": 1.0}
    optimizer = gt.optimizers.GradientDescent(lambda step: 0.1 * scale["now"])
    w = gt.Variable(np.array([1.0]))

    @gt.jit
    def train() -> None:
        optimizer.apply_gradients([(w * 2.0, w)])

    for scale["now"] in (1.0, 2.0):
        w.assign([1.0])
        train()
        np.testing.assert_allclose(w.numpy(), [1.0 - 0.2 * scale["now"]])


def test_descent_keeps_no_state_without_momentum() -> None:
    assert set(gt.optimizers.SGD(0.1).init(PAIR)) == {"step"}
    assert set(gt.optimizers.SGD(0.1, 0.5).init(PAIR)) == {"step", "velocity"}
    for copied in (copy.deepcopy, lambda optimizer: pickle.loads(pickle.dumps(optimizer))):
        assert copied(gt.optimizers.SGD(0.1)).slots == ()


SCHEDULES = {
    "exponential": (gt.optimizers.exponential_decay(0.1, 10, 0.5), lambda t: 0.1 * 0.5 ** (t / 10)),
    "staircase": (
        gt.optimizers.exponential_decay(0.1, 10, 0.5, staircase=True),
        lambda t: 0.1 * 0.5 ** (t // 10),
    ),
    "cosine": (
        gt.optimizers.cosine_decay(0.1, 20, final=0.01),
        lambda t: 0.01 + 0.09 * (1 + np.cos(np.pi * min(t / 20, 1))) / 2,
    ),
    "piecewise": (
        gt.optimizers.piecewise_constant([5, 9], [0.3, 0.2, 0.1]),
        lambda t: 0.3 if t < 5 else 0.2 if t < 9 else 0.1,
    ),
    "warmup": (gt.optimizers.warmup(4, 0.1), lambda t: 0.1 * min((t + 1) / 4, 1)),
    "warmup and decay": (
        gt.optimizers.warmup(4, gt.optimizers.exponential_decay(0.1, 10, 0.5)),
        lambda t: 0.1 * 0.5 ** (max(t - 4, 0) / 10) * min((t + 1) / 4, 1),
    ),
}


@pytest.mark.parametrize("name", SCHEDULES)
def test_schedules(name: str) -> None:
    schedule, expected = SCHEDULES[name]
    rates = [float(schedule(step)) for step in range(1, 41)]
    np.testing.assert_allclose(rates, [expected(t) for t in range(40)], rtol=1e-13, atol=1e-17)

    optimizer = gt.optimizers.SGD(schedule)
    w, state = PAIR, optimizer.init(PAIR)
    step = gt.jit(lambda w, state: optimizer.update(np.ones(2), state, w))
    for _ in range(12):
        w, state = step(w, state)
    np.testing.assert_allclose(w, PAIR - sum(rates[:12]), rtol=1e-12)


def test_wrong_schedules() -> None:
    expect(errors.ArgumentError, lambda: gt.optimizers.cosine_decay(0.1, 0), "decay_steps is 0")
    expect(errors.ArgumentError, lambda: gt.optimizers.exponential_decay(-0.1, 5, 0.5), "initial is -0.1")
    expect(
        errors.ArgumentError, lambda: gt.optimizers.piecewise_constant([5, 4], [1.0, 2.0, 3.0]), "increase"
    )
    expect(
        errors.ArgumentError, lambda: gt.optimizers.piecewise_constant([5], [1.0]), "1 boundaries and 1 rates"
    )
    expect(errors.DtypeError, lambda: gt.optimizers.warmup(5, "fast"), "then must be a number")


def test_gradients_are_clipped_together() -> None:
    slopes = {"w": np.array([3.0, 0.0]), "b": np.float32(4.0), "none": None, "z": 12j}
    assert float(gt.optimizers.global_norm(slopes)) == 13.0
    clipped, norm = gt.optimizers.clip_by_global_norm(slopes, 6.5)
    np.testing.assert_allclose(clipped["w"], [1.5, 0.0])
    assert (clipped["b"], clipped["none"], clipped["z"], norm) == (2.0, None, 6j, 13.0)
    assert clipped["b"].dtype == np.float32
    same, norm = gt.optimizers.clip_by_global_norm(slopes, 13.5)
    assert same["z"] == 12j and same["w"].tolist() == [3.0, 0.0] and norm == 13.0
    zero, norm = gt.optimizers.clip_by_global_norm([np.zeros(2), None], 1.0)
    assert zero[0].tolist() == [0.0, 0.0] and norm == 0.0
    with np.errstate(invalid="ignore"):
        nan, norm = gt.optimizers.clip_by_global_norm([np.array([np.inf, 1.0])], 1.0)
    assert np.isnan(nan[0]).all() and norm == np.inf
    expect(errors.ArgumentError, lambda: gt.optimizers.clip_by_global_norm(slopes, 0.0), "max_norm is 0")


def test_clipping_is_traced_and_takes_sparse_gradients() -> None:
    rows = gt.IndexedSlices(np.array([[3.0], [1.0]]), np.array([0, 0]), (4, 1))
    (clipped,), norm = gt.optimizers.clip_by_global_norm([rows], 2.0)
    assert float(norm) == 4.0  # rows of equal indices count with their sum
    np.testing.assert_allclose(gt.asarray(clipped)[0], [2.0])
    clip = gt.jit(lambda g: gt.optimizers.clip_by_global_norm(g, 1.0)[0])
    np.testing.assert_allclose(clip([PAIR, PAIR])[1], PAIR / np.sqrt(2 * np.sum(PAIR**2)))


def test_schedules_print_as_the_calls_that_made_them() -> None:
    optimizers = gt.optimizers
    cosine_decay, warmup = optimizers.cosine_decay, optimizers.warmup
    for schedule, text in (
        (cosine_decay(0.1, 10), "cosine_decay(0.1, 10, 0.0)"),
        (optimizers.exponential_decay(0.1, 10, 0.5), "exponential_decay(0.1, 10, 0.5)"),
        (optimizers.piecewise_constant([5], [0.1, 0.01]), "piecewise_constant([5], [0.1, 0.01])"),
        (warmup(3, 0.1), "warmup(3, 0.1)"),
        (warmup(3, cosine_decay(0.1, 10)), "warmup(3, cosine_decay(0.1, 10, 0.0))"),
    ):
        assert f"learning_rate=<function {text} at " in repr(optimizers.Adam(schedule))
