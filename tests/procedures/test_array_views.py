"""Views, deferred expressions and stores against NumPy."""

import numpy as np
import pytest

from gradtape.procedures.ir import Allocate, Check, For, If, Store
from gradtape.statements import walk
from tests.support.array_programs import check, named, procedure_of, run

X, Y = np.random.default_rng(1).normal(size=(2, 30))
A, B = np.random.default_rng(2).normal(size=(2, 6, 8))


def count(procedure, kind):
    """Return how many statements of a kind there are."""
    return sum(isinstance(statement, kind) for statement in walk(procedure.body))


@pytest.mark.parametrize(
    "key",
    [
        3,
        -2,
        slice(2, 5),
        slice(-4, None),
        slice(None, None, -1),
        slice(20, 1, -3),
        slice(-100, 100, 7),
        slice(5, 2),
        Ellipsis,
        None,
        (Ellipsis, slice(1, 9, 2)),
    ],
)
def test_basic_keys(key):
    check(lambda x: x[key] + 0.0, X)


@pytest.mark.parametrize(
    "key", [(1, 2), (-1,), (slice(1, 4), -2), (Ellipsis, 3), (slice(None), None, slice(7, 2, -2)), (2, None)]
)
def test_keys_of_two_axes(key):
    check(lambda a: a[key] + 0.0, A)


@pytest.mark.parametrize("start", [-40, -5, 0, 3, 30, 44])
@pytest.mark.parametrize("stop", [-33, -4, 0, 11, 30, 31])
@pytest.mark.parametrize("step", [1, 3, -1, -4])
def test_slices_with_dynamic_bounds_are_clamped_as_by_python(start, stop, step):
    check(
        lambda x, i, j, d: (x[i:j].sum(), x[i:j:step].sum(), x[i:j:d].sum(), x[:j:d].sum()),
        X,
        start,
        stop,
        step,
    )


def test_a_store_of_an_expression_is_one_loop():
    def smooth(x, y):
        y[1:-1] = 0.5 * (x[2:] + x[:-2]) - x[1:-1] ** 2
        return y

    procedure = check(smooth, X, Y)
    assert (
        count(procedure, For) == 2 + 1 + 1
    )  # two copies of parameters, the statement, the copy of the result


def test_a_shifted_read_of_the_target_goes_through_a_temporary():
    def shift(x):
        x[1:] = x[:-1] * 2.0
        x[::-1] += x
        return x

    check(shift, X)


def test_equal_and_disjoint_elements_need_no_temporary():
    def update(a):
        a[1:, :] = a[1:, :] * 2.0 - 1.0
        a[:, 3] = a[:, 2] + a[:, 4]
        a[0] += a[1]
        return a

    procedure = check(update, A)
    assert count(procedure, Allocate) == 2


def test_broadcast_operands_are_loaded_outside_of_the_inner_loop():
    def outer(x, y):
        return x[:, None] * y + 1.0

    procedure = check(outer, X, Y)
    loops = [
        s for s in walk(procedure.body) if isinstance(s, For) and any(isinstance(t, For) for t in s.body)
    ]
    assert all(not isinstance(loop.body[0], For) for loop in loops) and loops


def test_a_reduction_of_an_expression_stores_nothing():
    procedure = check(lambda x, y: np.sum(x[:20] * y[10:]), X, Y)
    assert count(procedure, Allocate) == 2


def test_small_arrays_are_unrolled():
    procedure = procedure_of(lambda build, x: np.sum(x * x), X[:3])
    assert count(procedure, For) == 0


def test_indices_of_loops_need_no_checks():
    def triangle(build, a, b):
        with build.loop(6) as i, build.loop(i) as j:
            inner = np.sum(a[i, :j] * a[j, :j])
            b[i, j] = (a[i, j] - inner) / a[j, j]
        return b

    procedure = procedure_of(triangle, A, B)
    assert count(procedure, Check) == 0
    expected = B.copy()
    for i in range(6):
        for j in range(i):
            expected[i, j] = (A[i, j] - np.sum(A[i, :j] * A[j, :j])) / A[j, j]
    np.testing.assert_allclose(run(procedure, A, B)[0], expected)


def test_an_index_out_of_range_is_an_error_when_the_code_runs():
    procedure = procedure_of(lambda build, x, n: x[n], X, 3)
    assert run(procedure, X, -30)[0] == X[0]
    for bad in (30, -31):
        with pytest.raises(IndexError, match="axis 0 with size 30"):
            run(procedure, X, bad)


def test_shapes_that_do_not_fit():
    with pytest.raises(ValueError, match="30 and 6"):
        check(lambda x, y: x + y[:6], X, Y)
    procedure = procedure_of(lambda build, x, n: np.sum(x[:n] * x[:7]), X, 3)
    np.testing.assert_allclose(run(procedure, X, 7)[0], np.sum(X[:7] ** 2))
    np.testing.assert_allclose(run(procedure, X, 1)[0], np.sum(X[:1] * X[:7]))
    with pytest.raises(ValueError, match="broadcast"):
        run(procedure, X, 5)


INDEX = np.array([3, -1, 0, 3])


