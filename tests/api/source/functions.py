"""Functions of which the readable derivatives are tested: each with its arguments."""

from __future__ import annotations

from typing import Any, Final

import numpy as np
import scipy.special

import gradtape as gt

X = np.array([0.3, 1.7, -0.4, 0.9])
W = np.array([1.1, -0.7, 0.4, 2.0])
A = np.array([[2.0, 0.3, -0.1], [0.4, 1.5, 0.2], [0.1, -0.3, 1.2]])
B = np.array([0.5, -1.0, 2.0])
M = np.arange(12.0).reshape(3, 4) / 7 - 0.6
OUTSIDE = np.array([0.2, 0.4, 0.6, 0.8])


def drag_and_lift(x, w):
    speed = np.sin(x) * w
    drag = np.exp(-(speed**2))
    lift = np.where(x > 0.5, drag, speed)
    return np.sum(lift * speed)


def polynomial(x):
    return 3 * x**3 - 2 * x**2 + x - 7


def ratio(x, w):
    top = x * w + 1
    bottom = 1 + x**2
    return np.sum(top / bottom)


def damped(t):
    decay = np.exp(-t / 3)
    return decay * np.cos(2 * t)


def root(x):
    return np.sum(np.sqrt(x**2 + 1) - np.cbrt(x**2 + 0.5))


def logs(x):
    return np.sum(np.log(x**2 + 1) + np.log1p(x**2) + np.log2(2 + x) + np.log10(3 + x))


def hyperbolic(x):
    return np.sum(np.tanh(x) * np.sinh(x) - np.cosh(x))


def inverse_trigonometric(x):
    return np.sum(np.arctan(x) + np.arcsin(x / 4) * np.arccos(x / 5) + np.arctan2(x, 2.0))


def powers(x, w):
    return np.sum((x**2 + 1) ** w)


def absolute(x):
    return np.sum(np.abs(x) * x - np.abs(x - 0.5))


def extrema(x, w):
    return np.sum(np.maximum(x, w) * np.minimum(x, 0.5))


def clipped(x):
    return np.sum(np.clip(x, -0.1, 1.0) ** 2)


def piecewise(x):
    return np.sum(np.where(x > 0, x**2, np.where(x < -0.2, -x, 0.0)))


def mean_and_variance(x):
    mean = np.mean(x)
    spread = x - mean
    return mean + np.var(x) * np.std(spread)


def norms(m):
    return np.sum(np.linalg.norm(m, axis=1)) + np.linalg.norm(m)


def row_sums(m):
    rows = np.sum(m, axis=1)
    columns = np.sum(m, axis=0)
    return np.sum(rows**2) * np.sum(np.sin(columns))


def products(x):
    return np.prod(x + 2)


def largest(m):
    return np.max(m) + np.sum(np.min(m, axis=0))


def softmax(x, w):
    e = np.exp(x - np.max(x))
    p = e / np.sum(e)
    return -np.sum(w * np.log(p))


def logsumexp(m):
    return np.sum(scipy.special.logsumexp(m, axis=1))


def first_elements(x):
    return x[0] * x[1] + np.sum(x[1:] * x[:-1])


def reversed_steps(x):
    return np.sum(x[::-1] * x) + np.sum(x[::2] ** 2)


def picked(x):
    chosen = x[np.array([0, 2, 2, 1])]
    return np.sum(chosen**3)


def masked(x):
    return np.sum(x[x > 0] ** 2)


def written(x):
    y = np.zeros(5)
    y[1:] = x * 2
    y[0] = x[0] * x[1]
    return np.sum(y**2)


def joined(x, w):
    both = np.concatenate([x, w * x])
    return np.sum(both**2 * np.arange(8))


def stacked(x):
    table = np.stack([x, np.sin(x)])
    return np.sum(table[0] * table[1])


def differences(x):
    return np.sum(np.diff(x) ** 2)


def cumulative(x):
    return np.sum(np.cumsum(x) ** 2) + np.sum(np.cumprod(x))


def ordered(x, w):
    return np.sum(np.sort(x) * w)


def quadratic_form(b, a):
    return b @ a @ b


def matrix_products(m, a):
    return np.sum(np.tanh(a @ m) @ m.T)


def einsum(m, a):
    return np.sum(np.einsum("ij,ik->jk", m, a @ m) ** 2)


def outer(x, w):
    return np.sum(np.outer(x, w) ** 2)


def trace(a):
    return np.trace(a @ a) + np.sum(np.diag(a) ** 2)


def transposes(m):
    return np.sum((m.T @ m) * (m.T @ m).T)


def solved(a, b):
    y = np.linalg.solve(a, b)
    return np.sum(y**2)


def inverse(a):
    return np.sum(np.linalg.inv(a) ** 2)


def log_determinant(a):
    return np.linalg.slogdet(a)[1] + np.linalg.det(a)


def cholesky(a):
    return np.sum(np.log(np.diag(np.linalg.cholesky(a @ a.T + np.eye(3)))))


def eigenvalues(a):
    values, _ = np.linalg.eigh(a + a.T)
    return values[0] * values[2]


def singular_values(m):
    u, s, _ = np.linalg.svd(m, full_matrices=False)
    return np.sum(s**2 * u[0] ** 2) + np.sum(s)


