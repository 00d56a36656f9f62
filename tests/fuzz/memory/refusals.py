"""Random statements, valid and invalid: where NumPy raises, gradtape raises an error of the same class, and the other way round.

``python -m tests.fuzz.memory.refusals --programs 10000`` runs many of them. Read-only arguments are no part of it: a traced function
writes to its own copy of an argument.
"""

from __future__ import annotations

import argparse
import linecache
import random
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

import gradtape as gt

ARGUMENTS: dict[str, Callable[[], Any]] = {
    "v": lambda: np.linspace(0.5, 2.0, 4),
    "m": lambda: np.linspace(0.1, 3.0, 12).reshape(3, 4),
    "q": lambda: np.linspace(-1.0, 2.0, 9).reshape(3, 3).T,
    "k": lambda: np.array([1, 2, 3]),
    "z": lambda: np.array([1.0 + 2.0j, -0.5j]),
    "b": lambda: np.array([True, False, True, True]),
}

KEYS = (
    "0",
    "-1",
    "5",
    "...",
    ":",
    "::-1",
    "1:3",
    "(0, 0)",
    "(0, ...)",
    "(slice(None), 1)",
    "None",
    "()",
    "[0, 1]",
    "[0, 7]",
    "1.0",
    "True",
    "False",
    "np.array(1)",
    "np.array([True, False])",
    "np.array([True, False, True, True])",
    "np.array([[0], [1]])",
    "(0, 0, 0)",
)

VALUES = (
    "2.0",
    "3",
    "1j",
    "np.nan",
    "[0.1, 0.2]",
    "[0.1]",
    "{a}",
    "{a}[0]",
    "{a}[:2]",
    "{a}[:1]",
    "{a} * 0.5",
    "{a}.T",
    "np.sum({a})",
    "{a}[None]",
    "np.ones((2, 2))",
    "range(3)",
)

STATEMENTS = (
    "{a}[{key}] = {value}",
    "{a}[{key}] += {value}",
    "{a}[{key}][...] = {value}",
    "{a}[{key}][0] = {value}",
    "r = {a}[{key}]",
    "r = {a}[{key}][{key2}]",
    "r = {a} + {value}",
    "r = {a} @ {b}",
    "r = np.dot({a}, {b})",
    "r = {a} * {b}",
    "{a} *= {b}",
    "{a} /= 2",
    "r = {a} // 2",
    "r = {a} % {value}",
    "r = {a} < {value}",
    "r = np.sum({a}, axis={axis})",
    "r = np.max({a}[{key}])",
    "r = np.argmax({a}, axis={axis})",
    "np.cumsum({a}, out={a})",
    "np.cumsum({a}, axis={axis}, out={a})",
    "np.sin({a}, out={b})",
    "np.add({a}, {b}, out={a})",
    "np.copyto({a}, {value})",
    "np.imag({a}).fill(1.0)",
    "{a}.imag[...] = {value}",
    "{a}.real[...] = {value}",
    "np.diagonal({a})[...] = 1.0",
    "np.broadcast_to({a}, (2, 4))[...] = 1.0",
    "{a}.fill({value})",
    "for s in {a}: s[...] = 0.5",
    "for s in {a}: s[0] = 0.5",
    "r = {a}.reshape({shape})",
    "r = np.concatenate(({a}, {b}))",
    "r = np.stack(({a}, {b}))",
    "r = np.stack(({a}, {a}[:2]))",
    "r = np.squeeze({a}, {axis})",
    "r = np.swapaxes({a}, 0, {axis})",
    "r = np.take({a}, {index})",
    "np.put({a}, {index}, 0.5)",
    "r = len({a}[{key}])",
    "r = {a}.sum()[{key}]",
    "s = np.sum({a}); s[...] = 1.0",
    "s = np.sum({a}); s[0] = 1.0",
    "del {a}[{index}]",
    "r = np.linalg.cholesky({a})",
    "r = np.linalg.inv({a})",
    "r = np.broadcast_to({a}, {shape})",
    "r = np.split({a}, 2, axis={axis})[0]",
    "r = np.bitwise_count({a}) & -2",
    "r = {a}.astype(np.uint8) + 300",
    "r = -({a} > 1)",
    "r = np.expand_dims({a}, {axis})",
    "r = np.moveaxis({a}, 0, {axis})",
    "r = np.vstack(({a}, {b}))",
    "r = np.outer({a}, {b})",
    "r = np.clip({a}, 0.5, {value})",
    "r = np.where({a} > 1, {a}, {b})",
)


