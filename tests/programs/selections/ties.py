"""Random programs whose extrema tie: ``python -m tests.programs.selections.ties [FIRST] [LAST]``.

The elements are small integers, and the arithmetic on them is exact, so that three and more elements are equal again and again: along
axes, under masks, inside loops whose number of iterations is known, data, or decided by a branch.
"""

from __future__ import annotations

import linecache
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator
from typing import Any

import numba
import numpy as np

import gradtape as gt
from tests.programs.selections.ways import KNOWN, groups_of_equals, shortened

ELEMENTS = (
    "a",
    "2.0 * a",
    "np.abs(a)",
    "a * a",
    "1.0 - a",
    "np.maximum(a, 0.0)",
    "a + a[::-1]",
    "np.clip(a, -1.0, 1.0)",
    "np.clip(a, 0.0, None)",
    "a.clip(max=1.0)",
    "np.where(a > 0.0, a, -a)",
    "np.minimum(a, a[::-1]) * 3.0",
    "np.fmax(a, 1.0)",
    "a * b",
)
"""Arrays of two axes, as functions of one."""

ARRAYS = (
    "np.max({}, axis=0)",
    "np.min({}, axis=1)",
    "np.amax({}, axis=-1)",
    "np.amin({}, axis=0)",
    "{}.max(axis=1)",
    "np.max({}, axis=1, keepdims=True)",
    "np.min({}, axis=(0, 1), keepdims=True)",
    "np.maximum.reduce({}, axis=0)",
    "np.minimum.reduce({})",
    "np.linalg.norm({}, np.inf, axis=1)",
    "np.linalg.norm({}, -np.inf, axis=0)",
    "np.max({}, axis=0, initial=0.0)",
    "np.max({}, axis=1, where=a > -1.0, initial=-5.0)",
    "np.min({}, axis=1, where=b < 2.0, initial=0.0)",
    "np.ptp({}, axis=1)",
    "np.maximum.accumulate({}, axis=0)",
    "np.minimum.accumulate({}, axis=1)",
    "np.median({}, axis=0)",
    "np.sort({}, axis=1)",
    "np.max({}, axis=())",
)
"""Arrays of extrema."""

NUMBERS = (
    "np.max({})",
    "np.min({})",
    "{}.max()",
    "np.maximum.reduce({}.ravel())",
    "np.linalg.norm({}[0], np.inf)",
    "np.linalg.norm({}.ravel(), -np.inf)",
    "np.ptp({})",
    "max({}[0])",
    "min({}[:, 0])",
    "max({}[0, 0], a[1, 1], b[0, 1])",
    "np.max(({})[a > 0.0], initial=0.0)",
    "np.max({}, where=a < 2.0, initial=-1.0)",
    "np.median({})",
    "np.max([a[0, 0], b[1, 1], np.min({})])",
)
"""Numbers: extrema of whole arrays, of rows, of selections."""

LOOPS = (
    """
    for i in range(a.shape[0]):
        total += (i + 1.0) * np.max({0}[i]) ** 2
        b[i] = b[i] - np.min({1}[i])""",
    """
    k = 0
    while np.max(np.abs(b)) > 1.0 and k < 3:
        total += (k + 1.0) * np.min({0})
        b = b - np.sign(b)
        k += 1""",
    """
    for i in range(a.shape[0]):
        best = {0}[i, 0]
        for j in range(a.shape[1]):
            if {0}[i, j] > best:
                best = {0}[i, j]
        total += (i + 1.0) * (1.0 + best) * best
        a[i, 0] = np.max(a)""",
    """
    for i in range(a.shape[0]):
        if np.max({0}[i]) > 0.0:
            total += np.sum(np.max({1}, axis=0)) * (i + 2.0)
        else:
            b[i] = np.max(b[i]) * a[i]""",
    """
    level = np.max({0})
    for i in range(int(np.sum(a > 0.0))):
        level = np.maximum(level - np.min({1}), np.max(a[i % 2])) + i
        total += 0.5 * level""",
)


