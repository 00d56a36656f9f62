"""Linear algebra by loops: factorisations, solvers, eigenvalues."""

from __future__ import annotations

import math

import numpy as np

from tests.programs.loops.cases import Array, definite, dominant, program


@program(lambda n, random: (definite(n, random),), small=5, large=200)
def cholesky(a: Array) -> Array:
    """The log-determinant by the factor's diagonal, and a weight on the last row."""
    n = a.shape[0]
    factor = np.zeros((n, n))
    for i in range(n):
        for j in range(i + 1):
            s = a[i, j]
            for k in range(j):
                s -= factor[i, k] * factor[j, k]
            if i == j:
                factor[i, j] = math.sqrt(s)
            else:
                factor[i, j] = s / factor[j, j]
    total = 0.0
    for i in range(n):
        total += 2.0 * math.log(factor[i, i]) + 0.1 * factor[n - 1, i]
    return total


@program(lambda n, random: (dominant(n, random), random.standard_normal(n)), (0, 1), small=5, large=150)
def lu(a: Array, b: Array) -> Array:
    """Doolittle in place without pivots, then two triangular solves; an array is returned."""
    n = len(b)
    m = a.copy()
    for k in range(n):
        for i in range(k + 1, n):
            m[i, k] /= m[k, k]
            for j in range(k + 1, n):
                m[i, j] -= m[i, k] * m[k, j]
    x = b.copy()
    for i in range(n):
        for j in range(i):
            x[i] -= m[i, j] * x[j]
    for i in range(n - 1, -1, -1):
        for j in range(i + 1, n):
            x[i] -= m[i, j] * x[j]
        x[i] /= m[i, i]
    return x


@program(
    lambda n, random: (random.standard_normal((n, n)), random.standard_normal(n)), (0, 1), small=5, large=150
)
def lu_pivoting(a: Array, b: Array) -> Array:
    """Gauss elimination with partial pivots: rows change places where the data say so."""
    n = a.shape[0]
    m = a.copy()
    x = b.copy()
    sign = 1.0
    for k in range(n):
        pivot = k
        for i in range(k + 1, n):
            if abs(m[i, k]) > abs(m[pivot, k]):
                pivot = i
        if pivot != k:
            sign = -sign
            for j in range(n):
                m[k, j], m[pivot, j] = m[pivot, j], m[k, j]
            x[k], x[pivot] = x[pivot], x[k]
        for i in range(k + 1, n):
            ratio = m[i, k] / m[k, k]
            for j in range(k, n):
                m[i, j] -= ratio * m[k, j]
            x[i] -= ratio * x[k]
    determinant = sign
    for i in range(n - 1, -1, -1):
        determinant *= m[i, i]
        for j in range(i + 1, n):
            x[i] -= m[i, j] * x[j]
        x[i] /= m[i, i]
    total = math.log(abs(determinant))
    for i in range(n):
        total += x[i] ** 2
    return total


@program(
    lambda n, random: (
        random.uniform(-1.0, 1.0, n),
        random.uniform(3.0, 4.0, n),
        random.uniform(-1.0, 1.0, n),
        random.standard_normal(n),
    ),
    (0, 1, 2, 3),
    small=6,
    large=100_000,
)
def thomas(lower: Array, diagonal: Array, upper: Array, right: Array) -> Array:
    """The tridiagonal solver."""
    n = len(diagonal)
    c = np.zeros(n)
    d = np.zeros(n)
    c[0] = upper[0] / diagonal[0]
    d[0] = right[0] / diagonal[0]
    for i in range(1, n):
        m = diagonal[i] - lower[i] * c[i - 1]
        c[i] = upper[i] / m
        d[i] = (right[i] - lower[i] * d[i - 1]) / m
    x = np.zeros(n)
    x[n - 1] = d[n - 1]
    for i in range(n - 2, -1, -1):
        x[i] = d[i] - c[i] * x[i + 1]
    total = 0.0
    for i in range(n):
        total += x[i] * x[i]
    return total


