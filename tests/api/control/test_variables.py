"""Variables in loops and branches: what is read goes in, and what is assigned is state that is carried on."""

from __future__ import annotations

import functools
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArgumentError, ConcretizationError
from tests.support.ways import expect

XS = np.array([0.5, -1.0, 2.0, 0.25])


@pytest.fixture
def count() -> gt.Variable:
    return gt.Variable(1.0, trainable=False, name="count")


@pytest.fixture
def weight() -> gt.Variable:
    return gt.Variable([2.0, -1.0], name="weight")


def test_a_variable_that_is_read_is_a_capture(weight: gt.Variable) -> None:
    def total() -> Any:
        return gt.scan(lambda c, x: (np.tanh(c + weight * x), None), np.zeros(2), XS)[0]

    def plain(w: Any) -> Any:
        return functools.reduce(lambda c, x: np.tanh(c + w * x), XS, np.zeros(2))

    np.testing.assert_allclose(total(), plain(weight.numpy()))
    with gt.GradientTape() as tape:
        y = np.sum(total())
    wanted = gt.grad(lambda w: np.sum(plain(w)))(np.array([2.0, -1.0]))
    np.testing.assert_allclose(tape.gradient(y, weight).numpy(), wanted)
    assert tape.watched_variables() == (weight,)


def test_a_compiled_loop_reads_the_content_of_each_call(weight: gt.Variable) -> None:
    total = gt.jit(lambda xs: gt.scan(lambda c, x: (c + weight * x, None), np.zeros(2), xs)[0])
    np.testing.assert_allclose(total(XS), weight.numpy() * XS.sum())
    weight.assign([5.0, 7.0])
    np.testing.assert_allclose(total(XS), np.array([5.0, 7.0]) * XS.sum())
    assert total.site.traces == 1
    with gt.GradientTape() as tape:
        y = np.sum(total(XS))
    np.testing.assert_allclose(tape.gradient(y, weight).numpy(), np.full(2, XS.sum()))


def step(count: gt.Variable, c: Any, x: Any) -> Any:
    count.assign(count * 0.5 + x)
    count.assign_add(c * 0.25)
    return c + count


@pytest.mark.parametrize("compiled", [False, True])
def test_what_is_assigned_is_carried_on(count: gt.Variable, compiled: bool) -> None:
    other = gt.Variable(1.0, trainable=False)
    wanted = functools.reduce(functools.partial(step, other), XS, 0.5)

    def loop(xs: Any) -> Any:
        return gt.scan(lambda c, x: (step(count, c, x), count), 0.5, xs)

    last, contents = (gt.jit(loop) if compiled else loop)(XS)
    np.testing.assert_allclose(last, float(wanted))
    np.testing.assert_allclose(count.numpy(), other.numpy())
    assert contents.shape == (4,)
    np.testing.assert_allclose(contents[-1], other.numpy())


def test_state_of_every_loop(count: gt.Variable) -> None:
    def add(x: Any) -> Any:
        count.assign_add(x)
        return x

    gt.fori_loop(0, 4, lambda i, c: c + add(i), 0.0)
    assert float(count) == 7
    gt.while_loop(lambda i: count < 20, lambda i: add(i) + 1, 5)
    assert float(count) == 25
    gt.map(add, XS)
    assert float(count) == 26.75
    loop = gt.jit(lambda n: gt.fori_loop(0, n, lambda i, c: add(c), 1.0))
    for n in range(3):
        loop(n)
    assert float(count) == 29.75


def test_state_of_branches(count: gt.Variable) -> None:
    choose = gt.jit(lambda x: gt.cond(x > 0, lambda: [count.assign(x * 2), x][1], lambda: 0.0))
    assert choose(3.0) == 3
    assert float(count) == 6
    assert choose(-3.0) == 0
    assert float(count) == 6
    assert gt.switch(1, [lambda: None, lambda: [count.assign_sub(1.0), None][1]]) is None
    assert float(count) == 5
    assert gt.cond(True, lambda: count.assign(8.0), lambda: count) == 8
    assert float(count) == 8


def test_state_in_a_loop_in_a_loop(count: gt.Variable) -> None:
    def inner(c: Any, x: Any) -> Any:
        count.assign_add(x)
        return c + count, None

    def outer(c: Any, x: Any) -> Any:
        count.assign(count * x)
        return gt.scan(inner, c, XS)[0], count

    content, wanted = 1.0, 0.0
    for x in XS:
        content = content * x
        for y in XS:
            content = content + y
            wanted = wanted + content
    np.testing.assert_allclose(gt.scan(outer, 0.0, XS)[0], wanted)
    np.testing.assert_allclose(float(count), content)


