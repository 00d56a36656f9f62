"""Objects of subclasses of ndarray with traced elements are what NumPy makes of those with numbers: class, attributes, values."""

import copy
import operator
import pickle

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import ArraySubclassError
from tests.suite.several import several_cases
from tests.support.differences import gradient_by_differences

X = np.array([[0.7, -1.3], [2.1, 0.4]])
W = np.array([[0.5, 1.5], [-0.25, 2.0]])


class Labelled(np.ndarray):
    """Has an attribute that views and results inherit."""

    label = None

    def __new__(cls, array, label=None):
        made = np.asarray(array).view(cls)
        made.label = label
        return made

    def __array_finalize__(self, parent):
        super().__array_finalize__(parent)
        self.label = getattr(parent, "label", None)


class Logged(np.ndarray):
    """Is told of the ufunc that made it, and has operators and methods of its own."""

    __array_priority__ = 10.0
    log = ()

    def __array_finalize__(self, parent):
        self.log = getattr(parent, "log", ())

    def __array_wrap__(self, array, context=None, return_scalar=False):
        made = super().__array_wrap__(array, context, return_scalar)
        if context is not None:
            made.log = (*self.log, context[0].__name__)
        return made

    def __radd__(self, other):
        return np.multiply(other, self)

    def __getitem__(self, key):
        return super().__getitem__(0 if isinstance(key, str) else key)

    def sum(self, *args, **kwargs):
        return 2.0 * super().sum(*args, **kwargs)


class Dim(np.ndarray):
    """Is asked by ufuncs, as quantities with units are: the exponent of its unit follows products and powers."""

    exponent = 0

    def __array_finalize__(self, parent):
        self.exponent = getattr(parent, "exponent", 0)

    def __array_ufunc__(self, ufunc, method, *inputs, out=None, **kwargs):
        exponents = [getattr(each, "exponent", 0) for each in inputs]
        arrays = [each.view(np.ndarray) if isinstance(each, Dim) else each for each in inputs]
        if out is not None:
            kwargs["out"] = tuple(each.view(np.ndarray) if isinstance(each, Dim) else each for each in out)
        made = super().__array_ufunc__(ufunc, method, *arrays, **kwargs)
        if made is NotImplemented or ufunc in (np.greater, np.isfinite):
            return made
        result = np.asarray(made).view(Dim)
        result.exponent = sum(exponents) if ufunc in (np.multiply, np.matmul) else max(exponents)
        if ufunc is np.square:
            result.exponent = 2 * exponents[0]
        return result if out is None else out[0]


def labelled(x):
    return Labelled(x, "volts")


def logged(x):
    made = x.view(Logged)
    made.log = ("made",)
    return made


def dim(x):
    made = x.view(Dim)
    made.exponent = 3
    return made


MAKERS = [labelled, logged, dim]


def _assigned(q, x):
    q[0] = 3.0 * x[1]
    q[1, 0] += x[0, 0]
    return q


def _in_place(q, x):
    q *= 1.5
    q += x
    return q


CONSTANTS = {maker(W).__class__.__name__: maker(W) for maker in MAKERS}

