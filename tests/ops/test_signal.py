"""Functions of scipy.signal, scipy.ndimage and scipy.fft: values are SciPy's, gradients agree with differences, maps are loops."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import scipy.fft
import scipy.ndimage as nd
import scipy.signal

import gradtape as gt
from tests.support.differences import gradient_by_differences

RNG = np.random.default_rng(5)
X = RNG.normal(size=24)
IMAGE = RNG.permutation(30).reshape(5, 6) * 0.13 - 1.9
H = RNG.normal(size=5)
B, A = np.array([0.4, 0.5, 0.1]), np.array([1.1, -0.5, 0.3])
MARKS = np.array([[0, 1, 1, 2, 2, 0]] * 5)

CALLS: dict[str, tuple[Callable[[Any], Any], Any]] = {
    "convolve": (lambda x: scipy.signal.convolve(x, H, "same"), X),
    "convolve_2d": (lambda x: scipy.signal.convolve2d(x, IMAGE[:3, :2], "same", "symm"), IMAGE),
    "correlate_2d": (lambda x: scipy.signal.correlate2d(x, IMAGE[:3, :2], "full", "fill", 0.3), IMAGE),
    "kernel": (lambda w: scipy.signal.correlate(IMAGE, w, "same", "direct"), IMAGE[:2, :3]),
    "sepfir2d": (lambda x: scipy.signal.sepfir2d(x, H, H[:3]), IMAGE),
    "lfilter": (lambda x: scipy.signal.lfilter(B, A, x), X),
    "lfilter_coefficients": (lambda a: scipy.signal.lfilter(B, a, X), A),
    "filtfilt": (lambda a: scipy.signal.filtfilt(B, a, X), A),
    "sosfilt": (lambda x: scipy.signal.sosfilt([[0.2, 0.3, 0.1, 1, -0.5, 0.3]], x, axis=0), IMAGE),
    "upfirdn": (lambda x: scipy.signal.upfirdn(H, x, 3, 2, mode="antireflect"), X),
    "resample_poly": (lambda x: scipy.signal.resample_poly(x, 3, 2), X),
    "savgol_filter": (lambda x: scipy.signal.savgol_filter(x, 5, 2), X),
    "stft": (lambda x: np.abs(scipy.signal.stft(x, nperseg=8)[2]) ** 2, X),
    "medfilt2d": (lambda x: scipy.signal.medfilt2d(x, 3), IMAGE),
    "gaussian_filter": (lambda x: nd.gaussian_filter(x, 0.9, mode="wrap"), IMAGE),
    "sobel": (lambda x: nd.sobel(x, mode="nearest"), IMAGE),
    "uniform_filter": (lambda x: nd.uniform_filter(x, (3, 2), mode="constant", cval=0.4), IMAGE),
    "maximum_filter": (lambda x: nd.maximum_filter(x, 3), IMAGE),
    "maximum_filter_long": (lambda x: nd.maximum_filter1d(x, 19), X),
    "median_filter": (lambda x: nd.median_filter(x, 3, mode="mirror"), IMAGE),
    "grey_dilation": (lambda s: nd.grey_dilation(IMAGE, structure=s), H[:4].reshape(2, 2)),
    "shift": (lambda d: nd.shift(IMAGE, d, mode="mirror"), np.array([0.3, -1.2])),
    "map_coordinates": (
        lambda p: nd.map_coordinates(IMAGE, p, order=4, mode="reflect"),
        RNG.uniform(0, 4, (2, 3)),
    ),
    "rotate": (lambda x: nd.rotate(x, 30.0, mode="nearest"), IMAGE),
    "zoom": (lambda x: nd.zoom(x, 1.7, mode="grid-wrap"), IMAGE),
    "spline_filter": (lambda x: nd.spline_filter(x, 5, mode="reflect"), IMAGE),
    "extrema": (lambda x: nd.extrema(x, MARKS, [1, 2])[1], IMAGE),
    "variance": (lambda x: nd.variance(x, MARKS, [1, 2]), IMAGE),
    "dct": (lambda x: scipy.fft.dct(x, 4, norm="ortho"), X),
    "dst": (lambda x: scipy.fft.dst(x, 1, 10), X),
    "idctn": (lambda x: scipy.fft.idctn(x, 3), IMAGE),
    "fht": (lambda x: scipy.fft.fht(x, 0.1, 0.5, offset=0.2, bias=0.3), X),
}


@pytest.mark.parametrize("name", CALLS)
def test_values_and_gradients(name: str) -> None:
    function, x = CALLS[name]

    def total(x: Any) -> Any:
        return np.sum(np.sin(np.asarray(function(x))))

    np.testing.assert_allclose(gt.jit(function)(x), function(x), rtol=1e-9, atol=1e-9)
    expected = gradient_by_differences(total, x)
    np.testing.assert_allclose(gt.grad(total)(x), expected, rtol=1e-5, atol=1e-6)
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        y = total(watched)
    np.testing.assert_allclose(tape.gradient(y, watched), expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["convolve", "lfilter", "dct", "medfilt2d", "gaussian_filter", "zoom"])
def test_maps_are_loops(name: str) -> None:
    function, x = CALLS[name]
    many = np.stack([x, 2 * x - 1])
    np.testing.assert_allclose(gt.vmap(function)(many), [function(one) for one in many], rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ["convolve", "lfilter", "gaussian_filter", "spline_filter"])
def test_single_precision(name: str) -> None:
    function, x = CALLS[name]
    made = gt.jit(function)(x.astype(np.float32))
    np.testing.assert_allclose(made, function(x), rtol=1e-3, atol=1e-3)


@pytest.mark.parametrize(
    "mode", ["reflect", "grid-mirror", "constant", "grid-constant", "nearest", "mirror", "grid-wrap", "wrap"]
)
def test_coordinates_beyond_the_ends(mode: str) -> None:
    points = RNG.uniform(-9, 15, (2, 40))
    for order in range(6):
        expected = nd.map_coordinates(IMAGE, points, order=order, mode=mode, cval=0.3)

        def made(x: Any, p: Any, order: int = order) -> Any:
            return nd.map_coordinates(x, p, order=order, mode=mode, cval=0.3)

        np.testing.assert_allclose(gt.jit(made)(IMAGE, points), expected, rtol=1e-9, atol=1e-9)


def test_steps_are_constants_of_traced_images() -> None:
    def mixed(x: Any) -> Any:
        inside = nd.binary_opening(x > 0)
        count = nd.label(inside)[1]
        return np.sum(x * nd.distance_transform_edt(inside)) + count

    weights = nd.distance_transform_edt(nd.binary_opening(IMAGE > 0))
    np.testing.assert_allclose(gt.grad(mixed)(IMAGE), weights)
    np.testing.assert_allclose(gt.jit(mixed)(IMAGE), mixed(IMAGE))


def test_what_writes_into_memory_of_its_own_is_refused() -> None:
    with pytest.raises(gt.errors.UnsupportedFunctionError, match="generic_filter1d"):
        gt.grad(lambda x: nd.generic_filter1d(x, lambda line, out: None, 3).sum())(X)


@pytest.mark.parametrize("degrees", [90, 180, 30])
def test_pixels_at_the_border_are_inside_or_outside_as_scipy_rounds_them(degrees):
    """Turned about the middle, the border lies on the border up to rounding."""
    image = np.random.default_rng(0).normal(size=(9, 9))
    turn = np.deg2rad(degrees)
    matrix = np.array([[np.cos(turn), -np.sin(turn)], [np.sin(turn), np.cos(turn)]])
    offset = 4.0 - matrix @ np.array([4.0, 4.0])

    def turned(image, matrix, offset):
        return nd.affine_transform(image, matrix, offset, order=1, mode="constant", cval=9.0)

    expected = turned(image, matrix, offset)
    with gt.GradientTape() as tape:
        on_tape = turned(image, tape.watch(matrix), tape.watch(offset))
    np.testing.assert_allclose(on_tape, expected, atol=1e-12)
    np.testing.assert_allclose(gt.jit(turned)(image, matrix, offset), expected, atol=1e-12)


@pytest.mark.parametrize("n", [1, 2, 15, 16, 60])
def test_spectra_of_real_numbers_are_positive_zeros_where_they_are_real(n):
    x = np.random.default_rng(n).normal(size=(5, n))
    expected = np.angle(np.fft.rfft(x))
    np.testing.assert_allclose(gt.jit(lambda x: np.angle(np.fft.rfft(x)))(x), expected, atol=1e-9)


@pytest.mark.parametrize(("lines", "row"), [(63, "contract("), (64, "_fourier(")])
@pytest.mark.parametrize("name", ["fft", "ifft", "rfft", "irfft", "hfft"])
def test_many_lines_are_transformed_by_the_routine_and_few_by_products(
    name: str, lines: int, row: str
) -> None:
    def function(x: Any) -> Any:
        return getattr(np.fft, name)(x, 256)

    x = RNG.normal(size=(lines, 256)) + (0 if name == "rfft" else 1j * RNG.normal(size=(lines, 256)))
    assert row in str(gt.inspect.graph(gt.jit(function), x))
    np.testing.assert_allclose(gt.jit(function)(x), function(x), rtol=1e-11, atol=1e-12)
    direction = RNG.normal(size=x.shape)
    _, tangent = gt.jvp(function, (x,), (direction.astype(x.dtype),))
    np.testing.assert_allclose(tangent, function(direction.astype(x.dtype)), rtol=1e-11, atol=1e-12)
    gradient = gt.grad(lambda x: np.sum(np.abs(function(x)) ** 2))(x)
    slope = 2.0 * np.real(np.sum(np.conj(function(x)) * function(direction.astype(x.dtype))))
    np.testing.assert_allclose(np.real(np.sum(np.conj(gradient) * direction)), slope, rtol=1e-9)


@pytest.mark.parametrize(
    ("name", "kind", "options"),
    [
        ("dct", 1, {}),
        ("idct", 2, {}),
        ("dct", 2, {"norm": "ortho"}),
        ("idct", 4, {"norm": "forward", "orthogonalize": True}),
        ("idst", 1, {"norm": "ortho"}),
        ("dst", 2, {}),
        ("idst", 2, {"norm": "forward", "orthogonalize": True}),
        ("dst", 4, {}),
    ],
)
def test_many_numbers_are_cosine_transformed_by_one_call_and_few_by_loops(
    name: str, kind: int, options: dict[str, Any]
) -> None:
    """Of one axis and of several; the gradient is the transpose."""
    one, several = getattr(scipy.fft, name), getattr(scipy.fft, f"{name}n")
    for shape, calls in (((300,), 1), ((4, 12), 0), ((40, 30), 1)):
        x, weights = RNG.normal(size=shape), RNG.normal(size=shape)

        function = functools.partial(one if len(shape) == 1 else several, type=kind, **options)

        assert str(gt.inspect.graph(gt.jit(function), x)).count("cosine_transform(") == calls
        for numbers in (x, x + 1j * weights):
            np.testing.assert_allclose(gt.jit(function)(numbers), function(numbers), rtol=1e-11, atol=1e-11)
        tangent = RNG.normal(size=shape)
        gradient = gt.vjp(function, x)[1](weights)
        np.testing.assert_allclose(np.sum(gradient * tangent), np.sum(weights * function(tangent)), rtol=1e-9)
        _, slope = gt.jvp(function, (x,), (tangent,))
        np.testing.assert_allclose(slope, function(tangent), rtol=1e-11, atol=1e-11)
    many = RNG.normal(size=(3, 300)).astype(np.float32)
    mapped = gt.vmap(lambda x: one(x, kind, **options))(many)
    assert np.asarray(mapped).dtype == np.float32
    np.testing.assert_allclose(mapped, one(many, kind, **options), rtol=1e-4, atol=1e-4)


def test_gradients_of_cubic_interpolation_scatter_no_masks() -> None:
    """Pixels outside the image are zeros by selection, and stay zeros by the numbers that the spline filter multiplies with."""
    image, matrix = RNG.normal(size=(8, 9)), np.array([[0.9, 0.1], [-0.1, 1.1]])
    slope = gt.grad(lambda x: np.sum(nd.affine_transform(x, matrix) ** 2))
    graph = str(gt.inspect.graph(slope, image, optimised=True))
    assert (
        graph.count("put_add(") == 2
    )  # of the values only: one in a loop over 15 gathers, and that of the last
