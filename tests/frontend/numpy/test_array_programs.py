"""Loops around array statements, translated from code, against NumPy."""

import numpy as np
import pytest

from gradtape.frontend.translate import translate
from gradtape.ir.types import aval
from gradtape.procedures.interpret import run_procedure
from gradtape.procedures.verifier import verify_procedure
from gradtape.transforms.procedures.vjp import vjp_procedure
from gradtape.trees import flatten

RNG = np.random.default_rng(5)


def heat(steps, a, b):
    for _ in range(1, steps):
        b[1:-1, 1:-1] = 0.2 * (a[1:-1, 1:-1] + a[1:-1, :-2] + a[1:-1, 2:] + a[2:, 1:-1] + a[:-2, 1:-1])
        a[1:-1, 1:-1] = 0.2 * (b[1:-1, 1:-1] + b[1:-1, :-2] + b[1:-1, 2:] + b[2:, 1:-1] + b[:-2, 1:-1])


def orthogonalised(a):
    q, r = np.zeros_like(a), np.zeros((a.shape[1], a.shape[1]))
    for k in range(a.shape[1]):
        r[k, k] = np.sqrt(np.dot(a[:, k], a[:, k]))
        q[:, k] = a[:, k] / r[k, k]
        for j in range(k + 1, a.shape[1]):
            r[k, j] = np.dot(q[:, k], a[:, j])
            a[:, j] -= q[:, k] * r[k, j]
    return q, r


def factors(a):
    for i in range(a.shape[0]):
        for j in range(i):
            a[i, j] -= a[i, :j] @ a[:j, j]
            a[i, j] /= a[j, j]
        for j in range(i, a.shape[0]):
            a[i, j] -= a[i, :i] @ a[:i, j]
    return np.triu(a), np.tril(a, -1)


def toeplitz(r):
    y = np.empty_like(r)
    alpha, beta = -r[0], 1.0
    y[0] = -r[0]
    for k in range(1, r.shape[0]):
        beta *= 1.0 - alpha * alpha
        alpha = -(r[k] + np.dot(np.flip(r[:k]), y[:k])) / beta
        y[:k] += alpha * np.flip(y[:k])
        y[k] = alpha
    return y


def covariance(data):
    data -= np.mean(data, axis=0)
    result = np.zeros((data.shape[1], data.shape[1]), dtype=data.dtype)
    for i in range(data.shape[1]):
        result[i:, i] = result[i, i:] = data[:, i] @ data[:, i:] / (data.shape[0] - 1.0)
    return result


def sparse_product(values, columns, starts, x):
    y = np.empty(starts.size - 1, values.dtype)
    for i in range(starts.size - 1):
        y[i] = values[starts[i] : starts[i + 1]] @ x[columns[starts[i] : starts[i + 1]]]
    return y


def rings(count, data, radius):
    rmax = radius.max()
    found = np.zeros(count)
    for i in range(count):
        inside = np.logical_and(rmax * i / count <= radius, radius < rmax * (i + 1) / count)
        if inside.any():
            found[i] = data[inside].mean()
    return found, np.histogram(radius, count, weights=data)[0]


def group_means(data, labels):
    found = np.zeros(3)
    for i in range(3):
        members = data[labels == i]
        found[i] = members.mean() + np.sum(members**2)
    return found


def attraction(positions, mass):
    x, y = positions[:, 0:1], positions[:, 1:2]
    dx, dy = x.T - x, y.T - y
    inverse = dx**2 + dy**2
    inverse[inverse > 0] = inverse[inverse > 0] ** (-1.5)
    return np.hstack(((dx * inverse) @ mass, (dy * inverse) @ mass))


def contour(points, h):
    total = np.zeros(h.shape[1:], np.complex128)
    for z in points:
        whole = np.zeros(h.shape[1:], np.complex128)
        for n in range(h.shape[0]):
            whole += np.power(z, n) * h[n]
        total += np.linalg.inv(whole) * z
    return total


def transform(n, radix, stages, x, y):
    rows, columns = np.mgrid[0:radix, 0:radix]
    matrix = np.exp(-2.0j * np.pi * rows * columns / radix)
    y[:] = x[:]
    first, second = np.mgrid[0:radix, 0 : radix**stages]
    for i in range(stages):
        turned = np.transpose(np.reshape(y, (radix**i, radix, radix ** (stages - i - 1))), axes=(1, 0, 2))
        factor = np.exp(-2.0j * np.pi * first[:, : radix**i] * second[:, : radix**i] / radix ** (i + 1))
        wide = np.repeat(np.reshape(factor, (radix, radix**i, 1)), radix ** (stages - i - 1), axis=2)
        product = np.reshape(turned, (n,)) * np.reshape(wide, (n,))
        y[:] = np.reshape(matrix @ np.reshape(product, (radix, radix ** (stages - 1))), (n,))


