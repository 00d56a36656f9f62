"""Random NumPy programs, run in every way that gradtape has of running them, against plain NumPy.

A program is a list of statements that NumPy runs without an error. It is kept if it is well conditioned: where a change of the arguments
in the tenth digit changes the results in the fifth, rounding would decide what it returns. Then these agree with NumPy, or with each other:

- jit on the interpreter, and compiled: with the arguments, with other numbers, with the first ones again, with arrays of another layout;
- a tape, three times at one line (the third time it is predicted);
- gradients: forward against reverse, both against central differences, interpreted against compiled;
- second derivatives: symmetry, and against differences of gradients;
- `vmap` against a loop, and Jacobians with and without pfor.

An error with a remedy (`UnsupportedFunctionError` and its like) is an answer, and so is a warning for one of the `LIMITS` of kernels,
where the results have to be right all the same. Another exception, or another warning that a function could not be compiled, is a
failure. A failure is shrunk to the smallest program and arguments that show it.
"""

from __future__ import annotations

import linecache
import random
import re
import warnings
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

import gradtape as gt
from gradtape.runtime.compile import engine
from tests.fuzz.grammar import TEMPLATES

REFUSALS = (
    gt.errors.UnsupportedFunctionError,
    gt.errors.ConcretizationError,
    gt.errors.InPlaceError,
    gt.errors.NotDifferentiableError,
    gt.errors.IntegerInputError,
)
"""Errors that say what to do instead."""

LIMITS = re.compile(r"\w+ of \w+ has no kernel: \S+ calls NumPy for it|kernels do not compute with float16")
"""What warnings may say: an op that is left to NumPy, and half precision, which booleans and bytes have in NumPy's functions."""

SHAPES = ((), (1,), (3,), (4,), (2, 3), (3, 3), (3, 1), (1, 1), (2, 1, 3), (2, 3, 2), (0,), (0, 3), (7,))
DTYPES = ("f8",) * 8 + ("f4", "f4", "i8", "i4", "i1", "u1", "u4", "b1", "c16", "c16", "c8")
LAYOUTS = ("C",) * 5 + ("F", "T", "strided", "reversed")


@dataclass(frozen=True)
class Spec:
    """An argument: its shape and dtype, how it lies in memory, and whether it is an array, a NumPy scalar or a Python number."""

    shape: tuple[int, ...]
    dtype: str = "f8"
    layout: str = "C"
    kind: str = "array"

    def draw(self, seed: int) -> Any:
        """Return the argument with random numbers."""
        rng = np.random.default_rng(seed)
        x = rng.normal(size=self.shape)
        dtype = np.dtype(self.dtype)
        if dtype.kind == "c":
            x = x + 1j * rng.normal(size=self.shape)
        elif dtype.kind == "b":
            x = x > 0
        elif dtype.kind == "u":
            x = np.abs(x * 3)
        elif dtype.kind == "i":
            x = x * 3
        made = laid_out(np.asarray(x).astype(dtype), self.layout)
        if self.kind == "python":
            return made.item()
        return made[()] if self.kind == "scalar" else made


def laid_out(x: Any, layout: str) -> Any:
    """Return an array with the same numbers in another memory layout."""
    if layout == "F":
        return np.asfortranarray(x)
    if layout == "T":
        return x.T.copy().T
    if layout == "strided" and x.ndim:
        return np.repeat(x, 2, axis=-1)[..., ::2]
    if layout == "reversed" and x.ndim:
        return x[::-1].copy()[::-1]
    return x


@dataclass(frozen=True)
class Program:
    """Statements, the arguments, and the names that are returned.

    Attributes
    ----------
    specs : tuple of Spec
        Of the arguments ``a0``, ``a1``, ...
    lines : tuple of str
        One or several lines of Python each.
    outputs : tuple of str
        What is returned.
    seed : int
        Of the arguments' numbers.
    """

    specs: tuple[Spec, ...]
    lines: tuple[str, ...]
    outputs: tuple[str, ...]
    seed: int

    @property
    def text(self) -> str:
        names = ", ".join(f"a{k}" for k in range(len(self.specs)))
        body = "".join(f"    {line}\n" for block in self.lines for line in block.split("\n"))
        return f"def f({names}):\n{body}    return ({''.join(f'{name}, ' for name in self.outputs)})\n"

    def function(self) -> Callable[..., Any]:
        """Return the compiled text, whose lines Python and gradtape can find."""
        name = f"<program {zlib.crc32(self.text.encode()):x}>"
        linecache.cache[name] = (len(self.text), None, self.text.splitlines(keepends=True), name)
        namespace: dict[str, Any] = {"np": np, "__name__": "program"}
        exec(compile(self.text, name, "exec"), namespace)
        function: Callable[..., Any] = namespace["f"]
        return function

    def arguments(self, which: int = 0) -> list[Any]:
        """Return arguments; another number gives others."""
        return [spec.draw(self.seed * 31 + 7 * k + 1000003 * which) for k, spec in enumerate(self.specs)]


