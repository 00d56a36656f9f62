"""Views in compiled loops: writes through them and to their base are seen as in NumPy, for arguments of all memory layouts."""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt
from tests.fuzz.memory.overlaps import Program, laid_out

VIEWS = [
    ("x.T", (2, 3)),
    ("x.mT", (2, 3)),
    ("x.ravel()", (2, 3)),
    ("x.ravel('F')", (2, 3)),
    ("x.ravel(order='K')", (2, 3)),
    ("np.ravel(x, order='A')", (2, 3)),
    ("x.flatten()", (2, 3)),
    ("x.flatten('F')", (2, 3)),
    ("x.reshape(3, 2)", (2, 3)),
    ("x.reshape((3, 2), order='F')", (2, 3)),
    ("np.reshape(x, (3, 2), order='A')", (2, 3)),
    ("x.reshape(2, 1, 3)", (2, 3)),
    ("x[:, :2].reshape(2, 2, 2)", (4, 3)),
    ("x[:, :2].reshape(-1)", (4, 3)),
    ("x[:, ::-1].ravel()", (2, 3)),
    ("x.T.reshape(-1)", (2, 3)),
    ("x.T.ravel()", (2, 3)),
    ("(x * 1.0).T.ravel()", (2, 3)),
    ("(2.0 * x.T).ravel()", (2, 3)),
    ("x.copy()", (2, 3)),
    ("np.copy(x).reshape(-1)", (2, 3)),
    ("np.array(x)", (2, 3)),
    ("np.asarray(x)", (2, 3)),
    ("np.ascontiguousarray(x)", (2, 3)),
    ("np.asfortranarray(x)", (2, 3)),
    ("x.squeeze()", (2, 1, 3)),
    ("np.expand_dims(x, 1)", (2, 3)),
    ("x.swapaxes(0, 1)", (2, 3)),
    ("np.moveaxis(x, 0, 1)", (2, 3)),
    ("np.rollaxis(x, 1)", (2, 3)),
    ("np.rot90(x)", (2, 3)),
    ("np.flip(x)", (2, 3)),
    ("np.fliplr(x)", (2, 3)),
    ("np.flipud(x)", (2, 3)),
    ("np.atleast_2d(x)", (3,)),
    ("np.atleast_3d(x)", (3,)),
    ("np.atleast_1d(x)", (3,)),
    ("np.split(x, 3)[1]", (3, 2)),
    ("np.hsplit(x, 2)[1]", (3, 2)),
    ("np.array_split(x, 2)[0]", (3, 2)),
    ("np.real(x)", (2, 3)),
    ("x.real", (2, 3)),
    ("x[[1, 0]]", (2, 3)),
    ("x[x > 0]", (2, 3)),
    ("x[None, 1]", (2, 3)),
    ("x[..., 1]", (2, 3)),
    ("x[1]", (2, 3)),
    ("np.meshgrid(x[0], x[1], copy=False, sparse=True)[0]", (2, 3)),
    ("x.astype(float)", (2, 3)),
    ("x.astype(float, copy=False)", (2, 3)),
    ("np.einsum('ij->ji', x)", (2, 3)),
    ("np.einsum('ii->i', x)", (3, 3)),
    ("np.zeros_like(x).ravel()", (2, 3)),
    ("np.unstack(x)[1]", (3, 2)),
    ("np.nan_to_num(x, copy=False)", (3, 2)),
    ("np.diff(x, 0)", (3, 2)),
    ("np.squeeze(x[:, :1])", (3, 2)),
    ("np.transpose(x)", (3, 2)),
]

LAYOUTS = ("C", "F", "strided", "columns", "reversed")


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("view, shape", VIEWS)
def test_writes_are_seen_as_in_numpy(view, shape, layout):
    for lines in (
        (f"v = {view}", "v[...] = v * 2.0 + 1.0"),
        (f"v = {view}", "x[...] = x * 2.0 + 1.0"),
        (f"v = {view}", "x[-1] = 3.0"),
    ):
        program = Program(shape, layout, lines, ("x", "v"), 1)
        wanted = program.function()(program.argument())
        with gt.config.override(jit=False, loops="compile"):
            try:
                found = gt.jit(program.function())(program.argument())
            except (
                gt.errors.InPlaceError,
                gt.errors.UnsupportedFunctionError,
                gt.errors.UnsupportedCodeError,
            ):
                continue
        np.testing.assert_array_equal(np.asarray(found), wanted, program.text())


def test_layouts_are_what_they_say():
    x = np.ones((3, 4))
    assert [laid_out(x, layout).flags.c_contiguous for layout in LAYOUTS] == [
        True,
        False,
        False,
        False,
        False,
    ]


@pytest.mark.parametrize("loops", ["trace", "compile"])
def test_masks_of_rows_and_of_elements(loops):
    mask = np.array([True, False, True, True])

    def rows(x):
        for k in range(2):
            x[mask] *= 2.0 + k
        return x + np.sum(x[mask])

    def elements(x):
        for k in range(2):
            x[x > k] *= 2.0
        return x + np.sum(x[x > 2])

    def elements_of_a_column(x):
        for k in range(2):
            x[mask, k] += 2.0
        return x

    with gt.config.override(loops=loops):
        for f in (rows, elements, elements_of_a_column):
            x = np.arange(12.0).reshape(4, 3) - 5
            np.testing.assert_allclose(gt.jit(f)(x.copy()), f(x.copy()), err_msg=f.__name__)
