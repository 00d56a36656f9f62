"""Loops and branches as graphs, each beside the same computation without any."""

from typing import NamedTuple

import numpy as np

import gradtape  # noqa: F401 - enters the rows
from gradtape.ir.body import Body
from gradtape.ir.evaluate import compute_outputs
from gradtape.ir.graph import Graph, Value, extract, literal
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import INT64, aval
from gradtape.kinds.registry import ROWS
from gradtape.transforms.call import inlined
from gradtape.transforms.loops.ops import repeat, scan, switch, while_loop

F8 = np.dtype(float)
C16 = np.dtype(complex)
BOOL = np.dtype(bool)


def row(name):
    return ROWS[name]


sin, cos, tanh, exp, sqrt, where, log = map(row, ("sin", "cos", "tanh", "exp", "sqrt", "where", "log"))


def total(x):
    return PRIMITIVES["reduce_sum"](x, axes=tuple(range(x.ndim))) if x.ndim else x


def matvec(w, x):
    return PRIMITIVES["contract"](w, x, (0, 1), (1,), (0,))


def matmul(a, b):
    return PRIMITIVES["contract"](a, b, (0, 1), (1, 2), (0, 2))


def spread(x, *shape):
    return PRIMITIVES["expand"](x, shape, ())


def convert(x, dtype):
    return PRIMITIVES["convert"](x, np.dtype(dtype))


def value(shape=(), dtype=F8):
    return Value(aval(tuple(shape), np.dtype(dtype)))


def like(x):
    return value(x.shape, x.dtype)


def body_of(function, inputs):
    """Return the body that a function of values describes."""
    outs = list(function(*inputs))
    return Body(inputs, extract(outs, inputs)[0], outs)


def graph_of(outs, inputs):
    return Graph(inputs, extract([out for out in outs if out is not None], inputs)[0], outs)


class Case(NamedTuple):
    """A program of values: with loops, and without."""

    name: str
    arrays: tuple
    loop: object
    plain: object


def element(x, k):
    rank = x.ndim - 1
    cut = PRIMITIVES["slice"](x, (k, *(0,) * rank), (1, *x.shape[1:]), (1,) * (rank + 1))
    return PRIMITIVES["reshape"](cut, x.shape[1:])


def stacked(rows, shape, dtype):
    if not rows:
        return PRIMITIVES["zeros_like"](value((0, *shape), dtype))
    return PRIMITIVES["stack"](*rows)


def unrolled(body, consts, carries, arrays, length, reverse=False):
    """Return what `scan` does, iteration by iteration."""
    carried, count = list(carries), len(carries)
    left = [[None] * length for _ in body.outputs[count:]]
    for number in reversed(range(length)) if reverse else range(length):
        index = literal(number, INT64)
        outs = inlined(body, [index, *consts, *carried, *[element(x, number) for x in arrays]])
        outs = [_spread(out, want) for out, want in zip(outs, body.outputs, strict=True)]
        carried = outs[:count]
        for column, out in zip(left, outs[count:], strict=True):
            column[number] = out
    return (
        *carried,
        *[stacked(rows, out.shape, out.dtype) for rows, out in zip(left, body.outputs[count:], strict=True)],
    )


def _spread(out, want):
    return out if out.shape == want.shape else spread(out, *want.shape)


def scanned(name, step, consts=(), carries=(), elements=(), length=4, seed=0, **params):
    """Return a case: arrays are drawn for shapes, or taken as they are."""
    rng = np.random.default_rng(seed)
    drawn = [np.asarray(_array(x, rng)) for x in (*consts, *carries)]
    stacks = [_array(x, rng, length) for x in elements]
    types = [(x.shape, x.dtype) for x in drawn] + [(x.shape[1:], x.dtype) for x in stacks]
    inputs = [value((), INT64), *[value(*type_) for type_ in types]]
    first, second = len(consts), len(consts) + len(carries)

    def function(index, *values):
        return step(index, values[:first], values[first:second], values[second:])

    body = body_of(function, inputs)

    def loop(*values):
        return scan(body, values[:first], values[first:second], values[second:], length, **params)

    def plain(*values):
        reverse = params.get("reverse", False)
        return unrolled(body, values[:first], values[first:second], values[second:], length, reverse)

    return Case(f"{name}-{length}", (*drawn, *stacks), loop, plain)


