"""Random programs over lengths: an export for varying lengths has NumPy's result at each length, or is refused.

``python -m tests.api.export.random_lengths --programs 1000 --seed 1`` prints the programs that are neither.
"""

from __future__ import annotations

import argparse
import linecache
import math
import random
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import gradtape as gt
from gradtape.errors import GradtapeError

LENGTHS = (
    1,
    2,
    3,
    5,
    7,
    12,
    19,
    24,
    31,
    48,
    53,
    64,
    96,
    100,
    127,
    200,
    257,
    365,
    500,
    730,
    1013,
    1500,
    2026,
    3001,
    5000,
    5050,
    7777,
)
"""Lengths at which programs are compared: none is read from a program."""

NUMBERS = (2, 3, 5, 7, 8, 12, 24, 53, 100, 127, 365, 730, 1013, 2026, 3001, 5000)

TABLE = {48: 3.0, 365: 2.5, 5050: 0.5}
SOME = frozenset(range(5000, 5100))
LIMIT = 730 * 3 + 1


def number(rng: random.Random) -> int:
    """Return a number of a program."""
    return rng.choice(NUMBERS)


def length(rng: random.Random, depth: int = 2) -> str:
    """Return an expression of a whole number that follows from a length."""
    if not depth or rng.random() < 0.35:
        return rng.choice(
            [
                "len(x)",
                "x.shape[0]",
                "x.size",
                "np.size(x)",
                "np.shape(x)[0]",
                "len(x[1:])",
                "len(x[::2])",
                "y.shape[0]",
                "x.nbytes // 8",
                "np.arange(len(x)).shape[0]",
                "np.shape(np.ones((len(x), 2)))[0]",
                "np.linspace(0, 1, len(x))[1:].size",
            ]
        )
    inner, k = length(rng, depth - 1), number(rng)
    return rng.choice(
        [
            f"({inner} + {k})", f"({inner} - {k})", f"({inner} * {k})", f"({inner} // {k})", f"({inner} % {k})", f"abs({inner} - {k})",
            f"max({inner}, {k})", f"min({inner}, {k})", f"({inner} * {length(rng, depth - 1)})", f"({k} - {inner})", f"({inner} ** 2)",
            f"np.maximum({inner}, {k})", f"np.add({inner}, {k})", f"np.abs({inner} - {k})", f"np.floor({inner} / {k})",
            f"divmod({inner}, {k})[1]", f"sum([{inner}, {k}])", f"math.floor({inner} / {k})", f"({inner} >> 1)",
        ]
    )  # fmt: skip


def truth(rng: random.Random) -> str:
    """Return an expression of a truth value that follows from a length."""
    n, k = length(rng), number(rng)
    return rng.choice(
        [
            f"{n} > {k}", f"{n} <= {k}", f"{n} == {k}", f"{n} != {k}", f"{n} % {k} == 0", f"{n} in ({k}, {number(rng)})",
            f"{n} in SOME", f"{n} in TABLE", f"{n} in range({k}, {k} + 40)", f"{k} < {n} < {2 * k}", f"bool({n} % {k})",
            f"{n} > LIMIT", f"int(math.log2({n} + 10000)) > 13", f"math.gcd({n}, {k}) > 1", f"hash({n}) % {k} == 1",
            f"str({n})[-1] == '7'", f"float({n}) > {k}.5", f"{n} / {k} > 20", f"np.sqrt(abs({n})) > {k}", f"({n}) & 1",
            f"math.sqrt(abs({n})) > 30.0", f"np.mod({n}, {k}) == 0", f"isinstance({n}, int)", f"round({n} / {k}) == 4",
            f"len([0] * len(x)) % {k} == 0", f"len(list(x)) % {k} == 0", f"x.shape == ({k},)", f"(x.shape, 1) in [(({k},), 1)]",
            f"fails(lambda: x[{k}])", f"fails(lambda: np.reshape(x, (-1, {k})))", f"len(np.array_split(x, len(x) // {k} + 1)) == 4",
            f"np.arange(len(x) + {k})[-1] % {k} == 1", f"np.sum(np.ones({n})) % {k} == 0", f"(np.ones(2) * {n})[0] % {k} == 0",
            f"np.array([{n}, 1])[0] > {k}", f"len(np.repeat([1.0, 2.0], {n})) % {k} == 0", f"np.all(np.arange(len(x)) < {k})",
            f"np.zeros(len(x) + {k}).shape[0] > {2 * k}", f"len(np.arange(len(x) + {k})) % {k} == 1", f"type({n}) is int",
        ]
    )  # fmt: skip


