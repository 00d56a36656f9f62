"""NumPy code in place of routines of scipy.signal: values are SciPy's where its branches differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import scipy.ndimage as ndimage
import scipy.signal as signal

import gradtape as gt
from tests.support.differences import gradient_by_differences

RNG = np.random.default_rng(3)


def same(function: Any, *arrays: Any) -> None:
    """Compare the results of a function in jit, and on a tape, with its own."""
    expected = function(*arrays)
    with gt.GradientTape() as tape:
        watched = function(*[tape.watch(array) for array in arrays])
    for found in (gt.jit(function)(*arrays), watched):
        for ours, theirs in zip(found, expected, strict=True):
            np.testing.assert_allclose(ours, theirs, rtol=1e-10, atol=1e-12)


@pytest.mark.parametrize("seed", range(4))
def test_peaks_with_plateaus(seed: int) -> None:
    x = np.round(np.random.default_rng(seed).normal(size=60).cumsum())
    peaks, found = signal.find_peaks(
        x, plateau_size=(None, None), prominence=(None, None), width=(None, None)
    )

    def all_of(x: Any) -> Any:
        peaks, found = signal.find_peaks(
            x, plateau_size=(None, None), prominence=(None, None), width=(None, None)
        )
        return [peaks, *found.values()]

    assert len(peaks) and (found["plateau_sizes"] > 1).any()
    same(all_of, x)
    same(lambda x: signal.peak_prominences(x, peaks, wlen=9), x)


def test_peaks_of_short_and_rising_signals() -> None:
    for x in (np.array([1.0, 2.0]), np.arange(5.0), np.zeros(4), np.array([0.0, 1.0, 1.0])):
        assert gt.jit(lambda x: signal.find_peaks(x)[0])(x).size == 0


def test_coefficients_of_splines_beyond_the_ends() -> None:
    c, places = RNG.normal(size=7), np.linspace(-14, 21, 71)
    same(
        lambda c, t: [signal.cspline1d_eval(c, t, 0.7, 0.2), signal.qspline1d_eval(c, t, 0.7, 0.2)], c, places
    )


@pytest.mark.parametrize("omega", [0.0, np.pi, 0.4])
@pytest.mark.parametrize("precision", [-1.0, 1e-3])
def test_boundary_conditions_of_spline_filters(omega: float, precision: float) -> None:
    x = RNG.normal(size=(2, 60))
    same(
        lambda x: [
            signal.symiirorder2(x, 0.4, omega, precision),
            signal.symiirorder1(x, 0.3, 0.2, precision),
        ],
        x,
    )


def test_bilinear_transforms_of_unequal_orders() -> None:
    for b, a in (([1.0], [1.0, 0.4, 2.0]), ([0.0, 1.0, 0.3, 0.2], [2.0, 1.0]), ([1.0, 2.0], [0.5])):
        same(lambda b, a, fs: signal.bilinear(b, a, fs), np.array(b), np.array(a), np.float64(1.7))


def test_segments_of_all_overlaps() -> None:
    x = RNG.normal(size=(2, 41))
    for size, overlap in ((8, 0), (8, 3), (8, 7), (1, 0), (41, 5)):
        same(lambda x, s=size, o=overlap: [signal.stft(x, nperseg=s, noverlap=o)[2]], x)  # type: ignore[misc]


def test_repeated_poles() -> None:
    same(lambda b, a: signal.residue(b, a)[:2], np.array([1.0, 3.0]), np.poly([-1.0, -3.0]))
    assert [each.size for each in signal.unique_roots([0.5, 0.5001, 2.0])] == [2, 2]
    found = gt.jit(lambda p: signal.unique_roots(p, rtype="avg")[0])(np.array([0.5, 0.5001, 2.0]))
    np.testing.assert_allclose(found, [0.50005, 2.0])


def test_windows_of_a_short_time_transform_are_protected() -> None:
    def changed(w: Any) -> Any:
        w.setflags(write=False)
        return w.sum()

    assert gt.grad(changed)(np.ones(3)).tolist() == [1, 1, 1]
    with pytest.raises(gt.errors.InPlaceError, match="setflags"):
        gt.grad(lambda w: (w.setflags(write=True), w.sum())[1])(np.ones(3))


def test_functions_that_are_mapped_are_followed() -> None:
    def mapped(x: Any, y: Any) -> Any:
        a, b = map(np.asarray, (x, y))
        return np.sum(a * b) + sum(c.sum() for c in list(map(np.asarray, (x, y))))

    with gt.GradientTape() as tape:
        x, y = tape.watch(np.array([1.0, 2.0])), tape.watch(np.array([3.0, 5.0]))
        z = mapped(x, y)
    np.testing.assert_allclose(tape.gradient(z, x), [4, 6])


def test_initial_states_have_a_derivative_in_a_leading_coefficient_of_one() -> None:
    b, a = signal.butter(3, 0.3)
    past, outputs = np.array([0.2, 0.6]), np.array([0.1, 0.4, 0.7, 0.2])

    def state(a: Any) -> Any:
        return signal.lfiltic(b, a, outputs, past)

    assert a[0] == 1
    with gt.GradientTape() as tape:
        watched = tape.watch(a)
        found = state(watched)
        first = np.sum(found * np.arange(1.0, 4.0))
    np.testing.assert_allclose(found, state(a), rtol=1e-12)
    expected = gradient_by_differences(lambda a: np.sum(state(a) * np.arange(1.0, 4.0)), a)
    np.testing.assert_allclose(tape.gradient(first, watched), expected, rtol=1e-6, atol=1e-8)
    same(lambda b: [signal.lfiltic(b, a, outputs[:1]), signal.lfiltic(b[:2], [2.0, 1.0, 0.3], past)], b)


def test_fourier_filters_of_real_numbers_are_as_accurate_as_scipys() -> None:
    image = RNG.normal(size=(4, 5))
    same(lambda x: [ndimage.fourier_gaussian(x, 0.8), ndimage.fourier_uniform(x, 2.3)], image)


def test_polynomials_that_are_objects() -> None:
    same(
        lambda t: [signal.sweep_poly(t, np.poly1d([0.1, 0.3])), np.polyval(np.poly1d([1.0, 2.0]), t)],
        RNG.normal(size=3),
    )


@pytest.mark.parametrize("dtype", [np.int64, np.uint8])
def test_images_of_integers_are_rounded_as_scipy_rounds_them(dtype: type) -> None:
    """Interpolation rounds to the nearest integer, filters cut off."""
    image = np.random.default_rng(1).integers(0, 9, (5, 6)).astype(dtype)
    image[1:] -= dtype(0) if dtype is np.uint8 else dtype(5)

    def all_of(image: Any) -> Any:
        return [
            ndimage.uniform_filter(image, (2, 3)),
            ndimage.uniform_filter1d(image, 3),
            ndimage.shift(image, 1.4),
            ndimage.zoom(image, 1.7, order=2),
            ndimage.rotate(image, 33.0),
            ndimage.map_coordinates(image, [[0.5, 1.5, 9.0], [0.0, 1.0, 9.0]], order=1, cval=0.7),
            ndimage.shift(image * 0.7, 0.3, output=dtype),
        ]

    for found, expected in zip(gt.jit(all_of)(image), all_of(image), strict=True):
        assert found.dtype == expected.dtype
        np.testing.assert_array_equal(found, expected)


@pytest.mark.parametrize(
    "write",
    [
        lambda a, out: ndimage.correlate1d(a, [1.0, 2.0, 1.0], output=out),
        lambda a, out: ndimage.gaussian_filter(a, 1.0, output=out),
        lambda a, out: ndimage.zoom(a, 1.0, output=out),
        lambda a, out: ndimage.morphological_gradient(a, 3, output=out),
        lambda a, out: ndimage.uniform_filter(a[1:], 3, output=out[1:]),
        lambda a, out: out.__setitem__(..., ndimage.sobel(a, output="float64")),
    ],
)
def test_filters_write_to_arrays_like_a_traced_one(write: Any) -> None:
    """An array made by ``np.empty_like`` is not supported before it is written to."""

    def written(a: Any) -> Any:
        out = np.zeros_like(a)
        write(a, out)
        return [out, out * a]

    same(written, RNG.normal(size=(5, 6)))


def test_shapes_of_outputs_are_checked() -> None:
    with gt.GradientTape() as tape:
        a = tape.watch(np.ones((3, 4)))
        with pytest.raises(RuntimeError, match="output shape not correct"):
            ndimage.gaussian_filter(a, 1.0, output=np.empty_like(a[:2]))


@pytest.mark.parametrize("shape", [(40, 30), (13,), (5, 6, 20)])
def test_long_windows_are_sums_of_blocks(shape: tuple[int, ...]) -> None:
    x = RNG.normal(size=shape)

    def all_of(x: Any) -> Any:
        return [
            ndimage.uniform_filter1d(x, size, axis, mode="wrap", origin=2)
            for size in (12, 13, 31)
            for axis in range(x.ndim)
        ]

    same(all_of, x)

    def total(x: Any) -> Any:
        return np.sum(all_of(x)[-1] * np.cos(np.arange(float(x.size))).reshape(shape))

    np.testing.assert_allclose(gt.grad(total)(x), gradient_by_differences(total, x), rtol=1e-5, atol=1e-8)


def test_an_infinite_element_is_in_its_windows_only() -> None:
    x = np.zeros(60)
    x[30] = np.inf
    assert np.isinf(gt.jit(lambda x: ndimage.uniform_filter1d(x, 13))(x)).sum() == 13
