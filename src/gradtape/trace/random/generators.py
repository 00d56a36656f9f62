"""Hooks in the methods of NumPy's random number generators, while something records.

In the trace of a jitted function a call is a draw (`Draws`). On a tape it draws at once. Parameters that are traced enter formulas of
noise (`distributions`).
"""

from __future__ import annotations

import operator
import sys
from collections.abc import Callable, Sequence
from types import FrameType
from typing import Any, Final

import numpy as np

from gradtape.errors import DtypeError, UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value
from gradtape.kinds.operands import as_value
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import InBody, Mapped, Trace, abstract_of
from gradtape.trace.lazy.force import force
from gradtape.trace.patching import recorders
from gradtape.trace.patching.conversions.sequences import find_traced
from gradtape.trace.patching.interpose import When, interpose, without_hook
from gradtape.trace.random.comparisons import note_drawn
from gradtape.trace.random.distributions import REPARAMETERISED
from gradtape.trace.random.draws import (
    LEGACY,
    BranchDraws,
    Draws,
    ElementDraws,
    Fresh,
    LoopDraws,
    Sampler,
    Seeded,
    drawn_array,
    is_differentiated,
    warn_of_constant,
)
from gradtape.trace.random.observation import is_own_call, own_calls, record_around
from gradtape.trace.random.samplers import CHOOSING, DISCRETE, SAMPLED, discrete
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.log import note_exit
from gradtape.trace.source.sites import is_user_file, user_site

KINDS: Final = (np.random.Generator, np.random.RandomState)
"""The classes of generators."""

NOT_DRAWS: Final = frozenset({"get_state", "set_state", "spawn", "bytes", "tomaxint"})
"""Methods that return no array, or change the state otherwise."""


def _methods(kind: type) -> dict[str, Any]:
    public = {name: vars(kind)[name] for name in vars(kind) if not name.startswith("_")}
    return {name: method for name, method in public.items() if callable(method)}


_names: Final[dict[Any, str]] = {method: name for kind in KINDS for name, method in _methods(kind).items()}
"""The names of the hooked methods."""


def _hook(method: Any, /, *args: Any, **kwargs: Any) -> Any:
    if is_own_call() or not contexts.stack or not args:
        return NotImplemented
    record = record_around()
    if record is None:
        return _called(method, *args, **kwargs)

    def draw() -> Any:
        numbers = _called(method, *args, **kwargs)
        if numbers is NotImplemented:
            with own_calls():
                numbers = without_hook(method)(*args, **kwargs)
        return numbers

    return record.drawn(draw)


def _called(method: Any, generator: Any, /, *arguments: Any, **kwargs: Any) -> Any:
    trace = trace_around()
    is_any_traced = find_traced((arguments, list(kwargs.values()))) is not None
    if not is_any_traced and (trace is None or _has_made(trace, generator)):
        with own_calls():
            numbers = without_hook(method)(generator, *arguments, **kwargs)
        if _names[method] not in CHOOSING:
            note_drawn(numbers)
        return numbers
    call = Call(_names[method], generator, trace)
    if trace is not None:
        call.check()
    if call.method == "seed":
        return call.reseed(*arguments, **kwargs)
    if not is_any_traced:
        return call.constant(arguments, kwargs)
    elements = {0, "a", "x"} if call.method in CHOOSING else ()
    parameters = [parameter_of(x, position not in elements) for position, x in enumerate(arguments)]
    named = {name: parameter_of(x, name not in elements) for name, x in kwargs.items()}
    if call.method in DISCRETE:
        return discrete(call, method, parameters, named)
    rule = REPARAMETERISED.get(call.method) or SAMPLED.get(call.method)
    return call.without_parameters(arguments, kwargs) if rule is None else rule(call, *parameters, **named)