def copies(args: Sequence[Any]) -> list[Any]:
    """Return the arguments once more, in the same layouts."""
    return [laid_like(arg.copy("K"), arg) if isinstance(arg, np.ndarray) else arg for arg in args]


def quiet(function: Callable[..., Any], *args: Any) -> Any:
    """Call a function without NumPy's warnings."""
    with np.errstate(all="ignore"), warnings.catch_warnings():
        warnings.simplefilter("ignore")
        warnings.simplefilter("error", DeprecationWarning)
        return function(*args)


# Making programs


def generate(seed: int) -> Program:
    """Return a random program that NumPy runs."""
    rng = random.Random(seed)
    specs = tuple(_spec(rng) for _ in range(rng.choice((1, 1, 2, 2, 3))))
    program = Program(specs, (), (), seed)
    state: dict[str, Any] = {f"a{k}": arg for k, arg in enumerate(copies(program.arguments()))}
    lines: list[str] = []
    for number in range(rng.randint(2, 9)):
        line = _statement(rng, state, f"v{number}")
        if line is not None:
            lines.append(line)
    made = [name for name in state if name.startswith("v")]
    outputs = tuple(dict.fromkeys([*made[-3:], *[f"a{k}" for k in range(len(specs)) if rng.random() < 0.4]]))
    return replace(program, lines=tuple(lines), outputs=outputs or ("a0",))


def _spec(rng: random.Random) -> Spec:
    kind = rng.choice(("array",) * 8 + ("scalar", "python"))
    dtype = rng.choice(DTYPES)
    if kind == "array":
        return Spec(rng.choice(SHAPES), dtype, rng.choice(LAYOUTS))
    return Spec((), rng.choice(("f8", "i8")) if kind == "python" else dtype, "C", kind)


def _statement(rng: random.Random, state: dict[str, Any], result: str) -> str | None:
    """Return a statement that NumPy runs in this state, and let it run."""
    for _ in range(20):
        template = rng.choice(TEMPLATES)
        names: dict[str, str] = {"r": result}
        for slot, wants in zip("abc", template.wants, strict=False):
            fitting = [name for name, x in state.items() if wants(x)]
            if not fitting:
                break
            # The newest are the likeliest, so that statements build on each other.
            names[slot] = rng.choice(fitting[-3:] if rng.random() < 0.6 else fitting)
        else:
            line = template.text
            for slot, name in names.items():
                line = line.replace("{" + slot + "}", name)
            if _runs(line, state):
                return line
    return None


def _runs(line: str, state: dict[str, Any]) -> bool:
    trial: dict[str, Any] = _copied(state)
    trial["np"] = np
    try:
        quiet(exec, compile(line, "<statement>", "exec"), trial)
    except Exception:
        return False
    trial = {name: x for name, x in trial.items() if name in state or re.fullmatch(r"v\d+", name)}
    if not all(_is_fine(x) for x in trial.values()):
        return False
    namespace = {"np": np, **state}
    quiet(exec, compile(line, "<statement>", "exec"), namespace)
    state.update({name: namespace[name] for name in trial})
    return True


def _copied(state: dict[str, Any]) -> dict[str, Any]:
    """Return the same arrays once more, with views still views of each other."""
    import copy

    memo: dict[int, Any] = {}
    found: dict[str, Any] = {}
    for name, x in state.items():
        base = x
        while isinstance(base, np.ndarray) and isinstance(base.base, np.ndarray):
            base = base.base
        if base is x or not isinstance(x, np.ndarray) or base.nbytes > 1 << 16:
            found[name] = copy.deepcopy(x, memo)
            continue
        fresh = memo.setdefault(id(base), np.array(base, order="K", copy=True))
        offset = x.__array_interface__["data"][0] - base.__array_interface__["data"][0]
        try:
            view = np.ndarray(x.shape, x.dtype, fresh.data if offset == 0 else fresh, offset, x.strides)
            view.flags.writeable = x.flags.writeable
            found[name] = view
        except (ValueError, TypeError, BufferError):
            found[name] = x.copy()
    return found