def _array(what, rng, length=None):
    if callable(what):
        return what(rng, length)
    if isinstance(what, np.ndarray):
        return what
    shape = what if length is None else (length, *what)
    return rng.normal(size=shape) * 0.6


def complexes(*shape):
    def draw(rng, length):
        whole = shape if length is None else (length, *shape)
        return rng.normal(size=whole) * 0.5 + 0.5j * rng.normal(size=whole)

    return draw


def integers(high, *shape):
    def draw(rng, length):
        return rng.integers(0, high, shape if length is None else (length, *shape))

    return draw


def single(*shape):
    def draw(rng, length):
        return (rng.normal(size=shape if length is None else (length, *shape))).astype(np.float32)

    return draw


def rnn(index, consts, carries, elements):
    (w, b), (h,), (x,) = consts, carries, elements
    h = tanh(matvec(w, h) + x + b)
    return h, h * x


def pendulum(index, consts, carries, elements):
    (g,), (a, v) = consts, carries
    step = 0.1

    def slope(a, v):
        return v, -(g * sin(a)) - v * 0.1

    k1, l1 = slope(a, v)
    k2, l2 = slope(a + k1 * (step / 2), v + l1 * (step / 2))
    k3, l3 = slope(a + k2 * (step / 2), v + l2 * (step / 2))
    k4, l4 = slope(a + k3 * step, v + l3 * step)
    return (
        a + (k1 + k2 * 2.0 + k3 * 2.0 + k4) * (step / 6),
        v + (l1 + l2 * 2.0 + l3 * 2.0 + l4) * (step / 6),
        a * v,
    )


def counted(index, consts, carries, elements):
    (n, flag, x), (y,) = carries, elements
    weight = convert(index + n, float) * 0.1 + 1.0
    x = where(flag, x * weight, sin(x)) + y
    return n + 2, ~flag, x, x * convert(n, float), n


def mapped(index, consts, carries, elements):
    (c,), (x, y) = consts, elements
    return (sin(x) * c * y, total(x * y))


def complexed(index, consts, carries, elements):
    (c,), (z, r), (x,) = consts, carries, elements
    z = z * c + convert(x, complex) * 0.5
    return z, r + row("absolute")(z), row("real")(z * row("conjugate")(z))


def looked_up(index, consts, carries, elements):
    (table, m), (x,), (k,) = consts, carries, elements
    picked = row("gather")(table, PRIMITIVES["reshape"](k, (1,)))
    x = x * 0.5 + sin(PRIMITIVES["reshape"](picked, ()) * x)
    return (x, x + element(m, 1))


def swapped(index, consts, carries, elements):
    x, y, z = carries
    return y, x * y, z, literal(2.0), z


def powers(index, consts, carries, elements):
    (x,), (p, q) = consts, carries
    return p * x, q + p * x * x


def products(index, consts, carries, elements):
    (w,), (m,) = consts, carries
    return (matmul(w, m) + matmul(m, w) * 0.5,)


def layers(index, consts, carries, elements):
    """Products that BLAS computes."""
    (w,), (m,) = consts, carries
    return (tanh(matmul(m, w)) + m * 0.5,)


def inner_layers(index, consts, carries, elements):
    (w,), (m,) = consts, carries
    body = body_of(lambda k, w, m: layers(k, (w,), (m,), ()), [value((), INT64), like(w), like(m)])
    return tuple(scan(body, [w], [m], [], 2))


def safe_root(index, consts, carries, elements):
    (x,), (y,) = carries, elements
    return where(y > 0.0, x + sqrt(where(y > 0.0, y, 1.0)), x), where(y > 0.0, y * y, 0.0)


