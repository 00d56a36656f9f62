"""A write to an argument that shares memory with another one is seen there, as in NumPy, or it is an error that names both."""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import InPlaceError
from gradtape.trace.jit.aliases import share_memory

CAPTURED = np.arange(1.0, 4.0)


def first_set(a, b):
    a[0] = 9.0
    return a + b


def both_updated(a, b):
    a += 1.0
    b *= 2.0
    return a - b


def written_in_a_loop(a, b):
    for i in range(len(a)):
        a[i] = a[i] * b[0]
    return a + b


def written_through_a_view(a, b):
    a[1:][::-1][0] = 7.0
    return a * b


def reads_only(a, b):
    return a * 2.0 + b


def written_beside_a_captured_array(a):
    a[0] = 9.0
    return a + CAPTURED


WRITING = [first_set, both_updated, written_in_a_loop, written_through_a_view]
LAYOUTS = {
    "parts": lambda z: (z[:3], z[1:4]),
    "reversed": lambda z: (z, z[::-1]),
    "strided": lambda z: (z[:4:2], z[2::2]),
}


def numbers():
    return np.arange(1.0, 6.0)


@pytest.fixture(params=["trace", "compile"], autouse=True)
def loops(request):
    with gt.config.override(loops=request.param):
        yield


@pytest.mark.parametrize("function", WRITING)
def test_a_write_to_one_array_in_two_places_is_seen_in_both(function):
    compiled = gt.jit(function)
    for others_first in range(2):
        z = numbers()
        expected = function(*[z] * 2)
        for _ in range(3):
            z = numbers()
            np.testing.assert_array_equal(compiled(z, z), expected)
            np.testing.assert_array_equal(z, numbers())
            view = z[:]
            np.testing.assert_array_equal(compiled(view, z), expected)
        for _ in range(3):  # and then by machine code
            np.testing.assert_array_equal(
                compiled(numbers(), numbers() + others_first), function(numbers(), numbers() + others_first)
            )
    z = gt.constant(numbers())
    np.testing.assert_array_equal(compiled(z, z), expected)
    np.testing.assert_array_equal(z, numbers())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("function", WRITING)
def test_a_write_to_an_array_that_overlaps_another_is_an_error(function, layout):
    compiled = gt.jit(function)
    with pytest.raises(InPlaceError, match="writes to argument 0, which shares memory with argument 1"):
        compiled(*LAYOUTS[layout](numbers()))
    apart = [x.copy() for x in LAYOUTS[layout](numbers())]
    expected = function(*[x.copy() for x in apart])
    for _ in range(3):
        np.testing.assert_array_equal(compiled(*apart), expected)
    with pytest.raises(InPlaceError, match="shares memory"):
        compiled(*LAYOUTS[layout](numbers()))
    np.testing.assert_array_equal(gt.jit(reads_only)(*LAYOUTS[layout](numbers())), reads_only(*apart))


def test_parts_of_one_array_without_common_elements_are_arguments_like_others():
    z, compiled = np.arange(8.0), gt.jit(first_set)
    for parts in [(z[:4], z[4:]), (z[::2], z[1::2]), (z[:0], z[:0]), (z[4:], z[:4])]:
        if parts[0].size:
            expected = first_set(*[part.copy() for part in parts])
            for _ in range(3):
                np.testing.assert_array_equal(compiled(*parts), expected)
    with pytest.raises(InPlaceError):
        compiled(z[:4], z[3:7])
    with pytest.raises(InPlaceError):
        compiled(z[1:5], z[:4])


def test_functions_that_write_nothing_have_no_check_in_their_entry():
    compiled = gt.jit(reads_only)
    z = numbers()
    for _ in range(3):
        np.testing.assert_array_equal(compiled(z, z), reads_only(z, z))
    (made,) = compiled.site.specialisations()
    assert made.native.form.apart == ()
    writing = gt.jit(first_set)
    writing(numbers(), numbers())
    (made,) = writing.site.specialisations()
    assert made.native.form.apart == ((0, 1),)


def test_a_captured_array_that_is_also_an_argument():
    compiled = gt.jit(written_beside_a_captured_array)
    with pytest.raises(InPlaceError, match="the global 'CAPTURED'"):
        compiled(CAPTURED)
    for _ in range(3):
        np.testing.assert_array_equal(compiled(CAPTURED.copy()), [10.0, 4.0, 6.0])
    with pytest.raises(InPlaceError, match="CAPTURED"):
        compiled(CAPTURED)
    np.testing.assert_array_equal(CAPTURED, np.arange(1.0, 4.0))


def total(a, b):
    a[0] = 9.0
    return np.sum(a * b)


