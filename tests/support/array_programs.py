"""NumPy code run on the arrays of a procedure: the same function makes the procedure and the expected result."""

import numpy as np

from gradtape.frontend.numpy.calls import attribute, call, call_method, call_ufunc_method
from gradtape.procedures.arrays.creation import array
from gradtape.procedures.arrays.indexing import augment, getitem, setitem
from gradtape.procedures.arrays.nests import materialise
from gradtape.procedures.arrays.view import ArrayView, Deferred, Expression
from gradtape.procedures.builder import ProcedureBuilder
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.verifier import verify_procedure


class Traced:
    """An array or a number of a procedure under construction that answers to NumPy."""

    __array_priority__ = 1000

    def __init__(self, build, inner):
        self._build, self._inner = build, inner

    def __array_ufunc__(self, ufunc, method, *args, **kwargs):
        args, kwargs = bare(args), bare(kwargs)
        if method == "__call__":
            return self._wrap(call(self._build, ufunc, args, kwargs))
        return self._wrap(call_ufunc_method(self._build, ufunc, method, args, kwargs))

    def __array_function__(self, function, types, args, kwargs):
        return self._wrap(call(self._build, function, bare(args), bare(kwargs)))

    def _wrap(self, result):
        if isinstance(result, tuple):
            return tuple(self._wrap(item) for item in result)
        return Traced(self._build, result)

    def __getitem__(self, key):
        return self._wrap(getitem(self._inner, bare(key)))

    def __setitem__(self, key, value):
        setitem(self._inner, bare(key), bare(value))

    def named(self):
        """Return what a name holds: stored, if it was not."""
        return self._wrap(materialise(self._inner)) if isinstance(self._inner, Deferred) else self

    def augment(self, key, function, value):
        augment(self._inner, bare(key), function, bare(value))

    def __getattr__(self, name):
        if name in ("shape", "T", "size", "ndim", "real", "imag", "dtype", "flat"):
            found = attribute(self._build, self._inner, name)
            return self._wrap(found) if isinstance(found, Expression) else found
        if name.startswith("_"):
            raise AttributeError(name)
        return lambda *args, **kwargs: self._wrap(
            call_method(self._build, self._inner, name, bare(args), bare(kwargs))
        )


def _operator(ufunc, swapped=False):
    def method(self, other):
        args = (other, self) if swapped else (self, other)
        return self.__array_ufunc__(ufunc, "__call__", *args)

    return method


for _name, _ufunc in {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "truediv": np.true_divide,
    "floordiv": np.floor_divide,
    "mod": np.remainder,
    "pow": np.power,
    "matmul": np.matmul,
    "and": np.bitwise_and,
    "or": np.bitwise_or,
}.items():
    setattr(Traced, f"__{_name}__", _operator(_ufunc))
    setattr(Traced, f"__r{_name}__", _operator(_ufunc, True))
for _name, _ufunc in {
    "lt": np.less,
    "le": np.less_equal,
    "gt": np.greater,
    "ge": np.greater_equal,
    "eq": np.equal,
    "ne": np.not_equal,
}.items():
    setattr(Traced, f"__{_name}__", _operator(_ufunc))
Traced.__neg__ = lambda self: self.__array_ufunc__(np.negative, "__call__", self)
Traced.__invert__ = lambda self: self.__array_ufunc__(np.invert, "__call__", self)
Traced.__abs__ = lambda self: self.__array_ufunc__(np.absolute, "__call__", self)


def bare(x):
    """Return arguments without their wrappers."""
    if isinstance(x, Traced):
        return x._inner
    if isinstance(x, tuple | list):
        return type(x)(bare(item) for item in x)
    if isinstance(x, dict):
        return {key: bare(item) for key, item in x.items()}
    if isinstance(x, slice):
        return slice(bare(x.start), bare(x.stop), bare(x.step))
    return x


def named(x):
    """Return what a name would hold."""
    return x.named() if isinstance(x, Traced) else x


def run(procedure, *arguments):
    verify_procedure(procedure)
    return run_procedure(procedure, arguments)


def procedure_of(function, *arguments):
    """Return the procedure of a function of arrays and numbers; what it returns is one result or a tuple."""
    build = ProcedureBuilder("f")
    wrapped = []
    for argument in map(np.asarray, arguments):
        if argument.ndim:
            pointer = build.array("x", argument.shape, argument.dtype)
            inner = materialise(ArrayView.of_pointer(build, pointer, argument.shape))
        else:
            inner = build.scalar("n", argument.dtype)
        wrapped.append(Traced(build, inner))
    results = bare(function(build, *wrapped))
    contents, types = [], []
    for result in results if isinstance(results, tuple) else (results,):
        if isinstance(result, Expression):
            result = array(build, result)
            contents.append(result.pointer)
        else:
            contents.append(result)
        types.append(result.aval)
    return build.finish(contents, types)


def check(function, *arguments, tolerance=1e-12):
    """Compare the procedure of NumPy code with NumPy, and return the procedure."""
    procedure = procedure_of(lambda build, *args: function(*args), *arguments)
    found = run(procedure, *arguments)
    copies = [np.array(a) if np.ndim(a) else np.asarray(a)[()] for a in arguments]
    expected = function(*copies)
    expected = expected if isinstance(expected, tuple) else (expected,)
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        assert one.shape == np.shape(other), (one.shape, np.shape(other))
        assert one.dtype == np.asarray(other).dtype, (one.dtype, np.asarray(other).dtype)
        np.testing.assert_allclose(one, other, rtol=tolerance, atol=tolerance)
    return procedure
