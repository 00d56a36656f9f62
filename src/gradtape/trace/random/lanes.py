"""Draws for all samples at once: in a function of one sample that is mapped over samples, each sample has random numbers of its own.

In `gt.vmap` a draw is shared by the elements. A `LaneGenerator` draws for all samples, along a first axis, and returns what stands for the
numbers of one of them.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import lru_cache, partial
from typing import Any, Final, NamedTuple

import numpy as np

from gradtape.errors import UnsupportedFunctionError
from gradtape.ir.graph import Value
from gradtape.ir.types import is_inexact
from gradtape.kinds.operands import as_value
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import Mapped, abstract_of
from gradtape.trace.patching.conversions.sequences import find_traced
from gradtape.trace.patching.interpose import without_hook
from gradtape.trace.random.comparisons import of_samples
from gradtape.trace.random.distributions import REPARAMETERISED, as_shape
from gradtape.trace.random.draws import Sampler
from gradtape.trace.random.generators import Call, parameter_of, trace_around
from gradtape.trace.random.observation import Record
from gradtape.trace.random.samplers import CHOOSING, DISCRETE, SAMPLED, discrete
from gradtape.trace.source.sites import user_site

OF_VECTORS: Final = frozenset(
    {"choice", "dirichlet", "multinomial", "multivariate_hypergeometric", "multivariate_normal"}
)
"""Methods whose array parameters are not broadcast with `size`."""

OPTIONS: Final = frozenset(
    {"dtype", "out", "replace", "axis", "method", "shuffle", "endpoint", "check_valid", "tol"}
)
"""Parameters that are no arrays."""

ROOT: Final = 1.0 / np.sqrt(2.0 * np.pi)

DENSITIES: Final[dict[str, Callable[[Any], Any]]] = {
    "random": lambda z: np.where((z >= 0.0) & (z <= 1.0), 1.0, 0.0),
    "standard_exponential": lambda z: np.where(z >= 0.0, np.exp(-np.maximum(z, 0.0)), 0.0),
    "standard_normal": lambda z: ROOT * np.exp(-0.5 * z * z),
    "logistic": lambda z: np.exp(-np.abs(z)) / (1.0 + np.exp(-np.abs(z))) ** 2,
    "laplace": lambda z: 0.5 * np.exp(-np.abs(z)),
    "gumbel": lambda z: np.exp(-z - np.exp(np.minimum(-z, 700.0))),
}
"""The densities of random numbers without parameters."""

CENTRED: Final[dict[str, Callable[[Any], list[Any]]]] = {
    "random": lambda z: [z - 0.5, (z - 0.5) ** 2 - 1.0 / 12.0],
    "standard_exponential": lambda z: [z - 1.0, (z - 2.0) ** 2 - 2.0],
    "standard_normal": lambda z: [z, z * z - 1.0, z * (z * z - 3.0)],
}
"""Functions of such numbers whose means are 0: orthogonal polynomials."""

SAME: Final = {
    "random_sample": "random",
    "rand": "random",
    "randn": "standard_normal",
    "uniform": "random",
    "normal": "standard_normal",
    "exponential": "standard_exponential",
}
"""Methods that draw such numbers when they have no parameters, by name."""


STANDARD: Final = {
    **dict.fromkeys(("uniform", "normal", "logistic", "laplace", "gumbel"), (0.0, 1.0)),
    "exponential": (1.0,),
}
"""Parameters with which methods draw such numbers."""


class Drawn(NamedTuple):
    """Random numbers of a sample.

    Attributes
    ----------
    value : Value
        The numbers.
    density : callable or None
        Their density, where they are independent and have no parameters.
    is_unit : bool
        Whether they are uniform between 0 and 1.
    draw : callable
        ``(size) -> Array``: draws uniform numbers from the same generator.
    centred : callable or None
        ``(numbers) -> list of Array``: functions of the numbers whose means are 0.
    """

    value: Value
    density: Callable[[Any], Any] | None
    is_unit: bool
    draw: Callable[..., Any]
    centred: Callable[[Any], list[Any]] | None


class Constant(NamedTuple):
    """Numbers of a discrete distribution whose parameters have no part in derivatives.

    Attributes
    ----------
    value : Value
        The numbers of a sample.
    parameters : sequence of Value
        The parameters that are traced real numbers.
    name : str
        The method, as users write it.
    site : object
        The call.
    """

    value: Value
    parameters: Sequence[Value]
    name: str
    site: Any


class Lanes:
    """The samples of a function that is mapped over them.

    Parameters
    ----------
    size : int
        How many there are.
    tag : Mapped
        That of a single sample.
    trace : Trace or None
        The trace around the map.
    rules : dict
        Discrete distributions with traced parameters, by the names of the methods: ``rule(lanes, call, **given)``.

    Attributes
    ----------
    decisions : list
        For the rules: the decisions that they have made.
    constants : list of Constant
        The draws whose derivatives are refused.
    drawn_numbers : list of Drawn
        What the function has drawn.
    """

    __slots__ = ("constants", "decisions", "drawn_numbers", "rules", "size", "tag", "trace")

    def __init__(self, size: int, tag: Mapped, trace: Any, rules: dict[str, Callable[..., Any]]) -> None:
        self.size = size
        self.tag = tag
        self.trace = trace
        self.rules = rules
        self.decisions: list[Any] = []
        self.constants: list[Constant] = []
        self.drawn_numbers: list[Drawn] = []

    def drawn(
        self,
        draw: Callable[..., Any],
        method: Callable[..., Any],
        name: str,
        draw_numbers: Callable[..., Any],
        draw_uniform: Callable[..., Any],
        args: Sequence[Any],
        kwargs: dict[str, Any],
    ) -> Any:
        """Draw for all samples, and return what stands for the numbers of one.

        Parameters
        ----------
        draw : callable
            ``(**parameters)``: draws with parameters of all samples.
        method : callable
            The method, as a function of its generator and the parameters.
        name : str
            Its name.
        draw_numbers : callable
            ``(sampler, values)``: draws by a sampler, which gets the generator.
        draw_uniform : callable
            ``(size)``: draws uniform numbers for each sample from the same generator.
        args, kwargs
            The parameters of one sample.
        """
        parameters, size, is_vectorised = _arguments(method, name, args, kwargs)
        traced = {key: item for key, item in parameters.items() if isinstance(item, Handle)}
        mapped = {key: item for key, item in traced.items() if abstract_of(item.value) is not None}
        if not is_vectorised or (mapped and name in OF_VECTORS):
            if traced:
                raise UnsupportedFunctionError(
                    f"rng.{name} with traced parameters is not supported in a function of gt.expectation",
                    where=user_site(),
                    why="it has no way to draw for all samples at once",
                    remedy="compose it of rng.random(), rng.choice(p=...), rng.binomial and rng.poisson",
                )
            plain = without_hook(method)
            draws = draw_numbers(lambda generator: self._stacked(plain, generator, args, kwargs), [])
            return self._one(draws, name, args, kwargs, draw_uniform, is_plain=False)
        arrays = [item for key, item in parameters.items() if key not in OPTIONS]
        shape = (
            size
            if size is not None
            else ()
            if name in OF_VECTORS
            else np.broadcast_shapes(*map(np.shape, arrays))
        )
        whole_of = self.tag.whole
        assert whole_of is not None  # vmap sets it while one element is traced
        for key, item in mapped.items():
            of_all_samples = Array(whole_of(item.value))
            parameters[key] = np.reshape(
                of_all_samples, (self.size, *[1] * (len(shape) - item.ndim), *item.shape)
            )
        draws = draw(size=(self.size, *shape), **parameters)
        parameters = {key: item for key, item in parameters.items() if key not in OPTIONS}
        return self._one(draws, name, (), parameters, draw_uniform, is_plain=size is None and not shape)

    def _stacked(
        self, method: Callable[..., Any], generator: Any, args: Sequence[Any], kwargs: dict[str, Any]
    ) -> Any:
        return np.stack([method(generator, *args, **kwargs) for _ in range(self.size)])

    def _one(
        self,
        draws: Any,
        name: str,
        args: Sequence[Any],
        given: dict[str, Any],
        draw: Callable[..., Any],
        is_plain: bool,
    ) -> Any:
        value = draws.value if isinstance(draws, Handle) else as_value(draws)
        element_of = self.tag.element
        assert element_of is not None  # as `whole`
        single: Value = element_of(value, is_plain)
        standard = SAME.get(name, name)
        parameters = [*args, *given.values()] if name not in ("rand", "randn") else []
        is_standard = not parameters or (
            name in STANDARD
            and all(np.ndim(x) == 0 and not isinstance(x, Handle) for x in parameters)
            and tuple(map(float, parameters)) == STANDARD[name][: len(parameters)]
        )
        density = DENSITIES.get(standard) if is_standard and value.dtype == np.float64 else None
        centred = None if density is None else CENTRED.get(standard)
        self.drawn_numbers.append(Drawn(single, density, standard == "random", draw, centred))
        return Array(single)


def _arguments(
    method: Callable[..., Any], name: str, args: Sequence[Any], kwargs: dict[str, Any]
) -> tuple[dict[str, Any], tuple[int, ...] | None, bool]:
    """Return the arguments by name, the size, and whether one call can draw for all samples."""
    signature = _signature(method)
    if "size" not in signature.parameters or name in ("rand", "randn"):
        return {**{str(k): x for k, x in enumerate(args)}, **kwargs}, None, False
    arguments = dict(signature.bind(None, *args, **kwargs).arguments)
    arguments.pop("self")
    size = arguments.pop("size", None)
    shape = None if size is None else as_shape(size)
    return arguments, shape, name != "choice" or bool(arguments.get("replace", True))


@lru_cache(maxsize=64)
def _signature(method: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(method)


class CallInLanes(Call):
    """A call in a function that is mapped over samples: it draws for all of them.

    Parameters
    ----------
    method, generator, trace
        As in `Call`.
    lanes : Lanes
        The samples.
    """

    __slots__ = ("lanes",)

    def __init__(self, method: str, generator: Any, trace: Any, lanes: Lanes) -> None:
        super().__init__(method, generator, trace)
        self.lanes = lanes

    def check(self) -> None:
        """Raise an error in loops and branches, which run once, and where a trace cannot repeat the call."""
        if self.trace is not self.lanes.trace:
            described = self.trace.described if self.trace is not None else "another thread"
            raise self.refusal(
                f"it is called in {described}, inside a function of gt.expectation: one draw would stand for all iterations",
                "draw before the loop, z = rng.random(n), or write a Python loop",
            )
        if self.trace is not None:
            super().check()

    def constant(self, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        """Draw where no argument is traced."""
        if kwargs.get("out") is not None or self.method == "shuffle":
            return super().constant(args, kwargs)
        return self(self.method, *args, **kwargs)

    def __call__(self, method: str, /, *parameters: Any, **named: Any) -> Any:
        """Draw with a method of the same generator."""

        def draw_uniform(size: Any = None) -> Any:
            return self("random", size=size)

        draws = self.lanes.drawn(
            partial(super().__call__, method),
            METHODS[method],
            method,
            self._drawn,
            draw_uniform,
            parameters,
            named,
        )
        moving = [x.value for x in (*parameters, *named.values()) if isinstance(x, Handle)]
        moving = [value for value in moving if is_inexact(value.dtype)]
        if method in DISCRETE and moving:
            self.lanes.constants.append(Constant(draws.value, moving, self.name, self.site))
        return draws

    def _drawn(self, sampler: Sampler, parameters: Sequence[Value]) -> Any:
        draws = super()._drawn(sampler, parameters)
        if isinstance(draws, Handle):
            of_samples.add(draws.value)
        return draws

    def _warning(self, parameters: Sequence[Value]) -> None:
        """Return nothing: derivatives are an error."""


METHODS: Final[dict[str, Any]] = {
    name: method
    for name, method in vars(np.random.Generator).items()
    if not name.startswith("_") and callable(method)
}
"""The methods of generators."""


class LaneGenerator(np.random.Generator):
    """Stands for a generator in a function that is mapped over samples: each sample has numbers of its own.

    Parameters
    ----------
    generator : Generator
        Draws.
    lanes : Lanes
        The samples.
    """

    def __init__(self, generator: np.random.Generator, lanes: Lanes) -> None:
        super().__init__(generator.bit_generator)
        self._generator = generator
        self._lanes = lanes

    def _called(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> Any:
        lanes = self._lanes
        call = CallInLanes(name, self._generator, trace_around(), lanes)
        call.check()
        if find_traced((args, list(kwargs.values()))) is None:
            return call.constant(args, kwargs)
        elements = {0, "a", "x"} if name in CHOOSING else ()
        parameters = [parameter_of(x, position not in elements) for position, x in enumerate(args)]
        named = {key: parameter_of(x, key not in elements) for key, x in kwargs.items()}
        if name in lanes.rules:
            return lanes.rules[name](lanes, call, *parameters, **named)
        if name in DISCRETE:
            return discrete(call, METHODS[name], parameters, named)
        rule = REPARAMETERISED.get(name) or SAMPLED.get(name)
        return call.without_parameters(args, kwargs) if rule is None else rule(call, *parameters, **named)


def _method(name: str) -> Callable[..., Any]:
    def method(self: LaneGenerator, /, *args: Any, **kwargs: Any) -> Any:
        return self._called(name, args, kwargs)

    return method


for _name in METHODS:
    setattr(LaneGenerator, _name, _method(_name))


class _Refusing(Record):
    """Stands where draws are recorded, and raises an error for each."""

    __slots__ = ("_error",)

    def __init__(self, error: Callable[[], Exception]) -> None:
        super().__init__()
        self._error = error

    def drawn(self, draw: Callable[[], Any]) -> Any:
        raise self._error()


@contextmanager
def refuse_draws(error: Callable[[], Exception]) -> Iterator[None]:
    """Refuse draws in the block from generators other than those of lanes, which would be shared by all samples."""
    with _Refusing(error).written():
        yield