def _is_fine(x: Any) -> bool:
    if not isinstance(x, np.ndarray | np.generic | int | float | complex) or type(x) is bool:
        return False  # Python's booleans are subtracted, those of arrays are not
    x = np.asarray(x)
    return (
        x.size <= 200
        and x.dtype.kind in "biufc"
        and x.dtype.char not in "egG"
        and bool(np.all(np.isfinite(x)) and np.all(np.abs(x.astype(complex)) < 1e4))
    )


# Comparing


@dataclass(frozen=True)
class Failure:
    """How a program fails.

    Attributes
    ----------
    way : str
        How it was run.
    what : str
        How the outcome differs.
    """

    way: str
    what: str

    @property
    def bucket(self) -> str:
        """What failures of one cause have in common."""
        what = re.sub(r"(value( \(\w\))?|nan): .*", r"\1", self.what, flags=re.DOTALL)
        return f"{self.way} | {re.sub(r'[-+]?[0-9][0-9.e+-]*', '#', what)[:110]}"


def is_single(*arrays: Any) -> bool:
    """Return whether something is of single precision."""
    return any(np.asarray(array).dtype.char in "efF" for array in arrays)


def difference(found: Any, wanted: Any, loose: float = 1.0, is_joined: bool = False) -> str | None:
    """Return how two results differ. One that `is_joined` may have a larger dtype: the common one of both ways of a branch."""
    found = found.numpy() if isinstance(found, gt.Array) else found
    one, other = np.asarray(found), np.asarray(wanted)
    if is_joined and one.dtype != other.dtype and np.can_cast(other.dtype, one.dtype, "same_kind"):
        other = other.astype(one.dtype)
    if one.dtype != other.dtype:
        return f"dtype {one.dtype} for {other.dtype}"
    if one.shape != other.shape:
        return f"shape {one.shape} for {other.shape}"
    if one.dtype.kind in "biu":
        return None if np.array_equal(one, other) else f"value ({one.dtype.kind}): {one} for {other}"
    if not np.array_equal(np.isnan(one), np.isnan(other)):
        return f"nan: {one} for {other}"
    scale = max(1.0, float(np.max(np.abs(other[np.isfinite(other)]), initial=0.0)))
    if not np.allclose(
        one, other, rtol=0, atol=(2e-3 if is_single(one) else loose * 1e-7) * scale, equal_nan=True
    ):
        return f"value: {one} for {other}"
    return None


def tuple_difference(found: Any, wanted: Any, loose: float = 1.0, is_joined: bool = False) -> str | None:
    for k, (one, other) in enumerate(zip(found, wanted, strict=True)):
        differs = difference(one, other, loose, is_joined)
        if differs is not None:
            return f"output {k}: {differs}"
    return None


class Refused(Exception):
    """The program was refused with a remedy."""


def outcome(call: Callable[[], Any]) -> Any:
    """Return what a call returns; raise `Refused` for errors with a remedy, AssertionError for what must not happen."""
    with warnings.catch_warnings(record=True) as said, np.errstate(all="ignore"):
        warnings.simplefilter("ignore")
        warnings.simplefilter("always", gt.errors.GradtapeWarning)
        try:
            result = call()
        except REFUSALS as error:
            raise Refused(str(error)) from None
        except gt.errors.ShapeError as error:
            if "setting an array element with a sequence" not in str(error):
                raise AssertionError(f"ShapeError: {first_lines(error)}") from None
            raise Refused(
                str(error)
            ) from None  # NumPy does take an array of one element, for a boolean alone
        except Exception as error:
            text = str(error).splitlines()[0] if str(error) else ""
            raise AssertionError(f"{type(error).__name__}: {text}") from None
    for warning in said:
        if warning.category is gt.errors.GradtapeWarning:  # a number leaves the tape: not in silence
            raise Refused(str(warning.message))
        if not LIMITS.search(str(warning.message)):
            raise AssertionError(f"{warning.category.__name__}: {first_lines(warning.message)}")
    return result


def first_lines(said: Any) -> str:
    """Return what a warning says, and why."""
    return " ".join(line.strip() for line in str(said).splitlines()[:2])