SQUARE = RNG.normal(size=(6, 6)) + 6 * np.eye(6)
COMPLEX = RNG.normal(size=(2, 3, 3, 3)) @ np.array([1.0, 1j, 0.5])
PROGRAMS = [
    (heat, (4, RNG.normal(size=(9, 8)), RNG.normal(size=(9, 8)))),
    (orthogonalised, (RNG.normal(size=(7, 4)),)),
    (factors, (SQUARE,)),
    (toeplitz, (0.1 * RNG.normal(size=9),)),
    (covariance, (RNG.normal(size=(10, 5)),)),
    (
        sparse_product,
        (RNG.normal(size=6), np.array([0, 2, 1, 3, 3, 0]), np.array([0, 2, 2, 5, 6]), RNG.normal(size=4)),
    ),
    (rings, (5, RNG.normal(size=40), RNG.uniform(size=40))),
    (group_means, (RNG.normal(size=12), np.arange(12) % 3)),
    (attraction, (RNG.normal(size=(5, 2)), RNG.uniform(size=(5, 1)))),
    (contour, (np.array([1.0 + 1j, 0.5 - 2j]), COMPLEX)),
    (transform, (16, 2, 4, RNG.normal(size=16) + 1j, np.zeros(16, complex))),
]


@pytest.mark.parametrize(("program", "arguments"), PROGRAMS, ids=lambda one: getattr(one, "__name__", ""))
def test_an_array_program(program, arguments):
    types = tuple(aval(x.shape, x.dtype) if isinstance(x, np.ndarray) else x for x in arguments)
    translation = translate(program, types)
    verify_procedure(translation.procedure)
    leaves = flatten(arguments)[0]
    found = run_procedure(translation.procedure, [leaves[k] for k in translation.leaves])
    copies = tuple(np.array(x) if isinstance(x, np.ndarray) else x for x in arguments)
    expected = program(*copies)
    if expected is not None:
        several = expected if isinstance(expected, tuple) else (expected,)
        numbers = translation.result if isinstance(expected, tuple) else (translation.result,)
        for number, other in zip(numbers, several, strict=True):
            np.testing.assert_allclose(found[number], other, rtol=1e-9, atol=1e-11)
    for leaf, number in translation.mutated.items():
        np.testing.assert_allclose(found[number], flatten(copies)[0][leaf], rtol=1e-9, atol=1e-11)


SMOOTH = [case for case in PROGRAMS if case[0] not in (rings, contour, transform)]


@pytest.mark.parametrize(("program", "arguments"), SMOOTH, ids=lambda one: getattr(one, "__name__", ""))
def test_the_gradient_of_an_array_program(program, arguments):
    types = tuple(aval(x.shape, x.dtype) if isinstance(x, np.ndarray) else x for x in arguments)
    procedure = translate(program, types).procedure
    leaves = [x for x in arguments if isinstance(x, np.ndarray)]
    active = [x.dtype == float for x in leaves]
    seeds = [RNG.normal(size=type_.shape) for type_ in procedure.result_types]
    pullback = vjp_procedure(procedure, active, [True] * len(seeds))
    verify_procedure(pullback)
    cotangents = run_procedure(pullback, [*leaves, *seeds])[len(seeds) :]
    directions = [RNG.normal(size=x.shape) for x, flag in zip(leaves, active, strict=True) if flag]

    def moved(step):
        along = iter(directions)
        at = [x + step * next(along) if flag else x for x, flag in zip(leaves, active, strict=True)]
        return sum(np.sum(seed * y) for seed, y in zip(seeds, run_procedure(procedure, at), strict=True))

    slope = (moved(1e-6) - moved(-1e-6)) / 2e-6
    expected = sum(np.sum(ct * d) for ct, d in zip(cotangents, directions, strict=True))
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-6)


def test_random_numbers_are_refused_with_a_remedy():
    def noisy(x):
        for i in range(x.size):
            x[i] += np.random.normal()
        return x

    with pytest.raises(Exception, match="draws random numbers") as caught:
        translate(noisy, (aval((3,), np.dtype(float)),))
    assert "pass them as an argument" in str(caught.value)
