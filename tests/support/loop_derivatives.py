"""Derivatives and batches of functions of values, and the same element by element."""

from __future__ import annotations

import numpy as np

from gradtape.ir.evaluate import compute_outputs
from gradtape.ir.graph import Value, constant
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import aval
from gradtape.ir.verifier import verify
from gradtape.kinds.batching import in_front
from gradtape.transforms.batch import batch
from gradtape.transforms.jvp import jvp
from gradtape.transforms.procedures.loop_pullback import reference_to_loop
from gradtape.transforms.procedures.reference import cotangent_of
from gradtape.transforms.vjp import vjp
from tests.support.control_cases import (
    element,
    graph_of,
    value,
)


def never(value):
    return False


def numbers(like, seed):
    rng = np.random.default_rng(seed)
    drawn = rng.normal(size=like.shape)
    if like.dtype.kind == "c":
        drawn = drawn + 1j * rng.normal(size=like.shape)
    return np.asarray(drawn).astype(like.dtype)


def is_real(value):
    return value.dtype.kind in "fc"


def pushed(outs, inputs):
    """Return directional derivatives, and the direction."""
    sources = [x for x in inputs if is_real(x)]
    tangents = [constant(numbers(x, 10 + k)) for k, x in enumerate(sources)]
    targets = [out for out in outs if is_real(out)]
    found = jvp(targets, sources, tangents, never)
    return [PRIMITIVES["zeros_like"](x) if t is None else t for t, x in zip(found, targets, strict=True)]


def pulled(outs, inputs):
    sources = [x for x in inputs if is_real(x)]
    targets = [out for out in outs if is_real(out)]
    seeds = [constant(numbers(out, 20 + k)) for k, out in enumerate(targets)]
    found = vjp(targets, sources, seeds, never)
    return [PRIMITIVES["zeros_like"](x) if g is None else g for g, x in zip(found, sources, strict=True)]


def derived(function, arrays, orders):
    inputs = [Value(aval(x.shape, x.dtype)) for x in arrays]
    outs = list(function(*inputs))
    for order in orders:
        outs = pushed(outs, inputs) if order == "f" else pulled(outs, inputs)
    graph = graph_of(outs, inputs)
    verify(graph)
    return compute_outputs(graph, arrays)


def reverse_of(case):
    """Return the procedure that is the derivative of a loop in reverse, and arguments for it."""
    inputs = [Value(aval(x.shape, x.dtype)) for x in case.arrays]
    node = case.loop(*inputs)[0].node
    assert node is not None
    reference = reference_to_loop(node)
    assert reference is not None
    active, seeded = tuple(map(is_real, node.inputs)), tuple(map(is_real, node.outs))
    found = cotangent_of(reference, active, seeded, node.params.get("policy"))
    seeds = [numbers(out, 20 + k) for k, out in enumerate(filter(is_real, node.outs))]
    return found.procedure, [*case.arrays, *seeds]


SIZE = 3


def batched(function, arrays, mapped, orders=""):
    """Return what a function of values comes to, mapped over some of its arguments, and derivatives of that."""

    def whole(*inputs):
        single = [value(x.shape[1:], x.dtype) if flag else x for x, flag in zip(inputs, mapped, strict=True)]
        outs = list(function(*single))
        moved = {one: x for one, x, flag in zip(single, inputs, mapped, strict=True) if flag}
        found = batch(outs, moved, SIZE, never)
        return [in_front(out, SIZE) if x is None else x for x, out in zip(found, outs, strict=True)]

    return derived(whole, arrays, orders)


def repeated(function, arrays, mapped, orders=""):
    """Do the same element by element."""

    def whole(*inputs):
        rows = [
            function(*[element(x, k) if flag else x for x, flag in zip(inputs, mapped, strict=True)])
            for k in range(SIZE)
        ]
        return [PRIMITIVES["stack"](*column) for column in zip(*rows, strict=True)]

    return derived(whole, arrays, orders)


def varied(array, seed):
    rng = np.random.default_rng(seed)
    copies = [array]
    for _ in range(SIZE - 1):
        if array.dtype.kind in "fc":
            copies.append((array * rng.uniform(0.5, 1.4, array.shape)).astype(array.dtype))
        else:
            copies.append(array)
    return np.stack(copies)