def test_gradients_beside_state(count: gt.Variable, weight: gt.Variable) -> None:
    def loop(xs: Any) -> Any:
        c = np.zeros(2)
        for x in xs:
            count.assign(count * 0.5 + x)
            c = np.tanh(c + count * weight)
        return c

    def combined(xs: Any) -> Any:
        def iterate(c: Any, x: Any) -> Any:
            count.assign(count * 0.5 + x)
            return np.tanh(c + count * weight), None

        return gt.scan(iterate, np.zeros(2), xs)[0]

    found = []
    for function in (loop, combined, gt.jit(combined)):
        count.assign(1.0)
        with gt.GradientTape() as tape:
            y = np.sum(function(XS))
        found.append((tape.gradient(y, weight).numpy(), count.numpy()))
    for gradient, content in found[1:]:
        np.testing.assert_allclose(gradient, found[0][0])
        np.testing.assert_allclose(content, found[0][1])


def test_a_variable_that_a_tape_follows_is_not_assigned(weight: gt.Variable) -> None:
    def iterate(c: Any, x: Any) -> Any:
        weight.assign_sub(0.1 * c)
        return c, None

    with gt.GradientTape():
        expect(
            ArgumentError,
            lambda: gt.scan(iterate, np.ones(2), XS),
            "scan: the body assigns to the variable 'weight', which a tape watches",
            "carry its content and assign it after the loop",
        )
    assert weight.numpy().tolist() == [2, -1]
    gt.scan(iterate, np.ones(2), XS)
    np.testing.assert_allclose(weight.numpy(), [1.6, -1.4])


def test_a_condition_assigns_nothing(count: gt.Variable) -> None:
    expect(
        ArgumentError,
        lambda: gt.while_loop(lambda i: [count.assign(0.0), i < 3][1], lambda i: i + 1, 0),
        "while_loop: the condition '<lambda>' assigns to a variable",
        "assign in the body",
    )


def test_each_element_of_a_map_would_assign_its_own(count: gt.Variable) -> None:
    loop = gt.vmap(lambda y: gt.scan(lambda c, x: (step(count, c, x), None), y, XS)[0])
    expect(ArgumentError, lambda: loop(np.ones(3)), "the variable 'count' is assigned to in", "vmap maps")
    assert float(count) == 1


def test_variables_made_in_a_body() -> None:
    def iterate(c: Any, x: Any) -> Any:
        local = gt.Variable(0.0)
        local.assign(c + x)
        return local * 2, None

    wanted = functools.reduce(lambda c, x: (c + x) * 2, XS, 0.0)
    np.testing.assert_allclose(gt.scan(iterate, 0.0, XS)[0], wanted)
    kept = []

    def keeping(c: Any, x: Any) -> Any:
        kept.append(gt.Variable(1.0))
        return c * kept[-1], None

    expect(
        ArgumentError,
        lambda: gt.scan(keeping, 1.0, XS),
        "the body 'keeping' of gt.scan makes variables and keeps them",
    )
    expect(
        ConcretizationError,
        lambda: gt.scan(lambda c, x: (gt.Variable(c) * 1, None), 1.0, XS),
        "the body '<lambda>'",
    )


def test_variables_as_carries_and_elements(weight: gt.Variable) -> None:
    with gt.GradientTape() as tape:
        last, left = gt.scan(lambda c, x: (c * x, x), weight, weight)
        y = np.sum(last * np.array([1.0, 3.0])) + np.sum(left**2)

    def plain(w: Any) -> Any:
        c = w
        for x in w:
            c = c * x
        return np.sum(c * np.array([1.0, 3.0])) + np.sum(w**2)

    np.testing.assert_allclose(tape.gradient(y, weight).numpy(), gt.grad(plain)(np.array([2.0, -1.0])))


def test_rows_that_are_gathered_in_iterations() -> None:
    table = gt.Variable(np.eye(3) * 2)
    places = np.array([0, 2, 2])
    with gt.GradientTape() as tape:
        y, _ = gt.scan(lambda c, k: (c + np.sum(gt.gather(table, k) ** 2), None), 0.0, places)
    wanted = np.zeros((3, 3))
    for k in places:
        wanted[k] += 2 * np.eye(3)[k] * 2
    np.testing.assert_allclose(np.asarray(gt.asarray(tape.gradient(y, table)).numpy()), wanted)


def test_training_in_one_loop() -> None:
    rng = np.random.default_rng(0)
    points = rng.normal(size=(200, 3))
    goals = points @ np.array([1.0, -2.0, 0.5])
    model = gt.Variable(np.zeros(3), name="model")

    def iterate(_: Any, batch: Any) -> Any:
        x, y = batch
        loss, slope = gt.value_and_grad(lambda w: np.mean((x @ w - y) ** 2))(model + 0)
        model.assign_sub(0.1 * slope)
        return None, loss

    _, losses = gt.jit(lambda *batches: gt.scan(iterate, None, batches))(
        points.reshape(40, 5, 3), goals.reshape(40, 5)
    )
    assert losses.shape == (40,)
    assert losses[-1] < 0.05 * losses[0]
    np.testing.assert_allclose(model.numpy(), [1.0, -2.0, 0.5], atol=0.2)
