"""Random loop bodies: what is rolled computes the same bits as what is not, and holds where it holds."""

from __future__ import annotations

import random

import numpy as np
import pytest

from gradtape.ir.verifier import verify
from tests.transforms.reroll_cases import graph_of, rolled_as_well

pytestmark = pytest.mark.usefixtures("loops_are_traced")


PREPARED = (
    "s[0] = np.zeros(4)",
    "s[1] = 0.0",
    "s[2] = y[:4] * 1.0",
    "buf[0] = y",
    "s.append(1.0)",
    "left.append(y)",
)

FORMULAS = (
    "s[{i}] * 0.5 + s[{j}]",
    "np.sin(s[{i}])",
    "s[{i}] + x[t]",
    "s[{i}] * t * 0.01",
    "s[{i}] - x[trips - 1 - t]",
    "np.tanh(s[{j}]) * x[t][::-1]",
    "np.where(s[{i}] > 0, s[{j}], y)",
    "m @ x[t] + s[{i}]",
    "x[t, 1] * s[{i}]",
    "x[:4, t % 3] + s[{j}]",
    "s[{i}] * numbers[t]",
    "s[{i}] + 3 * t",
    "np.max(x[t : t + 2], axis=0) * s[{i}]",
    "np.mean(s[{i}]) + s[{j}]",
    "x[order[t]] + s[{i}] * 0.1",
    "buf[t] * 0.3 + s[{i}]",
    "table[t] * s[{i}]",
    "np.cos(y * t) + s[{j}] * 0.1",
    "(left[-1] if left else y) * 0.9 + s[{i}] * 0.01",
)

AFTER = (
    ("left.append(s[{d}] + y)", 20),
    ("sums.append(np.sum(s[{d}]))", 10),
    ("buf[t + 1] = s[{d}] + y * 0", 10),
    ("s[0], s[1] = s[1], s[0]", 5),
    ("if np.sum(s[{d}]) > -1e3: s[{i}] = s[{i}] * 1.01", 5),
    ("if t % 3 == 0: s[{i}] = s[{i}] + 1", 3),
    ("if t == 0: s[{i}] = s[{i}] + 1", 3),
    ("pass", 44),
)


def program(chance: random.Random, trips: int) -> str:
    """Return the text of a function with loops in it."""
    lines = ["def f(x, y, m, a):", "    s = [a, a * 2.0, y]", "    left, sums = [], []"]
    lines.append("    buf = np.zeros((trips + 2, 4), like=x)")
    lines += ["    " + chance.choice(PREPARED) for _ in range(chance.randint(0, 2))]
    count = 3 + sum("append(1.0)" in line for line in lines)
    kind = chance.random()
    indent = "        "
    if kind < 0.7:
        lines.append("    for t in range(trips):")
    elif kind < 0.85:
        lines.append("    for t in range(trips - 1, -1, -1):")
    else:
        lines += ["    for u in range(3):", "        s[0] = s[0] * 0.9 + y", "        for t in range(trips):"]
        indent += "    "
    for _ in range(chance.randint(2, 6)):
        i, j, d = (chance.randrange(count) for _ in range(3))
        lines.append(f"{indent}s[{d}] = " + chance.choice(FORMULAS).format(i=i, j=j))
        (after,) = chance.choices([text for text, _ in AFTER], [weight for _, weight in AFTER])
        lines.append(indent + after.format(i=i, d=d))
    if chance.random() < 0.3:
        lines += [
            "    for t in range(len(left) - 1):",
            "        s[1] = s[1] * left[t] * 0.1 + np.sin(left[t + 1])",
        ]
    lines += [
        "    outs = [s[0], s[2], buf]",
        f"    if left: outs.append(np.stack(left, axis={chance.randint(0, 1)}))",
    ]
    if chance.random() < 0.4:
        lines.append("    if left: outs += [left[len(left) // 2], sum(left[1:])]")
    return "\n".join([*lines, "    if sums: outs.append(np.stack(sums))", "    return tuple(outs)"])


@pytest.mark.parametrize("block", range(8))
def test_random_bodies(block: int) -> None:
    rolled = 0
    for seed in range(25 * block, 25 * block + 25):
        chance, numbers = random.Random(seed), np.random.default_rng(seed)
        trips = chance.choice([8, 9, 12, 17, 23, 40])
        text = program(chance, trips)
        names = {
            "np": np,
            "trips": trips,
            "numbers": numbers.normal(size=trips).tolist(),
            "order": numbers.permutation(trips).tolist(),
            "table": numbers.normal(size=(trips, 4)),
        }
        exec(compile(text, f"<body {seed}>", "exec"), names)
        args = (
            numbers.normal(size=(trips + 2, 4)),
            numbers.normal(size=4),
            numbers.normal(size=(4, 4)),
            np.float64(0.3),
        )
        graph = graph_of(names["f"], args)  # type: ignore[arg-type]
        found = rolled_as_well(graph, args)
        if found is not None:
            rolled += 1
            verify(found[0], text)
            assert len(found[0].nodes) < len(graph.nodes)
    assert rolled >= 12
