"""Code that is not translated: the error names the line, and translation has no effects."""

from __future__ import annotations

import linecache

import numpy as np
import optree
import pytest

import gradtape as gt
from gradtape.errors import UnsupportedCodeError
from gradtape.frontend.translate import translate
from gradtape.ir.types import FLOAT64, aval
from tests.frontend.samples import checked
from tests.frontend.support import run

X = np.array([0.5, -1.5, 2.0])
SEEN: list[float] = []
RANDOM = np.random.default_rng(0)


def appends(x):
    SEEN.append(1.0)
    return x[0]


def random_numbers(x):
    return x[0] * RANDOM.normal()


def global_random_numbers(x):
    return x[0] * np.random.normal()


def prints(x):
    print("x")
    return x[0]


def dictionaries(x):
    d = {"a": x[0]}
    return d["a"]


def sets(x):
    return len({1, 2, int(x[0])})


def arrays_of_objects(x):
    held = np.empty(2, dtype=object)
    held[0] = x[0]
    return held[0]


def attempts(x):
    try:
        return 1.0 / x[0]
    except ZeroDivisionError:
        return 0.0


def generators(x):
    yield x[0]


def contexts(x):
    with np.errstate(all="ignore"):
        return x[0] / 0.0


def opens(x):
    open("nothing")  # noqa: SIM115 - it is never run
    return x


def mixed(x):
    y = None
    if x[0] > 0.0:
        y = x[1]
    return y


def endless(x):
    while True:
        x[0] += 1.0


class Thing:
    def __init__(self):
        self.y = 1.0


def objects(x):
    return Thing().y * x[0]


def any_keywords(x):
    def g(a, **rest):
        return a * rest["b"]

    return g(x[0], b=x[1])


def attributes(x):
    x.flags = 3
    return x[0]


def shared(x):
    y = x.copy()
    z = y
    for _ in range(3):
        y[0] += 1.0
        y = y * 0.5
    return y, z


def functions_in_lists(x):
    return np.sum(np.piecewise(x, [x > 0.0], [lambda v: v * 2.0, 0.5]))


@pytest.mark.parametrize(
    "function",
    [
        functions_in_lists,
        shared,
        any_keywords,
        attributes,
        appends,
        random_numbers,
        global_random_numbers,
        prints,
        dictionaries,
        sets,
        attempts,
        generators,
        contexts,
        opens,
        mixed,
        endless,
        objects,
        arrays_of_objects,
    ],
    ids=lambda f: f.__name__,
)
def test_what_is_not_translated_is_refused_with_its_line(function):
    with pytest.raises(UnsupportedCodeError) as caught:
        translate(function, (aval((3,), FLOAT64),))
    first = function.__code__.co_firstlineno
    assert caught.value.where is not None
    assert first <= caught.value.where.line <= first + 6
    assert caught.value.where.filename == __file__
    assert not SEEN


def appends_to_argument(a, x):
    a.append(x)
    return len(a)


def sets_item_of_argument(a, x):
    b = a
    b[0] = x
    return a[0]


def extends_inner_list(a, x):
    a[1].extend([x, x])
    return x


def removes_in_loop(a, x):
    while len(a) > 1:
        x = x + a.pop()
    return x


def writes_in_branch(a, x):
    b = [x, x] if x > 0.0 else a
    b.reverse()
    return b[0]


@pytest.mark.parametrize(
    ("function", "tree"),
    [
        (appends_to_argument, [1.0, 2.0]),
        (sets_item_of_argument, [1.0, 2.0]),
        (extends_inner_list, [1.0, [2.0]]),
        (removes_in_loop, [1.0, 2.0, 3.0]),
        (writes_in_branch, [1.0, 2.0]),
    ],
    ids=lambda item: getattr(item, "__name__", ""),
)
def test_writes_to_lists_of_the_caller_are_refused(function, tree):
    number = aval((), FLOAT64)
    lists = optree.tree_map(lambda _: number, tree)
    with pytest.raises(UnsupportedCodeError, match="a list among the arguments is written"):
        translate(function, (lists, number))


def copies_of_lists(a, x):
    b = list(a)
    b.append(x)
    c = a + [x]
    c[0] = x
    return b[-1] + c[0] + a[0] * len(a)


def test_copies_of_lists_of_the_caller_may_be_written():
    number = aval((), FLOAT64)
    translate(copies_of_lists, ([number, number], number))
    a = [2.0, 3.0]
    assert gt.jit(copies_of_lists)(a, 1.5) == copies_of_lists([2.0, 3.0], 1.5)
    assert a == [2.0, 3.0]


def test_errors_of_the_code_are_raised():
    assert run(checked, np.array([1.0, 2.0])) == 1.0
    with pytest.raises(AssertionError, match="x is to be positive"):
        run(checked, -X)
    with pytest.raises(ValueError, match="too large"):
        run(checked, 1000.0 * X)


def counters(x):
    def make():
        s = 0.0

        def step(v):
            nonlocal s
            s = s + v
            return s

        return step

    count = make()
    return count(x[0])  # here


def assigned_from_elsewhere(x):
    t = 0.0

    def add(v):
        nonlocal t
        t += v

    def run():
        for v in x:
            add(v)  # here

    run()
    return t


@pytest.mark.parametrize("function", [counters, assigned_from_elsewhere])
def test_a_variable_is_assigned_only_from_the_function_that_calls(function):
    with pytest.raises(UnsupportedCodeError, match="variable of a function other than") as caught:
        translate(function, (aval((3,), FLOAT64),))
    assert caught.value.where is not None
    assert linecache.getline(__file__, caught.value.where.line).endswith("# here\n")
