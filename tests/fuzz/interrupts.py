"""Ctrl-C, or an alarm, at any instant: NumPy's names, locks, contexts, settings and caches are right afterwards.

A scenario runs under a trace function that raises KeyboardInterrupt at the n-th instant at which Python looks for signals (a Python
function begins, a call returns, a loop turns back) in gradtape, and in what it calls; with `--alarms`, the handler of a signal
raises TimeoutError there. Afterwards

- the names in NumPy, SciPy and this module stand for what they stood for,
- no context is in force, nobody attends, no setting has changed, no lock is held (another thread records and compiles),
- the same scenario gives the numbers that it gives without an interruption, twice.

    python -m tests.fuzz.interrupts --rounds 100000 --seed 1
    python -m tests.fuzz.interrupts --scenario vmap --at 1234 --alarms
"""

from __future__ import annotations

import argparse
import contextlib
import dis
import gc
import itertools
import random
import signal
import sys
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from types import CodeType, FrameType, ModuleType
from typing import Any, ClassVar

import numpy as np
import scipy.linalg
import scipy.special
from numpy import sum as total
from numpy import zeros

import gradtape as gt
from gradtape import collector
from gradtape.api.tape import number_flow
from gradtape.api.transforms import sharing
from gradtape.runtime.compile import program
from gradtape.trace.lazy import call_observer, instruments, pending
from gradtape.trace.source import contexts
from tests.support.compiled import forget_structures

X = np.linspace(0.1, 1.0, 7)
LARGE = np.linspace(0.1, 1.0, 60_000)
SCENARIOS: dict[str, Callable[[float], Any]] = {}
TRACED = ("gradtape", "contextlib", "threading", "weakref", "functools", "optree", __name__)


def scenario(function: Callable[[float], Any]) -> Callable[[float], Any]:
    """Enter a scenario: a function of a number, which is another one in each round, so that nothing is compiled yet."""
    SCENARIOS[function.__name__] = function
    return function


# Scenarios


def curve(x, k):
    y = np.sin(x * k) * np.cos(x)
    return total(y * y)


@scenario
def tape(k):
    results = []
    for _ in range(4):
        with gt.GradientTape() as t:
            x = t.watch(X)
            loss = curve(x, k)
        results.append(t.gradient(loss, x).numpy())
    return results


@scenario
def tape_and_numbers(k):
    results = []
    for _ in range(3):
        with gt.GradientTape() as t:
            x = t.watch(X)
            y = np.exp(x) * k
            if y[0] > 0:
                y = y - np.mean(y)
            loss = np.sum(y**2)
            results.append(float(loss))
        results.append(t.gradient(loss, x).numpy())
    return results


@scenario
def jit(k):
    f = gt.jit(lambda x: np.exp(x) * k + total(x))
    return f(X), f(X), f(1.5)


@scenario
def jit_with_branches(k):
    def g(x):
        y = x * k
        for _ in range(3):
            y = y * 2.0 if np.sum(y) > 0 else y * 3.0
        return np.sum(y)

    f = gt.grad(g)
    return f(X), f(-X), f(X)


@scenario
def nested_tapes(k):
    with gt.GradientTape() as outer:
        x = outer.watch(X)
        with gt.GradientTape() as inner:
            inner.watch(x)
            y = total(x**3 * k)
        slope = total(inner.gradient(y, x) ** 2)
    return outer.gradient(slope, x).numpy()


@scenario
def persistent(k):
    with gt.GradientTape(persistent=True) as t:
        x = t.watch(X)
        y = np.sin(x * k)
        with t.stop_recording():
            c = np.sum(y)
        loss = np.sum(y) * c
    return t.gradient(loss, x).numpy(), t.jacobian(y, x).numpy()


@scenario
def variables(k):
    v = gt.Variable(X.copy())
    f = gt.jit(lambda x: v.assign_add(x * k))
    with gt.GradientTape() as t:
        loss = total(v * v * k)
    v.assign_sub(0.1 * t.gradient(loss, v))
    f(X)
    return v.numpy()


