"""Random assignments whose two sides overlap: ``python -m tests.fuzz.memory.overlaps --programs 10000``.

A program makes arrays and views of an argument of any memory layout, and assigns parts of them to each other: slices with steps and
reversals, of one or two axes, index arrays, masks, augmented assignments, ``out=``, in loops and outside. All its functions are analytic,
so that NumPy gives the exact Jacobian by a complex step. These agree with NumPy: jit, tapes, both modes, `vmap`, traced and compiled
loops, interpreted and compiled.

NumPy itself does not read the right side of ``y[0:5:2] = y[0:3]`` first: its copy of one axis onto itself is only right if both steps are
equal or of opposite signs. The reference therefore copies the right sides of plain assignments.
"""

from __future__ import annotations

import argparse
import linecache
import random
import sys
import time
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numba
import numpy as np

import gradtape as gt

SHAPES = ((5,), (6,), (7,), (3, 4), (3, 3), (4, 2))
LAYOUTS = ("C",) * 4 + ("F", "strided", "reversed", "columns", "broadcast", "read-only")
STEP = 1e-30


@dataclass(frozen=True)
class Program:
    """Statements on an argument ``x``.

    Attributes
    ----------
    shape, layout : tuple of int, str
        Of the argument.
    lines : tuple of str
        Statements with their indentation. ``{...}`` are right sides that the reference copies.
    outputs : tuple of str
        What is returned.
    seed : int
        Of the argument's numbers.
    """

    shape: tuple[int, ...]
    layout: str
    lines: tuple[str, ...]
    outputs: tuple[str, ...]
    seed: int

    def text(self, reference: bool = False) -> str:
        """Return the source; in that of the reference right sides are copied."""
        begin, end = ("np.array(", ")") if reference else ("", "")
        body = "".join(f"    {line}\n" for line in self.lines).replace("{", begin).replace("}", end)
        if reference:
            body = body.replace("zeros(x.shape)", "zeros(x.shape, x.dtype)")
        parts = ", ".join(f"np.ravel({name})" for name in self.outputs)
        return f"def f(x):\n{body}    return np.concatenate(({parts},))\n"

    def function(self, reference: bool = False) -> Callable[[Any], Any]:
        """Return the compiled text, whose lines Python and gradtape can read."""
        text = self.text(reference)
        name = f"<overlap {zlib.crc32(text.encode()):x}>"
        linecache.cache[name] = (len(text), None, text.splitlines(keepends=True), name)
        namespace: dict[str, Any] = {"np": np, "__name__": "program"}
        exec(compile(text, name, "exec"), namespace)
        return namespace["f"]  # type: ignore[no-any-return]

    def argument(self, which: int = 0) -> Any:
        """Return the argument; another number gives another one."""
        rng = np.random.default_rng(self.seed * 31 + which)
        return laid_out(rng.uniform(0.2, 1.2, self.shape), self.layout)


def laid_out(x: Any, layout: str) -> Any:
    """Return new memory in a layout with the numbers of `x`; a broadcast array has those of its first row only."""
    if layout == "F":
        return np.array(x, order="F")
    if layout == "strided":
        return np.repeat(x, 2, axis=-1)[..., ::2]
    if layout == "columns":
        return np.repeat(x, 2, axis=0)[::2]
    if layout == "reversed":
        return x[::-1].copy()[::-1]
    if layout == "broadcast":
        return np.broadcast_to(x[:1].copy(), x.shape)
    made = np.array(x, order="C")
    made.flags.writeable = layout != "read-only"
    return made


# Making programs