def generate(seed: int) -> tuple[str, tuple[str, ...]]:
    """Return the source of a function of one statement, and the names of its arguments."""
    choose = random.Random(seed)
    a, b = choose.choice("vvmmqkzb"), choose.choice("vmqkzb")
    value = choose.choice(VALUES).replace("{a}", choose.choice((a, b)))
    line = choose.choice(STATEMENTS)
    if (
        "cumsum" in line and a == "b"
    ):  # NumPy's accumulations, and no other functions, compute in the dtype of a boolean target
        a = "v"
    for slot, text in {
        "a": a,
        "b": b,
        "key2": choose.choice(KEYS),
        "key": choose.choice(KEYS),
        "value": value,
        "axis": choose.choice(("0", "1", "-1", "2")),
        "index": choose.choice(("0", "-1", "9", "[0, 1]")),
        "shape": choose.choice(("(2, 2)", "(4, 3)", "-1", "(2, -1)", "(5, -1)", "(1, 4)")),
    }.items():
        line = line.replace("{" + slot + "}", text)
    names = tuple(dict.fromkeys((a, b)))
    result = "r" if line.startswith("r = ") else a
    return f"def f({', '.join(names)}):\n    {line}\n    return {result}\n", names


def function_of(text: str) -> Callable[..., Any]:
    """Return the compiled text, whose lines gradtape can read."""
    name = f"<statement {zlib.crc32(text.encode()):x}>"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"np": np, "__name__": "program"}
    exec(compile(text, name, "exec"), namespace)
    return namespace["f"]  # type: ignore[no-any-return]


def outcome(call: Callable[[], Any]) -> Any:
    """Return the error that a call raises, or its result as an ndarray."""
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        try:
            made = call()
            return np.asarray(made.numpy() if isinstance(made, gt.Array) else made)
        except Exception as error:
            return error


def is_refused(error: Any) -> bool:
    """Return whether an error says that gradtape does not support something, and what to write instead."""
    return isinstance(
        error,
        gt.errors.UnsupportedFunctionError | gt.errors.UnsupportedCodeError | gt.errors.ConcretizationError,
    ) or "needs a scalar v" in str(error)


def failures(text: str, names: tuple[str, ...], *, compiled: bool = False) -> Iterator[str]:
    """Yield how the outcomes of a statement differ from NumPy's."""
    f = function_of(text)

    def arguments() -> list[Any]:
        return [ARGUMENTS[name]() for name in names]

    def on_tape() -> Any:
        with gt.GradientTape() as tape:
            return f(*map(tape.watch, arguments()))

    wanted = outcome(lambda: f(*arguments()))
    ways: dict[str, Callable[[], Any]] = {"jit": lambda: gt.jit(f)(*arguments()), "tape": on_tape}
    with gt.config.override(jit=False, loops="compile"):
        found = {"compile": outcome(lambda: gt.jit(f)(*arguments()))}
    with gt.config.override(jit=compiled):
        found |= {way: outcome(call) for way, call in ways.items()}
    for way, made in found.items():
        if is_refused(made):
            continue
        differs = _difference(made, wanted)
        if differs is not None:
            yield f"{way}: {differs}"


def _difference(made: Any, wanted: Any) -> str | None:
    if isinstance(wanted, Exception):
        if not isinstance(made, Exception):
            return f"answers {made.tolist()}, NumPy raises {wanted!r}"
        kinds = [
            kind for kind in type(wanted).__mro__ if issubclass(kind, Exception) and kind is not Exception
        ]
        # NumPy checks dtypes before shapes; what it raises for sequences depends on the dtype
        both = isinstance(made, gt.errors.ShapeError) and isinstance(wanted, TypeError | ValueError)
        # and shapes before indices
        both = both or (isinstance(made, IndexError) and "shape mismatch" in str(wanted))
        same = both or any(isinstance(made, kind) for kind in kinds)
        return None if same else f"raises {made!r}, NumPy {wanted!r}"
    if isinstance(made, Exception):
        return f"raises {made!r}, NumPy answers"
    if made.shape != wanted.shape or not np.allclose(made, wanted, equal_nan=True):
        return f"{made.tolist()} for {wanted.tolist()}"
    return None


def main() -> int:
    """Run statements, and print those that fail."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.memory.refusals", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", type=float, default=0.05, help="the share that is compiled")
    options = parser.parse_args()
    begin, failed = time.monotonic(), 0
    for seed in range(options.seed, options.seed + options.programs):
        text, names = generate(seed)
        for failure in failures(text, names, compiled=random.Random(seed).random() < options.compiled):
            failed += 1
            print(f"--- {seed} {text.splitlines()[1].strip()}  ({', '.join(names)})\n{failure}", flush=True)
    print(f"{options.programs} statements in {time.monotonic() - begin:.0f} s, {failed} failures")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 100))
