"""Exports for lengths that vary: as C under the sanitizers, as files and as Numba modules, at short, odd and long lengths, and refused."""

from __future__ import annotations

import itertools
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import scipy.special

import gradtape as gt
from gradtape.api.export.fits import Fitter
from gradtape.errors import ArgumentError, LoweringError
from gradtape.trees import flatten
from tests.support.other_kernels import COMPILER, built, called, program_of
from tests.support.processes import words_printed

needs_c = pytest.mark.skipif(COMPILER is None, reason="no C compiler")
n, m = gt.Dim("n"), gt.Dim("m")


def logistic(w: Any, x: Any, y: Any) -> Any:
    z = x @ w
    return np.mean(np.logaddexp(0.0, z) - y * z)


def mixture(means: Any, x: Any) -> Any:
    d = -0.5 * np.sum((x[:, None, :] - means) ** 2, axis=2)
    top = d.max(axis=1, keepdims=True)
    return np.sum(np.log(np.sum(np.exp(d - top), axis=1)) + top[:, 0])


def rosenbrock(x: Any) -> Any:
    return np.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def scanned(x: Any) -> Any:
    return gt.scan(lambda carry, a: (np.tanh(carry + a), carry * a), 0.0, x)[0]


def long_or_short(x: Any) -> Any:
    return np.sum(x) if len(x) > 300 else np.sum(x**2)


def special(x: Any) -> Any:
    return np.sum(x) if len(x) // 3 == 57 else np.sum(x**2)


HALF_FAR = 100_000
"""Longer than what is fitted, shorter than what is tried: the number of a program that divides by it is the same for most samples."""


def unrolled_by_bits(x: Any) -> Any:
    for _ in range(len(x).bit_length()):
        x = np.sin(x) + 1.0
    return np.sum(x)


def weighted(x: Any) -> Any:
    return np.sum(x * np.arange(len(x))) / len(x) + np.std(x)


def regular(a: Any, b: Any) -> Any:
    return np.sum(np.linalg.solve(a @ a.T + 3.0 * np.eye(len(b)), b) ** 2)


def tables(x: Any) -> Any:
    count = len(x)
    tenths, middles = 0.1 * np.arange(count), (np.arange(count) + 0.5) / count
    ends = np.linspace(-1.0, 2.0, count, endpoint=False)
    return np.sum(
        np.sin(x) * np.linspace(-1.0, np.pi, count) + x * tenths + x**2 * middles + np.cos(x) * ends
    )


def banded(x: Any) -> Any:
    count = len(x)
    matrix = 2.5 * np.eye(count) - np.eye(count, k=1) - np.eye(count, k=-1)
    return (
        x @ matrix @ x + np.sum(np.linalg.cholesky(matrix + np.outer(x, x))[:, 0]) + np.sum(np.tri(count) @ x)
    )


def counts(x: Any) -> Any:
    likelihood = -0.5 * np.sum(x**2) - 0.5 * len(x) * np.log(2 * np.pi)
    return (
        likelihood
        - 3 * np.log(len(x))
        + np.std(x) * len(x) ** -0.2 / np.sqrt(len(x))
        + np.sum(x) * (1 - 1 / len(x))
    )


ONE = [(length,) for length in (0, 1, 2, 3, 4, 5, 8, 9, 33, 101, 171, 172, 300, 301)]
TWO = [(0, 0), (0, 3), (1, 1), (3, 1), (1, 4), (2, 2), (2, 5), (7, 7), (8, 9), (33, 20), (64, 3)]