def _raw(method: Any, /, *args: Any, **kwargs: Any) -> Any:
    """Refuse raw numbers in a trace: they would be constants of the compiled function."""
    if is_own_call() or not contexts.stack or trace_around() is None:
        return NotImplemented
    raise UnsupportedFunctionError(
        "BitGenerator.random_raw is not supported by gradtape",
        where=user_site(),
        why="the compiled function would repeat the numbers of its trace in every call",
        remedy="draw with a method of the generator: rng.integers(2**63, size=n)",
    )


def _make(function: Any, *args: Any, **kwargs: Any) -> Any:
    """Let a traced function make a generator: with a seed it draws the same numbers in each call, without one new ones."""
    trace = trace_around() if contexts.stack and not is_own_call() else None
    arguments = args[1:] if isinstance(function, type) else args  # constructors are called with their type
    seed = arguments[0] if arguments else kwargs.get("seed")
    if len(arguments) + len(kwargs) > 1 or not (arguments or kwargs.keys() <= {"seed"}):
        return NotImplemented
    if isinstance(trace, InBody) and issubclass(type(seed), int):
        with own_calls():
            generator = function(seed)
        trace.draws = trace.draws or Seeded()
        trace.draws.made(generator)
        return generator
    draws = None if trace is None else trace.draws
    if not isinstance(draws, Draws):
        return NotImplemented
    seed = _known_seed(seed, function)
    with own_calls():
        made = function(seed)
    if not isinstance(seed, np.random.Generator | np.random.BitGenerator | np.random.RandomState):
        draws.made(made, Fresh(function, seed))
    return made


def _known_seed(seed: Any, function: Any) -> Any:
    """Return a seed as a number of Python's."""
    if not isinstance(seed, Handle):
        return seed
    if seed.ndim or seed.dtype.kind not in "iu":
        raise DtypeError(
            f"np.random.{function.__name__} got a traced array of {seed.dtype} of shape {seed.shape} as its seed",
            where=user_site(),
            why="a seed is an integer, which is part of the compiled program",
            remedy="pass generators, which are arguments as well: f(np.random.default_rng(seed)); "
            "or one seed, of Python's type int",
        )
    return operator.index(seed)  # type: ignore[arg-type]


def loop_draws() -> LoopDraws | None:
    """Return where the draws in the body of a loop are entered that the user calls here; None where they are refused."""
    trace = trace_around()
    if trace is None:
        return LoopDraws(None, None)
    return LoopDraws(trace.draws, trace) if isinstance(trace.draws, Draws | LoopDraws) else None


def branch_draws(index: Value) -> BranchDraws | None:
    """Return where the draws in a function of a choice are entered; None where they are refused: whether they draw must be known before."""
    if abstract_of(index) is not None:
        return None
    trace = trace_around()
    if trace is None:
        return BranchDraws(None, None)
    return BranchDraws(trace.draws, trace) if isinstance(trace.draws, Draws | LoopDraws) else None


def _has_made(trace: Trace, generator: Any) -> bool:
    """Return whether the body of a loop or branch has made a generator with a seed."""
    return isinstance(trace.draws, Seeded) and trace.draws.knows(generator)


def trace_around() -> Trace | None:
    """Return the trace of the jitted function, or the body of a loop or branch, in which this thread runs; None in an import there."""
    for context in reversed(contexts.stack):
        if isinstance(context, Trace) and not isinstance(context, Mapped):
            return None if _is_importing(sys._getframe(2)) else context
    return None


def _is_importing(frame: FrameType | None) -> bool:
    """Return whether a library is being imported below the user's code: what it draws is its own."""
    while frame is not None and not is_user_file(frame.f_code.co_filename):
        if frame.f_code.co_filename.startswith("<frozen importlib"):
            return True
        frame = frame.f_back
    return False


def parameter_of(x: Any, is_double: bool) -> Any:
    """Return a parameter as an array where it is traced: in double precision for formulas, as NumPy's C code has it."""
    if isinstance(x, list | tuple):
        traced_part: Any = find_traced(x)
        if traced_part is None:
            return x
        x = traced_part.__array_function__(np.array, (type(traced_part),), (x,), {})
    if is_double and isinstance(x, Handle) and x.dtype.kind == "f" and x.dtype != np.float64:
        return x.astype(np.float64)  # type: ignore[attr-defined]
    return x


