"""The functions of `numpy`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from tests.coverage.cases import Case, Namespace, because, call, public_functions

X = np.array([0.31, 0.84, -0.52, 0.17, 0.66, -0.93])
Y = np.array([1.21, 0.44, 0.72, 1.57, 0.26, 0.63])
P = np.array([0.23, 0.71, 0.48, 1.37, 1.92])
A = np.array([[0.3, 1.2, -0.7], [0.9, -0.4, 1.6]])
B = np.array([[1.1, 0.2], [0.5, -0.8], [-0.3, 0.7]])
S = np.array([[2.0, 0.3, 0.1], [0.2, 1.5, -0.4], [0.6, 0.1, 1.8]])
C = np.array([0.3 + 0.4j, -0.7 + 0.2j, 0.5 - 0.9j])
T = np.arange(24.0).reshape(2, 3, 4) / 7 - 1.3


def each(function: Callable[..., Any], names: str, *arrays: Any, **options: Any) -> dict[str, list[Case]]:
    """Return the cases of functions of NumPy that are called alike."""
    return {name: call(function(getattr(np, name)), *arrays, **options) for name in names.split()}


def written(write: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function whose result is its first argument after a write into it."""

    def run(x: Any, *rest: Any) -> Any:
        made = x * 1.0
        write(made, *rest)
        return made

    return run


