"""Train a character LSTM: the recurrence is a `gt.scan`, and its gradient drives a few hundred descent steps.

    python examples/lstm.py

Objective, data and expected results are those of the ADBench suite: see data/README.md.
"""

import argparse
import sys
import time
from pathlib import Path
from typing import NamedTuple

import numpy as np

import gradtape as gt

DATA = Path(__file__).resolve().parent / "data"
NAME = "lstm_l2_c1024"
TOLERANCE = 1e-10


class Weights(NamedTuple):
    """Of l layers on b characters."""

    main: np.ndarray  # (l, 2, 4b): factors and biases of the gates
    extra: np.ndarray  # (3, b): scale of the input, scale and bias of the output


def load(path: Path) -> tuple[Weights, np.ndarray, np.ndarray]:
    """Read weights, start state (l, 2, b) and text (c, b)."""
    words = path.read_text().split()
    layers, length, b = map(int, words[:3])
    ends = np.cumsum([8 * layers * b, 3 * b, 2 * layers * b])
    main, extra, state, text = np.split(np.array(words[3:], dtype=float), ends)
    weights = Weights(main.reshape(layers, 2, 4 * b), extra.reshape(3, b))
    return weights, state.reshape(layers, 2, b), text.reshape(length, b)


def predict(weights: Weights, state: np.ndarray, x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return the next state, and the log-odds of the next character."""
    x = x * weights.extra[0]
    states = []
    for (factor, bias), (h, c) in zip(weights.main, state, strict=True):
        forget, put, out, change = np.split(np.concatenate([x, h, x, h]) * factor + bias, 4)
        c = c / (1 + np.exp(-forget)) + np.tanh(change) / (1 + np.exp(-put))
        x = np.tanh(c) / (1 + np.exp(-out))
        states.append([x, c])
    return np.array(states), x * weights.extra[1] + weights.extra[2]


def loss(weights: Weights, state: np.ndarray, text: np.ndarray) -> float:
    """How badly each character of a text is predicted from those before it."""

    def step(state: np.ndarray, pair: tuple[np.ndarray, np.ndarray]) -> tuple[np.ndarray, np.ndarray]:
        now, following = pair
        state, y = predict(weights, state, now)
        return state, following @ (y - np.log(2 + np.sum(np.exp(y))))

    _, terms = gt.scan(step, state, (text[:-1], text[1:]))
    return -np.mean(terms) / text.shape[1]


value_and_gradient = gt.value_and_grad(loss)


def train(weights: Weights, state: np.ndarray, text: np.ndarray, steps: int) -> list[float]:
    """Take steps of gradient descent with momentum (B. Polyak, 1964); return the losses."""
    velocity = [np.zeros_like(block) for block in weights]
    losses = []
    for _ in range(steps):
        value, gradient = value_and_gradient(weights, state, text)
        losses.append(float(value))
        velocity = [0.9 * before - 0.5 * g for before, g in zip(velocity, gradient, strict=True)]
        weights = Weights(*[block + change for block, change in zip(weights, velocity, strict=True)])
    return losses


def main() -> None:
    parser = argparse.ArgumentParser(description="Train a character LSTM with gradients from gradtape.")
    parser.add_argument("--steps", type=int, default=200, help="of gradient descent (200)")
    options = parser.parse_args()
    weights, state, text = load(DATA / f"{NAME}.txt")
    value, gradient = value_and_gradient(weights, state, text)
    print(f"{NAME}: {len(text)} characters, {len(weights.main)} layers, loss {value:.12f}")
    with np.load(DATA / "expected.npz") as expected:
        for name, block in zip(("main", "extra"), gradient, strict=True):
            wanted = expected[f"{NAME}/{name}"].reshape(block.shape)
            error = np.max(np.abs(block - wanted)) / np.max(np.abs(wanted))
            print(f"gradient in {name}: relative error {error:.0e}")
            if not error < TOLERANCE:
                sys.exit(f"The results differ from those expected by more than {TOLERANCE:.0e}.")
    begin = time.perf_counter()
    losses = train(weights, state, text, options.steps)
    seconds = time.perf_counter() - begin
    print(f"{options.steps} steps in {seconds:.2f} s: loss {losses[0]:.4f} -> {losses[-1]:.4f}")


if __name__ == "__main__":
    main()
