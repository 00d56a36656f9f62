"""`gt.gradients` and `gt.hessians`: gradients by name of the ends, inside traced functions."""

import numpy as np
import pytest

import gradtape as gt

PAIR = np.array([1.0, 2.0])


def inside(function, *args):
    """Return what a function gives in each of the ways to trace it; they must agree."""
    compiled = gt.jit(function)(*args)
    again = gt.jit(lambda *a: gt.jit(function)(*a))(*args)
    recorded = gt.jit(function)(*[gt.constant(a) for a in args])
    with gt.config.override(jit=False):
        interpreted = gt.jit(function)(*args)
    with gt.config.override(eager=True):
        eager = gt.jit(function)(*args)
    through_vjp = gt.vjp(lambda *a: as_numbers(function(*a)), *args)[0]
    expected = as_numbers(compiled)
    for other in (again, recorded, interpreted, eager, through_vjp):
        for a, b in zip(as_numbers(other), expected, strict=True):
            np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-12)
    return compiled


def as_numbers(results):
    return [0.0 if r is None else r for r in results]


def test_it_is_always_a_list():
    def f(x):
        y = x * x
        one = gt.gradients(y, x)
        assert type(one) is list and len(one) == 1
        assert gt.gradients(y, []) == []
        assert gt.gradients([], x) == [None]
        return one + gt.gradients((y, x), (x, y))

    assert [float(g) for g in inside(f, 3.0)] == [6.0, 7.0, 1.0]


def test_sums_over_targets_and_elements():
    def f(x):
        return gt.gradients([x * x, np.sum(x) * 3], x)

    np.testing.assert_array_equal(inside(f, PAIR)[0], [5.0, 7.0])


def test_targets_equal_to_sources_give_ones():
    np.testing.assert_array_equal(inside(lambda x: gt.gradients(x, x), PAIR)[0], np.ones(2))


def test_intermediates_are_sources():
    def f(x):
        y = x * x
        return gt.gradients(y * y, [x, y])

    assert [float(g) for g in inside(f, 3.0)] == [108.0, 18.0]


def test_weights():
    def f(x):
        y, z = x * x, x * 3.0
        return (
            gt.gradients([y, z], x, grad_ys=[PAIR, None])
            + gt.gradients(y, x, grad_ys=x)
            + gt.gradients([y], [x], grad_ys=[np.array([1, 2])])
        )

    for got, expected in zip(inside(f, PAIR), ([5.0, 11.0], [2.0, 8.0], [2.0, 8.0]), strict=True):
        np.testing.assert_array_equal(got, expected)


@pytest.mark.parametrize(
    ("weights", "error", "words"),
    [
        ([PAIR, PAIR], ValueError, "2 entries for 1 entries of ys"),
        (np.ones(3), ValueError, r"shape \(3,\)"),
        (1.0, ValueError, r"shape \(\)"),
        (PAIR * 1j, TypeError, "complex128"),
        (["text"], TypeError, "str"),
    ],
)
def test_weights_that_do_not_fit(weights, error, words):
    with pytest.raises(error, match=words):
        gt.jit(lambda x: gt.gradients(x * x, x, grad_ys=weights))(PAIR)


def test_complex_targets_need_a_weight():
    def f(z):
        with pytest.raises(TypeError, match=r"complex.*no weight"):
            gt.gradients(z * z, z)
        return gt.gradients(z * z, z, grad_ys=1.0 + 0j) + gt.gradients(np.abs(z) ** 2, z)

    first, second = inside(f, 1 + 2j)
    assert complex(first) == pytest.approx(2 - 4j)
    assert complex(second) == pytest.approx(2 + 4j)


def test_stop_gradients():
    def f(x):
        a = x * 1.0
        b = 2 * a
        c = a + b
        return [
            *gt.gradients(c, [a, b]),
            *gt.gradients(c, [a, b], stop_gradients=[a, b]),
            *gt.gradients(c, a, stop_gradients=b),
            *gt.gradients(c, [a, x], stop_gradients=a),
            *gt.gradients(c, c, stop_gradients=c),
            *gt.gradients(c, a, stop_gradients=c),
            *gt.gradients(gt.stop_gradient(c) + b, [a, b], stop_gradients=a),
        ]

    got = [None if g is None else float(g) for g in gt.jit(f)(1.0)]
    assert got == [3.0, 1.0, 1.0, 1.0, 1.0, 3.0, None, 1.0, None, 2.0, 1.0]
    inside(f, 1.0)


