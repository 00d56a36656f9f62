"""Results lie in memory as NumPy's do: it decides in which order `ravel("K")` reads them, and whether a reshape is a view."""

from __future__ import annotations

import copy
import itertools

import numpy as np
import pytest

import gradtape as gt
from gradtape.trace.array.layout import memory_order

LAYOUTS = {
    "C": lambda x: x,
    "F": np.asfortranarray,
    "rotated": lambda x: x.transpose(1, 2, 0).copy().transpose(2, 0, 1),
    "swapped": lambda x: x.swapaxes(0, 1).copy().swapaxes(0, 1),
    "gaps in rows": lambda x: np.repeat(x, 2, axis=-1)[..., ::2],
    "gaps between blocks": lambda x: np.repeat(x, 3, axis=0)[::3],
    "gaps between rows": lambda x: np.repeat(x, 2, axis=1)[:, ::2],
    "reversed": lambda x: x[::-1].copy()[::-1],
    "repeated": lambda x: np.broadcast_to(x[:1], x.shape),
    "a row": lambda x: x[0, 0],
    "a column": lambda x: np.asfortranarray(x[:, :1]),
}

FUNCTIONS = {
    "addition": lambda x, y: x + y,
    "maximum": np.maximum,
    "selection": lambda x, y: np.where(x > y, x, y),
    "several operands": lambda x, y: np.clip(x, y, 2.0) * y,
    "one of two": lambda x, y: np.sin(x) * 2 - 0 * np.sum(y),
    "a copy": lambda x, y: (x + y).copy("K"),
    "filled": lambda x, y: np.full_like(x + y, 2.0) * (x - y),
    "sorted": lambda x, y: np.sort(x + y, axis=1),
}

USES = {
    "read in memory order": lambda z: z.ravel("K") * np.arange(1.0, z.size + 1),
    "read by columns or rows": lambda z: z.ravel("A") * np.arange(1.0, z.size + 1),
    "written through a reshape": lambda z: (z.reshape(-1).__setitem__(0, 9.0), z)[1],
    "written through columns": lambda z: (z.reshape(-1, order="F").__setitem__(1, 9.0), z)[1],
}


def arguments(first, second):
    rng = np.random.default_rng(0)
    return [LAYOUTS[name](rng.normal(size=(3, 2, 4))) for name in (first, second)]


PAIRS = [
    pair
    for pair in itertools.product(LAYOUTS, LAYOUTS)
    if not {"a row", "a column"} >= set(pair)  # one of them has the full shape
]


@pytest.mark.parametrize("use", USES)
@pytest.mark.parametrize("function", FUNCTIONS)
def test_results_lie_in_memory_as_numpys(function, use):
    def f(x, y):
        return USES[use](FUNCTIONS[function](x, y))

    with gt.config.override(jit=False):
        for first, second in PAIRS:
            x, y = arguments(first, second)
            wanted = f(x.copy("K") if x.base is None else x, y)
            np.testing.assert_allclose(gt.jit(f)(x, y), wanted, err_msg=f"{first}, {second}: jit")
            with gt.GradientTape() as tape:
                result = f(tape.watch(x), y)
            np.testing.assert_allclose(result, wanted, err_msg=f"{first}, {second}: tape")


@pytest.mark.parametrize("subscripts", ["ij->ji", "ii->i", "ij->i", "ij", "ij->"])
def test_einsum_of_one_operand_is_a_view_unless_it_sums(subscripts):
    def f(x):
        part = np.einsum(subscripts, x)
        if np.ndim(part):
            part[0] = 7.0
        return x * 1

    x = np.arange(9.0).reshape(3, 3)
    np.testing.assert_array_equal(gt.jit(f)(x.copy()), f(x.copy()))


