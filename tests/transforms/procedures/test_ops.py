"""Procedures as nodes: derivatives of every order, batches, kernels, and what a derivative computes besides."""

import numpy as np
import pytest

import gradtape as gt
from gradtape.ir.fingerprint import fingerprint
from gradtape.ir.graph import Graph, Value
from gradtape.ir.types import FLOAT64, aval
from gradtape.kinds.operands import as_value
from gradtape.passes.pipeline import optimise
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.trace.array.array import Array
from gradtape.transforms.procedures.ops import procedure, procedure_vjp
from gradtape.transforms.procedures.reference import reference_to

pytestmark = pytest.mark.filterwarnings("error")


def recurrence(count=4, factor=0.5):
    """Return y with y = factor * y * a[i] + sin-like terms of x, and an array that is written element by element."""
    build = ProcedureBuilder("recurrence")
    x, a = build.scalar("x"), build.array("a", (count,))
    out = build.allocate("out", count, zero=True)
    y = build.variable("y", 1.0)
    with build.loop(count) as i:
        before = build.read(y)
        build.assign(y, before * factor * build.load(a, i) + x * x)
        build.store(out, i, before * build.load(a, i))
    return build.finish([build.read(y), out], [aval((), FLOAT64), aval((count,), FLOAT64)])


def value_of(x):
    return x.value if isinstance(x, Array) else as_value(x)


def applied(reference):
    def function(x, a):
        return tuple([Array(out) for out in procedure(reference, [value_of(x), value_of(a)])])

    return function


def plain(x, a, factor=0.5):
    y, out = 1.0, np.zeros(len(a))
    for i in range(len(a)):
        y, out[i] = y * factor * a[i] + x * x, y * a[i]
    return y, out


def number(function):
    def loss(x, a):
        y, out = function(x, a)
        return y * np.sum(out**2)

    return loss


@pytest.fixture(params=[True, False], ids=["kernel", "interpreter"])
def function(request):
    with gt.config.override(jit=request.param):
        yield applied(reference_to(recurrence()))


X, A = 0.7, np.array([0.3, -1.2, 0.8, 2.0])


def differences(loss, x, a, step=1e-6):
    """Return the derivatives in both arguments by differences."""
    in_x = (loss(x + step, a) - loss(x - step, a)) / (2 * step)
    steps = step * np.eye(len(a))
    in_a = np.stack([(loss(x, a + d) - loss(x, a - d)) / (2 * step) for d in steps], axis=-1)
    return in_x, in_a


def test_value_and_first_derivatives(function):
    loss = number(function)
    value, (in_x, in_a) = gt.value_and_grad(loss, argnums=(0, 1))(X, A)
    assert np.isclose(value, number(plain)(X, A))
    np.testing.assert_allclose([in_x, *in_a], np.hstack(differences(number(plain), X, A)), rtol=1e-6)
    y, tangent = gt.jvp(loss, (X, A), (0.5, np.arange(4.0)))
    np.testing.assert_allclose(tangent, 0.5 * in_x + np.arange(4.0) @ in_a, rtol=1e-10)
    assert np.isclose(y, value)


def test_higher_derivatives(function):
    loss = number(function)
    gradient = gt.grad(loss, argnums=1)
    np.testing.assert_allclose(
        gt.hessian(loss, argnums=1)(X, A), differences(gradient, X, A)[1], rtol=1e-6, atol=1e-8
    )
    reverse = gt.jacrev(gradient, argnums=1)(X, A)
    np.testing.assert_allclose(reverse, gt.jacfwd(gradient, argnums=1)(X, A), rtol=1e-10)
    third = gt.grad(lambda x: np.sum(gt.hessian(loss, argnums=1)(x, A)))(X)
    np.testing.assert_allclose(
        third, differences(lambda x, a: np.sum(gt.hessian(loss, argnums=1)(x, a)), X, A)[0], rtol=1e-6
    )