def test_stop_gradients_hold_for_one_of_several_results_of_an_op():
    def f(x):
        _, part = np.divmod(x, 1.0)
        fraction, rest = np.modf(x)
        return gt.gradients(part + fraction + rest, x, stop_gradients=[fraction])

    expected = gt.jit(lambda x: gt.gradients(np.divmod(x, 1.0)[1] + np.modf(x)[1], x))(2.5)
    assert float(gt.jit(f)(2.5)[0]) == float(expected[0])


def test_unconnected_sources():
    def f(x, y):
        z = x * x
        assert gt.gradients(z, y) == [None]
        assert gt.gradients(z, y, unconnected_gradients=gt.UnconnectedGradients.NONE) == [None]
        with pytest.raises(ValueError, match=r"sources\[1\]"):
            gt.gradients(z, [x, y], unconnected_gradients="raise")
        with pytest.raises(ValueError, match="Unknown value for unconnected_gradients: 'bad'"):
            gt.gradients(z, y, unconnected_gradients="bad")
        return gt.gradients(z, [y], unconnected_gradients="zero")

    np.testing.assert_array_equal(inside(f, 1.0, PAIR)[0], np.zeros(2))


def test_integers_have_no_gradient():
    def f(n):
        assert gt.gradients(n * 2.0, n) == [None]
        assert gt.gradients(n, n) == [None]
        return n

    assert int(gt.jit(f)(np.array(3))) == 3


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        (lambda x: (x, {"x": x}), TypeError, "xs is a dict"),
        (lambda x: (x, [x, None]), TypeError, r"xs\[1\] is None"),
        (lambda x: (None, x), TypeError, "ys is None"),
        (lambda x: (x, [[x]]), TypeError, r"xs\[0\] is a list"),
        (lambda x: (x, 1.0), ValueError, "xs is a plain float"),
        (lambda x: ([x, np.arange(2.0)], x), ValueError, r"ys\[1\] is a plain ndarray"),
        (lambda x: (x, x, None, 3), TypeError, "name must be a str"),
        (lambda x: (x, x, None, ""), TypeError, "name must be a str that is not empty"),
        (lambda x: (x, x, None, "n", "yes"), TypeError, "colocate_gradients_with_ops must be a bool"),
        (lambda x: (x, x, None, "n", False, "yes"), TypeError, "gate_gradients must be a bool"),
        (
            lambda x: (x, x, None, "n", False, gt.AggregationMethod.ADD_N),
            TypeError,
            "gate_gradients must be a bool",
        ),
        (lambda x: (x, x, None, "n", False, False, 7), ValueError, "unknown aggregation_method 7"),
        (lambda x: (x, x, None, "n", False, False, "tree"), ValueError, "aggregation_method 'tree'"),
        (
            lambda x: (x, x, None, "n", False, False, None, [1.0]),
            ValueError,
            r"stop_gradients\[0\] is a plain float",
        ),
    ],
)
def test_wrong_arguments(arguments, error, words):
    with pytest.raises(error, match=words):
        gt.jit(lambda x: gt.gradients(*arguments(x)))(PAIR)


@pytest.mark.parametrize("method", [None, 0, 1, 2, *gt.AggregationMethod])
def test_aggregation_methods_give_the_same_sums(method):
    def f(x):
        return gt.gradients(
            sum(np.sin(k * x) for k in range(1, 9)), x, aggregation_method=method, gate_gradients=True
        )

    expected = sum(k * np.cos(k * PAIR) for k in range(1, 9))
    np.testing.assert_allclose(gt.jit(f)(PAIR)[0], expected, rtol=1e-13)


def test_aggregation_methods_are_tensorflows():
    assert gt.AggregationMethod.DEFAULT is gt.AggregationMethod.ADD_N
    assert [int(method) for method in gt.AggregationMethod] == [0, 1, 2]


def test_outside_of_traced_functions_it_is_a_runtime_error():
    x = gt.constant(3.0)
    for call in (lambda: gt.gradients(x * x, x), lambda: gt.hessians(x * x, x)):
        with pytest.raises(RuntimeError, match="outside a traced function"):
            call()
        with gt.GradientTape() as tape, pytest.raises(RuntimeError, match="GradientTape"):
            tape.watch(x)
            call()


def test_inside_of_functions_given_to_transforms():
    def slope(x):
        return gt.gradients(x**3, x)[0]

    assert float(gt.grad(slope)(2.0)) == 12.0
    assert float(gt.vjp(slope, 2.0)[1](1.0)[0]) == 12.0
    assert float(gt.jvp(slope, (2.0,), (1.0,))[1]) == 12.0
    gt.check_grads(slope, (2.0,))
    with gt.GradientTape() as tape:
        x = tape.watch(2.0)
        y = gt.jit(slope)(x)
    assert float(tape.gradient(y, x)) == 12.0