@contextmanager
def optimised_by_llvm(is_optimised: bool) -> Iterator[None]:
    """Let LLVM translate without any of its optimisations, if it is said so: in a third of the time."""
    chosen = engine._choose_pipeline
    if not is_optimised:
        engine._choose_pipeline = lambda *args: chosen(*args)._replace(
            opt=0, slp=False, interleaved=False, unrolled=False, code_generation=0
        )
    try:
        yield
    finally:
        engine._choose_pipeline = chosen


def failures(program: Program, *, compiled: bool = False, seed: int = 0) -> Iterator[Failure]:
    """Run a program in all ways, and yield how it fails."""
    f = program.function()
    ways = Ways(program, f)
    try:
        usable = ways.prepare()
    except Exception:
        return
    if not usable:
        return
    rng = random.Random(program.seed + seed)
    try:
        yield from ways.values(compiled=False)
        if ways.is_differentiable:
            yield from ways.slopes(compiled=False)
            if rng.random() < 0.3:
                yield from ways.second_order()
            if rng.random() < 0.3:
                yield from ways.jacobians()
        if rng.random() < 0.3:
            yield from ways.mapped()
        if compiled:
            yield from ways.values(compiled=True)
            yield from ways.tapes(compiled=True)
            if ways.is_differentiable:
                yield from ways.slopes(compiled=True)
        else:
            yield from ways.tapes(compiled=False)
    finally:
        linecache.cache.pop(f.__code__.co_filename, None)