class Maker:
    """Makes one program."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.shape = self.random.choice(SHAPES)
        self.layout = self.random.choice(LAYOUTS)
        self.lines: list[str] = []
        self.shapes: dict[str, tuple[int, ...]] = {}
        self.written: set[str] = set()
        self.indent = ""
        self.counter: tuple[str, int] | None = None

    def program(self, seed: int) -> Program:
        choose = self.random
        start = "x"
        if self.layout in ("broadcast", "read-only") or choose.random() < 0.75:
            made = choose.choice(
                ("np.exp(x)", "x.copy()", "x * 1.5", "np.sin(x)", "np.array(x)", "0.5 + x", "x + x[::-1]")
            )
            if choose.random() < 0.2:
                made = "np.zeros(x.shape)"
            self.add(f"y = {made}")
            self.shapes["y"] = self.shape
            if "zeros" in made:
                self.add("y[...] = {np.sin(x)}")
            start = "y"
        else:
            self.shapes["x"] = self.shape
        for _ in range(choose.randint(1, 4)):
            self.statement()
        names = [start, *[name for name in self.shapes if name != start]]
        outputs = tuple(names[: 1 + choose.randint(0, 2)])
        return Program(self.shape, self.layout, tuple(self.lines), outputs, seed)

    def add(self, line: str) -> None:
        self.lines.append(self.indent + line)

    # Parts

    def part(self, extent: int, count: int) -> str:
        """Return a slice of `count` elements of an axis."""
        choose = self.random
        if self.counter is not None and choose.random() < 0.4 and count < extent:
            name, most = self.counter
            if count + most <= extent + 1:
                last = extent - most
                if choose.random() < 0.3 and last >= count:
                    return f"{last} + {name}:{last - count} + {name}:-1"
                return f"{name}:{name} + {count}"
        step = choose.choice((1, 1, 1, 2, 3, -1, -1, -2))
        while (count - 1) * abs(step) >= extent:
            step = 1 if step > 0 else -1
        low = choose.randint(0, extent - 1 - (count - 1) * abs(step))
        high = low + (count - 1) * abs(step)
        if step > 0:
            start = "" if low == 0 and choose.random() < 0.5 else str(low)
            stop = "" if high + step >= extent and choose.random() < 0.5 else str(high + 1)
            return f"{start}:{stop}" + (f":{step}" if step != 1 else "")
        start = "" if high == extent - 1 and choose.random() < 0.5 else str(high)
        stop = "" if low + step < 0 else str(low - 1)
        return f"{start}:{stop}:{step}"

    def places(self, extent: int, count: int, distinct: bool) -> str:
        """Return an index array."""
        numbers = (
            self.random.sample(range(extent), count)
            if distinct
            else [self.random.randrange(extent) for _ in range(count)]
        )
        if self.random.random() < 0.3:
            numbers = [n - extent if self.random.random() < 0.5 else n for n in numbers]
        return f"np.array({numbers})" if self.random.random() < 0.7 else str(numbers)

    def item(self, extent: int) -> str:
        if self.counter is not None and self.random.random() < 0.6 and self.counter[1] <= extent:
            return self.counter[0]
        return str(self.random.randrange(-extent, extent))

    def section(self, name: str, counts: tuple[int, ...], fancy: float = 0.0) -> str | None:
        """Return a part of an array with a shape."""
        shape = self.shapes[name]
        choose = self.random
        if len(counts) > len(shape):
            return None
        keys: list[str] = []
        if len(shape) == 2 and len(counts) == 1:
            axis = choose.randrange(2)
            if counts[0] > shape[axis]:
                axis = 1 - axis
            if counts[0] > shape[axis]:
                return None
            keys = [self.item(shape[0]), self.item(shape[1])]
            keys[axis] = self.part(shape[axis], counts[0])
            return f"{name}[{', '.join(keys)}]"
        if any(count > extent for count, extent in zip(counts, shape, strict=True)):
            return None
        keys = [self.part(extent, count) for extent, count in zip(shape, counts, strict=True)]
        if choose.random() < fancy:
            axis = choose.randrange(len(keys))
            keys[axis] = self.places(shape[axis], counts[axis], choose.random() < 0.7)
        if len(keys) == 2 and keys[1] in (":", "0:") and choose.random() < 0.5:
            keys.pop()
        return f"{name}[{', '.join(keys)}]"

    def names(self) -> list[str]:
        return [
            name
            for name in self.shapes
            if name != "x" or len(self.shapes) == 1 or self.layout not in ("broadcast", "read-only")
        ]

    def source(self, counts: tuple[int, ...], depth: int = 1) -> str:
        """Return an expression of a shape."""
        choose = self.random
        for _ in range(10):
            name = choose.choice(self.names())
            kind = choose.randrange(12)
            part = self.section(name, counts, 0.25)
            if part is None and len(counts) == 2 and choose.random() < 0.5:
                turned = self.section(name, counts[::-1], 0.1)
                if turned is not None:
                    part = f"{turned}.T"
            if part is None:
                continue
            if kind < 4 or depth == 0:
                return part
            if kind == 4:
                return f"0.5 * {part}"
            if kind == 5:
                return f"np.sin({part})"
            if kind == 6:
                return f"0.7 * {part} + 0.2 * {self.source(counts, depth - 1)}"
            if kind == 7:
                return f"0.5 * {part} * {self.source(counts, depth - 1)}"
            if kind == 8:
                return f"np.flip({part})"
            if kind == 9:
                return f"np.roll({part}, 1)" if len(counts) == 1 else f"{part}[::-1]"
            if kind == 10 and len(counts) == 1:
                return f"np.cumsum({part}) * 0.3"
            if kind == 11 and len(counts) == 2:
                row = self.section(name, counts[1:])
                if row is not None:
                    return row
            return part
        return f"0.25 * {part}" if part else f"np.full({counts}, 0.3)"

    def counts(self, name: str) -> tuple[int, ...]:
        shape = self.shapes[name]
        counts = tuple(
            [self.random.randint(1, extent) if self.random.random() < 0.7 else extent for extent in shape]
        )
        return counts

    # Statements

    def statement(self, depth: int = 0) -> None:
        choose = self.random
        name = choose.choice(self.names())
        kind = choose.randrange(20)
        counts = self.counts(name)
        if len(counts) == 2 and choose.random() < 0.4:
            counts = (choose.randint(1, self.shapes[name][choose.randrange(2)]),)
        if kind < 6:
            left = self.section(name, counts, 0.15)
            if left is not None:
                self.add(f"{left} = {{{self.source(counts)}}}")
        elif kind < 10:
            left = self.section(name, counts, 0.1)
            if left is not None:
                operator = choose.choice(("+=", "-=", "*="))
                right = self.source(counts)
                self.add(f"{left} {operator} {right if operator == '*=' else f'0.4 * ({right})'}")
        elif kind == 10:
            left, right = self.section(name, counts), self.section(choose.choice(self.names()), counts)
            if left is not None and right is not None:
                self.add(f"np.copyto({left}, {{{right}}})")
        elif kind == 11:
            out, first, second = (self.section(name, counts) for _ in range(3))
            if None not in (out, first, second):
                function = choose.choice(("np.multiply", "np.add", "np.subtract"))
                self.add(f"{function}({first}, {second}, out={out})")
        elif kind == 12:
            out, first = self.section(name, counts), self.section(name, counts)
            if out is not None and first is not None:
                self.add(f"np.sin({first}, out={out})")
        elif kind == 13 and len(self.shapes) < 4 and not self.indent:
            part = self.section(name, counts)
            if part is not None:
                new = f"v{len(self.shapes)}"
                self.add(f"{new} = {part}")
                self.shapes[new] = counts
        elif kind == 14 and len(self.shapes) < 4 and not self.indent:
            self.view(name)
        elif kind == 15:
            one, other = self.section(name, counts), self.section(name, counts)
            if one is not None and other is not None:
                form = choose.choice(
                    ("{a}, {b} = {b} * 1.0, {a} * 1.0", "{a}, {b} = {{{b}.copy()}}, {{{a}.copy()}}")
                )
                self.add(form.format(a=one, b=other))
        elif kind == 16:
            shape = self.shapes[name]
            keys = [", ".join(self.item(extent) for extent in shape) for _ in range(2)]
            form = choose.choice(("{a}, {b} = {b}, {a}", "{a} = {b} * {a}", "{a} += 0.5 * {b}"))
            self.add(form.format(a=f"{name}[{keys[0]}]", b=f"{name}[{keys[1]}]"))
        elif kind == 17 and len(self.shapes[name]) == 1:
            extent = self.shapes[name][0]
            count = choose.randint(1, extent)
            targets = self.places(extent, count, False)
            values = self.section(choose.choice(self.names()), (count,), 0.4)
            if values is not None:
                self.add(f"np.add.at({name}, {targets}, 0.5 * {values})")
        elif kind == 18 and depth == 0:
            self.loop()
        elif kind == 19:
            mask = "".join(choose.choice("01") for _ in range(self.shapes[name][0]))
            flags = f"np.array([{', '.join('True' if c == '1' else 'False' for c in mask)}])"
            count = mask.count("1")
            rest = self.shapes[name][1:]
            if count:
                self.add(f"{name}[{flags}] = {{{self.source((count, *rest))}}}")
        else:
            self.add(f"{name}[...] = {{{self.source(self.shapes[name])}}}")

    def view(self, name: str) -> None:
        choose = self.random
        shape = self.shapes[name]
        new = f"v{len(self.shapes)}"
        size = int(np.prod(shape))
        forms = [
            (f"{name}.ravel()", (size,)),
            (f"{name}.reshape(-1)", (size,)),
            (f"{name}[::-1]", shape),
            (f"{name}.T", shape[::-1]),
        ]
        if len(shape) == 2:
            forms += [
                (f"{name}.T.reshape(-1)", (size,)),
                (f"{name}.T.ravel()", (size,)),
                (f"np.ravel({name}, order='F')", (size,)),
                (f"{name}.reshape({shape[1]}, {shape[0]})", shape[::-1]),
            ]
        elif size % 2 == 0:
            forms += [
                (f"{name}.reshape(2, {size // 2})", (2, size // 2)),
                (f"{name}.reshape({size // 2}, 2).T", (2, size // 2)),
            ]
        text, made = choose.choice(forms)
        self.add(f"{new} = {text}")
        self.shapes[new] = made

    def loop(self) -> None:
        choose = self.random
        count = choose.choice((2, 2, 3, 3, 4))
        self.add(f"for k in range({count}):")
        before, lines = self.indent, len(self.lines)
        self.indent, self.counter = before + "    ", ("k", count)
        for _ in range(choose.randint(1, 2)):
            self.statement(1)
        self.indent, self.counter = before, None
        if len(self.lines) == lines:
            self.lines.pop()


def generate(seed: int) -> Program | None:
    """Return a random program; None where NumPy does not run it."""
    program = Maker(seed).program(seed)
    return program if runs(program) else None


def runs(program: Program) -> bool:
    """Return whether NumPy runs a program, with moderate numbers."""
    try:
        with np.errstate(all="ignore"), warnings.catch_warnings():
            warnings.simplefilter("error")
            made = program.function(True)(program.argument())
            program.function(False)(program.argument())
    except Exception:
        return False
    return bool(np.all(np.isfinite(made)) and np.max(np.abs(made), initial=0) < 1e4)


# Comparing


@dataclass(frozen=True)
class Failure:
    """How a program fails: in which way it was run, and how the outcome differs."""

    way: str
    what: str


REFUSALS = (gt.errors.UnsupportedFunctionError, gt.errors.UnsupportedCodeError, gt.errors.InPlaceError)
"""Errors that say what to do instead: where the order of elements in memory is not known, or Numba does not take a statement."""


def jacobian_by_complex_steps(f: Callable[[Any], Any], x: Any, layout: str) -> Any:
    """Return the exact Jacobian of an analytic function."""
    columns = []
    for place in np.ndindex(x.shape):
        moved = laid_out(x.astype(complex), layout if layout != "read-only" else "C")
        moved[place] += 1j * STEP
        moved.flags.writeable = layout != "read-only"
        columns.append(f(moved).imag / STEP)
    return np.stack(columns, axis=-1).reshape(*columns[0].shape, *x.shape)


def wanted_of(program: Program) -> dict[str, Any]:
    """Return what the ways should give: the value, the Jacobian, products with it, and values of two arguments."""
    reference = program.function(True)
    value = reference(program.argument())
    wanted = {"value": value, "mapped": np.stack([value, reference(program.argument(1))])}
    if program.layout == "broadcast":  # of which no element changes alone
        return wanted
    x = program.argument()
    jacobian = jacobian_by_complex_steps(reference, x, program.layout)
    weights, direction = vectors(program, value.shape)
    return wanted | {
        "jacobian": jacobian,
        "pulled": np.tensordot(weights, jacobian, value.ndim),
        "pushed": np.tensordot(jacobian, direction, x.ndim),
    }


def vectors(program: Program, shape: tuple[int, ...]) -> tuple[Any, Any]:
    """Return a cotangent and a tangent."""
    rng = np.random.default_rng(program.seed)
    return rng.normal(size=shape), rng.normal(size=program.shape)


def ways(program: Program, wanted: dict[str, Any]) -> Iterator[tuple[str, str, Callable[[], Any]]]:
    """Yield how a program is run: a name, which result it gives, and the call."""
    f = program.function()
    weights, direction = vectors(program, wanted["value"].shape)

    def on_tape(derivative: bool) -> Any:
        with gt.GradientTape() as tape:
            watched = tape.watch(program.argument())
            start = watched
            if derivative:  # a write to x makes what is watched another value
                start = np.multiply(watched, 1.0)
                start._contiguous = watched._contiguous
            y = f(start)
        return tape.jacobian(y, watched, "zero") if derivative else y

    for loops in ("trace", "compile"):

        def under(call: Callable[[], Any], loops: str = loops) -> Callable[[], Any]:
            def run() -> Any:
                with gt.config.override(loops=loops):
                    return call()

            return run

        yield f"jit-{loops}", "value", under(lambda: gt.jit(f)(program.argument()))
        yield f"jacrev-{loops}", "jacobian", under(lambda: gt.jacrev(f)(program.argument()))
        yield f"jacfwd-{loops}", "jacobian", under(lambda: gt.jacfwd(f)(program.argument()))
        yield f"vjp-{loops}", "pulled", under(lambda: gt.vjp(f, program.argument())[1](weights)[0])
        yield (
            f"jvp-{loops}",
            "pushed",
            under(lambda: gt.jvp(f, (program.argument(),), (direction,))[1]),
        )
        if program.layout == "C":
            stacked = np.stack([program.argument(), program.argument(1)])
            yield f"vmap-{loops}", "mapped", under(lambda stacked=stacked: gt.vmap(f)(stacked.copy()))
    yield "tape", "value", lambda: on_tape(False)
    yield "tape-jacobian", "jacobian", lambda: on_tape(True)
    yield "njit", "value", lambda: gt.jit(numba.njit(f))(program.argument())


def failures(
    program: Program, *, compiled: bool, only: str | None = None, most: int | None = None
) -> Iterator[Failure]:
    """Run a program in all ways, in one, or in a few that are drawn, and yield how it fails."""
    wanted = wanted_of(program)
    runs = [way for way in ways(program, wanted) if way[1] in wanted and only in (None, way[0])]
    if most is not None:
        runs = random.Random(program.seed).sample(runs, most)
    for name, which, call in runs:
        try:
            with (
                warnings.catch_warnings(),
                np.errstate(all="ignore"),
                gt.config.override(jit=compiled),
            ):
                warnings.simplefilter("ignore")
                warnings.simplefilter("error", gt.errors.CompileWarning)
                made = np.asarray(call())
        except REFUSALS as error:
            if name == "njit" or "order of the elements" in str(error) or "order in memory" in str(error):
                continue
            yield Failure(name, f"{type(error).__name__}: {error}")
            continue
        except Exception as error:
            yield Failure(name, f"{type(error).__name__}: {str(error)[:300]}")
            continue
        right = wanted[which]
        if made.shape != right.shape or not np.allclose(made, right, rtol=1e-9, atol=1e-9):
            yield Failure(name, f"{which} {made.tolist()} for {right.tolist()}")


def minimised(program: Program, failure: Failure, *, compiled: bool) -> tuple[Program, Failure]:
    """Return the smallest program that fails in the same way."""
    kind = failure.what.split(":")[0].split(" ")[0]  # the exception, or the result that is wrong
    improved = True
    while improved:
        improved = False
        for candidate in _smaller(program):
            if not candidate.outputs or not runs(candidate):
                continue
            again = next(
                (
                    one
                    for one in failures(candidate, compiled=compiled, only=failure.way)
                    if one.what.startswith(kind)
                ),
                None,
            )
            if again is not None:
                program, failure, improved = candidate, again, True
                break
    return program, failure


def _smaller(program: Program) -> Iterator[Program]:
    for k in range(len(program.lines)):
        yield replace(program, lines=(*program.lines[:k], *program.lines[k + 1 :]))
        if program.lines[k].startswith("for"):
            rest = [line.removeprefix("    ") for line in program.lines[k + 1 :]]
            yield replace(program, lines=(*program.lines[:k], "k = 0", *rest))
    for k in range(len(program.outputs)):
        yield replace(program, outputs=(*program.outputs[:k], *program.outputs[k + 1 :]))
    if program.layout != "C":
        yield replace(program, layout="C")


def report(seed: int, program: Program, failed: Sequence[Failure]) -> str:
    """Return a failing program, and how it fails."""
    names = ", ".join(failure.way for failure in failed)
    return f"--- {seed} {program.layout} {program.shape}: {names}\n{program.text()}{failed[0].way} {failed[0].what}\n"


def main() -> int:
    """Run programs, and print the smallest one of each failure."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.memory.overlaps", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", type=float, default=0.1, help="the share that is compiled as well")
    parser.add_argument("--ways", type=int, default=None, help="how many ways are drawn for each program")
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--only", type=int, default=None, help="the seed of one program to show and run")
    options = parser.parse_args()
    begin, done = time.monotonic(), 0
    seeds = range(options.seed, options.seed + options.programs) if options.only is None else [options.only]
    seen: dict[str, int] = {}
    for seed in seeds:
        program = generate(seed)
        if program is None:
            continue
        done += 1
        if options.only is not None:
            print(program.layout, program.shape, program.text(), sep="\n")
        compiled = options.only is not None or random.Random(seed).random() < options.compiled
        for way in (False, True)[: 1 + compiled]:
            failed = list(failures(program, compiled=way, most=options.ways))
            if not failed:
                continue
            seen[failed[0].way] = seen.get(failed[0].way, 0) + 1
            if seen[failed[0].way] <= 6:
                small, how = minimised(program, failed[0], compiled=way)
                print(report(seed, small, [how, *failed[1:]]), flush=True)
        if time.monotonic() - begin > options.seconds:
            break
    print(f"{done} programs in {time.monotonic() - begin:.0f} s, failures: {seen}")
    return sum(seen.values())


if __name__ == "__main__":
    sys.exit(min(main(), 100))