OPERATIONS = {
    "itself": lambda q, x: q,
    "multiplied": lambda q, x: q * x,
    "multiplied from the left": lambda q, x: x * q,
    "by a number": lambda q, x: 2.0 * q - 1.0,
    "added from the left": lambda q, x: x + q,
    "added to an ndarray": lambda q, x: W + q,
    "divided": lambda q, x: q / (x + 3.0),
    "squared": lambda q, x: q**2,
    "power": lambda q, x: abs(q) ** 1.5,
    "product": lambda q, x: q @ x,
    "product from the left": lambda q, x: W @ q,
    "negative": lambda q, x: -q,
    "greater": lambda q, x: q > x - 0.1,
    "sine": lambda q, x: np.sin(q),
    "maximum": lambda q, x: np.maximum(q, x * 2.0),
    "divmod": lambda q, x: divmod(q, 0.75)[1],
    "modf": lambda q, x: np.modf(q)[0],
    "outer": lambda q, x: np.multiply.outer(q, x),
    "reduce": lambda q, x: np.add.reduce(q),
    "accumulate": lambda q, x: np.add.accumulate(q, axis=1),
    "row": lambda q, x: q[1],
    "rows": lambda q, x: q[:1],
    "element": lambda q, x: q[1, 0],
    "by array": lambda q, x: q[np.array([1, 0, 1])],
    "by mask": lambda q, x: q[np.array([[True, False], [True, True]])],
    "iterated": lambda q, x: list(q)[1],
    "assigned": _assigned,
    "in place": _in_place,
    "transposed": lambda q, x: q.T,
    "reshaped": lambda q, x: q.reshape(4, 1),
    "raveled": lambda q, x: q.ravel(),
    "flattened": lambda q, x: q.flatten(),
    "copied": lambda q, x: q.copy(),
    "copied by copy": lambda q, x: copy.copy(q),
    "copied deep": lambda q, x: copy.deepcopy(q),
    "as float32": lambda q, x: q.astype(np.float32),
    "taken": lambda q, x: q.take([0, 1], axis=0),
    "repeated": lambda q, x: q.repeat(2, axis=0),
    "sum": lambda q, x: q.sum(),
    "sum of rows": lambda q, x: q.sum(axis=1),
    "sum kept": lambda q, x: q.sum(axis=1, keepdims=True),
    "prod": lambda q, x: q.prod(),
    "mean": lambda q, x: q.mean(),
    "mean of rows": lambda q, x: q.mean(axis=0),
    "var": lambda q, x: q.var(),
    "std of rows": lambda q, x: q.std(axis=0, ddof=1),
    "max": lambda q, x: q.max(),
    "min of rows": lambda q, x: q.min(axis=0),
    "cumsum": lambda q, x: q.cumsum(),
    "clipped": lambda q, x: q.clip(-1.0, 1.0),
    "clipped below": lambda q, x: q.clip(min=0.0),
    "rounded": lambda q, x: q.round(1),
    "trace": lambda q, x: q.trace(),
    "diagonal": lambda q, x: q.diagonal(),
    "dot": lambda q, x: q.dot(x),
    "argmax": lambda q, x: q.argmax(),
    "argsort": lambda q, x: q.argsort(axis=0),
    "real": lambda q, x: q.real,
    "conj": lambda q, x: q.conj(),
    "squared by a float": lambda q, x: q**2.0,
    "to the first": lambda q, x: q**1,
    "root": lambda q, x: abs(q) ** 0.5,
    "inverse": lambda q, x: q**-1,
    "squared in place": lambda q, x: operator.ipow(q, 2),
    "clipped in place": lambda q, x: q.clip(-1.0, 1.0, out=q),
    "np.clip in place": lambda q, x: np.clip(q, -1.0, 1.0, out=q),
    "np.sum": lambda q, x: np.sum(q),
    "np.mean": lambda q, x: np.mean(q, axis=1),
    "np.std": lambda q, x: np.std(q),
    "np.max": lambda q, x: np.max(q),
    "np.median": lambda q, x: np.median(q, axis=0),
    "np.concatenate": lambda q, x: np.concatenate([q, q]),
    "np.concatenate with an array": lambda q, x: np.concatenate([x, q]),
    "np.stack": lambda q, x: np.stack([q, q]),
    "np.vstack": lambda q, x: np.vstack([q, q]),
    "np.dot": lambda q, x: np.dot(q, x),
    "np.where": lambda q, x: np.where(W > 0.6, q, x),
    "np.diff": lambda q, x: np.diff(q),
    "np.cumsum": lambda q, x: np.cumsum(q, axis=0),
    "np.reshape": lambda q, x: np.reshape(q, -1),
    "np.transpose": lambda q, x: np.transpose(q),
    "np.squeeze": lambda q, x: np.squeeze(q[:1]),
    "np.atleast_1d": lambda q, x: np.atleast_1d(q[0]),
    "np.expand_dims": lambda q, x: np.expand_dims(q, 0),
    "np.broadcast_to": lambda q, x: np.broadcast_to(q, (3, 2, 2)),
    "np.zeros_like": lambda q, x: np.zeros_like(q),
    "np.ones_like": lambda q, x: np.ones_like(q) * x,
    "np.full_like": lambda q, x: np.full_like(q, 3.0),
    "np.roll": lambda q, x: np.roll(q, 1),
    "np.flip": lambda q, x: np.flip(q),
    "np.trapezoid": lambda q, x: np.trapezoid(q),
    "np.interp": lambda q, x: np.interp(q[0], [-2.0, 3.0], [1.0, 4.0]),
    "np.einsum": lambda q, x: np.einsum("ij,jk->ik", q, x),
    "np.tensordot": lambda q, x: np.tensordot(q, x, axes=1),
    "np.outer": lambda q, x: np.outer(q, x),
    "np.linalg.norm": lambda q, x: np.linalg.norm(q),
    "np.linalg.inv": lambda q, x: np.linalg.inv(q),
    "np.linalg.solve": lambda q, x: np.linalg.solve(q, x),
    "np.linalg.det": lambda q, x: np.linalg.det(q),
    "np.asarray": lambda q, x: np.asarray(q),
    "np.asanyarray": lambda q, x: np.asanyarray(q),
    "np.array": lambda q, x: np.array(q),
    "np.array of the class": lambda q, x: np.array(q, subok=True),
    "np.array of two": lambda q, x: np.array([q, q]),
    "np.array of elements": lambda q, x: np.array([q[0, 0], q[1, 1]]),
    "as array": lambda q, x: q.view(np.ndarray),
    "as another class": lambda q, x: q.view(Labelled),
    "by type": lambda q, x: x.view(type(q)),
    "beside a constant": lambda q, x: q * CONSTANTS[type(q).__name__],
    "array beside a constant": lambda q, x: x - CONSTANTS[type(q).__name__],
    "constant first": lambda q, x: CONSTANTS[type(q).__name__] * x,
    "constant and array in a function": lambda q, x: np.concatenate([CONSTANTS[type(q).__name__], x]),
    "constant beside another class": lambda q, x: (CONSTANTS["Labelled"] * q) + CONSTANTS["Logged"],
    "ones beside": lambda q, x: q * np.ones(2).view(type(q)),
}

