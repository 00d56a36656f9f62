"""Every parameter of every function that is followed, set to what it may be and to what it may not: we do as NumPy does, whether it
returns or raises. The calls are the functions' own samples with one argument changed."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

import gradtape.ops  # noqa: F401 - the rows and functions enter themselves
from gradtape.kinds.registry import TRIALS, Sample
from tests.support.numpy_calls import CLEAR, Call, compare, is_shape, title

pytestmark = pytest.mark.usefixtures("no_trace")

AXIS = (0, 1, -1, -2, 3, -4, 1.0)
VALUES: dict[str, tuple[Any, ...]] = {
    "axis": (None, *AXIS, (0, 1), (-1,), (), (0, 0), (0, 5)),
    "axes": (None, (0, 1), (1, 0), (-1, 0), (0,), (0, 0), (0, 5), 1),
    "dtype": ("f4", "i8", "D", "?"),
    "ddof": (0, 1, 2, 2.5, 9),
    "initial": (0, 2, 0.5),
    "norm": ("ortho", "forward", "backward", "none"),
    "n": (0, 1, 2, 3, 4, 7, -1, 2.0),
    "k": (0, 1, -1, 2, -3, 9),
    "mode": ("full", "same", "valid", "raise", "wrap", "clip", "reduced", "r", "complete"),
    "order": ("C", "F", "A", "K", "Z"),
    "casting": ("no", "safe", "same_kind", "unsafe"),
    "method": (
        *("linear", "lower", "higher", "nearest", "midpoint", "inverted_cdf", "averaged_inverted_cdf"),
        *("closest_observation", "interpolated_inverted_cdf", "hazen", "weibull", "median_unbiased"),
        *("normal_unbiased", "none"),
    ),
    "q": (0.0, 1.0, 0.3, 0.5, 1.5, -0.1, [0.25, 0.75], [], [[0.1], [1.0]], 100, 30),
    "ord": (None, 0, 1, -1, 2, -2, 3, 0.5, np.inf, -np.inf, "fro", "nuc", "none"),
    "p": (None, 1, -1, 2, -2, np.inf, -np.inf, "fro", "nuc", 3),
    "side": ("left", "right", "both"),
    "correction": (0, 1, 2),
    "rcond": (None, -1, 0, 1e-3, 0.5, 0.99),
    "rtol": (0.0, 1e-3, 0.5),
    "tol": (None, 0.0, 0.5, 2, 1000),
    "edge_order": (1, 2, 3),
    "kind": ("quicksort", "stable", "none"),
    "UPLO": ("L", "U", "l", "Q"),
    "indexing": ("xy", "ij", "none"),
    "shift": (0, 1, -1, 7, (1, 2), (1, -1, 2)),
    "trim": ("f", "b", "fb", "none"),
    "bitorder": ("big", "little", "none"),
    "left": (None, -1.5),
    "right": (True, False, None, 2.5),
    "period": (None, 2.0, -1.5, 0),
    "bins": (1, 3, 0, -1, [0.0, 1.0, 2.0], [1.0, 0.5], 2.5),
    "range": (None, (0, 1), (1, 0), (-1.5, 2.5), (1, 1), (0, np.inf)),
    "minlength": (0, 3, 9, -1),
    "decimals": (0, 1, -1, 3),
    "stable": (None, True),
    "sorted": (True,),
    "optimize": (True, False, "greedy"),
    "copy": (True, None),
    "nan": (1.5,),
    "posinf": (None, 3.0),
    "neginf": (None, -3.0),
    "prepend": (0, [1.0]),
    "append": (0, [1.0]),
    "to_end": (None, 3, [1, 2], 0.5),
    "to_begin": (None, 3, [1, 2], 0.5),
    "start": (0, 1, -1, 2, 3, 9, -9),
    "source": (0, -1, 1, 5, (0, 1), (0, 0)),
    "destination": (0, -1, 1, 5, (1, 0), (0, 0)),
    "repeats": (0, 1, 2, -1, [1, 2], [2]),
    "reps": (0, 1, 2, (2, 1), (1, 2, 1), ()),
    "indices_or_sections": (1, 2, 3, 0, [1], [1, 2], [0, 9], []),
    "pad_width": (0, 1, (1, 2), ((1, 0),), ((1, 2), (0, 1)), -1),
    "newshape": (-1,),
    "shape": (-1, (2, -1), (-1, -1), (1,), (7,), ()),
    "kth": (0, 1, -1, (0, 1), 9),
    "obj": (0, -1, [0, 1], slice(0, 2), 9, [True, False]),
}
"""What parameters of these names are set to. Others are varied by the type of what they are."""

NOT_ARRAYS = frozenset({"out", "einsum_call", "like", "device", "subok", "signature", "overwrite_input"})


def others(name: str, value: Any, function: str) -> tuple[Any, ...]:
    """Return what else a parameter may be."""
    if name == "dtype" and function in ("std", "cov", "corrcoef"):
        return ("f4", "D")  # with integers NumPy fails half-way or truncates, according to the shape
    if name in VALUES:
        return VALUES[name]
    if isinstance(value, bool):
        return (not value,)
    if isinstance(value, int):
        return (0, 1, -1, value + 1, value - 1, value + 9)
    if isinstance(value, float):
        return (0.0, value + 0.5, -value, 2)
    return ("none",) if isinstance(value, str) else ()


def is_traced(argument: Any) -> bool:
    """Whether an argument of a sample stands for an array."""
    return isinstance(argument, list | np.ndarray) or is_shape(argument)


def varied(key: Any, sample: Sample) -> Iterator[tuple[str, Sample]]:
    """Yield a sample with one argument changed, in each way."""
    function = getattr(getattr(np, key[0]), key[1]) if isinstance(key, tuple) else key
    args, kwargs = sample
    try:
        signature = inspect.signature(function)
        given = signature.bind(*args, **kwargs)
    except (TypeError, ValueError):
        return
    variable = {
        name for name, p in signature.parameters.items() if p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD)
    }
    places = [name for name in given.arguments if name not in kwargs and name not in variable]
    for name, parameter in signature.parameters.items():
        if name in NOT_ARRAYS or name in variable:
            continue
        has = given.arguments.get(name, parameter.default)
        if name in places[:1] and name not in ("shape",):
            continue  # what is traced
        for value in others(name, has, getattr(function, "__name__", "")):
            if value is has or (type(value) is type(has) and value == has):
                continue
            if name not in places:
                yield f"{name}={value!r}", (args, {**kwargs, name: value})
            elif (
                parameter.kind is not parameter.POSITIONAL_ONLY
                and places == list(given.arguments)[: len(args)]
            ):
                place = places.index(name)  # by name, since a tuple at a place is a shape
                by_name = dict(zip(places[place:], args[place:], strict=True))
                if not any(map(is_traced, args[place + 1 :])):
                    yield f"{name}={value!r}", (args[:place], {**kwargs, **by_name, name: value})


REFUSED: dict[str, str] = {
    "svd compute_uv": "derivatives of a full decomposition exist only without the rest of the basis",
    "qr mode": "the same; and `full`, an old name of `reduced`, only warns",
    "accumulate axis": "None and a tuple of one axis are taken by accident",
    "reduceat axis": "the same",
    "unstack axis": "the same",
    "linspace axis": "the same",
    "logspace axis": "the same",
    "geomspace axis": "the same",
    "cumulative_sum axis": "the same",
    "cumulative_prod axis": "the same",
    "norm axis": "1.0 is taken by accident",
    "vector_norm axis": "the same",
    "diff prepend": "a list that does not broadcast is read as an array of one row",
    "real_if_close tol": "depends on numbers",
}
"""What NumPy takes and we refuse."""

TAKEN: dict[str, str] = {
    "copy order": "has no meaning here: arrays have no layout",
    "reshape order": "the same, `K` is read as `A`",
    "zeros_like order": "the same",
    "ones_like order": "the same",
    "full_like order": "the same",
    "ravel_multi_index order": "the same",
    "sort kind": "all sorts are stable",
    "argsort kind": "the same",
    "isin kind": "there is one way",
    "vecdot axis": "None stands for the last",
    "insert obj": "a list of booleans is one of integers, where NumPy fails by accident",
    "unravel_index order": "the same",
    "ravel_multi_index mode": "indices outside the bounds are not looked at",
    "unravel_index shape": "negative extents are not looked at",
    "svd hermitian": "is advice to the algorithm, which is the same here",
    "pinv hermitian": "the same",
    "matrix_rank hermitian": "the same",
    "matrix_rank rtol": "beside `tol`, which wins",
    "vander N": "a negative count is none",
    "copyto src": "the cast of a number is not looked at",
    "copyto casting": "the same",
    **{
        f"{kind} dtype": "results of logical functions are bool"
        for kind in ("reduce", "accumulate", "reduceat")
    },
}
"""What we take and NumPy refuses."""


@pytest.mark.filterwarnings("ignore::numpy.exceptions.ComplexWarning")
@pytest.mark.parametrize("key", [pytest.param(key, id=title(key)) for key in TRIALS])
def test_each_parameter_does_what_it_does_in_numpy(key: Any) -> None:
    seen: set[str] = set()
    dtypes = (
        "dqfD" if title(key).startswith("numpy.fft") else "dqfDe"
    )  # which loses precision there on the way
    for place, sample in enumerate(TRIALS[key].samples):
        for number, (what, changed) in enumerate(varied(key, sample)):
            if what in seen and place > 1:
                continue
            seen.add(what)
            with np.errstate(over="ignore"):
                call = Call(changed, dtypes[(place + number) % len(dtypes)])
            expected = call.expected(key)
            where = f"{title(key).rpartition('.')[2]} {what.partition('=')[0]}"
            try:
                compare(key, call)
            except CLEAR as error:
                assert isinstance(expected, Exception) or where in REFUSED, (what, sample, call.dtype, error)
            except (AssertionError, pytest.fail.Exception) as error:
                taken = isinstance(expected, Exception) and where in TAKEN
                assert taken, (what, sample, call.dtype, error)