def test_higher_orders_by_nesting():
    def f(x):
        y = x**4
        for _ in range(3):
            (y,) = gt.gradients(y, x)
        return [y]

    assert float(inside(f, 2.0)[0]) == 48.0


def test_variables_as_sources():
    v = gt.Variable(PAIR)
    unread = gt.Variable(1.0)

    def f(x):
        y = np.sum(v * v * x)
        v.assign(x)
        y = y + np.sum(3 * v)
        (g,) = gt.gradients(y, v)
        assert gt.gradients(y, unread) == [None]
        v.assign(PAIR)
        return [g]

    np.testing.assert_array_equal(inside(f, np.array([3.0, 4.0]))[0], [2 * 3 + 3, 4 * 4 + 3])


def test_copies_and_what_was_read_lead_back_to_their_source():
    v = gt.Variable(PAIR)

    def f(x):
        y = np.sum(v.value() * x.copy() + v[:] * v.read_value())
        return gt.gradients(y, [v, x])

    in_v, in_x = inside(f, np.array([3.0, 4.0]))
    np.testing.assert_array_equal(in_v, [3 + 2, 4 + 4])
    np.testing.assert_array_equal(in_x, PAIR)


def test_variables_of_called_functions_are_sources():
    v = gt.Variable(2.0)
    square = gt.jit(lambda x: v * v * x)

    @gt.jit
    def f(x):
        return gt.gradients(square(x) + v, [v, x])

    for x in (3.0, gt.constant(3.0)):
        for content in (2.0, 5.0):
            v.assign(content)
            assert [float(g) for g in f(x)] == [6 * content + 1, content**2]


def test_variables_of_called_functions_without_arguments_are_sources():
    v = gt.Variable(2.0)
    cube = gt.jit(lambda: v**3)
    f = gt.jit(lambda x: gt.gradients(cube() * x, v))
    for x in (3.0, gt.constant(3.0), 3.0):
        assert float(f(x)[0]) == 36.0


def test_values_from_outside_are_sources():
    c = gt.constant(4.0)

    @gt.jit
    def f(x):
        return gt.gradients(c * c * x, c)

    assert float(f(3.0)[0]) == 24.0


def test_hessians():
    v = gt.Variable(3.0)

    def f(x, y):
        z = np.sum(x**3) * y * v * v
        return gt.hessians(z, [x, y, v])

    for in_x, in_y, in_v in (gt.jit(f)(PAIR, 2.0), f_recorded(f)):
        np.testing.assert_allclose(in_x, np.diag(6 * PAIR) * 18)
        assert float(in_y) == 0.0
        assert float(in_v) == 2 * 9 * 2.0


def f_recorded(f):
    return gt.jit(f)(gt.constant(PAIR), 2.0)


def test_hessians_of_matrices_and_sums():
    x = np.arange(6.0).reshape(2, 3) / 3

    @gt.jit
    def f(x):
        return gt.hessians([np.sum(np.sin(x)), np.sum(x[0] * x[1])], x)[0]

    expected = np.zeros((2, 3, 2, 3))
    for i in range(2):
        for j in range(3):
            expected[i, j, i, j] = -np.sin(x[i, j])
            expected[i, j, 1 - i, j] = 1.0
    got = f(x)
    assert got.shape == (2, 3, 2, 3)
    np.testing.assert_allclose(got, expected, rtol=1e-13)


def test_hessians_of_linear_functions_are_zero():
    np.testing.assert_array_equal(gt.jit(lambda x: gt.hessians(np.sum(x * 3), x)[0])(PAIR), np.zeros((2, 2)))


def test_hessians_without_a_path():
    with pytest.raises(ValueError, match=r"None values not supported.*xs\[1\]"):
        gt.jit(lambda x, y: gt.hessians(np.sum(x * x), [x, y]))(PAIR, PAIR)
    assert gt.jit(lambda x: gt.hessians(x, []))(PAIR) == []


def test_hessians_check_their_arguments():
    with pytest.raises(ValueError, match="hessians: unknown aggregation_method"):
        gt.jit(lambda x: gt.hessians(x * x, x, aggregation_method=9))(1.0)
    with pytest.raises(TypeError, match="hessians: xs is a dict"):
        gt.jit(lambda x: gt.hessians(x * x, {}))(1.0)


def test_hessians_can_be_differentiated():
    third = gt.grad(lambda x: gt.hessians(x**4, x)[0])
    assert float(third(2.0)) == 48.0


def test_empty_arrays_have_empty_hessians():
    assert gt.jit(lambda x: gt.hessians(np.sum(x * x), x)[0])(np.zeros(0)).shape == (0, 0)