@pytest.mark.parametrize("loops", ["trace", "compile"])
def test_a_reshape_of_an_argument_is_a_view_where_numpys_is(loops):
    def f(x):
        y = x.reshape(-1)
        if x.ndim > 2 and x.shape[1] == 2:
            y = x.reshape(3, 4, 2)[0].reshape(-1)
        z = y * 2.0
        for k in range(3):
            z[k] = z[k] + k
        y[0] = 5.0
        return x * 1.0, z

    x = np.arange(24.0).reshape(3, 2, 4)
    jitted = gt.jit(lambda x: f(x))
    with gt.config.override(loops=loops):
        for _ in range(2):
            for name in LAYOUTS.keys() - {"repeated"}:  # which NumPy does not write to
                view = LAYOUTS[name](x.copy())
                ours = LAYOUTS[name](x.copy())
                for one, other in zip(jitted(ours), f(view), strict=True):
                    np.testing.assert_array_equal(one, other, err_msg=name)


WRITES = {
    "a ufunc": lambda a, b: np.multiply(a, 0.5, out=a),
    "a ufunc by position": lambda a, b: np.multiply(a, 0.5, a),
    "a ufunc of two arrays": lambda a, b: np.multiply(a, b, out=a),
    "a ufunc of the other array": lambda a, b: np.add(b, b, out=a),
    "a ufunc with a mask": lambda a, b: np.add(a, b, out=a, where=a > 0),
    "a method of a ufunc": lambda a, b: np.add.accumulate(a, axis=1, out=a),
    "a function": lambda a, b: np.cumsum(a, axis=0, out=a),
    "a function by position": lambda a, b: np.cumsum(a, 0, None, a),
    "a method": lambda a, b: a.cumsum(axis=1, out=a),
    "clip": lambda a, b: np.clip(a, -1.0, 1.0, out=a),
    "an operator": lambda a, b: a.__iadd__(b),
    "a sort": lambda a, b: (a.sort(axis=1), a)[1],
    "copyto": lambda a, b: (np.copyto(a, b), a)[1],
}


@pytest.mark.parametrize("name", WRITES)
def test_an_array_that_is_written_to_keeps_its_layout(name):
    def f(a, b):
        v = WRITES[name](a, b)
        a.ravel()[-1] = 5.0
        v.reshape(-1)[0] = 7.0
        return a * 1.0, v * 1.0, b * 1.0, a.ravel("K") * 1.0

    layouts = ("C", "F", "gaps in rows", "gaps between blocks", "reversed")
    for first, second in itertools.product(layouts, layouts):
        rng = np.random.default_rng(0)
        x = rng.normal(size=(2, 3))[None]

        def arguments(first=first, second=second, x=x):
            return [LAYOUTS[name](x[0]) if name != "C" else x[0].copy() for name in (first, second)]

        expected = f(*arguments())
        for loops in ("trace", "compile"):
            with gt.config.override(jit=False, loops=loops):
                found = gt.jit(f)(*arguments())
            for one, other in zip(found, expected, strict=True):
                np.testing.assert_allclose(one, other, err_msg=f"{first}, {second}: {loops}")
        with gt.GradientTape() as tape:
            a, b = arguments()
            found = f(tape.watch(a), b)
        for one, other in zip(found, expected, strict=True):
            np.testing.assert_allclose(one, other, err_msg=f"{first}, {second}: tape")


def test_memory_order_is_that_of_numpys_iterators():
    """Repeated elements tell nothing of the order: C order wins there."""
    for shape in ((2, 3), (2, 3, 4), (1, 3, 2), (3, 1), (1, 1, 2)):
        x = np.arange(1.0, 1.0 + np.prod(shape)).reshape(shape)
        for axes in itertools.permutations(range(x.ndim)):
            y = x.transpose(axes).copy().transpose(np.argsort(axes))
            for axis in range(x.ndim):
                first = y.take([0], axis)
                views = [
                    y,
                    np.flip(y, axis),
                    np.repeat(y, 2, axis)[(slice(None),) * axis + (slice(None, None, 2),)],
                    np.broadcast_to(first, shape),
                    *[np.broadcast_to(first.take([0], other), shape) for other in range(x.ndim)],
                ]
                for view in views:
                    order = memory_order(view, "K")
                    found = view.ravel(order) if isinstance(order, str) else view.transpose(order).ravel()
                    np.testing.assert_array_equal(found, view.ravel("K"), err_msg=f"{shape} {view.strides}")