PROGRAMS: dict[str, tuple[Any, tuple[Any, ...], list[tuple[int, ...]]]] = {
    "logistic": (logistic, (gt.spec(4), gt.spec((n, 4)), gt.spec(n)), ONE),
    "mixture": (mixture, (gt.spec((m, 3)), gt.spec((n, 3))), TWO),
    "rosenbrock": (rosenbrock, (gt.spec(n),), ONE),
    "scanned": (scanned, (gt.spec(n),), ONE),
    "long or short": (long_or_short, (gt.spec(n),), ONE),
    "special": (special, (gt.spec(n),), ONE),
    "weighted": (weighted, (gt.spec(n),), ONE[1:]),
    "regular": (regular, (gt.spec((n, n)), gt.spec(n)), ONE[:9]),
    "product": (lambda a, b: np.sum(np.tanh(a @ b)), (gt.spec((n, m)), gt.spec((m, n))), TWO),
    "single": (lambda x, s: np.mean(x * x) * s, (gt.spec(n, "f4"), gt.spec((), "f4")), ONE[1:]),
    "gather": (lambda x, i: np.sum(x[i] ** 2 * np.cos(x[i])), (gt.spec(n), gt.spec(m, "i8")), TWO[2:]),
    "sorted": (lambda x: np.sum(np.sort(x) * np.cumsum(x)), (gt.spec(n),), ONE),
    "tables": (tables, (gt.spec(n),), ONE[1:]),
    "banded": (banded, (gt.spec(n),), ONE[1:10]),
    "counts": (counts, (gt.spec(n),), ONE[2:]),
    "singled": (lambda x: np.sum(np.sin(x)) * (2.0 if len(x) in (33, 171) else 1.0), (gt.spec(n),), ONE),
    "third": (lambda x: np.sum(np.sin(x[: len(x) // 3])), (gt.spec(n),), ONE),
    "largest": (lambda x: np.max(x) + np.sum(np.diff(x, 2) ** 2), (gt.spec(n),), ONE),
}


def arguments(specs: Any, lengths: dict[str, int]) -> list[Any]:
    rng = np.random.default_rng(sum(lengths.values()))
    found = []
    for spec in specs:
        shape = [lengths[extent.name] if isinstance(extent, gt.Dim) else extent for extent in spec.shape]
        if spec.dtype.kind == "i":
            found.append(rng.integers(0, max(lengths["n"], 1), shape))
        else:
            found.append(np.asarray(rng.normal(size=shape)).astype(spec.dtype))
    return found


def cases(name: str) -> tuple[Any, list[str], list[Any]]:
    """Return the value and gradient of a program, its lengths, and for each call the lengths, the arguments and what NumPy says."""
    function, specs, points = PROGRAMS[name]
    names = list(dict.fromkeys([e.name for spec in specs for e in spec.shape if isinstance(e, gt.Dim)]))
    both = gt.value_and_grad(function)
    calls = []
    for point in points:
        given = arguments(specs, dict(zip(names, point, strict=True)))
        try:
            with np.errstate(all="ignore"):
                wanted = [np.asarray(leaf) for leaf in flatten(gt.jit(both)(*given))[0]]
        except (ValueError, IndexError):
            wanted = []
        calls.append((point, given, wanted))
    return both, names, calls


def close(found: Any, wanted: Any, single: bool) -> None:
    for a, b in zip(found, wanted, strict=True):
        np.testing.assert_allclose(a, b, 1e-4 if single else 1e-9, 1e-5 if single else 1e-9)


@needs_c
@pytest.mark.parametrize("name", PROGRAMS)
def test_c(name: str, tmp_path: Path) -> None:
    both, names, calls = cases(name)
    specs = PROGRAMS[name][1]
    source, header = gt.export(both, *specs, path=tmp_path / "f.c", name="f")
    assert f"f_workspace({', '.join([f'int64_t {one}' for one in names])});" in header.read_text()
    results = next(wanted for _, _, wanted in calls if wanted)
    program = built(tmp_path, source, program_of("f.h", "f", names, calls[-1][1], results))
    empty = [np.zeros(0, array.dtype) for array in results]
    found = called(program, [(point, given, wanted or empty) for point, given, wanted in calls])
    for (point, _, wanted), made in zip(calls, found, strict=True):
        if not wanted:
            assert made == -3, point
        else:
            close(made, wanted, name == "single")


@pytest.mark.parametrize("name", list(PROGRAMS)[1::2])
def test_files(name: str, tmp_path: Path) -> None:
    both, _, calls = cases(name)
    gt.export(both, *PROGRAMS[name][1], path=tmp_path / "f.gradtape")
    again = gt.load(tmp_path / "f.gradtape")
    for _, given, wanted in calls[::3]:
        if not wanted:
            with pytest.raises(ArgumentError, match="has no result for"):
                again(*given)
            continue
        with np.errstate(all="ignore"):
            close(flatten(again(*given))[0], wanted, name == "single")


@pytest.mark.parametrize("name", ["logistic", "rosenbrock", "scanned", "single"])
def test_numba_modules(name: str, tmp_path: Path) -> None:
    """They run as plain Python, too."""
    both, _, calls = cases(name)
    (file,) = gt.export(both, *PROGRAMS[name][1], path=tmp_path / "f.py", name="f")
    text = file.read_text().replace("import numba\n", "").replace('@numba.njit(error_model="numpy")', "")
    module: dict[str, Any] = {}
    exec(compile(text, str(file), "exec"), module)
    for point, given, wanted in calls:
        if max(point) <= 40 and min(point) > 0:
            close(module["f"](*given), wanted, name == "single")
    other = [np.zeros([extent + 1 for extent in array.shape], array.dtype) for array in calls[3][1]]
    if name in ("logistic", "mixture"):
        with pytest.raises(ValueError, match="has another shape than"):
            module["f"](*calls[3][1][:-1], other[-1])


def test_a_file_in_another_process(tmp_path: Path) -> None:
    path = tmp_path / "f.gradtape"
    gt.export(rosenbrock, gt.spec(n), path=path)
    code = f"import gradtape as gt, numpy as np; f = gt.load({str(path)!r}); print(f, *[float(f(np.ones(k) * 2)) for k in (0, 1, 2, 7)])"
    words = words_printed(code)
    assert [float(word) for word in words[-4:]] == [0.0, 0.0, 401.0, 2406.0]
    assert "rosenbrock(x: f64[n])" in " ".join(words)
    again = gt.load(path)
    for length in (2, 6):
        x = np.linspace(0.0, 1.0, length)
        np.testing.assert_allclose(gt.grad(again)(x), gt.grad(rosenbrock)(x))
        np.testing.assert_allclose(gt.jit(lambda x: 2 * again(x))(x), 2 * rosenbrock(x))


def test_lengths_are_checked(tmp_path: Path) -> None:
    path = tmp_path / "f.gradtape"
    k = gt.Dim("k", min=2, max=5)
    gt.export(lambda x, y: np.sum(x * y), gt.spec(k), gt.spec(k), path=path)
    again = gt.load(path)
    assert again(np.ones(3), np.ones(3)) == 3.0
    for x, y, words in [
        (1, 1, "k is 1, and the function was exported for gt.Dim('k', min=2, max=5)"),
        (6, 6, "k is 6"),
        (3, 4, r"y is float64\[4\], and the function was exported for float64\[k\] with k = 3"),
    ]:
        with pytest.raises(ArgumentError, match=words.replace("(", r"\(").replace(")", r"\)")):
            again(np.ones(x), np.ones(y))
    with pytest.raises(ArgumentError, match=r"x is float64\[2, 2\]"):
        again(np.ones((2, 2)), np.ones(2))


@needs_c
def test_bounds_in_c(tmp_path: Path) -> None:
    k = gt.Dim("k", min=2, max=5)
    source, header = gt.export(lambda x: 2 * x, gt.spec(k), path=tmp_path / "f.c", name="f")
    text = header.read_text()
    assert re.search("k +a length, from 2 to 5", text) and "result: double[k]" in text
    program = built(tmp_path, source, program_of("f.h", "f", ["k"], [np.zeros(2)], [np.zeros(2)]))
    found = called(program, [((k,), [np.ones(k)], [np.ones(k)]) for k in (1, 2, 5, 6)])
    assert [made if isinstance(made, int) else made[0].tolist() for made in found] == [
        -3,
        [2.0] * 2,
        [2.0] * 5,
        -3,
    ]


@pytest.mark.parametrize(
    ("function", "specs", "words"),
    [
        (
            lambda x: x * 2.0 if np.arange(len(x))[-1] > 7 else x,
            (gt.spec(n),),
            "Python branches on a value, but gt.spec only gives shape and dtype",
        ),
        (lambda x: x * repr(len(x)).count("7"), (gt.spec(n),), "Python needs the text of a length"),
        (
            lambda x: np.sum(x[len(x) // HALF_FAR :]),
            (gt.spec(n),),
            "Python rounds a length, or takes a remainder",
        ),
        (
            lambda x: gt.fori_loop(0, len(x).bit_length(), lambda i, c: c * c, np.sum(x)),
            (gt.spec(n),),
            "Python needs the attribute 'bit_length' of a length",
        ),
        (unrolled_by_bits, (gt.spec(n),), "Python needs the attribute 'bit_length' of a length"),
        (lambda x: np.squeeze(x) * 2, (gt.spec((n, 3)),), "returns other shapes for n = 1"),
        (lambda x, y: x + y, (gt.spec(n), gt.spec(m)), "has no result for n = "),
        (lambda x, y: x + y, (gt.spec(n), gt.spec(gt.Dim("n", min=2))), "the length n is both"),
    ],
)
@pytest.mark.parametrize("suffix", [".c", ".gradtape"])
def test_refusals(function: Any, specs: Any, words: str, suffix: str, tmp_path: Path) -> None:
    with pytest.raises(ArgumentError, match=words) as caught:
        gt.export(function, *specs, path=tmp_path / f"f{suffix}", name="f")
    assert caught.value.remedy and not list(tmp_path.iterdir())


def test_what_c_does_not_have(tmp_path: Path) -> None:
    with pytest.raises(LoweringError):
        gt.export(lambda x: scipy.special.j0(x), gt.spec(n), path=tmp_path / "f.c", name="f")


def test_a_lowered_function_has_fixed_lengths() -> None:
    with pytest.raises(ArgumentError, match="the length n varies"):
        gt.jit(lambda x: x).lower(gt.spec(n))


def test_fits() -> None:
    points = list(itertools.product((2, 3, 5, 9), (4, 7, 8)))
    fitter = Fitter(points)
    assert fitter.fit([3 * a * b - b + 2 for a, b in points]).text(["a", "b"]) == "3 * a * b - b + 2"  # type: ignore[union-attr]
    half = fitter.fit([a * (a - 1) // 2 for a, _ in points])
    assert half is not None and half.denominator == 2 and half.at((11, 0)) == 55
    assert fitter.fit([a // 2 for a, _ in points]) is None  # of two lengths
    assert fitter.fit([float(np.tanh(a)) for a, _ in points]) is None
    assert fitter.fit([1.0 / a for a, _ in points]) is None  # the program divides
    whole = fitter.fit([float(2 * b + 1) for _, b in points])
    assert whole is not None and whole.text(["a", "b"], real=True) == "(double)(2 * b + 1)"


def test_jacobians_are_computed_at_once(tmp_path: Path) -> None:
    (path,) = gt.export(gt.jacobian(lambda x: x * np.sum(x)), gt.spec(n), path=tmp_path / "f.gradtape")
    x = np.arange(300.0)
    np.testing.assert_allclose(gt.load(path)(x), np.outer(x, np.ones(300)) + np.eye(300) * x.sum())


def test_every_other_element(tmp_path: Path) -> None:
    (path,) = gt.export(lambda x: x[::2] * 2.0, gt.spec(gt.Dim("n")), path=tmp_path / "f.gradtape")
    again = gt.load(path)
    for count in (0, 1, 2, 7, 300, 1001):
        np.testing.assert_array_equal(again(np.arange(float(count))), np.arange(float(count))[::2] * 2.0)


def test_floors() -> None:
    fitter = Fitter([(k,) for k in (0, 1, 2, 3, 4, 7, 11, 1009, 1010, 1011, 1012, 1013, 1014, 1015, 1016)])
    lengths = [point[0] for point in fitter.points]
    half = fitter.fit([(k + 1) // 2 for k in lengths])
    assert half is not None and half.text(["k"]) == "(k + 1) / 2" and half.at((2001,)) == 1001
    assert fitter.fit([3 * k // 7 for k in lengths]).text(["k"], "python") == "(3 * k) // 7"  # type: ignore[union-attr]
    assert fitter.fit([k // 2 + k // 3 for k in lengths]) is None
    assert fitter.fit([k // 9 for k in lengths]) is None
    for few in ((0, 1, 2, 3, 4, 5, 6, 7), (0, 8, 16, 400)):  # several slopes would do, or several shifts
        assert Fitter([(k,) for k in few]).fit([3 * k // 8 + k // 11 for k in few]) is None


def test_traces_beside_exports_have_nodes_of_their_own(tmp_path):
    """NumPy's functions append other nodes where lengths vary, and the op cache keeps nodes by types alone."""

    def mean(x):
        return np.mean(x) ** 2

    x = np.arange(4.0)
    before = str(gt.inspect.graph(gt.jit(mean), x))
    gt.export(gt.grad(mean), gt.spec((gt.Dim("n"),)), path=tmp_path / "mean.gradtape")
    again = gt.jit(lambda x: mean(x))
    again(x)
    again(np.arange(5.0))
    assert "length" not in before and "length" not in str(gt.inspect.graph(gt.jit(mean), x))
    for n in (2, 4, 5, 100):
        np.testing.assert_allclose(
            gt.load(tmp_path / "mean.gradtape")(np.arange(n, dtype=float)), (n - 1) / n
        )