BY_TABLE = {
    "np.sort": lambda q, x: np.sort(q, axis=0),
    "np.quantile": lambda q, x: np.quantile(q, [0.3, 0.6], axis=0),
    "np.insert": lambda q, x: np.insert(q, 1, 5.0, axis=0),
    "np.delete": lambda q, x: np.delete(q, 0, axis=0),
    "np.linspace": lambda q, x: np.linspace(q, x, 3),
    "np.nanvar": lambda q, x: np.nanvar(q),
    "np.nanstd": lambda q, x: np.nanstd(q, axis=0),
    "np.roll of rows": lambda q, x: np.roll(q, 1, axis=0),
    "np.array_equiv": lambda q, x: np.asarray(x) * float(np.array_equiv(np.ones_like(q), np.ones(2))),
    "np.linalg.qr": lambda q, x: np.linalg.qr(q)[1],
    "np.linalg.eigh": lambda q, x: np.linalg.eigh(q + q.T)[0],
    "np.linalg.svd": lambda q, x: np.linalg.svd(q, compute_uv=False),
    "np.linalg.pinv": lambda q, x: np.linalg.pinv(q),
    "np.linalg.matrix_power": lambda q, x: np.linalg.matrix_power(q, 2),
    "np.linalg.multi_dot": lambda q, x: np.linalg.multi_dot([q, x, q]),
    "np.linalg.matrix_transpose": lambda q, x: np.linalg.matrix_transpose(q),
}
"""Functions whose class is decided by a table, since NumPy's code for them reads memory: it asks no ufuncs of the class."""


def described(result):
    """Return what a result is beside its numbers."""
    if isinstance(result, np.ndarray):
        kind = next((k for k in (Labelled, Logged, Dim) if isinstance(result, k)), np.ndarray)
    else:
        kind = float if np.ndim(result) == 0 else list
    attributes = [getattr(result, name, None) for name in ("label", "log", "exponent")]
    return kind, attributes, np.shape(result), np.asarray(result).dtype


def numbers(result):
    """Return a number that all elements of a result have a part in."""
    flat = np.ravel(np.asarray(result)).astype(float)
    return np.sum(flat * np.cos(1.7 * np.arange(flat.size) + 0.4))