def test_an_argument_of_repeated_rows_is_read_in_c_order():
    x = np.broadcast_to(np.arange(3.0), (2, 3))
    for f in (lambda x: x.ravel("K") * 1.0, lambda x: np.broadcast_to(x[0] * 1.0, (2, 3)).ravel("K") * 1.0):
        np.testing.assert_array_equal(gt.jit(f)(x), f(x))


INDEX_LAYOUTS = {
    "C": lambda a: a,
    "F": np.asfortranarray,
    "gaps": lambda a: np.repeat(a, 2, axis=-1)[..., ::2],
    "reversed": lambda a: a[..., ::-1].copy()[..., ::-1],
    "list": lambda a: a.tolist(),
}


@pytest.mark.parametrize("first", INDEX_LAYOUTS)
@pytest.mark.parametrize("second", [*INDEX_LAYOUTS, None])
def test_what_index_arrays_pick_lies_in_memory_as_numpys(first, second):
    rng = np.random.default_rng(0)
    for shapes in [((2, 3), (2, 3)), ((2, 3, 2), (3, 1)), ((1, 3), (2, 1))]:
        names = [name for name in (first, second) if name is not None]
        key = tuple(INDEX_LAYOUTS[n](rng.integers(0, 4, s)) for n, s in zip(names, shapes, strict=False))

        def picked(x, key=key):
            return x[key if len(key) > 1 else key[0]].ravel("K") * 2.0

        x = np.arange(16.0).reshape(4, 4) if second is not None else np.arange(4.0)
        for loops in ("trace", "compile"):
            with gt.config.override(loops=loops):
                np.testing.assert_array_equal(gt.jit(picked)(x), picked(x))
        with gt.GradientTape() as tape:
            np.testing.assert_array_equal(picked(tape.watch(x)), picked(x))


def test_arrays_that_leave_keep_their_order():
    index = np.asfortranarray([[0, 1, 2], [4, 0, 1]])

    def picked(index):
        return np.arange(5)[index * 1].ravel("K")

    for jit in (True, False):
        with gt.config.override(jit=jit):
            np.testing.assert_array_equal(gt.jit(picked)(index), picked(index))
    with gt.GradientTape() as tape:
        x = tape.watch(np.asfortranarray(np.arange(6.0).reshape(2, 3))) * 2.0
    assert x.numpy().flags.f_contiguous and np.asarray(x).strides == x.numpy().strides


def columns_written_later(v):
    flat = v.reshape(-1, order="F")
    v[0, 0] = v[0, 0] * 3.0 + 1.0
    return flat + 0.0


def branches_written_later(v):
    w = -v if np.sum(v) > 0.5 else v - 1.0
    flat = w.reshape(-1, order="F")
    w[1] = w[1] * 3.0
    return flat + 0.0


BATCHES = {
    "C": (lambda x: x, 0),
    "F": (np.asfortranarray, 0),
    "columns of elements": (lambda x: x.swapaxes(1, 2).copy().swapaxes(1, 2), 0),
    "last": (lambda x: np.moveaxis(x, 0, -1).copy(), -1),
    "last, F": (lambda x: np.asfortranarray(np.moveaxis(x, 0, -1)), -1),
    "middle": (lambda x: np.moveaxis(x, 0, 1).copy(), 1),
}