@program(lambda n, random: (dominant(n, random), random.standard_normal(n), 8), (0, 1), small=5, large=200)
def gauss_seidel(a: Array, b: Array, sweeps: int) -> Array:
    n = b.shape[0]
    x = np.zeros(n)
    for _ in range(sweeps):
        for i in range(n):
            rest = b[i]
            for j in range(n):
                if j != i:
                    rest -= a[i, j] * x[j]
            x[i] = rest / a[i, i]
    return np.sum(x**2)


@program(lambda n, random: (definite(n, random), random.standard_normal(n)), (0, 1), small=5, large=150)
def conjugate_gradients(a: Array, b: Array) -> Array:
    """Products by rows, and a test of the residual that ends the loop."""
    n = len(b)
    x = np.zeros(n)
    r = b.copy()
    p = b.copy()
    rho = np.dot(r, r)
    for _ in range(n):
        if rho < 1e-24:
            break
        q = np.zeros(n)
        for i in range(n):
            for j in range(n):
                q[i] += a[i, j] * p[j]
        alpha = rho / np.dot(p, q)
        for i in range(n):
            x[i] += alpha * p[i]
            r[i] -= alpha * q[i]
        new = np.dot(r, r)
        p = r + (new / rho) * p
        rho = new
    return np.dot(b, x)


@program(lambda n, random: (random.standard_normal((n + 1, n)),), small=4, large=100)
def gram_schmidt(a: Array) -> Array:
    """Modified Gram-Schmidt by columns, which are views."""
    m, n = a.shape
    q = a.copy()
    r = np.zeros((n, n))
    for j in range(n):
        v = q[:, j]
        for i in range(j):
            r[i, j] = np.dot(q[:, i], v)
            for k in range(m):
                v[k] -= r[i, j] * q[k, i]
        r[j, j] = np.sqrt(np.sum(v * v))
        for k in range(m):
            v[k] /= r[j, j]
    total = 0.0
    for i in range(n):
        for j in range(i, n):
            total += (i + 2 * j + 1) * r[i, j]
    return total + q[0, n - 1]


@program(lambda n, random: (random.standard_normal((n + 1, n)),), small=4, large=100)
def householder(a: Array) -> Array:
    m, n = a.shape
    r = a.copy()
    v = np.empty(m)
    for k in range(n):
        norm = 0.0
        for i in range(k, m):
            norm += r[i, k] ** 2
        norm = math.sqrt(norm)
        alpha = -norm if r[k, k] > 0.0 else norm
        square = 0.0
        for i in range(k, m):
            v[i] = r[i, k]
            if i == k:
                v[i] -= alpha
            square += v[i] * v[i]
        for j in range(k, n):
            s = 0.0
            for i in range(k, m):
                s += v[i] * r[i, j]
            s *= 2.0 / square
            for i in range(k, m):
                r[i, j] -= s * v[i]
    total = 0.0
    for i in range(n):
        for j in range(i, n):
            total += math.cos(i + j) * abs(r[i, j])
    return total


@program(lambda n, random: (random.standard_normal((n, n)),), small=4, large=80)
def givens(a: Array) -> Array:
    """Rotations of two rows that are local names for views."""
    n = a.shape[0]
    r = a.copy()
    for j in range(n - 1):
        for i in range(n - 1, j, -1):
            upper, lower = r[i - 1], r[i]
            length = math.hypot(upper[j], lower[j])
            if length == 0.0:
                continue
            c, s = upper[j] / length, lower[j] / length
            for k in range(j, n):
                up, low = upper[k], lower[k]
                upper[k] = c * up + s * low
                lower[k] = c * low - s * up
    total = 0.0
    for i in range(n):
        for j in range(i, n):
            total += r[i, j] ** 3
    return total


