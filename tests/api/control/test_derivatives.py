"""Derivatives through loops and branches: those of the same program written as plain Python."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import optree
import pytest

import gradtape as gt
from gradtape.errors import TapeError
from tests.support.programs.control_flow import (
    PROGRAMS,
    ROWS,
    SQUARE,
    VECTOR,
    Program,
    recomputed_plain,
    rnn,
    rnn_plain,
    root,
)

Function = Callable[..., Any]
programs_of_all = pytest.mark.parametrize("program", PROGRAMS.values(), ids=list(PROGRAMS))
COLUMN = ROWS[:, 0]


def total(function: Function) -> Function:
    """Return a function whose result is one number that depends on all floats among the results."""

    def number(*args: Any) -> Any:
        leaves = optree.tree_leaves(function(*args))
        floats = [leaf for leaf in leaves if np.result_type(leaf).kind == "f"]
        return sum(
            np.sum(leaf * np.cos(np.arange(np.size(leaf)) + k).reshape(np.shape(leaf)))
            for k, leaf in enumerate(floats)
        )

    return number


def everything(program: Program) -> tuple[int, ...]:
    return tuple(range(len(program.args)))


def close(found: Any, wanted: Any, tolerance: float = 1e-8) -> None:
    for one, other in zip(optree.tree_leaves(found), optree.tree_leaves(wanted), strict=True):
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=tolerance, atol=tolerance)


@programs_of_all
def test_gradients(program: Program) -> None:
    every = everything(program)
    found = gt.grad(total(program.function), every)(*program.args)
    close(found, gt.grad(total(program.plain), every)(*program.args))


@programs_of_all
def test_gradients_on_a_tape(program: Program) -> None:
    with gt.GradientTape() as tape:
        args = tape.watch(program.args)
        y = total(program.function)(*args)
    found = tape.gradient(y, args, unconnected_gradients="zero")
    wanted = gt.grad(total(program.plain), everything(program))(*program.args)
    close([g.numpy() for g in found], wanted)


@programs_of_all
def test_directional_derivatives(program: Program) -> None:
    directions = tuple(np.cos(np.arange(np.size(arg)).reshape(np.shape(arg))) for arg in program.args)
    found = gt.jvp(total(program.function), program.args, directions)
    close(found, gt.jvp(total(program.plain), program.args, directions))


@programs_of_all
def test_second_derivatives(program: Program) -> None:
    x, *rest = program.args
    tangent = np.ones(np.shape(x))
    found = gt.hvp(lambda x: total(program.function)(x, *rest), (x,), (tangent,))
    close(found, gt.hvp(lambda x: total(program.plain)(x, *rest), (x,), (tangent,)), 1e-7)


@programs_of_all
def test_maps(program: Program) -> None:
    x, *rest = program.args
    xs = np.stack([x, np.sin(x) + 1.5, x * 0.5 + 1.0])
    gradient = gt.vmap(gt.value_and_grad(lambda x: total(program.function)(x, *rest)))(xs)
    wanted = [gt.value_and_grad(total(program.plain))(x, *rest) for x in xs]
    close(gradient, (np.stack([y for y, _ in wanted]), np.stack([g for _, g in wanted])), 1e-7)


def test_jacobians_and_hessians() -> None:
    def last(h: Any) -> Any:
        return rnn(SQUARE, h, ROWS)[0]

    def plain(h: Any) -> Any:
        return rnn_plain(SQUARE, h, ROWS)[0]

    wanted = gt.jacobian(plain)(VECTOR)
    for transform in (gt.jacobian, gt.jacfwd, gt.jacrev):
        close(transform(last)(VECTOR), wanted)
    close(gt.hessian(last)(VECTOR), gt.hessian(plain)(VECTOR))
    with gt.GradientTape() as tape:
        h = tape.watch(VECTOR)
        y = last(h)
    close(tape.jacobian(y, h).numpy(), wanted)


def test_second_orders_by_nested_tapes() -> None:
    with gt.GradientTape() as outer:
        a = outer.watch(2.0)
        with gt.GradientTape() as inner:
            inner.watch(a)
            y = root(a)
        slope = inner.gradient(y, a)
    np.testing.assert_allclose(float(slope), 0.5 / np.sqrt(2), rtol=1e-6)
    np.testing.assert_allclose(float(outer.gradient(slope, a)), -0.25 / 2**1.5, rtol=1e-6)


def test_a_persistent_tape_is_asked_twice() -> None:
    with gt.GradientTape(persistent=True) as tape:
        w = tape.watch(SQUARE)
        last, left = rnn(w, VECTOR, ROWS)
    wanted = gt.jacobian(lambda w: rnn_plain(w, VECTOR, ROWS)[0].sum())(SQUARE)
    close(tape.gradient(last, w).numpy(), wanted)
    close(tape.gradient(left, w).numpy(), gt.grad(lambda w: rnn_plain(w, VECTOR, ROWS)[1].sum())(SQUARE))
    close(tape.gradient(last, w).numpy(), wanted)


def test_forward_accumulators_go_through() -> None:
    x = gt.constant(VECTOR)
    with gt.ForwardAccumulator(x, np.ones(3)) as accumulator:
        y = rnn(SQUARE, x, ROWS)[0]
        z = gt.while_loop(lambda x: np.sum(x) < 50, lambda x: x * x + 1, x)
    close(
        accumulator.jvp(y).numpy(),
        gt.jvp(lambda h: rnn_plain(SQUARE, h, ROWS)[0], (VECTOR,), (np.ones(3),))[1],
    )
    assert accumulator.jvp(z).shape == (3,)


@pytest.mark.parametrize(
    "order", ["vmap of grad", "grad of vmap", "jit of vmap of grad", "vmap of jit of grad"]
)
def test_transforms_in_any_order(order: str) -> None:
    hs = np.stack([VECTOR, VECTOR * 2])

    def loss(h: Any) -> Any:
        return np.sum(rnn(SQUARE, h, ROWS)[1] ** 2)

    found = {
        "vmap of grad": lambda: gt.vmap(gt.grad(loss))(hs),
        "grad of vmap": lambda: gt.grad(lambda hs: np.sum(gt.vmap(loss)(hs)))(hs),
        "jit of vmap of grad": lambda: gt.jit(gt.vmap(gt.grad(loss)))(hs),
        "vmap of jit of grad": lambda: gt.vmap(gt.jit(gt.grad(loss)))(hs),
    }[order]()
    plain = gt.grad(lambda h: np.sum(rnn_plain(SQUARE, h, ROWS)[1] ** 2))
    close(found, np.stack([plain(h) for h in hs]))


def test_differences_agree() -> None:
    gt.check_grads(lambda w, h: np.sum(rnn(w, h, ROWS)[1]), (SQUARE, VECTOR), order=2)
    gt.check_grads(root, (2.0,), order=2)


# Rules of the user's in bodies


@gt.custom_gradient
def clipped(x: Any) -> Any:
    return x * 1.0, lambda upstream: np.clip(upstream, -0.5, 0.5)


@gt.custom_jvp
def strange(x: Any) -> Any:
    return x**2


strange.defjvp(lambda primals, tangents: (strange(primals[0]), 3 * primals[0] * tangents[0]))


@gt.custom_vjp
def stranger(x: Any) -> Any:
    return x**2


stranger.defvjp(lambda x: (x**2, x), lambda x, upstream: (5 * x * upstream,))


@pytest.mark.parametrize(
    "function", [clipped, strange, stranger, gt.recompute_grad(np.sin), gt.grad_pass_through(np.round)]
)
def test_rules_of_the_users_hold_in_bodies(function: Function) -> None:
    def looped(w: Any) -> Any:
        return gt.scan(lambda c, x: (function(c * w + x), None), 1.0, COLUMN)[0]

    def plain(w: Any) -> Any:
        return functools.reduce(lambda c, x: function(c * w + x), COLUMN, 1.0)

    close(gt.grad(looped)(0.7), gt.grad(plain)(0.7))


def test_a_rule_may_read_the_iteration_and_what_lies_outside() -> None:
    def iterate(w: Any, c: Any, x: Any) -> Any:
        @gt.custom_gradient
        def scaled(y: Any) -> Any:
            return y * x, lambda upstream: upstream * x * w

        return scaled(c + w)

    def looped(w: Any) -> Any:
        return gt.scan(lambda c, x: (iterate(w, c, x), None), 1.0, COLUMN)[0]

    close(
        gt.grad(looped)(0.7),
        gt.grad(lambda w: functools.reduce(functools.partial(iterate, w), COLUMN, 1.0))(0.7),
    )


def test_stop_gradient_in_a_body() -> None:
    def iterate(w: Any, c: Any, x: Any) -> Any:
        return c * gt.stop_gradient(c * w) + w * x

    found = gt.grad(lambda w: gt.scan(lambda c, x: (iterate(w, c, x), None), 1.0, COLUMN)[0])(0.5)
    close(found, gt.grad(lambda w: functools.reduce(functools.partial(iterate, w), COLUMN, 1.0))(0.5))


def test_gradients_by_name_in_a_body() -> None:
    @gt.jit
    def function(x: Any) -> Any:
        def iterate(c: Any, v: Any) -> Any:
            y = c**2
            return c + gt.gradients(y, c)[0] * v, None

        return gt.scan(iterate, x, COLUMN)[0]

    close(function(1.0), functools.reduce(lambda c, v: c + 2 * c * v, COLUMN, 1.0))


def test_gradients_by_name_of_a_whole_loop() -> None:
    @gt.jit
    def function(x: Any) -> Any:
        y, _ = gt.scan(lambda c, v: (c * x + v, None), 1.0, COLUMN)
        return gt.gradients(y, x)[0]

    close(function(0.5), gt.grad(lambda x: functools.reduce(lambda c, v: c * x + v, COLUMN, 1.0))(0.5))


def test_a_pullback_from_outside_is_used_in_a_body() -> None:
    _, pullback = gt.vjp(np.sin, 0.5)
    total, _ = gt.scan(lambda c, v: (c + pullback(v)[0], None), 0.0, COLUMN)
    close(total, COLUMN.sum() * np.cos(0.5))


@pytest.mark.parametrize("kind", ["gradient", "watch", "stop_recording", "jacobian", "batch_jacobian"])
def test_a_tape_around_a_loop_is_not_used_in_its_body(kind: str) -> None:
    with gt.GradientTape(persistent=True) as tape:
        w = tape.watch(np.eye(3))

        def iterate(c: Any, x: Any) -> Any:
            if kind == "watch":
                tape.watch(c)
            elif kind == "stop_recording":
                with tape.stop_recording():
                    c = c * 2
            else:
                getattr(tape, kind)(c * w, w)
            return c, None

        with pytest.raises(TapeError) as caught:
            gt.scan(iterate, np.eye(3), COLUMN)
    assert kind in str(caught.value)
    assert "the body 'iterate' of gt.scan" in str(caught.value)


def test_derivatives_do_not_begin_outside_of_a_body() -> None:
    x = gt.constant(1.0)
    with gt.ForwardAccumulator(x, 1.0) as accumulator, pytest.raises(TapeError, match="jvp reaches out of"):
        gt.scan(lambda c, v: (accumulator.jvp(c * x), None), 1.0, COLUMN)

    @gt.jit
    def function(x: Any) -> Any:
        return gt.cond(x > 0, lambda y: gt.gradients(y * x, x)[0], lambda y: y, x)

    with pytest.raises(TapeError, match=r"gt\.gradients reaches out of true_fn"):
        function(1.0)


def test_a_tape_around_a_loop_gives_constants_to_its_body() -> None:
    with gt.GradientTape(persistent=True) as tape:
        w = tape.watch(3.0)
        y, _ = gt.scan(lambda c, x: (c + tape.gradient(w * w, w) * x, None), 0.0, COLUMN)
    close(y.numpy(), 6 * COLUMN.sum())
    close(tape.gradient(y, w).numpy(), 2 * COLUMN.sum())


@pytest.mark.parametrize("policy", [None, "all", "sqrt", 2, ("treeverse", 2)])
def test_policies_under_other_transforms(policy: Any) -> None:
    def last(w: Any, x: Any) -> Any:
        return gt.scan(lambda x, row: (np.tanh(w @ x + row), None), x, ROWS, checkpoint=policy)[0].sum()

    def plain(w: Any, x: Any) -> Any:
        return recomputed_plain(x, w).sum()

    close(gt.jit(gt.grad(last))(SQUARE, VECTOR), gt.grad(plain)(SQUARE, VECTOR))
    close(gt.hessian(last, 1)(SQUARE, VECTOR), gt.hessian(plain, 1)(SQUARE, VECTOR))
    xs = np.stack([VECTOR, -VECTOR])
    found = gt.vmap(gt.grad(last), in_axes=(None, 0))(SQUARE, xs)
    close(found, np.stack([gt.grad(plain)(SQUARE, x) for x in xs]))