class Ways:
    """A program with its arguments, and what NumPy makes of them."""

    def __init__(self, program: Program, f: Callable[..., Any]) -> None:
        self.program = program
        self.f = f
        self.branches = re.search(r"\bif |\bmax\(|\bwhile ", program.text) is not None
        self.args = program.arguments(0)
        self.others = program.arguments(1)
        self.places = [
            k
            for k, arg in enumerate(self.args)
            if (isinstance(arg, np.ndarray | np.generic) and arg.dtype.kind in "fc") or type(arg) is float
        ]

    def prepare(self) -> bool:
        """Let NumPy run, and return whether the program says something about us."""
        self.wanted = self._numpy(self.args)
        self.loose = 1e4 if is_single(*self.args, *self.wanted) or "float32" in self.program.text else 1.0
        if not all(_is_fine(x) for x in self.wanted):
            return False
        nearby = self._numpy([self._moved(arg, 1e-10) for arg in self.args])
        if tuple_difference(nearby, self.wanted) is not None:
            return False
        if (
            " == " in self.program.text and not self.places
        ):  # integers cannot be moved, floats made of them are equal by rounding
            return False
        try:
            self.other_wanted = self._numpy(self.others)
            if not all(_is_fine(x) for x in self.other_wanted) or tuple_difference(
                self._numpy([self._moved(arg, 1e-10) for arg in self.others]), self.other_wanted
            ):
                self.other_wanted = None
        except Exception:
            self.other_wanted = None
        self.smooth = [k for k, x in enumerate(self.wanted) if np.asarray(x).dtype.kind in "fc"]
        rng = np.random.default_rng(self.program.seed)
        self.weights = [rng.normal(size=np.shape(x)) for x in self.wanted]
        self.direction = {k: self._random_like(self.args[k], rng) for k in self.places}
        self.second = {k: self._random_like(self.args[k], rng) for k in self.places}
        self.is_differentiable = bool(self.places and self.smooth) and self.loose == 1.0
        return True

    def _numpy(self, args: Sequence[Any]) -> Any:
        return quiet(self.f, *copies(args))

    @staticmethod
    def _moved(arg: Any, by: float) -> Any:
        if isinstance(arg, np.ndarray | np.generic) and arg.dtype.kind in "fc":
            if arg.dtype.char in "fF":
                by *= 1e5
            moved = np.array(arg, order="K", copy=True)
            if isinstance(arg, np.ndarray):
                fresh = np.lib.stride_tricks.as_strided(moved, arg.shape, moved.strides)
                fresh += by * np.cos(np.arange(arg.size)).reshape(arg.shape)
                return laid_like(fresh, arg)
            return arg + arg.dtype.type(by)
        return arg + by if type(arg) is float else arg

    @staticmethod
    def _random_like(arg: Any, rng: Any) -> Any:
        shape = np.shape(arg)
        drawn = rng.normal(size=shape)
        dtype = np.asarray(arg).dtype
        if dtype.kind == "c":
            drawn = drawn + 1j * rng.normal(size=shape)
        return np.asarray(drawn).astype(dtype)

    # The ways

    def values(self, *, compiled: bool) -> Iterator[Failure]:
        """Jit, on the interpreter or compiled."""
        way = "jit-compiled" if compiled else "jit-interpreted"
        jitted = gt.jit(self.f)
        rounds = [(way, self.args, self.wanted)]
        if self.other_wanted is not None:
            rounds.append((f"{way}-other", self.others, self.other_wanted))
        if compiled:
            rounds.append((f"{way}-again", self.args, self.wanted))
        with gt.config.override(jit=compiled):
            for name, args, wanted in rounds:
                try:
                    found = outcome(lambda args=args: jitted(*copies(args)))
                except Refused:
                    return
                except AssertionError as error:
                    yield Failure(name, str(error))
                    return
                differs = tuple_difference(found, wanted, self.loose, self.branches)
                if differs is not None:
                    yield Failure(name, differs)
                    return

    def tapes(self, *, compiled: bool) -> Iterator[Failure]:
        """A tape at one line, three times: it records, it records a call trace, it is predicted."""
        names = ("tape-first", "tape-second", "tape-third") if compiled else ("tape-first", "tape-second")
        slopes = []
        with gt.config.override(jit=compiled):
            for name in names:
                others = name == "tape-second" and self.other_wanted is not None
                args = self.others if others else self.args
                args = [
                    arg.copy("K") if k in self.places and isinstance(arg, np.ndarray) else arg
                    for k, arg in enumerate(args)
                ]
                wanted = self._numpy(args)

                def run(args: Any = args) -> Any:
                    with gt.GradientTape() as tape:
                        starts = copies(args)
                        watched = [tape.watch(starts[k]) for k in self.places]
                        for k, start in zip(self.places, watched, strict=True):
                            starts[k] = start.copy("K") if np.ndim(args[k]) else start
                        found = self.f(*starts)
                        loss = self._loss(found) if self.is_differentiable else None
                    found = [x.numpy() if isinstance(x, gt.Array) else x for x in found]
                    if not isinstance(loss, gt.Array):
                        return found, None
                    return found, tape.gradient(loss, watched, unconnected_gradients="zero")

                try:
                    found, slope = outcome(run)
                except Refused:
                    return
                except AssertionError as error:
                    yield Failure(name, str(error))
                    return
                differs = tuple_difference(found, wanted, self.loose)
                if differs is not None:
                    yield Failure(name, differs)
                    return
                if slope is not None and not others:
                    slopes.append([np.asarray(part.numpy()) for part in slope])
        if len(slopes) > 1:
            differs = tuple_difference(slopes[-1], slopes[0])
            if differs is not None:
                yield Failure("tape-gradient-third", differs)

    def _loss(self, results: Any) -> Any:
        total: Any = 0.0
        for k in self.smooth:
            part = results[k]
            part = np.real(part) + np.imag(part) if np.asarray(self.wanted[k]).dtype.kind == "c" else part
            # other arguments may give results of other shapes
            weights = self.weights[k] if np.shape(part) == self.weights[k].shape else 1.0
            total = total + np.sum(part * weights)
        return total

    def _scalar(self, *starts: Any) -> Any:
        """Return a number computed of the differentiable arguments."""
        args = copies(self.args)
        for k, start in zip(self.places, starts, strict=True):
            args[k] = start
        return self._loss(self.f(*args))

    def _starts(self) -> list[Any]:
        return copies([self.args[k] for k in self.places])

    def _argnums(self) -> tuple[int, ...]:
        return tuple(range(len(self.places)))

    def _along(self, slope: Any, direction: dict[int, Any]) -> float:
        return float(
            sum(
                np.sum(np.real(np.conj(np.asarray(part)) * direction[k]))
                for k, part in zip(self.places, slope, strict=True)
            )
        )

    def _differences(self, function: Callable[..., Any], direction: dict[int, Any]) -> Any:
        """Return the derivative of a function along a direction, or None where differences do not settle."""
        found = []
        for step in (1e-4, 5e-5):
            ends = []
            for sign in (1, -1):
                args = copies(self.args)
                for k in self.places:
                    moved = laid_like(np.asarray(args[k] + sign * step * direction[k]), args[k])
                    args[k] = moved if isinstance(args[k], np.ndarray) else moved[()]
                    if type(self.args[k]) is float:
                        args[k] = float(args[k])
                ends.append(np.asarray(quiet(function, *args)))
            found.append((ends[0] - ends[1]) / (2 * step))
        scale = max(1.0, float(np.max(np.abs(found[1]), initial=0.0)))
        settled = np.all(np.isfinite(found[1])) and np.allclose(found[0], found[1], rtol=0, atol=1e-5 * scale)
        return found[1] if settled else None

    def slopes(self, *, compiled: bool) -> Iterator[Failure]:
        """First derivatives."""
        way = "compiled" if compiled else "interpreted"
        with gt.config.override(jit=compiled):
            try:
                slope = outcome(lambda: gt.grad(self._scalar, argnums=self._argnums())(*self._starts()))
            except Refused:
                return
            except AssertionError as error:
                yield Failure(f"grad-{way}", str(error))
                return
            try:
                _, push = outcome(
                    lambda: gt.jvp(
                        self._scalar, tuple(self._starts()), tuple(self.direction[k] for k in self.places)
                    )
                )
            except Refused:
                push = None
            except AssertionError as error:
                yield Failure(f"jvp-{way}", str(error))
                return
        pulled = self._along(slope, self.direction)
        if not np.isfinite(pulled):
            return
        if push is not None:
            differs = difference(np.float64(push), np.float64(pulled))
            if differs is not None:
                yield Failure(f"jvp-against-vjp-{way}", differs)
                return
        seen = self._differences(lambda *args: self._loss(self.f(*args)), self.direction)
        if seen is not None:
            differs = difference(np.float64(pulled), np.float64(seen), loose=1e3)
            if differs is not None:
                yield Failure(f"gradient-against-differences-{way}", differs)

    def second_order(self) -> Iterator[Failure]:
        """Second derivatives: forward over reverse, twice."""
        if any(np.asarray(self.args[k]).dtype.kind == "c" for k in self.places):
            return
        with gt.config.override(jit=False):
            slope = gt.grad(self._scalar, argnums=self._argnums())
            starts = tuple(self._starts())

            def product(direction: dict[int, Any]) -> Any:
                return outcome(
                    lambda: gt.jvp(
                        lambda *given: slope(*given), starts, tuple(direction[k] for k in self.places)
                    )
                )[1]

            try:
                first, second = product(self.direction), product(self.second)
            except Refused:
                return
            except AssertionError as error:
                yield Failure("second-order", str(error))
                return
        one, other = self._along(first, self.second), self._along(second, self.direction)
        if np.isfinite(one) and np.isfinite(other):
            differs = difference(np.float64(one), np.float64(other), loose=10)
            if differs is not None:
                yield Failure("second-order-symmetry", differs)

    def jacobians(self) -> Iterator[Failure]:
        """Jacobians: forward, reverse, and of a tape with and without pfor."""
        place = self.smooth[-1]
        if np.size(self.wanted[place]) > 12 or any(
            np.asarray(x).dtype.kind == "c"
            for x in (self.wanted[place], *[self.args[k] for k in self.places])
        ):
            return

        starts = [x.copy("K") if isinstance(x, np.ndarray) else x for x in self._starts()]

        def part(*starts: Any) -> Any:
            args = copies(self.args)
            for k, start in zip(self.places, starts, strict=True):
                args[k] = start
            return self.f(*args)[place]

        def taped(pfor: bool) -> Any:
            with gt.GradientTape(persistent=True) as tape:
                watched = [tape.watch(start) for start in starts]
                result = part(*[x.copy("K") if x.ndim else x for x in watched])
            if not isinstance(result, gt.Array):
                return None
            blocks = tape.jacobian(result, watched, "zero", experimental_use_pfor=pfor)
            return [block.numpy() for block in blocks]

        with gt.config.override(jit=False):
            found: dict[str, Any] = {}
            ways: dict[str, Callable[[], Any]] = {
                "fwd": lambda: gt.jacfwd(part, argnums=self._argnums())(*starts),
                "rev": lambda: gt.jacrev(part, argnums=self._argnums())(*starts),
                "pfor": lambda: taped(True),
                "loop": lambda: taped(False),
            }
            for name, call in ways.items():
                try:
                    found[name] = outcome(call)
                except Refused:
                    continue
                except AssertionError as error:
                    yield Failure(f"jacobian-{name}", str(error))
        names = [name for name in found if found[name] is not None]
        for name in names[1:]:
            differs = tuple_difference(found[name], found[names[0]])
            if differs is not None and "nan" not in differs:
                yield Failure(f"jacobian-{name}-against-{names[0]}", differs)
                return

    def mapped(self) -> Iterator[Failure]:
        """A map over two sets of arguments against a loop."""
        if self.other_wanted is None or any(spec.kind == "python" for spec in self.program.specs):
            return
        if any(spec.shape == () and spec.dtype == "b1" for spec in self.program.specs):
            return  # of which arrays and scalars are squared to different dtypes
        if any(np.shape(x) != np.shape(y) for x, y in zip(self.wanted, self.other_wanted, strict=True)):
            return
        stacked = [
            np.stack([np.asarray(a), np.asarray(b)]) for a, b in zip(self.args, self.others, strict=True)
        ]
        looped = [self._numpy([whole[k, ...] for whole in stacked]) for k in range(2)]
        wanted = [np.stack([np.asarray(x), np.asarray(y)]) for x, y in zip(*looped, strict=True)]
        for name, chunk_size in (("vmap", None), ("vmap-in-chunks", 1)):
            with gt.config.override(jit=False):
                try:
                    mapped = gt.vmap(self.f, chunk_size=chunk_size)
                    found = outcome(lambda mapped=mapped: mapped(*stacked))
                except Refused:
                    return
                except AssertionError as error:
                    yield Failure(name, str(error))
                    return
            differs = tuple_difference(found, wanted, self.loose, self.branches)
            if differs is not None:
                yield Failure(name, differs)