def test_batches(function):
    xs, rows = np.array([0.7, -0.2, 1.1]), np.random.default_rng(0).normal(size=(3, 4))
    loss = number(function)
    for axes, args in (((0, 0), (xs, rows)), ((0, None), (xs, A)), ((None, 0), (X, rows))):
        expected = [loss(xs[k] if axes[0] == 0 else X, rows[k] if axes[1] == 0 else A) for k in range(3)]
        np.testing.assert_allclose(gt.vmap(loss, in_axes=axes)(*args), expected)
        for argument in (0, 1):
            gradient = gt.grad(loss, argnums=argument)
            wanted = [
                gradient(xs[k] if axes[0] == 0 else X, rows[k] if axes[1] == 0 else A) for k in range(3)
            ]
            np.testing.assert_allclose(gt.vmap(gradient, in_axes=axes)(*args), wanted)


def test_on_a_tape(function):
    with gt.GradientTape(persistent=True) as tape:
        a = tape.watch(A)
        y, out = function(X, a)
        loss = y * np.sum(out**2)
    np.testing.assert_allclose(tape.gradient(loss, a), gt.grad(number(function), argnums=1)(X, A))
    np.testing.assert_allclose(
        tape.jacobian(out, a), differences(lambda x, a: plain(x, a)[1], X, A)[1], atol=1e-8
    )


def test_in_loops_and_branches(function):
    def repeated(a):
        return gt.fori_loop(0, 3, lambda k, b: function(X, b)[1] + k, a)

    def unrolled(a):
        for k in range(3):
            a = plain(X, a)[1] + k
        return a

    np.testing.assert_allclose(gt.jit(repeated)(A), unrolled(A))
    np.testing.assert_allclose(
        gt.jacobian(repeated)(A), differences(lambda x, a: unrolled(a), X, A)[1], rtol=1e-5, atol=1e-7
    )
    chosen = gt.jit(lambda a: gt.cond(a[0] > 0, lambda: function(X, a)[0], lambda: function(2 * X, a)[0]))
    np.testing.assert_allclose([chosen(A), chosen(-A)], [plain(X, A)[0], plain(2 * X, -A)[0]])


def graph_of(seed):
    """Return the graph of the results of a procedure, and of a derivative with a seed made of them."""
    reference = reference_to(recurrence())
    x, a = Value(aval((), FLOAT64)), Value(aval((4,), FLOAT64))
    y, out = procedure(reference, [x, a])
    outs = procedure_vjp(reference, (False, True), (True, False), [x, a, seed(y)])
    outputs = [y, out, outs[-1]]
    return Graph(
        [x, a],
        [
            y.node,
            *([] if outs[0].node.inputs[2].node is None else [outs[0].node.inputs[2].node]),
            outs[0].node,
        ],
        outputs,
    )


@pytest.mark.parametrize("seed", [lambda y: Value(y.aval, data=np.array(1.0)), lambda y: y * 2.0])
def test_the_primal_runs_once(seed):
    graph = optimise(graph_of(seed), check=True)
    assert sum(node.op in (procedure, procedure_vjp) for node in graph.nodes) == 1


def test_equal_procedures_are_one_parameter():
    x, a = Value(aval((), FLOAT64)), Value(aval((4,), FLOAT64))
    prints = []
    for made in (recurrence(), recurrence(), recurrence(factor=0.25)):
        y, _ = procedure(reference_to(made), [x, a])
        prints.append(fingerprint(Graph([x, a], [y.node], [y])))
    assert prints[0] == prints[1] != prints[2]
    assert reference_to(recurrence()) == reference_to(recurrence())


def test_a_failed_check_is_the_error_of_the_interpreter():
    build = ProcedureBuilder("checked")
    x = build.scalar("x")
    build.check(x > 0.0, "IndexError", "the index is out of bounds")
    function = applied_one(reference_to(build.finish([x * 2.0])))
    compiled = gt.jit(function)
    assert compiled(2.0) == 4.0
    with pytest.raises(IndexError, match="the index is out of bounds"):
        compiled(-1.0)
    with pytest.raises(IndexError, match="the index is out of bounds"):
        gt.grad(function)(-1.0)


def applied_one(reference):
    return lambda x: Array(procedure(reference, [value_of(x)])[0])


def test_numbers_of_the_program_text_are_operands():
    function = applied(reference_to(recurrence()))
    compiled = gt.jit(lambda a: function(np.float64(0.5), a)[0] + function(3.0, a)[0])
    assert np.isclose(compiled(A), plain(0.5, A)[0] + plain(3.0, A)[0])