def slopes(f):
    """Return central differences, for functions of piecewise polynomials and smooth functions."""
    made = np.zeros_like(X)
    for place in np.ndindex(X.shape):
        step = np.zeros_like(X)
        step[place] = 1e-5
        made[place] = (f(X + step) - f(X - step)) / 2e-5
    return made


@pytest.mark.parametrize("maker", MAKERS)
@pytest.mark.parametrize("way", ["jit", "tape"])
def test_operations_give_what_numpy_gives(maker, way):
    with several_cases() as case:
        for name, operation in OPERATIONS.items():
            with case(name):
                check(maker, way, operation)


@pytest.mark.parametrize("way", ["jit", "tape"])
def test_functions_that_read_memory_keep_the_class(way):
    with several_cases() as case:
        for name, operation in BY_TABLE.items():
            with case(name):
                check(labelled, way, operation)


def check(maker, way, operation):
    found = []

    def f(x):
        result = operation(maker(x * 1.0), x)
        found.append(described(result))
        return numbers(result)

    value, plain = f(X), found.pop()
    if way == "jit":
        got, slope = gt.value_and_grad(f)(X)
    else:
        with gt.GradientTape() as tape:
            x = gt.constant(X)
            tape.watch(x)
            got = f(x)
        slope = tape.gradient(got, x, unconnected_gradients="zero")
    assert found[0] == plain
    np.testing.assert_allclose(got, value, rtol=1e-6)
    rough = 2e-2 if plain[3] == np.float32 else 1e-6
    np.testing.assert_allclose(slope, slopes(f), rtol=rough, atol=rough)


class Key(np.ndarray):
    """Is found in a dict by itself, as units are, and none of its attributes are inherited by views."""

    def __array_wrap__(self, array, context=None, return_scalar=False):
        made = Labelled(np.asarray(array))
        made.label = {KEYS[each.symbol]: each.symbol for each in context[1] if isinstance(each, Key)}
        return made

    def __hash__(self):
        return hash(self.symbol)


METRE = np.ones(()).view(Key)
METRE.symbol = "m"
KEYS = {"m": METRE}


@pytest.mark.parametrize("way", [lambda f: gt.value_and_grad(f)(X)[0], lambda f: f(gt.constant(X))])
def test_a_class_that_wraps_gets_the_objects_themselves(way):
    labels = []

    def f(x):
        made = x * METRE
        labels.append(made.label)
        return np.sum(np.asarray(made))

    way(f)
    assert labels[0] == {METRE: "m"}


@pytest.mark.parametrize("maker", MAKERS)
def test_second_derivatives_and_batches_follow(maker):
    def f(x):
        q = maker(x) * 2.0
        return np.sum(np.asarray(np.sin(q) * q))

    def plain(x):
        return np.sum(np.sin(2.0 * x) * (2.0 * x))

    np.testing.assert_allclose(gt.hessian(f)(X), gt.hessian(plain)(X), rtol=1e-12)
    np.testing.assert_allclose(
        gt.jvp(lambda x: np.asarray(maker(x) ** 2), (X,), (W,))[1], 2.0 * X * W, rtol=1e-12
    )
    np.testing.assert_allclose(gt.vmap(gt.grad(f))(np.stack([X, W])), [gt.grad(plain)(X), gt.grad(plain)(W)])


MEMORY = {
    "a method of ndarray by its class": lambda q: np.ndarray.reshape(q, 4),
    "a sum by the class": lambda q: np.ndarray.sum(q),
    "an item of the class": lambda q: float(np.ndarray.__getitem__(q, (0, 0))),
    "pickle": pickle.dumps,
    "bytes": lambda q: q.tobytes(),
    "the interface": lambda q: q.__array_interface__,
    "another shape": lambda q: setattr(q, "shape", (4,)),
    "compiled code": lambda q: np.ndarray.astype(q, float),
    "the result of a compiled function": lambda q: q,
}


@pytest.mark.parametrize("name", MEMORY)
def test_whoever_reads_the_memory_gets_an_error(name):
    with pytest.raises(ArraySubclassError, match=r"Labelled|ndarray"):
        gt.jit(lambda x: MEMORY[name](labelled(x)))(X)