def nested(index, consts, carries, elements):
    (w,), (h,), (x,) = consts, carries, elements
    inner = body_of(
        lambda i, w, a, e: (tanh(a * w + e), a * e * convert(i, float)),
        [value((), INT64), value((2,)), value((2,)), value((2,))],
    )
    a, left = scan(inner, [w], [h], [x], 3)
    return a, total(left) * h


def looping(index, consts, carries, elements):
    (c,), (x,), (y,) = consts, carries, elements
    inputs = [value((), INT64), value(), value(), value()]
    condition = body_of(lambda i, c, a, b: (b < 3.0,), inputs)
    body = body_of(lambda i, c, a, b: (sin(a) * c + a, b + 1.0 + a * a * 0.1), inputs)
    a, b, _ = while_loop(condition, body, [c], [x, y], None)
    return a, a * b


def branching(index, consts, carries, elements):
    (c,), (x,), (k,) = consts, carries, elements
    branches = [
        body_of(lambda c, x: (sin(x) * c, x), [value(), value()]),
        body_of(lambda c, x: (x * x, c), [value(), value()]),
        body_of(lambda c, x: (x + 1.0, literal(1.0)), [value(), value()]),
    ]
    a, b = switch(branches, k, [c, x])
    return a, a * b


LENGTHS = (0, 1, 5)


def scans():
    for length in LENGTHS:
        yield scanned("rnn", rnn, [(3, 3), (3,)], [(3,)], [(3,)], length)
        yield scanned("rnn-reverse", rnn, [(3, 3), (3,)], [(3,)], [(3,)], length, reverse=True)
        yield scanned("pendulum", pendulum, [()], [(), ()], [], length)
        yield scanned("counted", counted, [], [np.asarray(1), np.asarray(True), ()], [()], length)
        yield scanned("map", mapped, [(2,)], [], [(2,), (2,)], length)
        yield scanned("complex", complexed, [complexes(2)], [complexes(2), (2,)], [(2,)], length)
        yield scanned("looked-up", looked_up, [(4,), (3,)], [()], [integers(4)], length)
        yield scanned("swapped", swapped, [], [(), (), ()], [], length)
        yield scanned("powers", powers, [()], [(), ()], [], length)
        yield scanned("products", products, [(2, 2)], [(2, 2)], [], length)
        yield scanned("large", layers, [(20, 20)], [(20, 20)], [], length)
        yield scanned("inner", inner_layers, [(20, 20)], [(20, 20)], [], length)
        yield scanned("root", safe_root, [], [(2,)], [(2,)], length)
        yield scanned("single", rnn, [single(2, 2), single(2)], [single(2)], [single(2)], length)
        yield scanned("nested", nested, [(2,)], [(2,)], [(3, 2)], length)
        yield scanned("looping", looping, [()], [()], [()], length)
        yield scanned("branching", branching, [()], [()], [integers(3)], length)