@scenario
def preallocated(k):
    with gt.GradientTape() as t:
        x = t.watch(2.0)
        y, z = zeros(3), np.ones((2, 3))
        y[1] = x * k
        z[0] = y
        loss = np.sum(z) * x
    return float(t.gradient(loss, x))


def preallocating(x, k):
    y = zeros(len(x))
    for i in range(len(x)):
        y[i] = x[i] * k
    return total(np.array([y[0], y[1] * y[2]]))


@scenario
def preallocated_in_grad(k):
    return gt.grad(preallocating)(X, k)


@scenario
def custom_gradient(k):
    @gt.custom_gradient
    def f(x):
        return x * 2.0, lambda u: u * k

    return gt.grad(lambda x: total(f(x)))(X)


@scenario
def functional(k):
    y, pull = gt.vjp(lambda x: np.sin(x) * k, X)
    return (
        y,
        pull(X),
        gt.jvp(lambda x: np.cos(x * k), (X,), (X,)),
        gt.hvp(lambda x: np.sum(x**3) * k, (X,), (X,)),
    )


@scenario
def jacobians(k):
    return gt.jacobian(lambda x: np.sin(x) * k)(X), gt.hessian(lambda x: np.sum(np.sin(x) * k))(X)


@scenario
def loops(k):
    with gt.GradientTape() as t:
        x = t.watch(2.0)
        y = gt.fori_loop(0, 3, lambda i, c: c * k, x)
        z = gt.while_loop(lambda c: c < 100.0, lambda c: c * 2.0, y)
        w = gt.cond(z > 0, lambda z: z * k, lambda z: z, z)
        s, _ = gt.scan(lambda c, e: (c * e, c), w, X)
    return float(t.gradient(s, x))


@scenario
def vmap(k):
    return gt.vmap(lambda x: np.sum(x) * k)(np.ones((3, 4)))


@scenario
def forward(k):
    x = gt.constant(X)
    with gt.ForwardAccumulator(x, gt.constant(X)) as directions:
        y = total(np.sin(x) * k)
    return float(directions.jvp(y))


@scenario
def checkpoint(k):
    return gt.grad(gt.checkpoint(lambda x: total(np.sin(np.cos(x * k)))))(X)


@scenario
def scipy_functions(k):
    def f(x):
        a = np.outer(x, x) + np.eye(len(x)) * (k + 3)
        return scipy.special.logsumexp(x * k) + total(scipy.linalg.solve(a, x))

    return gt.grad(f)(X)


@scenario
def generator(k):
    def steps():
        with gt.GradientTape() as t:
            x = t.watch(X)
            yield x * k
            y = total(x * x * k)
        yield t.gradient(y, x)

    first, second = steps()
    return first.numpy(), second.numpy()


@scenario
def settings(k):
    with gt.config.override(reroll=False, precise_math=True):
        return gt.grad(lambda x: np.sum(np.exp(x * k)))(X)


@scenario
def large_results(k):
    f = gt.jit(lambda x: (x * k, x + k))
    a, b = f(LARGE)
    a, b = f(a)
    return float(np.sum(a)), float(np.sum(b))


@scenario
def numerics_checked(k):
    with gt.debug.check_numerics():
        with gt.GradientTape() as t:
            x = t.watch(X)
            y = np.sum(np.sqrt(x) * k)
        return t.gradient(y, x).numpy()


@scenario
def called_by_kernels(k):
    def body(x, _):
        return np.sin(x * k) + gt.callback(np.sort, x, gt.stop_gradient(x)), x[0]

    return gt.grad(lambda x: np.sum(gt.scan(body, x, None, length=5)[0]))(X)


@scenario
def profiled(k):
    f = gt.jit(lambda x: np.sum(np.exp(x) * k))
    with contextlib.redirect_stdout(None):
        gt.inspect.profile(f, X)
    return f(X)


# Instants


def instants_of(code: CodeType) -> frozenset[int]:
    """Return the places behind which Python looks for signals: behind calls and where loops turn back."""
    return frozenset(
        instruction.offset
        for instruction in dis.get_instructions(code)
        if instruction.opname.startswith(("CALL", "JUMP_BACKWARD"))
    )


class Alarm(TimeoutError):
    """What handlers of a program raise: an OSError, as Python's own class is."""


