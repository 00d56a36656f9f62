"""Values and gradients derived by hand, in NumPy: all results are compared with them."""

from __future__ import annotations

import math
from collections.abc import Callable
from functools import partial
from typing import Any

import byhand_loops
import numpy as np
from works import Work

Result = tuple[Any, tuple[np.ndarray, ...]]


def derivatives(work: Work) -> Callable[..., Any]:
    """Of the work's arguments: value and gradients, or the Jacobian or Hessian alone."""
    return partial(BY_HAND[work.name], **work.settings)


def rosen(x: np.ndarray) -> Result:
    miss = x[1:] - x[:-1] ** 2
    rest = 1.0 - x[:-1]
    gradient = np.zeros_like(x)
    gradient[1:] = 200.0 * miss
    gradient[:-1] -= 400.0 * miss * x[:-1] + 2.0 * rest
    return 100.0 * np.dot(miss, miss) + np.dot(rest, rest), (gradient,)


def lse(x: np.ndarray) -> Result:
    top = np.max(x)
    share = np.exp(x - top)
    total = np.sum(share)
    share /= total
    return top + np.log(total), (share,)


def bs(spot: np.ndarray, strike: np.ndarray, time: np.ndarray, rate: np.ndarray, vol: np.ndarray) -> Result:
    from scipy.special import ndtr

    root = np.sqrt(time)
    width = vol * root
    d1 = (np.log(spot / strike) + (rate + 0.5 * vol**2) * time) / width
    hit = ndtr(d1)
    paid = np.exp(-rate * time) * ndtr(d1 - width)
    owed = strike * paid
    density = spot * np.exp(-0.5 * d1**2) / math.sqrt(2.0 * math.pi)
    by_time = 0.5 * density * vol / root + rate * owed
    return np.sum(spot * hit - owed), (hit, -paid, by_time, time * owed, density * root)


def gmm(
    alpha: np.ndarray,
    mu: np.ndarray,
    q: np.ndarray,
    lower: np.ndarray,
    x: np.ndarray,
    *,
    places: np.ndarray,
    gamma: float,
    m: int,
) -> Result:
    from scipy.special import multigammaln

    n, d = x.shape
    k = len(alpha)
    diagonal = np.exp(q)
    packed = np.concatenate([diagonal, lower], axis=1)
    factors = np.concatenate([packed, np.zeros((k, 1))], axis=1)[:, places]
    offsets = x.T - mu[:, :, None]
    scaled = factors @ offsets
    terms = (alpha + np.sum(q, axis=1))[:, None] - 0.5 * np.sum(scaled**2, axis=1)
    top = np.max(terms, axis=0)
    share = np.exp(terms - top)
    total = np.sum(share, axis=0)
    share /= total
    alpha_share = np.exp(alpha - np.max(alpha))
    log_sum_alpha = np.max(alpha) + np.log(np.sum(alpha_share))
    v = d + m + 1
    value = (
        np.sum(top + np.log(total))
        - n * (log_sum_alpha + 0.5 * d * math.log(2.0 * math.pi))
        - 0.5 * gamma**2 * np.sum(packed**2)
        + m * np.sum(q)
        + k * (v * d * math.log(gamma / math.sqrt(2.0)) - multigammaln(0.5 * v, d))
    )
    weight = np.sum(share, axis=1)
    scaled *= share[:, None]
    by_alpha = weight - n * alpha_share / np.sum(alpha_share)
    by_mu = (np.sum(scaled, axis=2)[:, None] @ factors)[:, 0]
    by_factors = -scaled @ offsets.transpose(0, 2, 1)
    by_packed = np.empty_like(packed)
    rows, columns = np.tril_indices(d)
    by_packed[:, places[rows, columns]] = by_factors[:, rows, columns]
    by_packed -= gamma**2 * packed
    by_q = by_packed[:, :d] * diagonal + weight[:, None] + m
    return value, (by_alpha, by_mu, by_q, by_packed[:, d:])