def laid_like(x: Any, like: Any) -> Any:
    """Return an array in the memory layout of another one of its shape."""
    if not isinstance(like, np.ndarray) or like.flags.c_contiguous:
        return x
    if like.flags.f_contiguous:
        return np.asfortranarray(x)
    return laid_out(x, "reversed" if like.ndim and like.strides[0] < 0 else "strided")


# Shrinking


def minimised(program: Program, bucket: str, *, compiled: bool, most: int = 300) -> tuple[Program, Failure]:
    """Return the smallest program found that fails in the same way, by leaving out and simplifying (delta debugging)."""
    tries = 0

    def failing(candidate: Program) -> Failure | None:
        nonlocal tries
        tries += 1
        try:
            quiet(candidate.function(), *copies(candidate.arguments()))
            for failure in failures(candidate, compiled=compiled):
                if failure.bucket == bucket:
                    return failure
        except Exception:
            return None
        return None

    best = failing(program)
    if best is None:  # it fails after others only
        return program, Failure(bucket, "(not when it runs alone)")
    improved = True
    while improved and tries < most:
        improved = False
        for candidate in _smaller(program):
            failure = failing(candidate)
            if failure is not None:
                program, best, improved = candidate, failure, True
                break
            if tries >= most:
                break
    return program, best