def test_arrays_of_integers_gather_and_scatter():
    check(lambda x, i: x[i] * 2.0, X, INDEX)
    check(lambda a, i: a[i, 1:3] + 0.0, A, INDEX)
    check(lambda a, i: a[i, i] + 0.0, A, INDEX)
    check(lambda a, i: a[1:3, i] + a[1:3, [0, 1, 2, 3]], A, INDEX)
    check(lambda a, i: a[i[:, None], i[None, :]] + 0.0, A, INDEX)
    check(lambda a, i: a[2, i] + 0.0, A, INDEX)

    def scatter(x, y, i):
        x[i] = y[:4]
        x[i] += 1.0
        x[i[:2]] = x[i[2:]]
        return x

    check(scatter, X, Y, INDEX)


def test_masks_read_and_write():
    def masked(x, y):
        total = x[x > 0].sum()
        x[x < 0] = 0.0
        y[x > 1] += 10.0
        x[y > 1.0] = y[y > 1.0] * 2
        return total, x, y

    check(masked, X, Y)
    check(lambda a: a[a > 0.5].sum() + a[a[:, 0] > 0].sum(), A)
    check(lambda x: np.where(x > 0)[0].sum(), X)


def padded(chosen, x):
    """Return what is selected, followed by zeros up to the extents of `x`."""
    out = named(x * 0.0)
    out[: chosen.shape[0]] = chosen
    return out


def test_selections_have_no_branches_and_look_for_the_mask_once():
    def program(x, y):
        mask = named(x > 0)
        first = padded(x[mask], x), padded(y[mask], x)
        np.logical_not(mask, mask)
        return (*first, padded(y[mask], x))

    procedure = check(program, X, Y)
    assert count(procedure, If) == 0
    arrays = [statement.out.name for statement in walk(procedure.body) if isinstance(statement, Allocate)]
    assert sum(name.startswith("place") for name in arrays) == 2  # before the mask changes, and after


def test_masks_of_two_axes_and_of_single_elements():
    check(lambda a, b: padded(a[b > 0] * 2.0, a.reshape(-1)), A, B)
    check(lambda a, b: padded(a[1:, :1][b[1:, :1] > 0], a[0]), A, B)
    check(lambda a: padded(a[a[:, 0] > 0, 1:3], a[:, 1:3]), A)


def test_indices_of_a_mask_are_the_users_own():
    def program(x):
        mask = named(x > 0)
        places = np.nonzero(mask)[0]
        chosen = padded(x[mask], x)
        places[:] = 0
        return chosen, padded(x[mask], x), padded(np.nonzero(mask)[0], x)

    check(program, X)


@pytest.mark.parametrize("size", [1, 29, 31])
def test_masks_have_the_extents_of_what_they_select_from(size):
    with pytest.raises(IndexError, match="size of axis is 30 but size of corresponding boolean axis"):
        procedure_of(lambda build, x, y: x[y > 0].sum(), X, np.ones(size))


def test_dtypes_follow_numpy():
    ints, floats = np.arange(5), np.arange(5, dtype=np.float32)
    for function in (
        lambda x: x * 2.0,
        lambda x: x / 2,
        lambda x: np.sqrt(x),
        lambda x: x + np.float64(1),
        lambda x: x > 1,
        lambda x: x.sum(),
        lambda x: x.mean(),
        lambda x: x // 2,
        lambda x: -x,
    ):
        check(function, ints)
        check(function, floats, tolerance=1e-6)
    with pytest.raises(TypeError, match="same_kind"):
        procedure_of(lambda build, x: x.augment(slice(None), np.add, 0.5), ints)


def test_reductions_of_selected_elements_read_the_mask():
    def program(x, y):
        mask = np.logical_and(x > -1.0, y < 0.5)
        chosen = x[mask]
        return chosen.mean(), (chosen * 2.0).sum(), chosen.max(), chosen.any()

    procedure = check(program, X, Y)
    assert count(procedure, If) == 0


def test_what_is_selected_stays_when_its_source_changes():
    def program(x):
        chosen = x[x > 0]
        x[:] = 1.0
        return chosen.sum()

    check(program, X)


@pytest.mark.parametrize("shape", [(7,), (3, 5), (4, 4)])
def test_nests_of_a_few_short_loops_are_unrolled(shape):
    procedure = check(lambda x: np.tanh(x) * x, np.random.default_rng(3).normal(size=shape))
    assert not count(procedure, For)


@pytest.mark.parametrize("shape", [(8,), (16,), (2, 8), (17,)])
def test_loops_of_as_many_iterations_as_a_vector_has_elements_are_not_unrolled(shape):
    """Unrolled, 16 elements are computed one by one."""
    procedure = check(lambda x: np.tanh(x) * x, np.random.default_rng(3).normal(size=shape))
    assert sum(len(s.body) for s in walk(procedure.body) if isinstance(s, For))
    assert sum(isinstance(s, Store) for s in walk(procedure.body)) <= 3


@pytest.mark.parametrize("length, is_unrolled", [(7, True), (8, False), (16, False)])
def test_only_short_sums_are_unrolled(length, is_unrolled):
    procedure = check(lambda x: np.sum(x * x), np.random.default_rng(4).normal(size=length))
    assert (count(procedure, For) == 0) == is_unrolled