def program(rng: random.Random) -> str:
    """Return the code of a function of a vector."""
    lines = ["def f(x):", "    y = x[1:] if x.ndim else x", "    s = np.sum(np.sin(x))"]
    for _ in range(rng.choice([1, 1, 2])):
        n, k = length(rng), number(rng)
        lines.append(
            "    "
            + rng.choice(
                [
                    f"s = s * ({k}.0 if {truth(rng)} else 1.0)",
                    f"s = s + (np.sum(x[:{k}]) if {truth(rng)} else 0.0)",
                    f"s = s / (1.0 + abs({n}))",
                    f"s = s * np.log(abs({n}) + 1.0)",
                    f"s = s + TABLE.get({n}, 0.0)",
                    f"s = s + np.sum(x[: {n} // 2])",
                    f"s = s * [1.0, 2.0][{n} % 2]",
                    f"s = s + np.sum(x * np.arange(len(x)) ** ({n} > {k}))",
                    f"s = s + {n}",
                    f"s = s + np.sum(x * (np.arange(len(x)) % {k} == 1))",
                    f"s = s + np.sum(np.arange({n}) ** 2 % {k})",
                    f"s = s + np.sum(np.linspace(0, {k}, len(x)) * x)",
                    f"s = s + np.arange(len(x) + {k})[-1] % {k}",
                    f"s = s + np.sum(np.array([{n}, {k}]) / {k})",
                    f"s = s * np.arange(float({k}))[{n} % {k}]",
                    f"s = s + np.sum(np.tile([1.0, {k}.0], {n} % 3)) + np.sum(np.indices((len(x), 2))[0] * {k})",
                ]
            )
        )
    return "\n".join([*lines, "    return s", ""])


def fails(call: Any) -> bool:
    """Return whether a call raises an error of shapes."""
    try:
        call()
    except (ValueError, IndexError):
        return True
    return False


def made(code: str, number: int) -> Any:
    """Return the function of some code."""
    name = f"<lengths {number}>"
    linecache.cache[name] = (len(code), None, code.splitlines(keepends=True), name)
    namespace = {
        "np": np,
        "math": math,
        "TABLE": TABLE,
        "SOME": SOME,
        "LIMIT": LIMIT,
        "fails": fails,
        "__name__": "program",
    }
    exec(compile(code, name, "exec"), namespace)
    return namespace["f"]


def outcome(function: Any, path: Path, lengths: Sequence[int] = LENGTHS, longest: int | None = None) -> str:
    """Return "exported" or "refused", or what is wrong."""
    try:
        gt.export(function, gt.spec((gt.Dim("n", min=1, max=longest),)), path=path)
    except GradtapeError:
        return "refused"
    except TypeError as error:  # as of x[:2.0]
        try:
            function(np.linspace(0.1, 1.7, 1009))
        except TypeError:
            return "refused"
        if "what to do: " in str(error):
            return "refused"
        return f"{error} in place of a result"
    again = gt.load(path)
    for count in lengths:
        x = np.linspace(0.1, 1.7, count)
        try:
            wanted = function(x)
        except (ValueError, IndexError, ZeroDivisionError, OverflowError):
            continue
        try:
            found = again(x)
        except GradtapeError as error:
            return f"no result for {count}: {error}"
        if not np.allclose(found, wanted, 1e-9, 1e-9, equal_nan=True):
            return f"{found} in place of {wanted} for {count}"
    return "exported"


def main() -> None:
    """Run random programs."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    rng = random.Random(given.seed)
    counts: dict[str, int] = {}
    with tempfile.TemporaryDirectory() as folder:
        for number_ in range(given.programs):
            code = program(rng)
            found = outcome(made(code, number_), Path(folder) / "f.gradtape")
            kind = found if found in ("exported", "refused") else "wrong"
            counts[kind] = counts.get(kind, 0) + 1
            if kind == "wrong":  # a defect
                print(f"{code}# {found}\n", flush=True)
    print(counts)


if __name__ == "__main__":
    main()