CASES = {
    **each(
        lambda f: f,
        "sin cos tan arctan atan sinh cosh tanh arcsinh asinh exp exp2 expm1 square negative positive abs absolute fabs "
        "deg2rad rad2deg degrees radians sinc cbrt i0 conj conjugate real copy",
        X,
    ),
    **each(lambda f: f, "arcsin asin arccos acos arctanh atanh", X * 0.9),
    **each(lambda f: f, "log log2 log10 log1p sqrt reciprocal", P),
    **each(lambda f: f, "arccosh acosh", P + 1.2),
    **each(
        lambda f: f,
        "add subtract multiply divide true_divide hypot arctan2 atan2 maximum minimum fmax fmin logaddexp logaddexp2 "
        "remainder mod fmod copysign dot inner outer vdot vecdot convolve correlate kron",
        X,
        Y,
    ),
    **each(lambda f: f, "power pow float_power", Y, X),
    **each(lambda f: f, "sum prod max min amax amin mean std var median ptp cumsum cumprod average", X),
    **each(
        lambda f: f, "nansum nanprod nanmax nanmin nanmean nanstd nanvar nanmedian nancumsum nancumprod", X
    ),
    **each(lambda f: lambda x: f(x, axis=0), "cumulative_sum cumulative_prod", X),
    **each(lambda f: lambda x: f(x, 0.3), "quantile nanquantile", X),
    **each(lambda f: lambda x: f(x, 35.0), "percentile nanpercentile", X),
    **each(
        lambda f: f, "diff ediff1d gradient trapezoid unwrap sort flip ravel trim_zeros diagflat vander", X
    ),
    **each(
        lambda f: f,
        "transpose permute_dims matrix_transpose fliplr flipud rot90 squeeze tril triu diag diagonal trace cov corrcoef "
        "atleast_1d atleast_2d atleast_3d",
        A,
    ),
    **each(
        lambda f: f,
        "asarray asanyarray ascontiguousarray asfortranarray array require asarray_chkfinite from_dlpack",
        X,
    ),
    **each(
        lambda f: lambda x, y: f([x, y]),
        "concatenate concat stack hstack vstack dstack column_stack block",
        X,
        Y,
    ),
    **each(lambda f: lambda x: f(x, 2), "split array_split hsplit", X),
    **each(lambda f: lambda x: f(x, 2), "vsplit", A),
    **each(lambda f: lambda x: f(x, 2), "dsplit", T),
    **each(lambda f: lambda x: f(x, (3, 2)), "reshape resize", X),
    **each(lambda f: lambda x, y: f(x, y, axes=1), "tensordot", A, B),
    **each(lambda f: f, "matmul", A, B),
    **each(lambda f: f, "matvec", A, Y[:3]),
    **each(lambda f: f, "vecmat", Y[:2], A),
    **each(lambda f: f, "cross", A, A[::-1] * 0.7 + 0.2),
    **each(lambda f: lambda x: f(x), "poly polyder polyint", Y),
    **each(lambda f: f, "polyval", Y, X),
    **each(lambda f: f, "polyadd polysub polymul", X, Y[:4]),
    "polydiv": call(lambda u, v: np.polydiv(u, v), X, Y[:3]),
    "polyfit": call(lambda x, y: np.polyfit(x, y, 2), X, Y, rtol=1e-4),
    "roots": call(lambda p: np.sort_complex(np.roots(p)), [1.0, -2.3, 0.4, 0.7], rtol=1e-4),
    "angle": call(np.angle, C),
    "imag": call(np.imag, C),
    "real_if_close": call(np.real_if_close, X),
    "sort_complex": call(np.sort_complex, C),
    "append": call(lambda x, y: np.append(x, y), X, Y),
    "apply_along_axis": call(lambda a: np.apply_along_axis(lambda r: r * r.sum(), 1, a), A),
    "apply_over_axes": call(lambda t: np.apply_over_axes(np.sum, t * t, [0, 2]), T),
    "arange": call(lambda x: np.arange(0.0, 5 * x, x), 0.3),
    "astype": call(lambda x: np.astype(x, np.float64), X),
    "bincount": call(lambda w: np.bincount([0, 2, 1, 2, 0, 4], weights=w), X),
    "broadcast_arrays": call(lambda x, a: np.broadcast_arrays(x, a), X[:3], A),
    "broadcast_to": call(lambda x: np.broadcast_to(x, (2, 6)), X),
    "choose": call(lambda x, y: np.choose([0, 1, 1, 0, 1, 0], [x, y]), X, Y),
    "clip": call(lambda x: np.clip(x, -0.5, 0.5), X),
    "compress": call(lambda x: np.compress([True, False, True], x), X),
    "copyto": call(written(lambda x, y: np.copyto(x, y, where=np.arange(6) > 2)), X, Y),
    "delete": call(lambda x: np.delete(x, [1, 3]), X),
    "divmod": call(lambda x, y: np.divmod(x, y), X, Y),
    "einsum": call(lambda a, b: np.einsum("ij,jk->ik", a, b), A, B),
    "expand_dims": call(lambda x: np.expand_dims(x, 0), X),
    "extract": call(lambda x: np.extract(x > 0, x), X),
    "fill_diagonal": call(written(lambda s, x: np.fill_diagonal(s, x)), S, X[:3]),
    "frexp": call(lambda x: np.frexp(x)[0], X),
    "fromfunction": call(lambda x: np.fromfunction(lambda i, j: x * i + j, (2, 3)), 0.7),
    "frompyfunc": call(lambda x: np.frompyfunc(lambda v: v * v, 1, 1)(x).astype(float), X),
    "full": call(lambda x: np.full((2, 3), x), 0.7),
    "full_like": call(lambda x: np.full_like(A, x), 0.7),
    "geomspace": call(lambda a, b: np.geomspace(a, b, 5), 0.7, 2.9),
    "heaviside": call(lambda h: np.heaviside(np.array([0.4, 0.0, -0.2]), h), [0.5, 0.3, 0.7]),
    "histogram": call(lambda w: np.histogram([0.1, 0.5, 0.7, 0.2, 0.9, 0.4], 3, weights=w)[0], X),
    "histogram2d": call(
        lambda w: np.histogram2d(
            [0.1, 0.5, 0.7, 0.2, 0.9, 0.4], [0.3, 0.2, 0.8, 0.9, 0.5, 0.1], 2, weights=w
        )[0],
        X,
    ),
    "histogramdd": call(lambda w: np.histogramdd(np.arange(12.0).reshape(6, 2) % 5, 2, weights=w)[0], X),
    "insert": call(lambda x, y: np.insert(x, [1, 3], y), X, Y[:2]),
    "interp": call(
        lambda x, xp, fp: np.interp(x, xp, fp), [0.31, 1.24, 1.87], [0.0, 1.0, 2.0], [0.5, 1.5, -0.2]
    ),
    "kaiser": call(lambda b: np.kaiser(7, b), 2.3),
    "ldexp": call(lambda x: np.ldexp(x, [1, 2, -1, 0, 3, 1]), X),
    "linspace": call(lambda a, b: np.linspace(a, b, 5), 0.3, 1.9),
    "logspace": call(lambda a, b: np.logspace(a, b, 5), 0.3, 0.9),
    "meshgrid": call(lambda x, y: np.meshgrid(x, y), X[:2], Y[:3]),
    "modf": call(lambda x: np.modf(x * 3), X),
    "moveaxis": call(lambda t: np.moveaxis(t, 0, -1), T),
    "nan_to_num": call(np.nan_to_num, X),
    "nextafter": call(lambda x: np.nextafter(x, 2.0), X),
    "histogram_bin_edges": call(lambda x: np.histogram_bin_edges(x, 4), X),
    "pad": call(lambda x: np.pad(x, 2, mode="reflect"), X),
    "partition": call(lambda x: np.sum(np.partition(x, 2)[:2]), X),
    "piecewise": call(lambda x: np.piecewise(x, [x < 0, x >= 0], [lambda v: v * v, lambda v: 3 * v]), X),
    "place": call(written(lambda x, y: np.place(x, np.arange(6) > 2, y)), X, Y[:3]),
    "put": call(written(lambda x, y: np.put(x, [1, 3, 4], y)), X, Y[:3]),
    "put_along_axis": call(written(lambda x, y: np.put_along_axis(x, np.array([1, 3, 4]), y, 0)), X, Y[:3]),
    "putmask": call(written(lambda x, y: np.putmask(x, np.arange(6) > 2, y)), X, Y),
    "repeat": call(lambda x: np.repeat(x, 2), X),
    "roll": call(lambda x: np.roll(x, 2), X),
    "rollaxis": call(lambda t: np.rollaxis(t, 2), T),
    "select": call(lambda x, y: np.select([x > 0.5, x > 0], [x * x, y], 0.3), X, Y),
    "swapaxes": call(lambda t: np.swapaxes(t, 0, 2), T),
    "take": call(lambda x: np.take(x, [1, 1, 4]), X),
    "take_along_axis": call(lambda x: np.take_along_axis(x, np.array([1, 1, 4]), 0), X),
    "tile": call(lambda x: np.tile(x, 2), X),
    "unstack": call(lambda a: np.unstack(a), A),
    "where": call(lambda x, y: np.where(x > 0.2, x, y), X, Y),
    "unique": call(lambda x: np.unique(x) ** 2, X),
    "unique_values": call(lambda x: np.sort(np.unique_values(x)) ** 2, X),
    "unique_all": call(lambda x: np.unique_all(x).values ** 2, X),
    "unique_counts": call(lambda x: np.unique_counts(x).values ** 2, X),
    "unique_inverse": call(lambda x: np.unique_inverse(x).values ** 2, X),
    "union1d": call(lambda x, y: np.union1d(x, y) ** 2, X, Y),
    "intersect1d": call(lambda x: np.intersect1d(x, x[:3]) ** 2, X),
    "setdiff1d": call(lambda x: np.setdiff1d(x, x[:3]) ** 2, X),
    "setxor1d": call(lambda x: np.setxor1d(x, x[:3] + 0.01) ** 2, X),
}

