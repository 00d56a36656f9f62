"""Values and gradients of the loops derived by hand, in NumPy and Python's own numbers."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

Result = tuple[Any, tuple[np.ndarray, ...]]
H = 0.01


def pendulum(*arguments: np.ndarray, steps: int) -> Result:
    angle, speed, damping, gravity, drive = map(float, arguments)
    half = 0.5 * H
    states = []
    for _ in range(steps):
        sin1 = math.sin(angle)
        s1 = drive - damping * speed - gravity * sin1
        angle2, speed2 = angle + half * speed, speed + half * s1
        sin2 = math.sin(angle2)
        s2 = drive - damping * speed2 - gravity * sin2
        angle3, speed3 = angle + half * speed2, speed + half * s2
        sin3 = math.sin(angle3)
        s3 = drive - damping * speed3 - gravity * sin3
        angle4, speed4 = angle + H * speed3, speed + H * s3
        sin4 = math.sin(angle4)
        s4 = drive - damping * speed4 - gravity * sin4
        states.append((angle, speed, sin1, angle2, speed2, sin2, angle3, speed3, sin3, angle4, speed4, sin4))
        angle += H / 6 * (speed + 2 * speed2 + 2 * speed3 + speed4)
        speed += H / 6 * (s1 + 2 * s2 + 2 * s3 + s4)
    by_angle, by_speed = 2.0 * angle, 0.2 * speed
    by_damping = by_gravity = by_drive = 0.0
    for a1, v1, sin1, a2, v2, sin2, a3, v3, sin3, a4, v4, sin4 in reversed(states):
        by_s4, by_v4 = H / 6 * by_speed, H / 6 * by_angle
        by_a4 = -gravity * math.cos(a4) * by_s4
        by_v4 -= damping * by_s4
        by_s3, by_v3 = H / 3 * by_speed + H * by_v4, H / 3 * by_angle + H * by_a4
        by_a3 = -gravity * math.cos(a3) * by_s3
        by_v3 -= damping * by_s3
        by_s2, by_v2 = H / 3 * by_speed + half * by_v3, H / 3 * by_angle + half * by_a3
        by_a2 = -gravity * math.cos(a2) * by_s2
        by_v2 -= damping * by_s2
        by_s1, by_v1 = H / 6 * by_speed + half * by_v2, H / 6 * by_angle + half * by_a2
        by_damping -= by_s1 * v1 + by_s2 * v2 + by_s3 * v3 + by_s4 * v4
        by_gravity -= by_s1 * sin1 + by_s2 * sin2 + by_s3 * sin3 + by_s4 * sin4
        by_drive += by_s1 + by_s2 + by_s3 + by_s4
        by_angle += by_a2 + by_a3 + by_a4 - gravity * math.cos(a1) * by_s1
        by_speed += by_v1 + by_v2 + by_v3 + by_v4 - damping * by_s1
    gradients = by_angle, by_speed, by_damping, by_gravity, by_drive
    return angle**2 + 0.1 * speed**2, tuple(map(np.array, gradients))


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1.0 / (1.0 + np.exp(-x))


def lstm(main: np.ndarray, extra: np.ndarray, state: np.ndarray, sequence: np.ndarray) -> Result:
    """Layer by layer over all times: only what depends on h goes step by step."""
    n, b = len(sequence) - 1, sequence.shape[1]
    weights = main.reshape(-1, 2, 4, b)
    xs = sequence[:-1] * extra[0]
    layers = []
    for layer, (weight, bias) in enumerate(weights):
        h, c = state[2 * layer], state[2 * layer + 1]
        forget, leave = (sigmoid(xs * weight[gate] + bias[gate]) for gate in (0, 2))
        hs, cs, enters, changes, squashed = (np.empty((n, b)) for _ in range(5))
        for t in range(n):
            hs[t], cs[t] = h, c
            enters[t] = enter = 1.0 / (1.0 + np.exp(-(h * weight[1] + bias[1])))
            changes[t] = change = np.tanh(h * weight[3] + bias[3])
            c = c * forget[t] + enter * change
            squashed[t] = squash = np.tanh(c)
            h = leave[t] * squash
        layers.append((xs, hs, cs, forget, enters, leave, changes, squashed))
        xs = leave * squashed
    guess = xs * extra[1] + extra[2]
    raised = np.exp(guess)
    total = 2.0 + np.sum(raised, axis=1)
    wanted = sequence[1:]
    counts = np.sum(wanted, axis=1)
    scale = -1.0 / (n * b)
    value = scale * (np.vdot(wanted, guess) - np.dot(counts, np.log(total)))
    by_guess = scale * (wanted - (counts / total)[:, None] * raised)
    by_extra = np.array([np.zeros(b), np.sum(by_guess * xs, axis=0), np.sum(by_guess, axis=0)])
    by_xs = by_guess * extra[1]
    by_weights = np.empty_like(weights)
    for layer in reversed(range(len(weights))):
        xs, hs, cs, forget, enters, leave, changes, squashed = layers[layer]
        weight = weights[layer, 0]
        to_c = leave * (1.0 - squashed**2)
        to_enter = changes * enters * (1.0 - enters)
        to_change = enters * (1.0 - changes**2)
        back = to_enter * weight[1] + to_change * weight[3]
        by_hs, by_cs = np.empty((n, b)), np.empty((n, b))
        by_h = by_c = np.zeros(b)
        for t in reversed(range(n)):
            by_hs[t] = by_h = by_h + by_xs[t]
            by_cs[t] = by_c = by_c + by_h * to_c[t]
            by_h = by_c * back[t]
            by_c = by_c * forget[t]
        by_gates = (
            by_cs * cs * forget * (1.0 - forget),
            by_cs * to_enter,
            by_hs * squashed * leave * (1.0 - leave),
            by_cs * to_change,
        )
        for gate, (by_gate, seen) in enumerate(zip(by_gates, (xs, hs, xs, hs), strict=True)):
            by_weights[layer, 0, gate] = np.sum(by_gate * seen, axis=0)
            by_weights[layer, 1, gate] = np.sum(by_gate, axis=0)
        by_xs = by_gates[0] * weight[0] + by_gates[2] * weight[2]
    by_extra[0] = np.sum(by_xs * sequence[:-1], axis=0)
    return value, (by_weights.reshape(main.shape), by_extra)


def hmm(start: np.ndarray, transition: np.ndarray, emission: np.ndarray, symbols: np.ndarray) -> Result:
    seen = emission.T[symbols]
    n, k = seen.shape
    shares = np.empty((n - 1, k, k))
    forward = start + seen[0]
    for t in range(n - 1):
        joint = forward[:, None] + transition
        top = np.max(joint, axis=0)
        joint -= top
        share = np.exp(joint, out=shares[t])
        total = np.sum(share, axis=0)
        share /= total
        forward = top + np.log(total) + seen[t + 1]
    top = np.max(forward)
    share = np.exp(forward - top)
    total = np.sum(share)
    by_seen = np.empty((n, k))
    by_seen[-1] = by = share / total
    for t in reversed(range(n - 1)):
        by_seen[t] = shares[t] @ by
        shares[t] *= by
        by = by_seen[t]
    by_emission = np.zeros((emission.shape[1], k))
    np.add.at(by_emission, symbols, by_seen)
    return top + np.log(total), (by_seen[0], np.sum(shares, axis=0), by_emission.T)


def newton(a: np.ndarray, *, tolerance: float) -> Result:
    x = 0.5 * (1.0 + a)
    move = x - 1.0
    seen = []
    while np.max(np.abs(move)) > tolerance:
        ratio = a / x
        seen.append((x, ratio))
        move = 0.5 * (ratio - x)
        x = x + move
    by_a, by_x = np.zeros_like(a), np.ones_like(a)
    for before, ratio in reversed(seen):
        by_ratio = 0.5 * by_x
        by_a += by_ratio / before
        by_x = by_ratio * (1.0 - ratio / before)
    return np.sum(x), (by_a + 0.5 * by_x,)
