"""Sparse Jacobians and Hessians: gradtape, assembly by hand, dense derivatives, and CasADi.

    python benchmarks/sparsity.py [--quick] [--bundles ba1,ba3] [--tools gradtape,hand,dense,casadi] [--out SPARSE.md]

Bundle adjustment has the sizes of ADBench and GradBench, with numbers of its own: like theirs, observation i sees camera i modulo
n and point i modulo m. By hand means that the pattern is known and written down: per-observation blocks from
``gt.vmap(gt.jacfwd(...))`` for bundle adjustment, formulas with `scipy.sparse` otherwise. CasADi evaluates expression graphs (SX)
in its virtual machine. Times are processor times of one core: medians in ms of calls in turns; the first call includes tracing, the
pattern, the colouring and compiling, with an empty cache. SPARSE.md has the figures.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
os.environ["GRADTAPE_CACHE_DIR"] = tempfile.mkdtemp()

import numpy as np
import scipy.sparse as sp

import gradtape as gt

TOOLS = ("gradtape", "hand", "dense", "casadi")
SAMPLE_SECONDS = 1.0
MOST_DENSE = 4000
"""Columns above which a dense matrix is not tried."""

BUNDLES = {
    "ba1": (49, 7776, 31843),
    "ba2": (21, 11315, 36455),
    "ba3": (161, 48126, 182072),
    "ba4": (372, 47423, 204472),
    "ba5": (257, 65132, 225911),
    "ba6": (539, 65220, 277273),
    "ba7": (93, 61203, 287451),
    "ba8": (88, 64298, 383937),
    "ba9": (810, 88814, 393775),
    "ba10": (1197, 126327, 563734),
    "ba11": (1723, 156502, 678718),
    "ba12": (253, 163691, 899155),
    "ba13": (245, 198739, 1091386),
    "ba14": (356, 226730, 1255268),
    "ba15": (1102, 780462, 4052340),
    "ba16": (1544, 942409, 4750193),
    "ba17": (1778, 993923, 5001946),
    "ba18": (1936, 649673, 5213733),
    "ba19": (4585, 1324582, 9125125),
    "ba20": (13682, 4456117, 2987644),
}
"""The sizes of GradBench: cameras, points, observations."""

MOST_OBSERVATIONS = 2_000_000
"""Observations above which a size is measured only if it is asked for: its first call takes 20 GB and more."""

Evaluate = Callable[[], Any]


class Work(NamedTuple):
    """A matrix of derivatives, and the ways in which it is computed; each is made when it is needed."""

    name: str
    makers: dict[str, Callable[[], Evaluate]]


def rotated(x: Any, r: Any) -> Any:
    """Rotate points (..., 3) by the vectors r (Rodrigues)."""
    square = np.sum(r * r, axis=-1, keepdims=True)
    angle = np.sqrt(square)
    axis = r / angle
    cosine, sine = np.cos(angle), np.sin(angle)
    along = np.sum(axis * x, axis=-1, keepdims=True)
    return x * cosine + np.cross(axis, x) * sine + axis * along * (1 - cosine)


def projection(cameras: Any, points: Any) -> Any:
    """Project points by cameras (..., 11): rotation, centre, focal length, principal point, two radial distortions."""
    local = rotated(points - cameras[..., 3:6], cameras[..., 0:3])
    flat = local[..., 0:2] / local[..., 2:3]
    square = np.sum(flat * flat, axis=-1, keepdims=True)
    factor = 1 + cameras[..., 9:10] * square + cameras[..., 10:11] * square * square
    return flat * factor * cameras[..., 6:7] + cameras[..., 7:9]


def bundle(name: str) -> Work:
    n, m, p = BUNDLES[name]
    rng = np.random.default_rng(0)
    cameras = np.concatenate([rng.normal(0, 0.1, (n, 6)), [[500.0, 0, 0, 0.01, 0.001]] * n], axis=1)
    points = rng.normal(0, 1, (m, 3)) + [0, 0, 10.0]
    weights, features = rng.random(p), rng.normal(0, 10, (p, 2))
    seen = np.stack([np.arange(p) % n, np.arange(p) % m], axis=1)

    def residuals(variables: Any) -> Any:
        cameras, points, weights = variables
        errors = projection(cameras[seen[:, 0]], points[seen[:, 1]]) - features
        return weights[:, None] * errors, 1 - weights * weights

    def gradtape() -> Evaluate:
        jac = gt.sparse_jacobian(residuals)
        return lambda: jac((cameras, points, weights))

    def hand() -> Evaluate:
        one = gt.jit(
            gt.vmap(gt.jacfwd(lambda c, x, w, f: w * (projection(c, x) - f), argnums=(0, 1, 2)), in_axes=0)
        )
        columns = np.concatenate(
            [
                seen[:, :1] * 11 + np.arange(11),
                11 * n + seen[:, 1:] * 3 + np.arange(3),
                (11 * n + 3 * m + np.arange(p))[:, None],
            ],
            axis=1,
        )
        indices = np.concatenate([np.repeat(columns, 2, axis=0).reshape(-1), 11 * n + 3 * m + np.arange(p)])
        indptr = np.concatenate([np.arange(2 * p) * 15, 30 * p + np.arange(p + 1)])

        def assemble() -> Any:
            a, b, c = one(cameras[seen[:, 0]], points[seen[:, 1]], weights, features)
            data = np.concatenate([np.concatenate([a, b, c[:, :, None]], axis=2).reshape(-1), -2 * weights])
            return sp.csr_array((data, indices, indptr), shape=(3 * p, 11 * n + 3 * m + p))

        return assemble

    def casadi() -> Evaluate:
        import casadi as ca

        c, x, w, f = (ca.SX.sym(name, k) for name, k in (("c", 11), ("x", 3), ("w", 1), ("f", 2)))
        r, t = c[0:3], x - c[3:6]
        angle = ca.norm_2(r)
        axis = r / angle
        local = (
            t * ca.cos(angle)
            + ca.cross(axis, t) * ca.sin(angle)
            + axis * ca.dot(axis, t) * (1 - ca.cos(angle))
        )
        flat = local[0:2] / local[2]
        square = ca.dot(flat, flat)
        error = w * (flat * (1 + c[9] * square + c[10] * square**2) * c[6] + c[7:9] - f)
        block = ca.Function("block", [c, x, w, f], [ca.jacobian(error, ca.vertcat(c, x, w))]).map(p)

        def evaluate() -> Any:  # the blocks alone: the same model by hand, with CasADi's derivatives
            return block(cameras[seen[:, 0]].T, points[seen[:, 1]].T, weights, features.T)

        return evaluate

    return Work(
        f"bundle adjustment {name}: {p} observations", {"gradtape": gradtape, "hand": hand, "casadi": casadi}
    )


def brusselator(size: int) -> Work:
    rng = np.random.default_rng(0)
    state = rng.random((2, size, size)) + 0.5
    alpha = 10.0 * size**2 / 1000

    def rate(state: Any) -> Any:
        u, v = state[0], state[1]

        def diffusion(w: Any) -> Any:
            return np.roll(w, 1, 0) + np.roll(w, -1, 0) + np.roll(w, 1, 1) + np.roll(w, -1, 1) - 4 * w

        square = u * u * v
        return np.stack(
            [1 + square - 4.4 * u + alpha * diffusion(u), 3.4 * u - square + alpha * diffusion(v)]
        )

    def gradtape() -> Evaluate:
        jac = gt.sparse_jacobian(rate)
        return lambda: jac(state)

    def hand() -> Evaluate:
        ring = sp.diags_array([1.0, 1.0, 1.0, 1.0], offsets=[-1, 1, size - 1, 1 - size], shape=(size, size))
        eye = sp.eye_array(size)
        diffusion = (alpha * (sp.kron(ring, eye) + sp.kron(eye, ring) - 4 * sp.kron(eye, eye))).tocsr()

        def assemble() -> Any:
            u, v = state.reshape(2, -1)
            cross = 2 * u * v
            return sp.block_array(
                [
                    [diffusion + sp.diags_array(cross - 4.4), sp.diags_array(u * u)],
                    [sp.diags_array(3.4 - cross), diffusion - sp.diags_array(u * u)],
                ],
                format="csr",
            )

        return assemble

    def dense() -> Evaluate:
        jac = gt.jacobian(rate)
        return lambda: jac(state)

    def casadi() -> Evaluate:
        import casadi as ca

        x = ca.SX.sym("x", 2 * size * size)
        u, v = ca.reshape(x[: size * size], size, size), ca.reshape(x[size * size :], size, size)

        def diffusion(w: Any) -> Any:
            turned = [ca.vertcat(w[-1, :], w[:-1, :]), ca.vertcat(w[1:, :], w[0, :])]
            turned += [ca.horzcat(w[:, -1], w[:, :-1]), ca.horzcat(w[:, 1:], w[:, 0])]
            return sum(turned) - 4 * w

        square = u * u * v
        f = ca.vertcat(
            ca.vec(1 + square - 4.4 * u + alpha * diffusion(u)),
            ca.vec(3.4 * u - square + alpha * diffusion(v)),
        )
        jac = ca.Function("jacobian_of_f", [x], [ca.jacobian(f, x)])
        flat = np.ascontiguousarray(state.transpose(0, 2, 1)).reshape(-1)
        return lambda: jac(flat)

    makers = {"gradtape": gradtape, "hand": hand, "casadi": casadi}
    if 2 * size * size <= MOST_DENSE:
        makers["dense"] = dense
    return Work(f"Brusselator 2D, {size} x {size}: {2 * size * size} unknowns", makers)


def chain(x: Any) -> Any:
    return 100 * (x[1:] - x[:-1] ** 2) ** 2 + (1 - x[:-1]) ** 2


def banded(x: Any) -> Any:
    """BROYDN7D without its powers."""
    half = x.shape[0] // 2
    inner = (1 + (3 - 2 * x[1:-1]) * x[1:-1] - x[:-2] - 2 * x[2:]) ** 2
    return inner[:half] + (x[1 : half + 1] + x[half : 2 * half]) ** 2


def surface(x: Any) -> Any:
    """LMINSURF: the area of a surface over a grid."""
    side = round(x.shape[0] ** 0.5)
    z = x.reshape(side, side)
    a, b = z[1:, 1:] - z[:-1, :-1], z[1:, :-1] - z[:-1, 1:]
    return (1 + 0.5 * side**2 * (a * a + b * b)) ** 0.5 / side**2


def arrow(x: Any) -> Any:
    """ARWHEAD: every variable meets the last one."""
    return (x[:-1] ** 2 + x[-1] ** 2) ** 2 - 4 * x[:-1] + 3


OBJECTIVES = {"chained Rosenbrock": chain, "BROYDN7D": banded, "LMINSURF": surface, "ARWHEAD": arrow}


def hessian(name: str, n: int) -> Work:
    terms = OBJECTIVES[name]
    x = np.random.default_rng(0).random(n) + 0.5

    def cost(x: Any) -> Any:
        return np.sum(terms(x))

    def gradtape() -> Evaluate:
        hess = gt.sparse_hessian(cost)
        return lambda: hess(x)

    def hand() -> Evaluate:
        def assemble() -> Any:
            diagonal = np.zeros(n)
            diagonal[:-1] = 1200 * x[:-1] ** 2 - 400 * x[1:] + 2
            diagonal[1:] += 200
            off = -400 * x[:-1]
            return sp.diags_array([off, diagonal, off], offsets=[-1, 0, 1], format="csr")

        return assemble

    def dense() -> Evaluate:
        hess = gt.hessian(cost)
        return lambda: hess(x)

    def casadi() -> Evaluate:
        import casadi as ca

        v = ca.SX.sym("x", n)
        f = {
            "chained Rosenbrock": lambda: ca.sum1(100 * (v[1:] - v[:-1] ** 2) ** 2 + (1 - v[:-1]) ** 2),
            "ARWHEAD": lambda: ca.sum1((v[:-1] ** 2 + v[-1] ** 2) ** 2 - 4 * v[:-1] + 3),
        }[name]()
        hess = ca.Function("hessian_of_f", [v], [ca.hessian(f, v)[0]])
        return lambda: hess(x)

    makers = {"gradtape": gradtape}
    if terms is chain:
        makers["hand"] = hand
    if terms in (chain, arrow):
        makers["casadi"] = casadi
    if n <= MOST_DENSE:
        makers["dense"] = dense
    return Work(f"Hessian of {name}, n = {n}", makers)


def works(quick: bool, bundles: list[str]) -> Iterator[Work]:
    for name in bundles:
        yield bundle(name)
    for size in (32,) if quick else (32, 100, 300):
        yield brusselator(size)
    for name in OBJECTIVES:
        yield hessian(name, 900 if quick else 316**2)


def measured(makers: list[Callable[[], Evaluate]]) -> list[tuple[float, float, Any]]:
    """Return for each tool the seconds of the first call, the median of later ones, which are made in turns, and the result."""
    firsts, evaluates, results = [], [], []
    for make in makers:
        begin = time.process_time()
        evaluates.append(make())
        results.append(evaluates[-1]())
        firsts.append(time.process_time() - begin)
    times: list[list[float]] = [[] for _ in makers]
    while len(times[0]) < 3 or (sum(map(sum, times)) < SAMPLE_SECONDS and len(times[0]) < 200):
        for evaluate, taken in zip(evaluates, times, strict=True):
            begin = time.process_time()
            evaluate()
            taken.append(time.process_time() - begin)
    return list(zip(firsts, map(statistics.median, times), results, strict=True))


def agrees(result: Any, reference: Any) -> bool:
    if not sp.issparse(result) or not sp.issparse(reference):
        return True
    difference = abs(result - reference)
    return bool(difference.max() <= 1e-9 * max(abs(reference).max(), 1))


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="the smallest sizes only")
    usual = [name for name, (_, _, observations) in BUNDLES.items() if observations <= MOST_OBSERVATIONS]
    parser.add_argument("--bundles", default=",".join(usual), help="sizes of bundle adjustment")
    parser.add_argument("--tools", default=",".join(TOOLS))
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    tools = [tool for tool in given.tools.split(",") if tool in TOOLS]
    if importlib.util.find_spec("casadi") is None and "casadi" in tools:
        tools.remove("casadi")
    gt.config.progress = False
    lines = [
        "| matrix | elements | " + " | ".join(f"{tool}, ms (first call, s)" for tool in tools) + " |",
        "|---|---:|" + "---:|" * len(tools),
    ]
    print("\n".join(lines), flush=True)
    bundles = ["ba1"] if given.quick else given.bundles.split(",")
    for work in works(given.quick, bundles):
        chosen = [tool for tool in tools if tool in work.makers]
        found = dict(zip(chosen, measured([work.makers[tool] for tool in chosen]), strict=True))
        reference, cells = found[chosen[0]][2], []
        for tool in tools:
            if tool not in found:
                cells.append("")
                continue
            first, usual, result = found[tool]
            wrong = "" if agrees(result, reference) else " WRONG"
            cells.append(f"{1e3 * usual:.3g} ({first:.2g}){wrong}")
        plan = getattr(reference, "nnz", "")
        lines.append(f"| {work.name} | {plan} | {' | '.join(cells)} |")
        print(lines[-1], flush=True)
    if given.out:
        given.out.write_text("\n".join(lines) + "\n")


if __name__ == "__main__":
    main()