@program(lambda n, random: (definite(n, random) + np.diag(np.arange(float(n))),), small=4, large=20)
def jacobi_eigenvalues(a: Array) -> Array:
    """Cyclic Jacobi rotations until what is off the diagonal is small."""
    n = a.shape[0]
    m = a.copy()
    for _sweep in range(20):
        off = 0.0
        for p in range(n):
            for q in range(p + 1, n):
                off += m[p, q] ** 2
        if off < 1e-18:
            break
        for p in range(n - 1):
            for q in range(p + 1, n):
                if abs(m[p, q]) < 1e-14:
                    continue
                theta = (m[q, q] - m[p, p]) / (2.0 * m[p, q])
                t = 1.0 / (abs(theta) + math.sqrt(theta * theta + 1.0))
                if theta < 0.0:
                    t = -t
                c = 1.0 / math.sqrt(t * t + 1.0)
                s = t * c
                for k in range(n):
                    left, right = m[k, p], m[k, q]
                    m[k, p] = c * left - s * right
                    m[k, q] = s * left + c * right
                for k in range(n):
                    left, right = m[p, k], m[q, k]
                    m[p, k] = c * left - s * right
                    m[q, k] = s * left + c * right
    largest = m[0, 0]
    for i in range(1, n):
        largest = max(largest, m[i, i])
    return math.log(largest)


@program(lambda n, random: (definite(n, random) + np.diag(np.arange(float(n))), 60), small=4, large=100)
def power_iteration(a: Array, steps: int) -> Array:
    n = a.shape[0]
    v = np.ones(n) / math.sqrt(n)
    value = 0.0
    for _ in range(steps):
        w = np.zeros(n)
        for i in range(n):
            for j in range(n):
                w[i] += a[i, j] * v[j]
        norm = math.sqrt((w**2).sum())
        for i in range(n):
            v[i] = w[i] / norm
        value = norm
    return value


@program(lambda n, random: (random.standard_normal((n, n)) / n,), small=4, large=60)
def matrix_exponential(a: Array) -> Array:
    """Scaling, Taylor's series until its terms are small, squaring."""
    n = a.shape[0]
    squarings = 3
    small = a / 2.0**squarings
    total = np.eye(n)
    term = np.eye(n)
    k = 0
    while True:
        k += 1
        new = np.zeros((n, n))
        size = 0.0
        for i in range(n):
            for j in range(n):
                s = 0.0
                for m in range(n):
                    s += term[i, m] * small[m, j]
                new[i, j] = s / k
                size = max(size, abs(new[i, j]))
        term = new
        total = total + term
        if size < 1e-13 or k >= 30:
            break
    for _ in range(squarings):
        total = np.dot(total, total)
    return total.sum() + total[0, n - 1]


def autocorrelation(n: int, random: np.random.Generator) -> tuple[Array, Array]:
    x = random.standard_normal(4 * n)
    r = np.array([np.dot(x[: 4 * n - k], x[k:]) / (4 * n) for k in range(n)])
    return r, random.standard_normal(n)


@program(autocorrelation, (0, 1), small=6, large=300)
def levinson_durbin(r: Array, y: Array) -> Array:
    """A symmetric Toeplitz system by a recursion that reads its vector from both ends."""
    n = len(r)
    x = np.zeros(n)
    a = np.zeros(n)
    old = np.zeros(n)
    a[0] = 1.0
    error = r[0]
    x[0] = y[0] / error
    for k in range(1, n):
        s = 0.0
        for j in range(k):
            s += a[j] * r[k - j]
        reflection = -s / error
        for j in range(k + 1):
            old[j] = a[j]
        for j in range(1, k + 1):
            a[j] = old[j] + reflection * old[k - j]
        error *= 1.0 - reflection**2
        s = y[k]
        for j in range(k):
            s -= r[k - j] * x[j]
        for j in range(k + 1):
            x[j] += s / error * a[k - j]
    total = 0.0
    for value in x:
        total += value * value
    return total
