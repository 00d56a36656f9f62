"""Programs with many of the same thing are computed as those with few: around 256 of them, where counts have left a byte."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import gradtape as gt

COUNTS = (3, 256, 257)


def total(arrays: Any) -> Any:
    return sum(np.sum(np.sin(a)) for a in arrays)


def arguments(arrays: Any) -> Any:
    return gt.grad(lambda *a: total(a), argnums=tuple(range(len(arrays))))(*arrays)


def keys(arrays: Any) -> Any:
    return gt.grad(lambda d: total(d.values()))(dict(enumerate(arrays))).values()


def keywords(arrays: Any) -> Any:
    named = {f"k{i}": a for i, a in enumerate(arrays)}
    return gt.jit(lambda **given: [np.cos(a) for a in given.values()])(**named)


def pulled_back(arrays: Any) -> Any:
    return gt.vjp(total, arrays)[1](1.0)[0]


def mapped(arrays: Any) -> Any:
    return gt.vmap(lambda items: [np.cos(a) for a in items])(arrays)


def checkpointed(arrays: Any) -> Any:
    return gt.grad(lambda items: gt.checkpoint(total)(items))(arrays)


def carried(arrays: Any) -> Any:
    return gt.scan(lambda carry, _: ([np.cos(c) for c in carry], None), arrays, None, length=1)[0]


def captured(arrays: Any) -> Any:
    held = [0.0 * a for a in arrays]
    f = gt.jit(lambda x: [np.cos(a * x) for a in held])
    f(1.0)
    for own, a in zip(held, arrays, strict=True):
        own[...] = a
    return f(1.0)


def attributes(arrays: Any) -> Any:
    class Holder:
        pass

    holder = Holder()
    for i, a in enumerate(arrays):
        setattr(holder, f"a{i}", 0.0 * a)
    f = gt.jit(lambda x: [np.cos(getattr(holder, f"a{i}") * x) for i in range(len(arrays))])
    f(1.0)
    for i, a in enumerate(arrays):
        setattr(holder, f"a{i}", a)
    return f(1.0)


def on_a_tape(arrays: Any) -> Any:
    with gt.GradientTape() as tape:
        watched = [tape.watch(a) for a in arrays]
        y = total(watched)
    return tape.gradient(y, watched)


def on_a_persistent_tape(arrays: Any) -> Any:
    with gt.GradientTape(persistent=True) as tape:
        watched = [tape.watch(a) for a in arrays]
        y = total(np.split(np.concatenate(watched), len(watched)))
    tape.gradient(y, watched[:2])
    return tape.gradient(y, watched)


def variables(arrays: Any) -> Any:
    held = [gt.Variable(a) for a in arrays]
    with gt.GradientTape() as tape:
        y = gt.jit(lambda: total(held))()
    assert len(tape.watched_variables()) == len(held)
    return tape.gradient(y, held)


def targets(arrays: Any) -> Any:
    with gt.GradientTape() as tape:
        watched = [tape.watch(a) for a in arrays]
        values = [np.sin(a) for a in watched]
    return tape.gradient(values, watched, output_gradients=[np.ones(2) for _ in values])


def nested_tapes(arrays: Any) -> Any:
    with gt.GradientTape() as outer:
        watched = [outer.watch(a) for a in arrays]
        with gt.GradientTape() as inner:
            for a in watched:
                inner.watch(a)
            y = sum(np.sum(np.cos(a)) for a in watched)
        slopes = inner.gradient(y, watched)
        z = sum(np.sum(a) for a in slopes)
    return [-g for g in outer.gradient(z, watched)]


def rows(arrays: Any) -> Any:
    return [
        np.diag(block) for block in gt.jacobian(lambda items: [np.sin(a) for a in items][-1])(arrays)[-1:]
    ]


WAYS = (
    arguments,
    keys,
    keywords,
    pulled_back,
    mapped,
    checkpointed,
    carried,
    captured,
    attributes,
    on_a_tape,
    on_a_persistent_tape,
    variables,
    targets,
    nested_tapes,
)


@pytest.mark.parametrize("count", COUNTS)
@pytest.mark.parametrize("way", [*WAYS, rows], ids=lambda way: way.__name__)
def test_arrays(way: Any, count: int) -> None:
    arrays = [np.array([0.1 + i / count, 0.2]) for i in range(count)]
    found = list(way(arrays))
    wanted = [np.cos(a) for a in arrays][-len(found) :]
    assert len(found) == (1 if way is rows else count)
    np.testing.assert_allclose(np.stack(found), np.stack(wanted), rtol=1e-14)


@pytest.mark.parametrize("count", COUNTS)
def test_operations_and_elements(count: int) -> None:
    def chain(x: Any) -> Any:
        for _ in range(count):
            x = x + 0.5 * np.sin(x)
        return x

    def slope(x: float) -> float:
        product = 1.0
        for _ in range(count):
            product, x = product * (1.0 + 0.5 * np.cos(x)), x + 0.5 * np.sin(x)
        return product

    with gt.GradientTape() as tape:
        x = tape.watch(0.1)
        y = chain(x)
    for found in (tape.gradient(y, x), gt.grad(chain)(0.1), gt.jvp(chain, (0.1,), (1.0,))[1]):
        assert float(found) == pytest.approx(slope(0.1), rel=1e-9)
    elements = np.linspace(0.0, 1.0, count)
    with gt.GradientTape() as tape:
        v = tape.watch(elements)
        z = sum(v[i] * i for i in range(count))
    np.testing.assert_array_equal(tape.gradient(z, v), np.arange(float(count)))
    np.testing.assert_array_equal(gt.jacobian(lambda v: v[::-1])(elements), np.eye(count)[::-1])