def program(seed: int) -> tuple[str, Any]:
    """Return the text of a program and its argument."""
    rng = np.random.default_rng(seed)
    shape = tuple(rng.choice([2, 3, 4], 2).tolist())
    x = rng.integers(-1, 3, shape).astype(float) if rng.random() < 0.8 else np.zeros(shape)

    def pick(table: tuple[str, ...]) -> str:
        return table[rng.integers(len(table))]

    def elements() -> str:
        return f"({pick(ELEMENTS)})"

    lines = ["def program(x):", "    a = 1.0 * x", "    b = 2.0 * x[:, ::-1] - 1.0", "    total = 0.0"]
    for number in range(rng.integers(1, 3)):
        kind = rng.choice(3, p=[0.45, 0.35, 0.2])
        if kind == 0:
            weights = "np.arange(1.0, c.size + 1.0).reshape(c.shape)"
            lines.append(f"    c = {pick(ARRAYS).format(elements())}")
            lines.append(f"    total += {number + 1.0} * np.sum((1.0 + c) ** 2 * {weights})")
        elif kind == 1:
            lines.append(f"    total += {number + 1.5} * ({pick(NUMBERS).format(elements())} + 1.0) ** 2")
        else:
            lines.append(pick(LOOPS).format(elements(), elements()).strip("\n"))
    lines.append("    return total + np.sum(a * b)")
    return "\n".join(lines) + "\n", x


def function_of(text: str) -> Callable[[Any], Any]:
    """Return the function that a text defines."""
    name = f"ties_{zlib.crc32(text.encode()):x}.py"
    linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
    namespace: dict[str, Any] = {"np": np, "__name__": "ties"}
    exec(compile(text, name, "exec"), namespace)
    function: Callable[[Any], Any] = namespace["program"]
    return function


def answers(text: str, x: Any) -> Iterator[tuple[int, str, Callable[[], Any]]]:
    """Yield the order of a derivative, the name of a way, and what computes it."""
    function = function_of(text)
    functions = {"trace": function, "compile": function, "numba": numba.njit(function)}

    def on_a_tape() -> Any:
        with gt.GradientTape() as tape:
            watched = tape.watch(x)
            y = function(watched)
        return tape.gradient(y, watched)

    yield 1, "tape", on_a_tape
    for way, each in functions.items():
        setting = "compile" if way == "numba" else way

        def under(run: Callable[[], Any], setting: str = setting) -> Callable[[], Any]:
            def answer() -> Any:
                with gt.config.override(loops=setting):
                    return run()

            return answer

        yield 1, f"reverse, {way}", under(lambda each=each: gt.grad(each)(x))
        yield 1, f"forward, {way}", under(lambda each=each: gt.jacfwd(each)(x))
        if way != "numba":
            yield 1, f"mapped, {way}", under(lambda each=each: gt.vmap(gt.grad(each))(np.stack([x, x]))[1])
            yield 2, f"hessian, {way}", under(lambda each=each: gt.hessian(each)(x))
            yield 2, f"reverse twice, {way}", under(lambda each=each: gt.jacrev(gt.grad(each))(x))


def disagreements(text: str, x: Any) -> list[str]:
    """Return how the ways of a program differ, one line for each way that differs from most."""
    lines: list[str] = []
    computed: dict[int, dict[str, Any]] = {1: {}, 2: {}}
    with warnings.catch_warnings(), np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        for order, way, answer in answers(text, x):
            try:
                computed[order][way] = np.asarray(answer())
            except KNOWN as error:
                if "mapped" not in way and not way.endswith("numba"):
                    lines.append(f"{way}: {type(error).__name__}: {error.what}")
            except Exception as error:  # is reported
                lines.append(f"{way}: {type(error).__name__}: {str(error).splitlines()[0]}")
    for order, by_way in computed.items():
        groups = groups_of_equals(by_way)
        if len(groups) > 1:
            lines += [f"order {order}: {', '.join(group)}: {shortened(by_way[group[0]])}" for group in groups]
    return lines


def is_translated(text: str, x: Any) -> bool:
    """Return whether the code of a program is compiled, instead of recorded in spite of the setting."""
    with gt.config.override(loops="compile"):
        return "= procedure(" in str(gt.inspect.graph(gt.jit(function_of(text)), x))


def main() -> int:
    first, last = (int(argument) for argument in (*sys.argv[1:], *("0", "100")[len(sys.argv) - 1 :]))
    failures = recorded = 0
    gt.config.progress = False
    for seed in range(first, last):
        text, x = program(seed)
        found = disagreements(text, x)
        failures += bool(found)
        recorded += not is_translated(text, x)
        if found:
            print(f"# {seed}: {x.tolist()}", text, *found, sep="\n", flush=True)
    print(f"{last - first} programs, {failures} with disagreements, {recorded} recorded instead of compiled")
    return int(failures > 0)


if __name__ == "__main__":
    sys.exit(main())