class Interruption:
    """Raises KeyboardInterrupt once inside its block, or an error from the handler of a signal.

    Parameters
    ----------
    raised : type
        What to raise: KeyboardInterrupt, or Alarm, which a handler raises.

    Attributes
    ----------
    place : str
        Where it was raised.
    lost : bool
        Whether Python could not hand it on: in a finaliser or a callback of its own.
    ignored : list of str
        Other errors that it has led to there.
    """

    def __init__(self, raised: type[BaseException] = KeyboardInterrupt) -> None:
        self.raised = raised
        self.place = ""
        self.lost = False
        self.ignored: list[str] = []

    def __enter__(self) -> Any:
        self._hook, sys.unraisablehook = sys.unraisablehook, self._note_lost
        self._handler = signal.signal(signal.SIGALRM, self._handle)
        self.begin()
        return self

    def __exit__(self, *error: object) -> None:
        self.end()
        signal.signal(signal.SIGALRM, self._handler)
        sys.unraisablehook = self._hook

    def begin(self) -> None:
        """Lie in wait."""

    def end(self) -> None:
        """Do nothing more."""

    def interrupt(self, frame: FrameType | None) -> None:
        """Raise it."""
        self.place = "".join(traceback.format_stack(frame, 12))
        if self.raised is KeyboardInterrupt:
            raise KeyboardInterrupt
        signal.raise_signal(signal.SIGALRM)

    def _handle(self, number: int, frame: FrameType | None) -> None:
        self.place = "".join(traceback.format_stack(frame, 12))
        raise self.raised

    def _note_lost(self, unraisable: Any) -> None:
        if unraisable.exc_type is self.raised and "ctypes" not in (unraisable.err_msg or ""):
            self.lost = True
        else:
            self.ignored.append(f"ignored in {unraisable.object!r}: {unraisable.exc_value!r}")


class Signal(Interruption):
    """Raises it by a signal, at a moment of Python's own choice.

    Parameters
    ----------
    seconds : float
        After which time.
    raised : type
        What to raise.
    """

    def __init__(self, seconds: float, raised: type[BaseException] = KeyboardInterrupt) -> None:
        super().__init__(raised)
        self._seconds = seconds

    def begin(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, self._seconds)

    def end(self) -> None:
        signal.setitimer(signal.ITIMER_REAL, 0.0)


class Instant(Interruption):
    """Counts instants, and raises it at one of them.

    Parameters
    ----------
    at : int
        Which; -1 for none.
    raised : type
        What to raise.

    Attributes
    ----------
    count : int
        How many there were.
    """

    _known: ClassVar[dict[CodeType, frozenset[int]]] = {}

    def __init__(self, at: int, raised: type[BaseException] = KeyboardInterrupt) -> None:
        super().__init__(raised)
        self.at = at
        self.count = 0

    def begin(self) -> None:
        sys.settrace(self._global)

    def end(self) -> None:
        sys.settrace(None)

    def _global(self, frame: FrameType, event: str, arg: Any) -> Any:
        module = frame.f_globals.get("__name__", "")
        if module.partition(".")[0] not in TRACED and module != __name__:
            return None
        frame.f_trace_opcodes = True
        frame.f_trace_lines = False
        instants = self._known.get(frame.f_code)
        if instants is None:
            instants = self._known[frame.f_code] = instants_of(frame.f_code)
        before = -1

        def local(frame: FrameType, event: str, arg: Any) -> Any:
            nonlocal before
            if event == "opcode":
                if before in instants:
                    self._tick(frame)
                before = frame.f_lasti
            return local

        self._tick(frame)
        return local

    def _tick(self, frame: FrameType) -> None:
        self.count += 1
        if self.count - 1 == self.at:
            self.interrupt(frame)


# What must be as before


def namespaces() -> list[ModuleType]:
    modules = [np, np.linalg, np.fft, np.random, np.lib, np.ma, scipy.special, scipy.linalg]
    return [*modules, sys.modules[__name__]]