def qr_factors(m):
    q, r = np.linalg.qr(m.T)
    return np.sum(q[0] ** 2) + np.sum(np.abs(r))


def pseudoinverse(m):
    return np.sum(np.linalg.pinv(m))


def least_squares(m):
    return np.sum(np.linalg.lstsq(m.T, X, rcond=None)[0]) if m.shape[0] < 99 and np.isfinite(m[0, 0]) else 0.0


def recurrent(x, a):
    h = x
    for _ in range(40):
        h = np.tanh(a @ h)
    return np.sum(h**2)


def scanned(x):
    def step(c, e):
        c = np.sin(c) * e
        return c, c**2

    last, squares = gt.scan(step, x, np.arange(1.0, 5.0))
    return np.sum(squares) * last


def growing(x):
    y = gt.while_loop(lambda s: s < 100.0, lambda s: s * x + 1, x)
    return y * 2


def counted(x):
    return gt.fori_loop(0, 6, lambda i, c: c * x + i, x)


def branched(x):
    return gt.cond(x > 1, lambda x: x**2, lambda x: np.sin(x), x) * 2


def taken_branch(x):
    if x > 1:
        return x**3
    return -x


def error_functions(x):
    return np.sum(scipy.special.erf(x) * scipy.special.erfc(x / 2) + scipy.special.expit(x))


def gamma_functions(x):
    return np.sum(scipy.special.gammaln(x**2 + 1) + scipy.special.gamma(x + 2))


def bessel_functions(x):
    return np.sum(scipy.special.j0(x) * scipy.special.jv(2.5, x**2 + 1))


def network(p, x):
    hidden = np.tanh(p["w"] @ x + p["b"])
    out = p["v"] @ hidden
    return (out - 1.0) ** 2


def pair(p):
    x, y = p
    return x**2 * y + np.sin(y)


def rosenbrock(x):
    return np.sum(100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2)


def outside(x):
    return np.sum((x - OUTSIDE) ** 2 / OUTSIDE)


def convolved(x):
    return np.sum(np.convolve(x, np.array([0.25, 0.5, 0.25])) ** 2)


def interpolated(x):
    return np.sum(np.interp(x, np.array([-1.0, 0.0, 1.0, 2.0]), OUTSIDE) ** 2)


def fourier(x):
    return np.sum(np.abs(np.fft.rfft(x)) ** 2)


def tiled(x):
    return np.sum(np.tile(x, 3) * np.arange(12.0)) + np.sum(np.repeat(x, 2) ** 2)


def broadcast(m, b):
    return np.sum((m - b[:, None]) ** 2 / (1 + m[0]))


def distances(m):
    gaps = m[:, None, :] - m[None, :, :]
    return np.sum(np.exp(-np.sum(gaps**2, axis=-1)))


CASES: Final[list[tuple[Any, tuple[Any, ...]]]] = [
    (drag_and_lift, (X, W)),
    (polynomial, (1.3,)),
    (ratio, (X, W)),
    (damped, (0.7,)),
    (root, (X,)),
    (logs, (X,)),
    (hyperbolic, (X,)),
    (inverse_trigonometric, (X,)),
    (powers, (X, W)),
    (absolute, (X,)),
    (extrema, (X, W)),
    (clipped, (X,)),
    (piecewise, (X,)),
    (mean_and_variance, (X,)),
    (norms, (M,)),
    (row_sums, (M,)),
    (products, (X,)),
    (largest, (M,)),
    (softmax, (X, W)),
    (logsumexp, (M,)),
    (first_elements, (X,)),
    (reversed_steps, (X,)),
    (picked, (X,)),
    (masked, (X,)),
    (written, (X,)),
    (joined, (X, W)),
    (stacked, (X,)),
    (differences, (X,)),
    (cumulative, (X,)),
    (ordered, (X, W)),
    (quadratic_form, (B, A)),
    (matrix_products, (M, A)),
    (einsum, (M, A)),
    (outer, (X, W)),
    (trace, (A,)),
    (transposes, (M,)),
    (solved, (A, B)),
    (inverse, (A,)),
    (log_determinant, (A,)),
    (cholesky, (A,)),
    (eigenvalues, (A,)),
    (singular_values, (M,)),
    (qr_factors, (M,)),
    (pseudoinverse, (M + np.eye(3, 4),)),
    (least_squares, (M + np.eye(3, 4),)),
    (recurrent, (B, A / 3)),
    (scanned, (0.3,)),
    (growing, (2.3,)),
    (counted, (0.7,)),
    (branched, (2.3,)),
    (branched, (0.3,)),
    (taken_branch, (2.0,)),
    (error_functions, (X,)),
    (gamma_functions, (X,)),
    (bessel_functions, (X,)),
    (network, ({"w": M[:2, :3], "b": B[:2], "v": B[1:]}, B)),
    (pair, ((1.2, 0.4),)),
    (rosenbrock, (X,)),
    (outside, (X,)),
    (convolved, (X,)),
    (interpolated, (X,)),
    (fourier, (X,)),
    (tiled, (X,)),
    (broadcast, (M, B)),
    (distances, (M,)),
]