CONSTANT = {
    **each(
        lambda f: f,
        "floor ceil trunc rint fix sign signbit isfinite isinf isnan isneginf isposinf iscomplex isreal spacing argmax argmin "
        "nanargmax nanargmin argsort argwhere nonzero flatnonzero count_nonzero all any logical_not ndim shape size isrealobj "
        "iscomplexobj zeros_like ones_like round around",
        X,
    ),
    **each(
        lambda f: f,
        "equal not_equal less less_equal greater greater_equal logical_and logical_or logical_xor floor_divide isclose allclose "
        "array_equal array_equiv",
        X,
        Y,
    ),
    "argpartition": call(lambda x: np.argpartition(x, 2)[2], X),
    "digitize": call(lambda x: np.digitize(x, [0.0, 0.5]), X),
    "empty_like": call(lambda x: np.empty_like(x).shape[0], X),
    "isin": call(lambda x: np.isin(x, [0.31, 0.5]), X),
    "isscalar": call(np.isscalar, X),
    "lexsort": call(lambda x, y: np.lexsort((x, y)), X, Y),
    "searchsorted": call(lambda x: np.searchsorted([0.0, 0.5], x), X),
    "diag_indices_from": call(np.diag_indices_from, S),
    "tril_indices_from": call(np.tril_indices_from, S),
    "triu_indices_from": call(np.triu_indices_from, S),
    "iterable": call(np.iterable, X),
    "isfortran": call(np.isfortran, X),
}

OTHERS = because(
    makes_an_array_or_a_table_of_numbers_from_integers="bartlett blackman hamming hanning diag_indices empty eye identity "
    "indices mask_indices ones tri tril_indices triu_indices zeros ravel_multi_index unravel_index broadcast_shapes ix_",
    of_integers_and_bits="bitwise_and bitwise_count bitwise_invert bitwise_left_shift bitwise_not bitwise_or bitwise_right_shift "
    "bitwise_xor gcd invert lcm left_shift right_shift packbits unpackbits base_repr binary_repr",
    of_dates="busday_count busday_offset datetime_as_string datetime_data is_busday isnat",
    of_types="can_cast common_type isdtype issubdtype min_scalar_type mintypecode promote_types result_type typename",
    reads_writes_or_prints="array2string array_repr array_str format_float_positional format_float_scientific "
    "frombuffer fromfile fromregex fromstring genfromtxt load loadtxt save savetxt savez savez_compressed",
    a_setting_or_information="get_include get_printoptions getbufsize geterr geterrcall info printoptions set_printoptions "
    "setbufsize seterr seterrcall show_config show_runtime einsum_path",
    of_the_memory_of_arrays="may_share_memory shares_memory",
    makes_a_matrix="asmatrix bmat",
    of_iterators="fromiter nested_iters",
    deprecated="row_stack",
)

REFUSED = because(
    it_returns_arrays_of_objects="frompyfunc",
)
REFUSALS = {name: cases for name, cases in CASES.items() if name in REFUSED}
CASES = {name: cases for name, cases in CASES.items() if name not in REFUSED}

NUMPY = Namespace("numpy", public_functions(np), CASES, CONSTANT, REFUSED, REFUSALS, OTHERS)