def test_targets_of_derivatives_may_be_objects():
    with gt.GradientTape() as tape:
        x = gt.constant(X)
        tape.watch(x)
        y = labelled(x) * 3.0
    np.testing.assert_array_equal(tape.gradient(y, x), np.full_like(X, 3.0))
    np.testing.assert_array_equal(gt.grad(lambda x: labelled(x).sum())(X), np.ones_like(X))


class Strict(np.ndarray):
    """Expects its own objects and plain arrays, as quantities do, and no numbers."""

    unit = ""

    def __array_finalize__(self, parent):
        if parent is not None and parent.__class__ is not np.ndarray:
            self.unit = vars(parent)["unit"]

    def __array_ufunc__(self, ufunc, method, *inputs, **kwargs):
        arrays = [each.view(np.ndarray) if isinstance(each, Strict) else each for each in inputs]
        made = np.asanyarray(getattr(ufunc, method)(*arrays, **kwargs)).view(Strict)
        made.unit = self.unit
        return made


@pytest.mark.parametrize(
    "function",
    [
        lambda q: np.sum(q),
        lambda q: np.sum(q, axis=0),
        lambda q: np.add.reduce(q, axis=None),
        lambda q: np.sum(np.sqrt(q**2 + 1.0)),
    ],
)
def test_views_of_numbers_have_an_array_as_their_parent(function) -> None:
    def f(x):
        q = x.view(Strict)
        q.unit = "m"
        result = function(q)
        assert result.unit == "m"
        return np.sum(np.asarray(result) ** 2)

    np.testing.assert_allclose(gt.jit(f)(W), f(W))
    np.testing.assert_allclose(gt.grad(f)(W), gradient_by_differences(f, W), rtol=1e-6)
    with gt.GradientTape() as tape:
        x = tape.watch(W)
        y = f(x)
    np.testing.assert_allclose(tape.gradient(y, x), gt.grad(f)(W))


class Unit:
    """Has operators of its own and a higher priority than arrays, and no ufuncs, as units of packages."""

    __array_priority__ = 20.0

    def __rtruediv__(self, other):
        return ("divided", type(other), other)

    def __rmul__(self, other):
        return ("times", type(other), other)


def test_operands_with_a_higher_priority_use_their_own_operators():
    def function(x, operation):
        word, kind, made = operation(x.view(Labelled), Unit())
        assert kind is Labelled and word == operation(X.view(Labelled), Unit())[0]
        return np.sum(np.asarray(made) ** 2)

    for operation in (operator.truediv, operator.mul):
        np.testing.assert_allclose(gt.grad(lambda x, o=operation: function(x, o))(X), 2 * X)
    with pytest.raises(TypeError):
        gt.grad(lambda x: np.sum(x.view(Labelled) + Unit()))(X)


@pytest.mark.parametrize("operand", [np.float64(2.0), np.int64(3), np.full(2, 2.0), 2.0, True], ids=str)
@pytest.mark.parametrize(
    "operation", [operator.add, operator.mul, operator.truediv, operator.pow, operator.lt]
)
def test_numbers_beside_objects_are_operands(operation, operand):
    def function(x, is_left):
        labelled = x.view(Labelled)
        made = operation(labelled, operand) if is_left else operation(operand, labelled)
        assert type(made) is Labelled
        return np.asarray(made)

    for is_left in (True, False):
        expected = function(np.abs(X), is_left)
        np.testing.assert_allclose(gt.jit(function)(np.abs(X), is_left), expected, rtol=1e-15)


def test_the_shape_that_an_object_has_can_be_set():
    def function(x):
        made = x.view(Labelled)
        made.shape = (2, 2)
        made.shape = (2, -1)
        return np.sum(np.asarray(made) ** 2)

    np.testing.assert_allclose(gt.grad(function)(X), 2 * X)
    with pytest.raises(ArraySubclassError, match="stays as it is"):
        gt.grad(lambda x: setattr(x.view(Labelled), "shape", (4,)))(X)


def test_the_type_of_an_object_is_its_class():
    def function(x):
        made = x.view(Labelled)
        assert type(made) is Labelled and pow(made, 2, None).__class__ is Labelled
        return np.sum(np.asarray(pow(made, 2, None)))

    np.testing.assert_allclose(gt.grad(function)(X), 2 * X)
