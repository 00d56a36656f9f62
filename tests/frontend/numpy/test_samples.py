"""Each function of NumPy on the arrays of a procedure, with the samples of its rows, against NumPy."""

import warnings

import numpy as np
import pytest

from gradtape.errors import GradtapeError
from gradtape.frontend.numpy.calls import call, call_ufunc_method
from gradtape.frontend.numpy.registry import UFUNC_METHODS
from gradtape.ir.graph import Value
from gradtape.kinds.registry import TRIALS
from gradtape.procedures.arrays.view import Expression
from tests.support.array_programs import bare, procedure_of, run
from tests.support.numpy_calls import Call, theirs, title


def arrays_in(arguments):
    """Return the arrays among arguments, and a function that puts others in their place."""
    found = []

    def take(x):
        if isinstance(x, np.ndarray | np.generic):
            found.append(x)
            return len(found) - 1, take
        return type(x)(take(item) for item in x) if isinstance(x, list) else x

    marked = [take(x) for x in arguments]

    def put(x, others):
        if isinstance(x, tuple) and len(x) == 2 and x[1] is take:
            return others[x[0]]
        return type(x)(put(item, others) for item in x) if isinstance(x, list) else x

    return found, lambda others: [put(x, others) for x in marked]


CASES = [
    (key, number)
    for key, trial in TRIALS.items()
    for number in range(len(trial.samples))
    if not isinstance(key, tuple) or (key in UFUNC_METHODS)
]


@pytest.mark.parametrize(
    ("key", "number"), CASES, ids=lambda c: title(c) if callable(c) or isinstance(c, tuple) else str(c)
)
def test_follows_numpy(key, number):
    made = Call(TRIALS[key].samples[number])
    arrays, put = arrays_in(made.args)
    try:
        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            expected = theirs(key)(
                *[np.array(x) if isinstance(x, np.ndarray) else x for x in put(arrays)], **made.kwargs
            )
    except Exception as error:
        expected = error

    def program(build, *traced):
        args = tuple(bare(x) for x in put(traced))
        if isinstance(key, tuple):
            result = call_ufunc_method(build, getattr(np, key[0]), key[1], args, made.kwargs)
        else:
            result = call(build, key, args, made.kwargs)
        return args[0] if result is None else tuple(result) if isinstance(result, list | tuple) else result

    if isinstance(expected, Exception):
        with pytest.raises((type(expected), GradtapeError)):
            run(procedure_of(program, *arrays), *arrays)
        return
    static = []

    def dynamic(build, *traced):
        results = program(build, *traced)
        results = results if isinstance(results, tuple) else (results,)
        static.extend(x if not isinstance(x, Value | Expression) else None for x in results)
        return tuple(x for x in results if isinstance(x, Value | Expression))

    with np.errstate(all="ignore"):
        computed = iter(run(procedure_of(dynamic, *arrays), *arrays))
    found = [next(computed) if x is None else x for x in static]
    wanted = tuple(expected) if isinstance(expected, list | tuple) else (expected,)
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted, strict=True):
        if not isinstance(one, np.ndarray):
            assert one == other
            continue
        assert one.shape == np.shape(other)
        assert one.dtype == np.asarray(other).dtype
        tolerance = 1e-6 if one.dtype == np.float32 else 1e-10
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