@pytest.mark.parametrize("batch", BATCHES)
@pytest.mark.parametrize("function", [columns_written_later, branches_written_later])
def test_elements_of_batches_lie_in_memory_as_numpys_views(function, batch):
    lay_out, axis = BATCHES[batch]
    x = lay_out(np.arange(1.0, 13.0).reshape(2, 2, 3))
    wanted = [function(np.moveaxis(x.copy("K"), axis, 0)[k]) for k in range(2)]
    np.testing.assert_array_equal(gt.vmap(function, in_axes=axis)(x.copy("K")), wanted)
    ordered = gt.vmap(lambda v: v.ravel("K"), in_axes=axis)(x)
    np.testing.assert_array_equal(ordered, [np.moveaxis(x, axis, 0)[k].ravel("K") for k in range(2)])


@pytest.mark.parametrize("function", [columns_written_later, branches_written_later])
@pytest.mark.parametrize("loops", ["trace", "compile"])
def test_arrays_of_branches_keep_their_order(function, loops):
    x = np.asfortranarray(np.arange(1.0, 7.0).reshape(2, 3))
    with gt.config.override(loops=loops):
        np.testing.assert_array_equal(gt.jit(function)(x.copy("K")), function(x.copy("K")))


def copied(x):
    return x.copy("K")


CREATED = {
    "asarray": (gt.asarray, np.asarray),
    "asarray of another dtype": (
        lambda x: gt.asarray(x, dtype=np.float32),
        lambda x: np.asarray(x, dtype=np.float32),
    ),
    "asarray of an Array of another dtype": (
        lambda x: gt.asarray(gt.asarray(x), dtype=np.float32),
        lambda x: np.asarray(x, dtype=np.float32),
    ),
    "asarray of a variable": (lambda x: gt.asarray(gt.Variable(x)), copied),
    "constant": (gt.constant, copied),
    "constant of an Array": (lambda x: gt.constant(gt.asarray(x)), copied),
    "Variable": (gt.Variable, copied),
    "Variable of a function": (lambda x: gt.Variable(lambda: x), copied),
    "copied Variable": (lambda x: copy.copy(gt.Variable(x)), copied),
    "value of a variable": (lambda x: gt.Variable(x).value(), copied),
    "read of a variable": (lambda x: gt.Variable(x).read_value(), copied),
    "numbers of a variable": (lambda x: gt.Variable(x).numpy(), copied),
}
"""What gradtape makes of an ndarray, and what NumPy makes of it."""


def weighted(z):
    return z * np.arange(1.0, z.size + 1)


def written_in_memory_order(z):
    z = z.copy("K")
    z.ravel("K")[0] = 9.0
    return z * 1.0


READS = {
    **USES,
    "a part": lambda z: weighted(z[1:].ravel("K")),
    "transposed": lambda z: weighted(z.T.ravel("K")),
    "an operation": lambda z: weighted((2.0 * z).ravel("K")),
    "np.array": lambda z: weighted(np.array(z).ravel("K")),
    "np.array in columns": lambda z: weighted(np.array(z, order="F").ravel("K")),
    "np.asarray of another dtype": lambda z: weighted(np.asarray(z, dtype=complex).ravel("K")),
    "written in memory order": written_in_memory_order,
}


MADE = [
    (created, read)
    for created, (ours, _) in CREATED.items()
    for read in READS
    if "written through" not in read
    or not isinstance(ours(np.ones(2)), gt.Variable)  # it is no base of views
]


@pytest.mark.parametrize(("created", "read"), MADE)
def test_what_is_made_of_an_ndarray_lies_in_memory_as_numpys(created, read):
    ours, numpys = CREATED[created]
    for layout in LAYOUTS:
        if layout == "repeated" and ("written" in read or "np." in read):
            continue  # such an array is read-only, and an Array hands over its numbers without repetition
        wanted = READS[read](numpys(laid_out(layout)))
        np.testing.assert_array_equal(READS[read](ours(laid_out(layout))), wanted, err_msg=layout)
        found = gt.jit(READS[read])(ours(laid_out(layout)))
        np.testing.assert_array_equal(found, wanted, err_msg=f"{layout}: jit")


def laid_out(layout):
    return LAYOUTS[layout](np.arange(1.0, 25.0).reshape(3, 2, 4))
