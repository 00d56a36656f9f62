"""Results lie in memory as NumPy's do: it decides in which order `ravel("K")` reads them, and whether a reshape is a view."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import gradtape as gt

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
