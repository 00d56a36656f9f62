"""The functions of `scipy.ndimage`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import scipy.ndimage as ndimage

from tests.coverage.cases import Case, Namespace, call, public_functions

LINE = np.array([0.31, 1.24, -0.72, 0.95, 2.1, -1.63, 0.48])
IMAGE = np.sin(1.7 * np.arange(30.0) + 0.2).reshape(5, 6) + 0.1 * np.arange(30.0).reshape(5, 6)
KERNEL = np.array([[0.2, -0.4, 0.7], [1.1, 0.3, -0.2]])
LABELS = np.array([1, 1, 2, 0, 2, 2, 1])
MASK = IMAGE > 0.8
PLACES = np.array([[0.3, 1.6, 3.2], [1.2, 4.4, 2.7]])
MODES = ("reflect", "constant", "nearest", "mirror", "wrap")
SPECTRUM = IMAGE + 1j * np.cos(IMAGE)


def first(function: Callable[..., Any], *arrays: Any) -> list[Case]:
    """Return the case of a function without second derivatives."""
    return call(function, *arrays, second=False)


def in_modes(function: Callable[..., Any], *arrays: Any, modes: tuple[str, ...] = MODES) -> list[Case]:
    """Return a case for each way to extend an array."""
    return [
        *call(lambda *a: function(*a, mode=modes[0]), *arrays),
        *[
            found
            for mode in modes[1:]
            for found in first(lambda *a, mode=mode: function(*a, mode=mode), *arrays)
        ],
    ]


def slid(window: Any) -> Any:
    return np.sum(window**2) - window[1] * window[0]


def rows(line: Any, out: Any) -> None:
    out[...] = line[:-2] + line[2:] ** 2


CASES: dict[str, list[Case]] = {
    "convolve1d": [
        *in_modes(lambda a, w, mode: ndimage.convolve1d(a, w, mode=mode), IMAGE, KERNEL[0]),
        *first(lambda a, w: ndimage.convolve1d(a, w, axis=0, origin=1), IMAGE, KERNEL[0]),
    ],
    "correlate1d": [
        *in_modes(lambda a, w, mode: ndimage.correlate1d(a, w, mode=mode), LINE, KERNEL[0]),
        *first(lambda a, w: ndimage.correlate1d(a, w, axis=0, origin=-1), IMAGE, KERNEL[0]),
    ],
    "convolve": in_modes(lambda a, w, mode: ndimage.convolve(a, w, mode=mode), IMAGE, KERNEL),
    "correlate": [
        *in_modes(lambda a, w, mode: ndimage.correlate(a, w, mode=mode, cval=0.7), IMAGE, KERNEL),
        *first(lambda a, w: ndimage.correlate(a, w, origin=(0, 1)), IMAGE, KERNEL),
    ],
    "gaussian_filter1d": [
        *call(ndimage.gaussian_filter1d, LINE, 0.8),
        *first(lambda a, s: ndimage.gaussian_filter1d(a, s, order=2, mode="wrap"), LINE, 0.8),
    ],
    "gaussian_filter": [
        *in_modes(lambda a, s, mode: ndimage.gaussian_filter(a, s, mode=mode), IMAGE, 0.8),
        *first(lambda a, s: ndimage.gaussian_filter(a, s, order=(0, 1), truncate=3.1), IMAGE, [0.7, 1.2]),
    ],
    "gaussian_laplace": call(ndimage.gaussian_laplace, IMAGE, 0.8),
    "gaussian_gradient_magnitude": first(ndimage.gaussian_gradient_magnitude, IMAGE, 0.8),
    "generic_laplace": first(
        lambda a: ndimage.generic_laplace(
            a, lambda x, axis, out, mode, cval: ndimage.prewitt(x, axis, out, mode, cval)
        ),
        IMAGE,
    ),
    "generic_gradient_magnitude": first(
        lambda a: ndimage.generic_gradient_magnitude(a, ndimage.sobel), IMAGE
    ),
    "generic_filter": first(lambda a: ndimage.generic_filter(a, slid, 3), IMAGE),
    "vectorized_filter": [
        *call(lambda a: ndimage.vectorized_filter(a, np.mean, size=3), IMAGE),
        *first(
            lambda a: ndimage.vectorized_filter(
                a, lambda w, axis: np.sum(w**2, axis=axis), size=(2, 3), mode="wrap"
            ),
            IMAGE,
        ),
    ],
    "laplace": call(ndimage.laplace, IMAGE),
    "prewitt": call(ndimage.prewitt, IMAGE),
    "sobel": call(lambda a: ndimage.sobel(a, axis=0, mode="wrap"), IMAGE),
    "uniform_filter1d": in_modes(lambda a, mode: ndimage.uniform_filter1d(a, 3, mode=mode), LINE),
    "uniform_filter": [
        *in_modes(lambda a, mode: ndimage.uniform_filter(a, (3, 2), mode=mode), IMAGE),
        *first(lambda a: ndimage.uniform_filter(a, 4, origin=1), IMAGE),
    ],
    "minimum_filter1d": first(lambda a: ndimage.minimum_filter1d(a, 3), LINE),
    "maximum_filter1d": first(lambda a: ndimage.maximum_filter1d(a, 3, mode="constant"), LINE),
    "minimum_filter": [
        *first(lambda a: ndimage.minimum_filter(a, (2, 3)), IMAGE),
        *first(lambda a: ndimage.minimum_filter(a, footprint=[[1, 0, 1], [0, 1, 0]]), IMAGE),
    ],
    "maximum_filter": in_modes(lambda a, mode: ndimage.maximum_filter(a, 3, mode=mode), IMAGE),
    "median_filter": in_modes(lambda a, mode: ndimage.median_filter(a, 3, mode=mode), IMAGE),
    "rank_filter": first(lambda a: ndimage.rank_filter(a, 2, size=3), IMAGE),
    "percentile_filter": first(lambda a: ndimage.percentile_filter(a, 30, size=3), IMAGE),
    "fourier_gaussian": call(lambda a, s: ndimage.fourier_gaussian(a, s), SPECTRUM, [0.7, 1.1]),
    "fourier_uniform": call(lambda a, s: ndimage.fourier_uniform(a, s), SPECTRUM, [1.7, 2.1]),
    "fourier_ellipsoid": first(lambda a: ndimage.fourier_ellipsoid(a, 2.1), SPECTRUM),
    "fourier_shift": call(lambda a, s: ndimage.fourier_shift(a, s), SPECTRUM, [0.7, 1.1]),
    "spline_filter1d": [
        *call(lambda a: ndimage.spline_filter1d(a), LINE),
        *first(lambda a: ndimage.spline_filter1d(a, 5, mode="wrap"), LINE),
        *first(lambda a: ndimage.spline_filter1d(a, 2, axis=0, mode="reflect"), IMAGE),
    ],
    "spline_filter": call(lambda a: ndimage.spline_filter(a), IMAGE),
    "map_coordinates": [
        *call(ndimage.map_coordinates, IMAGE, PLACES),
        *first(lambda a, p: ndimage.map_coordinates(a, p, order=1, mode="nearest"), IMAGE, PLACES + 0.1),
        *first(lambda a, p: ndimage.map_coordinates(a, p, order=2, mode="wrap"), IMAGE, PLACES + 3.1),
        *first(lambda a, p: ndimage.map_coordinates(a, p, order=5, mode="mirror"), IMAGE, PLACES),
        *first(lambda a, p: ndimage.map_coordinates(a, p, prefilter=False, mode="grid-wrap"), IMAGE, PLACES),
        *first(lambda a, p: ndimage.map_coordinates(a, p, order=3, mode="constant", cval=0.3), IMAGE, PLACES),
    ],
    "affine_transform": [
        *first(
            lambda a, m, o: ndimage.affine_transform(a, m, o), IMAGE, [[0.8, 0.1], [-0.2, 0.9]], [0.31, 0.43]
        ),
        *first(lambda a, m: ndimage.affine_transform(a, m, 0.3, order=1), IMAGE, [0.83, 0.71]),
        *first(
            lambda a, m: ndimage.affine_transform(a, m, output_shape=(3, 4), mode="mirror"),
            IMAGE,
            [[0.83, 0.1, 0.2], [0.02, 0.7, 0.11]],
        ),
    ],
    "geometric_transform": first(
        lambda a, s: ndimage.geometric_transform(a, lambda p: (p[0] * s + 0.1, p[1] * 0.8 + 0.07 * p[0])),
        IMAGE,
        0.77,
    ),
    "rotate": [
        *first(lambda a, t: ndimage.rotate(a, t, reshape=False), IMAGE, 17.0),
        *first(lambda a: ndimage.rotate(a, 17.0), IMAGE),
    ],
    "shift": [
        *call(lambda a, s: ndimage.shift(a, s), IMAGE, [0.31, -0.43]),
        *first(lambda a, s: ndimage.shift(a, s, order=1, mode="grid-wrap"), LINE, 1.31),
    ],
    "zoom": [
        *first(lambda a: ndimage.zoom(a, 1.7), IMAGE),
        *first(lambda a: ndimage.zoom(a, (0.6, 2.0), order=1, mode="nearest", grid_mode=True), IMAGE),
    ],
    "grey_erosion": first(lambda a: ndimage.grey_erosion(a, size=(2, 3)), IMAGE),
    "grey_dilation": [
        *first(lambda a: ndimage.grey_dilation(a, size=3), IMAGE),
        *first(
            lambda a, s: ndimage.grey_dilation(a, structure=s),
            IMAGE,
            np.cos(np.arange(9.0)).reshape(3, 3) * 0.3,
        ),
    ],
    **{
        name: first(lambda a, name=name: getattr(ndimage, name)(a, size=3), IMAGE)
        for name in (
            "grey_opening",
            "grey_closing",
            "morphological_gradient",
            "morphological_laplace",
            "white_tophat",
            "black_tophat",
        )
    },
    **{
        name: [
            *call(lambda a, name=name: getattr(ndimage, name)(a, LABELS, [1, 2]), LINE),
            *first(lambda a, name=name: getattr(ndimage, name)(a), LINE),
        ]
        for name in (
            "mean",
            "sum",
            "sum_labels",
            "variance",
            "standard_deviation",
            "median",
            "minimum",
            "maximum",
        )
    },
    "extrema": first(lambda a: ndimage.extrema(a, LABELS, [1, 2])[:2], LINE),
    "center_of_mass": call(lambda a: ndimage.center_of_mass(a), IMAGE),
    "labeled_comprehension": first(
        lambda a: ndimage.labeled_comprehension(a, LABELS, [1, 2], lambda v: np.sum(v**2), float, 0.0), LINE
    ),
}
CONSTANT: dict[str, list[Case]] = {
    **{
        name: call(lambda a, name=name: getattr(ndimage, name)(a), np.where(MASK, IMAGE, 0.0))
        for name in (
            "binary_closing",
            "binary_dilation",
            "binary_erosion",
            "binary_fill_holes",
            "binary_hit_or_miss",
            "binary_opening",
            "binary_propagation",
            "distance_transform_bf",
            "distance_transform_cdt",
            "distance_transform_edt",
        )
    },
    "label": call(lambda a: ndimage.label(a)[0], np.where(MASK, IMAGE, 0.0)),
    "histogram": call(lambda a: ndimage.histogram(a, -2, 3, 5), IMAGE),
    "maximum_position": call(lambda a: ndimage.maximum_position(a), IMAGE),
    "minimum_position": call(lambda a: ndimage.minimum_position(a, LABELS, [1, 2]), LINE),
}
SCIPY_NDIMAGE = Namespace(
    "scipy.ndimage",
    public_functions(ndimage),
    CASES,
    CONSTANT,
    {"generic_filter1d": "its function writes to the caller's memory; generic_filter is supported"},
    {"generic_filter1d": first(lambda a: ndimage.generic_filter1d(a, rows, 3), IMAGE)},
    others=dict.fromkeys(
        ["find_objects", "generate_binary_structure", "iterate_structure", "value_indices", "watershed_ift"],
        "it takes integers or booleans",
    ),
)
