"""Questions for the classes of values in translated code: the answers are Python's."""

import functools
import numbers
import operator
import types
from collections.abc import Iterable, Sequence

import numpy as np
import pytest

import gradtape as gt
from gradtape.errors import UnsupportedCodeError
from tests.frontend.support import check, translated

X = np.array([0.5, 1.5, -2.0])

MADE = {
    "an array": lambda x, i, items: x,
    "a slice of an array": lambda x, i, items: x[i:],
    "an expression": lambda x, i, items: x[1:] + 1.0,
    "an element": lambda x, i, items: x[i],
    "a sum": lambda x, i, items: np.sum(x),
    "a number in single precision": lambda x, i, items: np.float32(x[i]),
    "a number of Python": lambda x, i, items: float(x[i]),
    "a truncated number": lambda x, i, items: int(x[i]),
    "an index": lambda x, i, items: i,
    "twice an index": lambda x, i, items: 2 * i,
    "half an index": lambda x, i, items: i / 2,
    "a complex number": lambda x, i, items: complex(i, 1.0),
    "a condition on an index": lambda x, i, items: i > 1,
    "a condition on an element": lambda x, i, items: x[i] > 1.0,
    "a list that grows": lambda x, i, items: items,
    "a list": lambda x, i, items: [x[i], i],
    "a tuple": lambda x, i, items: (x[i], i),
    "a range": lambda x, i, items: range(i),
    "a slice": lambda x, i, items: slice(0, i),
    "an enumeration": lambda x, i, items: enumerate(x),
    "a zip": lambda x, i, items: zip(x, x, strict=True),
    "a function": lambda x, i, items: lambda: x[i],
    "a text": lambda x, i, items: "text",
    "nothing": lambda x, i, items: None,
}
CLASSES = [
    np.ndarray,
    float,
    int,
    bool,
    complex,
    np.float64,
    np.float32,
    np.integer,
    np.bool_,
    list,
    tuple,
    dict,
]
CLASSES += [range, slice, enumerate, zip, types.FunctionType, str, object, Sequence, Iterable, numbers.Real]
SEVERAL = [(int, float), int | float, (list, (tuple, str)), float | None]


def program(make, kind):
    """Return a function whose result tells for each iteration whether a value is of a class."""

    def f(x):
        total, items = 0.0, []
        for i in range(len(x)):
            items.append(x[i])
            value = make(x, i, items)
            if isinstance(value, kind):
                total += 10.0
            if type(value) is kind:
                total += 100.0
            total += x[i]
        return total

    return f


@pytest.mark.parametrize("name", MADE)
def test_classes_are_those_that_python_sees(name):
    for kind in [*CLASSES, *SEVERAL]:
        check(program(MADE[name], kind), X)


@pytest.mark.parametrize("name", ["an element", "an index", "a list that grows", "an array"])
@pytest.mark.parametrize("kind", [int, float, list, np.ndarray])
def test_gradients_of_what_asks_for_classes(name, kind, monkeypatch):
    monkeypatch.setattr(gt.config, "loops", "compile")
    f = program(MADE[name], kind)
    assert gt.jit(f)(X) == f(X)
    np.testing.assert_array_equal(gt.grad(f)(X), np.ones(3))


def test_the_class_of_what_stands_for_no_object_of_python_is_refused():
    def f(x):
        total = 0.0
        for i in range(len(x)):
            if type(reversed(range(i))) is range:
                total += 1.0
            total += x[i]
        return total

    with pytest.raises(UnsupportedCodeError, match="the class of"):
        translated(f, X)


def partial_of_a_ufunc(x):
    double = functools.partial(np.multiply, 2.0)
    total = 0.0
    for i in range(len(x)):
        total += double(x[i])
    return total


def partial_of_a_closure(x):
    scale = x[1]

    def scaled(a, b, *, c=1.0):
        return a * b * c + scale

    partial = functools.partial(scaled, x[0], c=2.0)
    again = functools.partial(partial, c=x[2])
    total = 0.0
    for i in range(len(x)):
        total += partial(x[i]) - again(x[i]) * partial(x[i], c=3.0)
    return total


def reductions(x):
    total = 0.0
    for i in range(len(x)):
        total += functools.reduce(lambda a, b: a * b, (x[i], 2.0, x[0]))
        total += functools.reduce(operator.sub, [x[i], x[0]], 1.0) + functools.reduce(operator.add, (), x[i])
    return total


def asks_whether_it_can_be_called(x):
    total = 0.0
    for i in range(len(x)):
        if (
            callable(np.sin)
            and callable(asks_whether_it_can_be_called)
            and not callable(x[i])
            and not callable(x)
        ):
            total += x[i]
    return total


def reads_attributes_by_name(x):
    total = 0.0
    for i in range(len(x)):
        total += getattr(np, "sin")(x[i]) * getattr(x, "ndim")  # noqa: B009
    return total


@pytest.mark.parametrize(
    "function",
    [
        partial_of_a_ufunc,
        partial_of_a_closure,
        reductions,
        asks_whether_it_can_be_called,
        reads_attributes_by_name,
    ],
)
def test_functions_of_functions_and_attributes(function):
    check(function, X)


def asks_for_the_class(x):
    total, count = 0.0, 0.0
    for i in range(len(x)):
        if type(total) is float:
            count += 1.0
        total = total + x[i]
    return count + total


def asks_by_isinstance(x):
    total, count = 0, 0.0
    for i in range(len(x)):
        if isinstance(total, np.floating):
            count += 1.0
        total = total + x[i]
    return count + total


def asks_for_what_is_computed(x):
    total, count = 1.0, 0.0
    for i in range(len(x)):
        twice = 2.0 * total
        if isinstance(twice, np.float64):
            count += 1.0
        total = total + x[i]
    return count + total


def asks_after_a_branch(x):
    count = 0.0
    for i in range(len(x)):
        chosen = 1.0 if x[i] > 0.0 else x[i]
        if type(chosen) is float:
            count += 1.0
    return count + np.sum(x)


SEVERAL_CLASSES = [asks_for_the_class, asks_by_isinstance, asks_for_what_is_computed, asks_after_a_branch]


@pytest.mark.parametrize("function", SEVERAL_CLASSES, ids=lambda function: function.__name__)
def test_a_number_of_several_classes_is_not_asked_for_one(function):
    with pytest.raises(UnsupportedCodeError, match="depending on the iteration or the branch"):
        translated(function, X)
    if function is not asks_after_a_branch:  # a trace does not branch on elements by itself
        with gt.config.override(loops="compile"):
            assert gt.jit(function)(X) == function(X)


def test_a_question_with_one_answer_is_answered_for_numbers_of_several_classes():
    def function(x):
        total, count = 0.0, 0.0
        for i in range(len(x)):
            if (
                isinstance(total, float)
                and not isinstance(total, str)
                and type(2.0 * x[i] + total) is np.float64
            ):
                count += 1.0
            total = total + x[i]
        return count + total

    check(function, X)