def whiles():
    """Loops of unknown length; `plain` makes the iterations that these arrays take."""

    def case(name, condition, step, consts, carries, trips, limit=None, seed=1):
        rng = np.random.default_rng(seed)
        drawn = [np.asarray(_array(x, rng)) for x in (*consts, *carries)]
        inputs = [value((), INT64), *[value(x.shape, x.dtype) for x in drawn]]
        first = len(consts)

        def split(function):
            return lambda index, *values: function(index, values[:first], values[first:])

        test, body = body_of(split(condition), inputs), body_of(split(step), inputs)

        def loop(*values):
            outs = while_loop(test, body, values[:first], values[first:], limit)
            return outs[: len(carries)]

        inputs = [like(x) for x in inputs[1:]]
        outs = while_loop(test, body, inputs[:first], inputs[first:], limit)
        (count,) = compute_outputs(graph_of([outs[len(carries)]], inputs), drawn)
        assert int(count) == trips

        def plain(*values):
            return unrolled(body, values[:first], values[first:], [], trips)

        return Case(f"while-{name}", tuple(drawn), loop, plain)

    def below(index, consts, carries):
        return (carries[0] < 4.0,)

    def grow(index, consts, carries):
        (c,), (x, y) = consts, carries
        return x + 1.0 + sin(y) * 0.1, y * c + convert(index, float) * 0.1

    start = np.asarray(0.5)
    yield case("scalar", below, grow, [np.asarray(0.9)], [start, np.asarray(0.3)], 4)
    yield case("none", below, grow, [np.asarray(0.9)], [np.asarray(5.0), np.asarray(0.3)], 0)
    yield case("limit", below, grow, [np.asarray(0.9)], [start, np.asarray(0.3)], 2, limit=2)

    def small(index, consts, carries):
        return (total(carries[0] * carries[0]) < 9.0,)

    def relax(index, consts, carries):
        (w,), (x,) = consts, carries
        return (tanh(matvec(w, x)) + x * 1.5,)

    yield case("vector", small, relax, [np.eye(2) * 0.3], [np.array([0.4, -0.7])], 3)

    def nested(index, consts, carries):
        (c,), (x, y) = consts, carries
        inner = body_of(lambda i, a, e: (a * e + sin(a), a), [value((), INT64), value(), value()])
        a, left = scan(inner, [], [y], [spread(c, 3)], 3)
        return x + 1.0, a * 0.3 + total(left) * 0.1

    yield case("nested", below, nested, [np.asarray(0.4)], [start, np.asarray(0.3)], 4)


def repeats():
    """A stack that a `while_loop` leaves, taken up by a `repeat`, and one that this leaves by another."""
    inputs = [value((), INT64), value(), value()]
    test = body_of(lambda i, c, x: (i < 3,), inputs)
    body = body_of(lambda i, c, x: (sin(x) * c + x, x * x, i, spread(x, 2)), inputs)
    second = body_of(
        lambda i, c, s, a, k, v: (s * c + a * convert(k, float), a * s, v * a),
        [value((), INT64), value(), value(), value(), value((), INT64), value((2,))],
    )
    third = body_of(
        lambda i, s, b, v: (s + b * total(v) + total(v) * s,),
        [value((), INT64), value(), value(), value((2,))],
    )

    def loop(c, x, s):
        x, count, a, k, v = while_loop(test, body, [c], [x])
        s, b, v2 = repeat(second, count, [c], [s], [a, k, v], reverse=True)
        (s,) = repeat(third, count, [], [s], [b, v2])
        return x, s

    def plain(c, x, s):
        (x, a, k, v) = unrolled(body, [c], [x], [], 3)
        s, b, v2 = unrolled(second, [c], [s], [a, k, v], 3, True)
        (s,) = unrolled(third, [], [s], [b, v2], 3)
        return x, s

    yield Case("repeat", (np.asarray(0.7), np.asarray(0.4), np.asarray(1.3)), loop, plain)


def switches():
    branches = [
        body_of(lambda c, x: (tanh(matvec(c, x)), total(x)), [value((2, 2)), value((2,))]),
        body_of(lambda c, x: (x * x, literal(3.0)), [value((2, 2)), value((2,))]),
        body_of(lambda c, x: (x, total(matvec(c, x * x))), [value((2, 2)), value((2,))]),
    ]
    for number in (-1, 0, 1, 2, 5):
        clamped = min(max(number, 0), 2)
        rng = np.random.default_rng(3)

        def loop(c, x, number=number):
            return switch(branches, convert(total(x * 0.0), np.int64) + number, [c, x])

        def plain(c, x, clamped=clamped):
            return [
                _spread(out, want)
                for out, want in zip(inlined(branches[clamped], [c, x]), branches[0].outputs, strict=True)
            ]

        yield Case(f"switch{number}", (rng.normal(size=(2, 2)), rng.normal(size=2)), loop, plain)


def all_cases():
    return [*scans(), *whiles(), *repeats(), *switches()]