def _smaller(program: Program) -> Iterator[Program]:
    lines, outputs, specs = program.lines, program.outputs, program.specs
    for k in range(len(outputs)):
        if len(outputs) > 1:
            yield replace(program, outputs=(*outputs[:k], *outputs[k + 1 :]))
    for k in reversed(range(len(lines))):
        yield replace(program, lines=(*lines[:k], *lines[k + 1 :]))
    for k, spec in enumerate(specs):
        for other in (
            replace(spec, layout="C"),
            replace(spec, dtype="f8"),
            replace(spec, kind="array"),
            *[
                replace(spec, shape=shape)
                for shape in ((2,), (3,), (2, 2), (2, 3))
                if len(shape) <= len(spec.shape) and shape != spec.shape
            ],
        ):
            if other != spec:
                yield replace(program, specs=(*specs[:k], other, *specs[k + 1 :]))


def report(found: dict[str, tuple[int, Program, Failure]]) -> str:
    """Return a page in Markdown: the smallest program of each bucket."""
    parts = ["# What random programs found\n"]
    for bucket, (count, program, failure) in sorted(found.items(), key=lambda item: -item[1][0]):
        specs = " ".join(map(str, program.specs))
        parts.append(
            f"## {bucket} ({count})\n\nseed {program.seed}: {specs}\n```python\n{program.text}```\n{failure.what}\n"
        )
    return "\n".join(parts)