class Call:
    """One call of a method, which draws for the formulas of distributions.

    Parameters
    ----------
    method : str
        Its name.
    generator : Generator or RandomState
        Its object.
    trace : Trace or None
        The trace that repeats it; None on a tape.

    Attributes
    ----------
    legacy : bool
        Whether the generator is a `RandomState`.
    """

    __slots__ = ("generator", "legacy", "method", "site", "trace")

    def __init__(self, method: str, generator: Any, trace: Trace | None) -> None:
        self.method = method
        self.generator = generator
        self.trace = trace
        self.legacy = isinstance(generator, np.random.RandomState)
        self.site = here.site = user_site()

    @property
    def name(self) -> str:
        """The method as users write it."""
        if self.generator is LEGACY:
            return f"np.random.{self.method}"
        return f"{type(self.generator).__name__}.{self.method}"

    def refusal(self, why: str, remedy: str) -> UnsupportedFunctionError:
        """Return the error for a call that is not supported."""
        return UnsupportedFunctionError(
            f"{self.name} is not supported by gradtape here", where=self.site, why=why, remedy=remedy
        )

    def check(self) -> None:
        """Raise an error where a trace cannot repeat the call."""
        trace = self.trace
        if isinstance(trace, InBody) and not isinstance(trace.draws, LoopDraws):
            raise self.refusal(
                f"it is called in {trace.described}, which runs once in Python: one draw would stand for all",
                "draw before the loop or branch, as often as it may need: z = rng.standard_normal((n, ...)), "
                "and let the body read z[i]; Python's while loops may draw, bodies of gt.scan, gt.map and gt.fori_loop between integers, "
                "and so may functions of gt.cond and gt.switch, if the choice does not depend on an iteration",
            )
        draws = None if trace is None else trace.draws
        if not isinstance(draws, Draws | LoopDraws):
            raise self.refusal(
                "it is called in a function that is traced without its arguments", "draw outside"
            )
        if self.method in NOT_DRAWS:
            raise self.refusal(
                "its result would be frozen at trace time",
                "call it outside the compiled function, or draw from a generator that is made in it: rng = np.random.default_rng(seed)",
            )
        can_find = draws.knows if isinstance(draws, Draws) else draws.can_draw
        if not can_find(self.generator):
            raise self.refusal(
                "where the generator comes from is not known, so that later calls could not find it",
                "make it outside, and pass it as an argument or read it from a closure or global variable",
            )

    def reseed(self, seed: Any = None) -> None:
        """Seed the generator in each call: a draw whose number nobody reads."""
        plain = self._plain("seed")
        plain_seed = _known_seed(seed, plain)

        def sampler(generator: Any) -> float:
            plain(generator, plain_seed)
            return 0.0

        self._drawn(sampler, [])

    def constant(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Draw where no argument is traced."""
        if kwargs.get("out") is not None or self.method == "shuffle":
            raise self.refusal(
                "it writes to an ndarray, which the compiled function does not do again",
                "use its result: x = rng.permutation(x), x = rng.random(n)",
            )
        plain = self._plain(self.method)
        return self._drawn(lambda generator: plain(generator, *args, **kwargs), [])

    def without_parameters(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Draw from a distribution that has no parameters, so that a traced argument is the size."""

        def known(x: Any) -> Any:
            if isinstance(x, list | tuple):
                return tuple(map(known, x))
            if isinstance(x, Handle) and (x.ndim or x.dtype.kind not in "iu"):
                raise self.refusal("it has no rule for traced arguments", "give it numbers")
            return operator.index(x) if isinstance(x, Handle) else x  # type: ignore[arg-type]

        return self.constant([known(x) for x in args], {name: known(x) for name, x in kwargs.items()})

    def __call__(self, method: str, /, *parameters: Any, **named: Any) -> Any:
        """Draw with a method of the same generator."""
        items = [*enumerate(parameters), *named.items()]
        traced = [key for key, x in items if isinstance(x, Handle)]
        values = [x.value for _, x in items if isinstance(x, Handle)]
        plain = self._plain(method)

        def sampler(generator: Any, *arrays: Any) -> Any:
            numbers = dict(zip(traced, arrays, strict=True))
            arguments = [numbers.get(key, x) for key, x in enumerate(parameters)]
            return plain(generator, *arguments, **{name: numbers.get(name, x) for name, x in named.items()})

        return self._drawn(sampler, values)

    def _plain(self, method: str) -> Any:
        """Return a method without its hook."""
        return without_hook(_methods(type_of(self.generator))[method])

    def _drawn(self, sampler: Sampler, parameters: Sequence[Value]) -> Any:
        tags = [tag for value in parameters if (tag := abstract_of(value)) is not None]
        if tags:
            return self._drawn_for_each(max(tags, key=_depth), sampler, parameters)
        warning = self._warning(parameters)
        if warning is not None and any(map(is_differentiated, parameters)):
            warning()
        if self.trace is None:
            numbers = force(parameters)
            if warning is not None:
                for value, data in zip(parameters, numbers, strict=True):
                    note_exit(value, f"{self.name}(...)", data, meant=False)
            array, _ = drawn_array(sampler, self.generator, numbers)
            return array if array.ndim else array[()]
        draws: Draws | LoopDraws = self.trace.draws
        value = draws.draw(self.trace, self.generator, sampler, parameters, warning)
        if value.dtype.kind not in "biufc":
            raise self.refusal(
                f"it returns elements of the type {value.dtype}, which arrays of a compiled function cannot hold",
                "draw positions: k = rng.integers(len(items))",
            )
        return Array(value)

    def _warning(self, parameters: Sequence[Value]) -> Callable[[], None] | None:
        return warn_of_constant(self.name, self.site) if self.method in DISCRETE and parameters else None

    def _drawn_for_each(self, tag: Any, sampler: Sampler, parameters: Sequence[Value]) -> Any:
        """Draw with the parameters of all elements of the innermost mapped axis, and return what stands for the numbers of each."""
        if not isinstance(tag, Mapped) or tag.whole is None or tag.element is None:
            raise self.refusal(
                "its numbers depend on a parameter through an algorithm, not a formula, and the parameter differs between elements",
                "draw for all elements in one call outside the mapped function, loop or branch, and pass the numbers to it",
            )
        is_mapped = [tag in value.tags for value in parameters]
        wholes = [
            tag.whole(value) if flag else value for value, flag in zip(parameters, is_mapped, strict=True)
        ]
        if any(value.shape[0] == 0 for value, flag in zip(wholes, is_mapped, strict=True) if flag):
            raise self.refusal("there is no element to draw for", "omit mapped axes of length 0")
        each = ElementDraws(sampler, is_mapped)
        drawn = self._drawn(each, wholes)
        return Array(
            tag.element(as_value(drawn.value if isinstance(drawn, Handle) else drawn), each.is_plain)
        )


def _depth(tag: Any) -> int:
    """Return how many contexts are around a mapped axis; more than around any for another tag."""
    return tag.depth if isinstance(tag, Mapped) else sys.maxsize


def type_of(generator: Any) -> type:
    """Return the class of NumPy's that a generator is an instance of."""
    return next(kind for kind in KINDS if isinstance(generator, kind))


def _interpose() -> None:
    interpose(_hook, When.ALWAYS, _names)
    interpose(_make, When.ALWAYS, [np.random.default_rng, np.random.RandomState])
    interpose(_raw, When.ALWAYS, [np.random.BitGenerator.random_raw])


recorders.before_recording(_interpose)