TRANSFORMED = {
    "grad": lambda z: gt.grad(total)(z, z),
    "grad in both": lambda z: gt.grad(total, argnums=(0, 1))(z, z),
    "grad of parts": lambda z: gt.grad(total)(z[1:], z[:-1]),
    "hessian": lambda z: gt.hessian(total)(z, z),
    "jvp": lambda z: gt.jvp(total, (z, z), (z, z)),
    "vjp": lambda z: gt.vjp(total, z, z),
    "vmap": lambda z: gt.vmap(first_set)(z[:, None], z[:, None]),
    "jit of grad": lambda z: gt.jit(gt.grad(total))(z, z),
    "grad in a jitted function": lambda z: gt.jit(lambda a: gt.grad(total)(a, a))(z),
    "grad of parts in a jitted function": lambda z: gt.jit(lambda a: gt.grad(total)(a[1:], a[:-1]))(z),
}


@pytest.mark.parametrize("name", TRANSFORMED)
def test_transforms_that_make_copies_of_their_arguments_refuse(name):
    with pytest.raises(InPlaceError, match="which shares memory with"):
        TRANSFORMED[name](numbers())


def test_parts_of_a_traced_array_are_apart_or_not():
    @gt.jit
    def slopes(z):
        return gt.grad(total, argnums=(0, 1))(z[:2], z[2:4])

    a, b = slopes(numbers())
    np.testing.assert_array_equal(a, [0.0, 4.0])
    np.testing.assert_array_equal(b, [9.0, 2.0])
    z = gt.constant(np.zeros((4, 4)))
    assert share_memory(z[0], z[:, 1]) and share_memory(z, z[1:]) and share_memory(z.T, z[2])
    assert not share_memory(z[0], z[1]) and not share_memory(z[::2], z[1::2]) and not share_memory(z, 2.0)


def test_the_interpreter_agrees():
    for setting in ({"jit": False}, {"eager": True}):
        with gt.config.override(**setting):
            z = numbers()
            np.testing.assert_array_equal(gt.jit(first_set)(z, z), [18.0, 4.0, 6.0, 8.0, 10.0])
            np.testing.assert_array_equal(z, numbers())
            with pytest.raises(InPlaceError, match="shares memory"):
                gt.jit(first_set)(z, z[::-1])


def test_a_function_called_with_one_array_twice_in_a_traced_function():
    z = numbers()
    twice = numbers() * 2.0
    expected = first_set(twice, twice)

    @gt.jit
    def outer(x):
        y = x * 2.0
        return first_set(y, y)

    @gt.jit
    def nested(x):
        y = x * 2.0
        return gt.jit(first_set)(y, y)

    np.testing.assert_array_equal(outer(z), expected)
    np.testing.assert_array_equal(nested(z), expected)


RANK_0 = {
    "reshape": lambda a: (a.reshape(1), a),
    "np.reshape": lambda a: (np.reshape(a, (1,)), a),
    "atleast_1d": lambda a: (np.atleast_1d(a), a),
    "atleast_2d": lambda a: (np.atleast_2d(a)[0], a),
    "expand_dims": lambda a: (np.expand_dims(a, 0), a),
    "ravel": lambda a: (np.ravel(a), a),
}


@pytest.mark.parametrize("name", RANK_0)
def test_a_write_to_the_reshape_of_an_array_of_rank_0(name):
    make = RANK_0[name]

    def function(a):
        view, a = make(a)
        for _ in range(2):
            view[0] += 3.0
        return a + view

    expected = function(np.array(1.0))
    try:
        found = gt.jit(function)(np.array(1.0))
    except InPlaceError as error:  # read after a write that may have changed it
        assert "may have changed it" in str(error)
    else:
        np.testing.assert_array_equal(found, expected)
    np.testing.assert_array_equal(gt.jit(function)(np.float64(1.0)), function(np.float64(1.0)))


def test_variables_that_are_passed_share_memory_with_themselves_alone():
    first, second = gt.Variable([1.0, 2.0]), gt.Variable([3.0, 4.0])

    @gt.jit
    def step(variables, x):
        variables[0].assign_add(x)
        return np.sum(variables[0] * variables[1] * x)

    for calls in (1, 2):
        with gt.GradientTape() as tape:
            x = tape.watch(np.array([0.5, 0.25]))
            y = step([first, second], x)
        np.testing.assert_allclose(first.numpy(), [1.0 + 0.5 * calls, 2.0 + 0.25 * calls])
        np.testing.assert_allclose(float(y), np.sum(first.numpy() * [3.0, 4.0] * [0.5, 0.25]))