class Names:
    """What names stand for, to be compared."""

    def __init__(self) -> None:
        self._before = [(module, dict(vars(module))) for module in namespaces()]

    def changed(self) -> list[str]:
        return [
            f"{module.__name__}.{name} is another object"
            for module, before in self._before
            for name in before.keys() | vars(module).keys()
            if vars(module).get(name) is not before.get(name) and not name.startswith("__")
        ]


def locks() -> dict[str, Any]:
    """Return every lock that a global object of the package holds, by its name."""
    kinds = (type(threading.RLock()), type(threading.Lock()))
    found = {}
    for name, module in list(sys.modules.items()):
        if name.partition(".")[0] != "gradtape":
            continue
        for key, item in list(vars(module).items()):
            parts = {key: item}
            if type(item).__module__.startswith("gradtape"):
                slots = [slot for kind in type(item).__mro__ for slot in getattr(kind, "__slots__", ())]
                for part in (*getattr(item, "__dict__", ()), *slots):
                    parts[f"{key}.{part}"] = getattr(item, part, None)
            for path, part in parts.items():
                several = part if isinstance(part, tuple) else (part,)
                for number, lock in enumerate(several):
                    if isinstance(lock, kinds):
                        found[f"{name}.{path}[{number}]"] = lock
    return found


class Watchdog:
    """Does things on another thread, and says what went wrong, or that it takes too long."""

    def __init__(self, seconds: float = 30.0) -> None:
        self._seconds = seconds

    def run(self, work: Callable[[], None]) -> list[str]:
        problems: list[str] = []

        def guarded() -> None:
            try:
                work()
            except BaseException:
                problems.append(f"on another thread:\n{traceback.format_exc()}")

        thread = threading.Thread(target=guarded, daemon=True)
        thread.start()
        thread.join(self._seconds)
        if thread.is_alive():
            frame = sys._current_frames().get(thread.ident or 0)
            where = "" if frame is None else "".join(traceback.format_stack(frame))
            problems.append(f"another thread waits for ever:\n{where}")
        return problems


def state() -> dict[str, Any]:
    """Return what is in force on this thread and in this process."""
    return {
        "contexts": list(contexts.contexts.stack),
        "replays": list(contexts.contexts.replays),
        "observer": call_observer.prediction.observer,
        "only requested": pending.live_arrays.only_requested,
        "tools": instruments.RECORDING.tools,
        "checks": list(instruments.CHECKS),
        "profiler": program.ACTIVE.profiler,
        "observers": list(gt.transforms.observers.OBSERVERS),
        "collector": gc.isenabled(),
        "pauses": dict(collector._depths),
        "settings": str(gt.config),
    }


def work_of_another(k: float) -> None:
    for name, lock in locks().items():
        if not lock.acquire(timeout=20.0):  # LLVM may still be at work for who was interrupted
            raise AssertionError(f"{name} is held")
        lock.release()
    f = gt.jit(lambda x: np.sin(x) * k)
    np.testing.assert_allclose(f(X), np.sin(X) * k, rtol=1e-12)
    with gt.GradientTape() as t:
        x = t.watch(X)
        y = np.sum(x * x * k)
    np.testing.assert_allclose(t.gradient(y, x).numpy(), 2 * X * k, rtol=1e-12)


def leaves(result: Any) -> Iterator[Any]:
    if isinstance(result, tuple | list):
        for item in result:
            yield from leaves(item)
    else:
        yield np.asarray(result)


def same(result: Any, expected: Any, tolerance: float = 1e-9) -> bool:
    """Return whether nests of arrays have the same shapes, and numbers as close as that."""
    mine, theirs = list(leaves(result)), list(leaves(expected))
    return len(mine) == len(theirs) and all(
        one.shape == other.shape and np.allclose(one, other, rtol=tolerance, atol=tolerance / 1000)
        for one, other in zip(mine, theirs, strict=True)
    )


numbers = itertools.count(1)


def fresh() -> float:
    """Return a number that no program has met."""
    return 1.0 + next(numbers) / 8192


def forget() -> None:
    """Forget what a scenario that has run once need not do again: it has as many instants each time.

    A number that none has met needs a program of its own, functions of one code share programs, and numbers that leave a tape are
    looked up in the source.
    """
    forget_structures()
    sharing.clear()
    number_flow._parsed.cache_clear()
    number_flow._flows.clear()


