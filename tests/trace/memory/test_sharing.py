"""What a function returns shares memory with its argument, or does not, as in NumPy: seen by writes to either of them."""

from __future__ import annotations

import numpy as np
import pytest

import gradtape as gt

FUNCTIONS = {
    "repeat": lambda v: np.repeat(v, 2),
    "repeat of a new axis": lambda v: np.repeat(v[None], 2, axis=0),
    "repeat, once": lambda v: np.repeat(v, 1, axis=0),
    "repeat of a new axis, once": lambda v: v[None].repeat(1, axis=0),
    "tile": lambda v: np.tile(v, 2),
    "tile, once": lambda v: np.tile(v, 1),
    "tile by rows": lambda v: np.tile(v, (2, 1)),
    "tile of a new axis": lambda v: np.tile(v[None], (2, 1)),
    "pad by nothing": lambda v: np.pad(v, 0),
    "block of one": lambda v: np.block([v]),
    "roll by nothing": lambda v: np.roll(v, 0),
    "concatenate one": lambda v: np.concatenate([v]),
    "stack one": lambda v: np.stack([v]),
    "hstack one": lambda v: np.hstack([v]),
    "vstack one": lambda v: np.vstack([v]),
    "column_stack one": lambda v: np.column_stack([v]),
    "append nothing": lambda v: np.append(v, []),
    "copy": lambda v: v.copy(),
    "np.copy": np.copy,
    "array": np.array,
    "array without a copy": lambda v: np.array(v, copy=None),
    "array of as many axes": lambda v: np.array(v, copy=None, ndmin=1),
    "array of more axes": lambda v: np.array(v, copy=None, ndmin=3),
    "copy of more axes": lambda v: np.array(v, ndmin=2),
    "asarray": np.asarray,
    "asanyarray": np.asanyarray,
    "ascontiguousarray": np.ascontiguousarray,
    "asfortranarray": np.asfortranarray,
    "asarray by columns": lambda v: np.asarray(v, order="F"),
    "require": lambda v: np.require(v),
    "require a dtype": lambda v: np.require(v, float),
    "require columns": lambda v: np.require(v, requirements="F"),
    "require rows": lambda v: np.require(v, requirements=["C", "W"]),
    "astype": lambda v: v.astype(float),
    "astype without a copy": lambda v: v.astype(float, copy=False),
    "flatten": lambda v: v.flatten(),
    "ravel": np.ravel,
    "reshape": lambda v: v.reshape(1, -1),
    "transposed": lambda v: v.T,
    "squeeze": lambda v: np.squeeze(v[None]),
    "expand_dims": lambda v: np.expand_dims(v, 0),
    "atleast_2d": np.atleast_2d,
    "rollaxis": lambda v: np.rollaxis(v[None], 1),
    "flip": np.flip,
    "all of it": lambda v: v[...],
    "a slice": lambda v: v[:],
    "positions": lambda v: v[[0, 1, 2]],
    "a mask": lambda v: v[np.array([True, True, True])],
    "take": lambda v: np.take(v, [0, 1, 2]),
    "einsum": lambda v: np.einsum("i->i", v),
    "array_split": lambda v: np.array_split(v, 1)[0],
    "positive": np.positive,
    "plus": lambda v: +v,
    "plus nothing": lambda v: v + 0,
    "power of one": lambda v: v**1,
    "clip": lambda v: np.clip(v, -1e9, 1e9),
    "where": lambda v: np.where(True, v, v),
    "maximum": lambda v: np.maximum(v, v),
    "nan_to_num": lambda v: np.nan_to_num(v),
    "real": np.real,
    "conjugate": np.conj,
    "sum over nothing": lambda v: np.sum(v, axis=()),
    "sum over one": lambda v: np.sum(v[None], axis=0),
    "max over one": lambda v: np.max(v[None], axis=0),
    "sort": np.sort,
    "cumsum": np.cumsum,
    "diff of order 0": lambda v: np.diff(v, n=0),
    "resize": lambda v: np.resize(v, 3),
    "full_like": lambda v: np.full_like(v, v),
    "meshgrid": lambda v: np.meshgrid(v, v)[0],
}


def argument_written(function, x):
    v = x * 1.0
    w = function(v)
    v[1] = 7.0
    return w * 1.0


def result_written(function, x):
    v = x * 1.0
    w = function(v)
    w[..., 0] = 9.0
    return v * 1.0


def result_of_the_argument_written(function, x):
    w = function(x)
    w[..., 0] = 9.0
    return x * 1.0


def result_of_zeros_written(function, x):
    v = np.zeros_like(x)
    w = function(v)
    w[..., 0] = 9.0
    return v * 1.0


def zeros_written(function, x):
    v = np.zeros_like(x)
    w = function(v)
    v[0] = x[1]
    return w * 1.0


USES = (
    argument_written,
    result_written,
    result_of_the_argument_written,
    result_of_zeros_written,
    zeros_written,
)


def jitted(loops):
    def run(f, x):
        with gt.config.override(loops=loops):
            return gt.jit(f)(x)

    return run


def on_tape(f, x):
    with gt.GradientTape() as tape:
        return np.asarray(f(tape.watch(x)))


WAYS = {
    "trace": jitted("trace"),
    "compile": jitted("compile"),
    "tape": on_tape,
    "vmap": lambda f, x: gt.vmap(f)(np.stack([x, x]))[1],
}


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_share_memory_where_numpys_do(name, way):
    x = np.array([1.0, 2.0, 4.0])
    compared = 0
    for use in USES:

        def f(x, use=use):
            return use(FUNCTIONS[name], x)

        try:
            expected = f(x.copy())
        except ValueError:  # NumPy does not write to it either
            continue
        np.testing.assert_allclose(WAYS[way](f, x.copy()), expected, err_msg=use.__name__)
        compared += 1
    assert compared
