"""Elements that a traced mask selects, and other results whose shapes depend on numbers: their number is a guard where it matters."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from scipy import special

import gradtape as gt
from tests.support.differences import gradient_by_differences

X = np.array([0.3, 0.7, -0.4, 1.2, 0.9])
Function = Callable[..., Any]


def scaled(x: Any) -> Any:
    x = x.copy()
    x[x > 0.5] *= 3.0
    x[x < 0] -= 0.25
    x[x > 0.1] /= 2.0 + np.exp(x[0])
    return np.sum(x**2)


def moved(x: Any) -> Any:
    y = np.zeros(len(x))
    m = x > 0.5
    y[m] = np.sqrt(x[m]) + 1.0 / x[m]
    y[~m] = np.where(x[~m] > 0, 2.0, -x[~m])
    return np.sum(x * y)


def reduced(x: Any) -> Any:
    m = x > 0.2
    parts = (
        np.sum(x[m]),
        x[m].mean(),
        np.max(x[m]),
        x[m].std(),
        np.min(x[x > 0]),
        np.prod(x[m]),
        x[x < 0].sum(),
    )
    return sum(part * (k + 1) for k, part in enumerate(parts)) / np.size(x[m]) + np.mean(np.log(x[m]) ** 2)


def bodies(x: Any) -> Any:
    """Pairs of bodies that are not too near, as a simulation has them."""
    apart = x[:, None] - x[None, :]
    squared = apart**2
    near = squared < 0.05
    force = np.zeros((len(x), len(x)))
    force[~near] = apart[~near] / squared[~near] ** 1.5
    force[near] = 0.0
    return np.sum(np.sin(force.sum(axis=1)))


def rows(x: Any) -> Any:
    m = np.stack([x, 2 * x, x - 1.0])
    keep = m[:, 0] > 0.0
    m[keep] *= np.arange(1.0, 6.0)
    return np.sum(m[keep].sum(axis=0) ** 2) + np.sum(m)


PROGRAMS = (scaled, moved, reduced, bodies, rows)


@pytest.mark.parametrize("function", PROGRAMS, ids=lambda function: function.__name__)
def test_selections(function: Function) -> None:
    step = 1e-6
    expected = function(X)
    slope = [(function(X + step * e) - function(X - step * e)) / (2 * step) for e in np.eye(5)]
    compiled = gt.jit(function)
    for x in (X, X * 1.1, X[::-1].copy()):
        np.testing.assert_allclose(compiled(x), function(x), rtol=1e-12)
    assert repr(compiled).endswith(": 1 trace>")
    np.testing.assert_allclose(gt.jit(gt.grad(function))(X), slope, atol=1e-5, rtol=1e-5)
    np.testing.assert_allclose(
        gt.vmap(function)(np.stack([X, X * 1.1])), [expected, function(X * 1.1)], rtol=1e-12
    )
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = function(x)
    np.testing.assert_allclose(tape.gradient(y, x).numpy(), slope, atol=1e-5, rtol=1e-5)


def test_what_is_not_selected_reaches_no_derivative() -> None:
    def root(x: Any) -> Any:
        x = x.copy()
        x[x > 0] = np.sqrt(x[x > 0])
        return np.sum(x)

    assert np.array_equal(gt.jit(gt.grad(root))(np.array([4.0, -1.0, 0.0])), [0.25, 1.0, 1.0])


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x[x > 0],
        lambda x: len(x[x > 0]),
        lambda x: x[x > 0].shape[0],
        lambda x: np.sort(x[x > 0]),
        lambda x: x[x > 0] + x[: np.sum(x > 0)],
        lambda x: x[x > 0] * x[:4][x[:4] > -1][: len(x[x > 0])],
        lambda x: x[x > 0][0],
        lambda x: list(x[x > 0]),
        lambda x: np.linalg.norm(x[x > 0]),
        lambda x: np.stack([x, 2 * x])[:, x > 0],
        lambda x: np.cumsum(x[x > 0]),
        lambda x: np.concatenate([x[x > 0.5], x[x < 0.1]]),
    ],
)
def test_what_depends_on_how_many_they_are_is_guarded(function: Function) -> None:
    compiled = gt.jit(function)
    for x in (X, X[::-1], X - 0.5, np.array([0.3, 0.8, 0.4, 1.2, -0.9])):
        np.testing.assert_allclose(compiled(x), function(x))


def sorted_in_place(x: Any) -> Any:
    part = x[x > 0]
    part.sort()
    return part[1] - part[0] ** 2


def written_to(x: Any) -> Any:
    part = x[x > 0]
    other, rest = part, part.copy()
    part[1] = 5.0
    part *= x[-1]
    return np.sum(other * np.arange(1.0, len(other) + 1)) + np.sum(rest**2)


def changed_in_place(x: Any) -> Any:
    part = x[x > 0]
    other, rest = part, part.copy()
    part += 1.0
    return np.sum(other**2) + np.sum(rest)


def seen_through_a_view(x: Any) -> Any:
    part = x[x > 0]
    part[1:][0] = 3.0
    return np.sum(part * 2.0) + np.max(part)


def of_an_array_that_changes(x: Any) -> Any:
    y = x * 1.0
    mask = y > 0
    part = y[mask]
    y[:] = 7.0
    mask[:] = False
    return np.sum(part**2)


@pytest.mark.parametrize(
    "function",
    [sorted_in_place, written_to, changed_in_place, seen_through_a_view, of_an_array_that_changes],
    ids=lambda function: function.__name__,
)
def test_a_selection_is_a_copy_that_can_be_written_to(function: Function) -> None:
    value, slope = gt.value_and_grad(function)(X)
    np.testing.assert_allclose(value, function(X), rtol=1e-12)
    np.testing.assert_allclose(slope, gradient_by_differences(function, X), atol=1e-6)


def test_functions_of_lists_of_selections() -> None:
    def both(x: Any) -> Any:
        return special.logsumexp([x[x > 0], 2.0 * x[x > 0]], axis=0)

    np.testing.assert_allclose(gt.jit(both)(X), both(X), rtol=1e-12)


def test_a_write_of_as_many_elements_as_a_mask_selects() -> None:
    def written(x: Any, y: Any) -> Any:
        made = x * 1.0
        made[x > 0.5] = y[: np.sum(x > 0.5)] ** 2
        return np.sum(made * np.arange(5.0))

    y = np.array([2.0, 3.0, 4.0, 5.0, 6.0])
    for x in (X, X - 0.5):
        assert gt.jit(written)(x, y) == written(x, y)
        expected = gradient_by_differences(lambda y, x=x: written(x, y), y)
        np.testing.assert_allclose(gt.grad(written, argnums=1)(x, y), expected, atol=1e-6)


def test_a_call_with_another_number_of_elements_is_traced_anew() -> None:
    sorted_part = gt.jit(lambda x: np.sort(x[x > 0]))
    for x in (X, X * 1.1, X + 0.01):
        sorted_part(x)
    assert sorted_part.site.traces == 1
    sorted_part(X - 0.5)
    assert sorted_part.site.traces == 2


def test_arrays_are_ndarrays_to_isinstance() -> None:
    seen = []

    def checked(x: Any) -> Any:
        y = np.zeros(2)
        seen.append([isinstance(v, np.ndarray) for v in (x, x[0], y)])
        y[0] = x[0]
        seen.append([isinstance(y, np.ndarray), isinstance(y, gt.Array), type(y) is np.ndarray])
        if not isinstance(x, np.ndarray):
            x = np.array(x)
        return np.sum(x * y[0])

    np.testing.assert_allclose(gt.jit(checked)(X), checked(X))
    assert seen[:2] == [[True, False, True], [True] * 3]  # an item of a vector is a number
    assert isinstance(gt.constant(X), np.ndarray) and not isinstance(gt.constant(X), list | float)


@pytest.mark.parametrize(
    "combine",
    [
        lambda c, s: c * s,
        lambda c, s: c / s,
        lambda c, s: c - s,
        lambda c, s: s * c + c,
        lambda c, s: c**s,
        lambda c, s: (c > s) * s,
        lambda c, s: np.multiply(c, s) + np.arctan2(c, s),
        lambda c, s: np.where(s > c, c, s),
    ],
)
def test_traced_numbers_stand_on_either_side_of_what_a_mask_selects(combine: Function) -> None:
    def f(x: Any, c: Any) -> Any:
        m = x > 0.5
        y = np.zeros_like(x)
        y[m] = combine(c, x[m])
        return np.sum(y * x)

    jitted, gradient = gt.jit(f), gt.grad(f, argnums=1)
    for c in (0.8, 1.7):
        np.testing.assert_allclose(jitted(X, c), f(X, c))
        np.testing.assert_allclose(gradient(X, c), (f(X, c + 1e-6) - f(X, c - 1e-6)) / 2e-6, atol=1e-7)
        held = gt.jit(lambda x, c=c: f(x, c))
        np.testing.assert_allclose(held(X), f(X, c))
        assert held.site.traces == 1


@pytest.mark.parametrize("function", [np.union1d, np.intersect1d, np.setdiff1d, np.setxor1d])
def test_arrays_as_sets(function: Any) -> None:
    a, b = np.array([3.0, 1.0, 2.0, 2.0]), np.array([2.0, 5.0])
    with gt.GradientTape() as tape:
        found = function(tape.watch(a), b)
    np.testing.assert_array_equal(found, function(a, b))
    np.testing.assert_array_equal(gt.jit(function)(a, b), function(a, b))


@pytest.mark.parametrize(
    "options",
    [{}, {"return_inverse": True}, {"return_counts": True}, {"return_index": True}, {"axis": 0}, {"axis": 1}],
)
@pytest.mark.parametrize("x", [[[3.0, 1.0], [3.0, 1.0], [np.nan, np.nan]], [[2.0, 2.0]]])
def test_unique_in_compiled_functions(x: Any, options: dict[str, Any]) -> None:
    expected = np.unique(x, **options)
    found = gt.jit(lambda x: np.unique(x, **options))(np.array(x))
    for ours, numpys in zip(found, expected, strict=True):
        np.testing.assert_array_equal(ours, numpys)


def test_arange_with_traced_bounds() -> None:
    def steps(start: Any, step: Any) -> Any:
        return np.sum(np.arange(start, 2.0, step) ** 2)

    for start, step in ((0.1, 0.25), (0.3, 0.5)):
        assert gt.jit(steps)(start, step) == pytest.approx(steps(start, step))
        found = gt.grad(steps, argnums=(0, 1))(start, step)
        points = np.arange(start, 2.0, step)
        expected = (np.sum(2 * points), np.sum(2 * points * np.arange(points.size)))
        np.testing.assert_allclose(found, expected)


def selected_again(x):
    y = x[x > 0.0]
    z = y[y < 2.0]
    return np.sum(z * z) + np.mean(z)


def mask_of_a_selection(x):
    y = x[x > 0.0]
    m = x < 2.0
    return np.sum(y[m[x > 0.0]] ** 3)


def selected_positions(x):
    order = np.argsort(x)
    return np.sum(x[order[x > 0.5]] ** 2)


def selected_rows_again(x):
    rows = np.outer(x, np.arange(1.0, 4.0))
    rows = rows[rows[:, 0] > 0.0]
    return np.sum(rows[rows[:, 1] < 3.0] ** 2)


def shrinking(x):
    total = 0.0
    y = x
    for k in range(3):
        y = y[y > 0.1 * k] * 0.9
        total = total + np.sum(y)
    return total


def written_at_selected_positions(x):
    y = x * 1.0
    order = np.argsort(x)
    y[order[x > 0.5]] = x[0]
    return np.sum(y * np.arange(5))


@pytest.mark.parametrize(
    "function",
    [
        selected_again,
        mask_of_a_selection,
        selected_positions,
        selected_rows_again,
        shrinking,
        written_at_selected_positions,
    ],
    ids=lambda f: f.__name__,
)
def test_selections_as_indices_and_of_selections(function):
    x = np.array([0.3, 1.2, -0.7, 2.1, 0.9])
    jitted, gradient = gt.jit(function), gt.grad(function)
    for point in (x, x[::-1].copy(), 1.1 * x, -x):
        np.testing.assert_allclose(jitted(point), function(point), rtol=1e-12)
        with np.errstate(all="ignore"):
            differences = [
                (function(point + 1e-6 * e) - function(point - 1e-6 * e)) / 2e-6 for e in np.eye(5)
            ]
        np.testing.assert_allclose(gradient(point), differences, rtol=1e-6, atol=1e-6)


def test_slopes_of_elements_that_are_not_selected_are_left_out_of_arrays_too() -> None:
    def smallest_root(x: Any) -> Any:
        return np.sort(np.sqrt(x[x > 0]))[0]

    assert np.array_equal(gt.grad(smallest_root)(np.array([4.0, -1.0, 0.0, 1.0])), [0.0, 0.0, 0.0, 0.5])


@pytest.mark.parametrize("extents", [(0,), (0, 2), (3, 0), (0, 0)])
def test_masks_without_elements_select_nothing(extents):
    """NumPy takes them whatever the extents of the array are."""
    x, mask = np.arange(6.0).reshape(3, 2), np.zeros(extents, bool)

    def written(x, mask):
        y = x * 2
        y[mask] = 7.0
        return y

    for select in (lambda x, mask: x[mask], written):
        wanted = select(x, mask)
        for found in (
            gt.jit(select)(x, mask),
            gt.jit(lambda x, select=select: select(x, mask))(x),
            select(gt.constant(x), gt.constant(mask)),
        ):
            assert np.shape(found) == wanted.shape and np.array_equal(found, wanted)


@pytest.mark.parametrize("size", [1, 3, 5])
def test_traced_masks_have_the_extents_of_what_they_select_from(size):
    def rows(a, mask):
        return np.sum(a[..., mask, :])

    message = "boolean index did not match indexed array along axis 1; size of axis is 4 but size of corresponding boolean axis"
    with pytest.raises(IndexError, match=message):
        gt.jit(rows)(np.ones((2, 4, 3)), np.ones(size, bool))
    with pytest.raises(IndexError, match="along axis 0"):
        gt.jit(lambda x, mask: np.sum(x[mask]))(np.ones(4), np.ones(size, bool))
    assert gt.jit(rows)(np.ones((2, 4, 3)), np.array([True, False, True, False])) == 12.0


@pytest.mark.parametrize(
    "transform",
    [
        lambda t: gt.grad(lambda t: np.sum(t**3))(t),
        lambda t: gt.jit(gt.grad(lambda t: np.sum(t**3)))(t),
        lambda t: gt.vjp(lambda t: np.sum(t**3), t)[1](1.0)[0],
        lambda t: gt.vmap(lambda one: 3 * one**2)(t),
        lambda t: gt.jit(lambda t: 3 * t**2)(t),
        lambda t: gt.jvp(lambda t: t**3, (t,), (np.ones(len(t)),))[1],
        lambda t: gt.scan(lambda c, one: (c, 3 * one**2), 0.0, t)[1],
        lambda t: gt.custom_gradient(lambda t: (t**3, lambda g: g * 7.0))(t) * 0.0 + 3 * t**2,
    ],
    ids=["grad", "jit of grad", "vjp", "vmap", "jit", "jvp", "scan", "custom_gradient"],
)
def test_selections_are_arguments_of_transforms(transform: Any) -> None:
    times = np.array([1.0, 2.0, 3.0, 4.0])
    chosen = gt.jit(lambda t, event: transform(t[event > 0]))
    for event in (np.array([1, 0, 1, 1]), np.array([0, 1, 0, 0])):
        np.testing.assert_allclose(chosen(times, event), 3 * times[event > 0] ** 2)


def rolled(x: Any, step: int) -> Any:
    return np.roll(x, step) > 0


def test_masks_are_the_same_if_they_are_computed_in_the_same_way() -> None:
    """A value is written where a mask that is computed anew selects it; masks of other parameters are other masks."""
    x = np.array([1.0, -2.0, 3.0, -4.0, 5.0, 6.0])

    def same(x: Any) -> Any:
        y = np.zeros(6)
        y[rolled(x, 1)] = x[rolled(x, 1)] * 2
        return y

    def other(x: Any) -> Any:
        y = np.zeros(6)
        y[rolled(x, 1)] = x[rolled(x, 2)] * 2
        return y

    def other_of_functions(x: Any) -> Any:
        return x[np.sin(x) > 0] * x[np.cos(x) > 0] if np.sum(np.sin(x) > 0) == np.sum(np.cos(x) > 0) else x

    apart = np.zeros((6, 6))
    apart[[0, 2], [1, 3]] = 1.0

    def other_of_axes(x: Any) -> Any:
        square = apart * x != 0
        y = np.zeros(6)
        y[np.any(square, axis=0)] = x[np.any(square, axis=1)] * 2
        return y

    for f in (same, other, other_of_functions, other_of_axes):
        for way in ("trace", "compile"):
            with gt.config.override(loops=way):
                np.testing.assert_allclose(gt.jit(f)(x), f(x), err_msg=f"{f.__name__}, {way}")
        with gt.GradientTape() as tape:
            result = f(tape.watch(x.copy()))
        np.testing.assert_allclose(result, f(x), err_msg=f"{f.__name__}, tape")


@pytest.mark.parametrize("extremum", [np.max, np.min, np.maximum.reduce])
@pytest.mark.parametrize("way", ["trace", "compile"])
def test_the_extremum_of_no_elements_is_an_error(extremum, way):
    def of_positive(x: Any) -> Any:
        return extremum(x[x > 0])

    def in_a_loop(x: Any) -> Any:
        return gt.fori_loop(0, 2, lambda i, c: c - extremum(c[c > 0]), x)

    x, nothing = np.array([1.0, -1.0, 2.0]), np.zeros(3)
    with gt.config.override(loops=way):
        jitted = gt.jit(of_positive)
        assert jitted(x) == of_positive(x)
        ways = (
            jitted,
            gt.grad(of_positive),
            gt.jacfwd(of_positive),
            lambda x: gt.vmap(of_positive)(np.stack([np.ones(3), x])),
            gt.jit(in_a_loop),
        )
        for function in ways:
            with pytest.raises(ValueError, match="zero-size array to reduction operation"):
                function(nothing)
        assert jitted(x) == of_positive(x)
        with gt.GradientTape() as tape, pytest.raises(ValueError, match="zero-size"):
            of_positive(tape.watch(nothing))
        first = gt.cond(x[1] > 0, of_positive, lambda x: x[1], -np.abs(x))
        assert first == -1.0