class Fuzzer:
    """Interrupts scenarios.

    Parameters
    ----------
    seed : int
        Of the choices.
    signals : bool
        Whether to interrupt by signals.
    raises : type
        What to raise.
    """

    def __init__(
        self, seed: int, *, signals: bool = False, raises: type[BaseException] = KeyboardInterrupt
    ) -> None:
        self.random = random.Random(seed)
        self.signals = signals
        self.raises = raises
        self.counts: dict[str, int] = {}
        self.raised = 0
        self.lost = 0
        with gt.config.override(disk_cache=False):  # what is imported late is imported now
            for function in SCENARIOS.values():
                function(fresh())
        self.names = Names()
        self.state = state()

    def count(self, name: str) -> int:
        """Return how many instants a scenario has, once what is kept for good has been made."""
        if name not in self.counts:
            for _ in range(2):
                forget()
                with Instant(-1) as interruption:
                    SCENARIOS[name](fresh())
            self.counts[name] = interruption.count
        return self.counts[name]

    def seconds(self, name: str) -> float:
        """Return how long a scenario takes."""
        begin = time.perf_counter()
        SCENARIOS[name](fresh())
        return time.perf_counter() - begin

    def round(self, name: str | None = None, at: int | None = None) -> tuple[str, int, list[str]]:
        """Interrupt a scenario once; return which, when, and what is wrong afterwards."""
        with gt.config.override(disk_cache=False):
            name = name or self.random.choice(list(SCENARIOS))
            function = SCENARIOS[name]
            k = fresh()
            result, returned = None, False
            interruption: Interruption
            if self.signals:
                at = 0
                interruption = Signal(self.random.random() * self.seconds(name), self.raises)
            else:
                at = self.random.randrange(self.count(name)) if at is None else at
                interruption = Instant(at, self.raises)
            forget()
            try:
                with interruption:
                    result = function(k)
                returned = True
            except self.raises:
                self.raised += 1
            problems = list(interruption.ignored)
            if returned and interruption.place and not interruption.lost:
                problems.append("the interruption was swallowed")
            self.lost += interruption.lost
            gc.collect(0)
            problems += self.names.changed()
            now = state()
            now["settings"], before = None, {**self.state, "settings": None}
            problems += [f"{key}: {now[key]}, was {before[key]}" for key in before if now[key] != before[key]]
            problems += Watchdog().run(lambda: work_of_another(k))
            first = function(k)
            second = function(k)
            with gt.config.override(jit=False):
                expected = function(k)
            if returned and not same(result, expected):
                problems.append(f"the result is {result}, not {expected}")
            if not same(first, expected) or not same(second, expected):
                problems.append(f"run again: {first}, then {second}, not {expected}")
            problems += self.names.changed()
        if str(gt.config) != self.state["settings"]:
            problems.append(f"settings: {gt.config}")
        if problems:
            problems.append(f"interrupted at\n{interruption.place}")
            self.names, self.state = Names(), state()  # the next finding is another one
        return name, at, problems


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--scenario", choices=list(SCENARIOS))
    parser.add_argument("--at", type=int)
    parser.add_argument(
        "--signals", action="store_true", help="interrupt by signals: findings cannot be repeated"
    )
    parser.add_argument(
        "--alarms", action="store_true", help="interrupt by a handler that raises TimeoutError"
    )
    parser.add_argument("--most", type=int, default=20, help="findings after which to stop")
    options = parser.parse_args()
    fuzzer = Fuzzer(
        options.seed, signals=options.signals, raises=Alarm if options.alarms else KeyboardInterrupt
    )
    found = 0
    for number in range(1 if options.at is not None else options.rounds):
        name, at, problems = fuzzer.round(options.scenario, options.at)
        if problems:
            found += 1
            print(f"--- round {number}: --scenario {name} --at {at}", *problems, sep="\n", flush=True)
            if found >= options.most:
                break
    print(
        f"{fuzzer.raised} interruptions raised, {fuzzer.lost} lost by Python, {found} findings, seed {options.seed}"
    )
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