def ba(cameras: np.ndarray, points: np.ndarray, weights: np.ndarray, features: np.ndarray) -> Result:
    rotation, focal = cameras[:, :3], cameras[:, 6:7]
    angle = np.sqrt(np.sum(rotation**2, axis=1, keepdims=True))
    axis, cosine, sine = rotation / angle, np.cos(angle), np.sin(angle)
    offset = points - cameras[:, 3:6]
    cross = np.cross(axis, offset)
    along = np.sum(axis * offset, axis=1, keepdims=True)
    turned = offset * cosine + cross * sine + axis * (along * (1.0 - cosine))
    flat = turned[:, :2] / turned[:, 2:]
    squared = np.sum(flat**2, axis=1, keepdims=True)
    scale = 1.0 + cameras[:, 9:10] * squared + cameras[:, 10:] * squared**2
    missed = focal * (scale * flat) + cameras[:, 7:9] - features
    errors = np.sum(missed**2, axis=1)

    to_missed = 2.0 * weights[:, None] ** 2 * missed
    to_focal = np.sum(to_missed * scale * flat, axis=1, keepdims=True)
    to_scale = np.sum(to_missed * focal * flat, axis=1, keepdims=True)
    to_squared = to_scale * (cameras[:, 9:10] + 2.0 * cameras[:, 10:] * squared)
    to_flat = to_missed * focal * scale + 2.0 * flat * to_squared
    to_depth = -np.sum(to_flat * flat, axis=1, keepdims=True)
    to_turned = np.concatenate([to_flat, to_depth], axis=1) / turned[:, 2:]
    to_along = np.sum(to_turned * axis, axis=1, keepdims=True) * (1.0 - cosine)
    to_cosine = np.sum(to_turned * (offset - axis * along), axis=1, keepdims=True)
    to_sine = np.sum(to_turned * cross, axis=1, keepdims=True)
    to_axis = sine * np.cross(offset, to_turned) + to_turned * along * (1.0 - cosine) + to_along * offset
    to_points = cosine * to_turned + sine * np.cross(to_turned, axis) + to_along * axis
    to_angle = cosine * to_sine - sine * to_cosine - np.sum(to_axis * axis, axis=1, keepdims=True) / angle
    to_rotation = to_axis / angle + to_angle * axis
    to_cameras = np.concatenate(
        [to_rotation, -to_points, to_focal, to_missed, to_scale * squared, to_scale * squared**2], axis=1
    )
    return np.sum(weights**2 * errors), (to_cameras, to_points, 2.0 * weights * errors)


def mlp(
    w1: np.ndarray, b1: np.ndarray, w2: np.ndarray, b2: np.ndarray, x: np.ndarray, labels: np.ndarray
) -> Result:
    hidden = x @ w1
    hidden += b1
    np.tanh(hidden, out=hidden)
    scores = hidden @ w2 + b2
    share = np.exp(scores)
    total = np.sum(share, axis=1)
    value = (np.sum(np.log(total)) - np.vdot(scores, labels)) / len(x)
    share /= total[:, None]
    share -= labels
    share /= len(x)
    by_hidden = share @ w2.T
    by_w2 = hidden.T @ share
    np.multiply(hidden, hidden, out=hidden)
    np.subtract(1.0, hidden, out=hidden)
    by_hidden *= hidden
    return value, (x.T @ by_hidden, np.sum(by_hidden, axis=0), by_w2, np.sum(share, axis=0))


def jacmlp(x: np.ndarray, w1: np.ndarray, b1: np.ndarray, w2: np.ndarray, b2: np.ndarray) -> np.ndarray:
    slope = 1.0 - np.tanh(x @ w1 + b1) ** 2
    return (slope[:, None] * w2).T @ w1.T


def hesslr(w: np.ndarray, rows: np.ndarray, signs: np.ndarray) -> np.ndarray:
    """sigmoid(z) sigmoid(-z) = 1 / (2 + exp(z) + exp(-z)). NumPy knows X'X as symmetric and does half of it."""
    raised = np.exp(rows @ w)
    scaled = rows / np.sqrt(2.0 + raised + 1.0 / raised)[:, None]
    return scaled.T @ scaled


BY_HAND: dict[str, Callable[..., Any]] = {
    "rosen": rosen,
    "bs": bs,
    "lse": lse,
    "gmm": gmm,
    "ba": ba,
    "mlp": mlp,
    "jacmlp": jacmlp,
    "hesslr": hesslr,
    "pendulum": byhand_loops.pendulum,
    "lstm": byhand_loops.lstm,
    "hmm": byhand_loops.hmm,
    "newton": byhand_loops.newton,
}
