"""Recordings of functions, shared by the function transforms around `transforms.vjp` and `transforms.jvp`."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from gradtape.api.operands import fitted, traceable, traceable_operand
from gradtape.api.tape.missing_paths import warn_of_cuts
from gradtape.api.transforms.jit import Jitted
from gradtape.api.units import RATES, common_unit, leaf_units, magnitudes, per_argument, scaled
from gradtape.containers.unit_library import Unit
from gradtape.errors import GradtapeError, StructureError, kind_of
from gradtape.ir.builder import emit, here
from gradtape.ir.graph import Literal, TraceTag, Value, literal
from gradtape.ir.types import is_inexact
from gradtape.kinds.operands import argument_value, broadcast_to
from gradtape.kinds.refusals import integer_input
from gradtape.ops.core.elementwise.cast import convert, identity
from gradtape.trace.array.array import Array, placeholder
from gradtape.trace.array.handle import Handle
from gradtape.trace.dispatch.call_errors import call_error, note_package
from gradtape.trace.jit.aliases import check_copies
from gradtape.trace.jit.captures.arguments import argument_copies, write_through
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.jit.leaf_kinds import is_handle
from gradtape.trace.lazy.force import force
from gradtape.trace.lazy.reroll import moment_now, rolled_since
from gradtape.trace.random.comparisons import warn_of_chance
from gradtape.trace.source.contexts import Scope, inside
from gradtape.trace.source.log import log_of
from gradtape.trace.source.sites import user_site
from gradtape.trace.subclasses.instances import without_class
from gradtape.trace.translation.mode import run_function
from gradtape.transforms.jvp import jvp
from gradtape.transforms.loops.residuals import expensive_values
from gradtape.transforms.masks import constants
from gradtape.transforms.vjp import vjp
from gradtape.trees import (
    Leaves,
    TreeSpec,
    flatten,
    flatten_up_to,
    leaf_of_arguments,
    unflatten,
)


class Recording:
    """One run of a function under a tag of its own, which ends with the recording: the primals, the results, and sweeps between them.

    Parameters
    ----------
    caller : str
        The public function that records, for errors.
    primals : tuple
        The arguments, in any nests.

    Attributes
    ----------
    tag : TraceTag
        What the values carry that depend on the primals.
    sources, targets : list of Value
        What stands for the leaves of the primals, and the leaves of the result.
    spec, result_spec : TreeSpec
        The structures of both.
    recorded : bool
        Whether a primal belongs to a recording around this one: then results are Arrays.
    """

    result_spec: TreeSpec
    targets: list[Value]

    def __init__(self, caller: str, primals: tuple[Any, ...]) -> None:
        self.caller, self.tag = caller, TraceTag()
        self._primals = primals
        self._leaves, self.spec = flatten(primals)
        self._units, self._bare_spec = leaf_units(primals, self.spec)
        self.recorded = any(isinstance(leaf, Handle) for leaf in self._leaves)
        self.sources = primal_leaves(self._leaves, primals, self.tag, caller)

    def __del__(self) -> None:
        self.tag.end()  # a pullback may ask about the recording for as long as it lives

    def run(self, function: Callable[..., Any], has_aux: bool = False) -> Any:
        """Run the function on what stands for the primals, and return what it gave besides its result.

        What has left the recording as numbers is told.
        """
        aux = self._run(function, has_aux)
        self.tell_cuts()
        return aux

    def run_untold(self, function: Callable[..., Any], has_aux: bool = False) -> Any:
        """Run the function as `run` does, without a report of what has left: where there `is_cut`, a program may pass it on."""
        log_of(self.tag).told_at_end = True
        return self._run(function, has_aux)

    def _run(self, function: Callable[..., Any], has_aux: bool) -> Any:
        before = moment_now()
        arrays = list(map(placeholder, self.sources, self._leaves))
        copies = unflatten(self.spec, arrays)
        containers = argument_copies(self._primals, copies, "the primals")
        result = recordable_body(function)(*copies)
        self._refuse_shared_writes(arrays)
        write_through(containers, arrays, self._leaves)
        result, aux = split_aux(result, self.caller) if has_aux else (result, None)
        self.tag.recording = False
        leaves, self.result_spec = flatten(result)
        self._result_units, self._bare_result_spec = leaf_units(result, self.result_spec)
        targets = [traceable_operand(without_class(leaf), "the result") for leaf in leaves]
        warn_of_chance(self.tag, targets, self.sources)
        self._bare_targets = targets
        self.targets = rolled_since(before, targets, self.sources)
        return aux

    @property
    def is_cut(self) -> bool:
        """Whether numbers have left that depend on the primals."""
        return any(exit_.numbers and exit_.form == "number" for exit_ in log_of(self.tag).exits)

    def tell_cuts(self) -> None:
        """Warn of what has left as numbers on the way from the primals to the result."""
        warn_of_cuts(self.tag, self._bare_targets, self.sources)

    def _refuse_shared_writes(self, arrays: Sequence[Any]) -> None:
        """Raise an error if the function has written to a primal that shares memory with another one: they are copies."""

        def name_of(position: int) -> str:
            primals = unflatten(self.spec, self._leaves)
            return leaf_of_arguments(
                [f"primal {number}" for number in range(len(primals))], primals, position
            )

        what = f"the function that {self.caller} differentiates"
        check_copies(what, arrays, self.sources, self._leaves, name_of)

    def is_outside(self, value: Value) -> bool:
        """Return whether a value does not depend on the primals."""
        return self.tag not in value.tags

    def seeds(self, cotangent: Any) -> tuple[list[Value], bool]:
        """Return one cotangent per target, and whether the caller works on Arrays."""
        parts = flatten_up_to(
            self._bare_result_spec, magnitudes(cotangent), "the cotangent", "the function's result", here.site
        )
        pairs = zip(parts, self.targets, strict=True)
        found = [fitted(part, target, "a cotangent", "the result") for part, target in pairs]
        return scaled(found, self._of_cotangent(cotangent)[1]), self.recorded or any(
            isinstance(part, Handle) for part in parts
        )

    def directions(self, tangents: tuple[Any, ...]) -> tuple[list[Value], bool]:
        """Return one tangent per source, and whether the caller works on Arrays."""
        parts = flatten_up_to(self._bare_spec, magnitudes(tangents), "tangents", "primals", here.site)
        pairs = zip(parts, self.sources, strict=True)
        found = [fitted(part, source, "a tangent", "its primal") for part, source in pairs]
        return scaled(found, self._of_tangents(tangents)[1]), self.recorded or any(
            isinstance(part, Handle) for part in parts
        )

    def pull(self, cotangents: Sequence[Value], constant: set[Value] | None = None) -> list[Value]:
        """Return the cotangents of the sources: zeros where there is no influence.

        `constant` are the seeds in which nobody differentiates, by default those that belong to no recording.
        """
        constant = constants(cotangents) if constant is None else constant
        pulled = vjp(self.targets, self.sources, cotangents, self.is_outside, constant=constant)
        pairs = zip(self.sources, pulled, strict=True)
        return [zeros_like(source) if part is None else part for source, part in pairs]

    def push(self, tangents: Sequence[Value], constant: set[Value] | None = None) -> list[Value]:
        """Return the tangents of the targets: zeros where there is no influence; `constant` as for `pull`."""
        constant = constants(tangents) if constant is None else constant
        pushed = jvp(self.targets, self.sources, tangents, self.is_outside, constant)
        pairs = zip(self.targets, pushed, strict=True)
        return [zeros_like(target) if part is None else part for target, part in pairs]

    def pulled(self, gradients: Sequence[Any], cotangent: Any) -> tuple[Any, ...]:
        """Return what `pull` found in the containers of the primals, in units that follow from those of the cotangent."""
        returned: tuple[Any, ...] = per_argument(
            self._of_cotangent(cotangent)[0], unflatten(self.spec, gradients)
        )
        return returned

    def pushed(self, nest: Any, tangents: Any) -> Any:
        """Return tangents of the result, which are in its containers, in units that follow from those of the tangents."""
        return per_argument(self._of_tangents(tangents)[0], nest, 1)

    def _of_cotangent(self, cotangent: Any) -> tuple[Unit, list[float]]:
        """Return the unit of the products of cotangents and results, and the factor that converts each to it."""
        return common_unit(
            cotangent, self._bare_result_spec, self._result_units, 1, "products of cotangents and results"
        )

    def _of_tangents(self, tangents: Any) -> tuple[Unit, list[float]]:
        """Return the unit of the quotients of tangents and primals, and the factor that converts each to it."""
        return common_unit(tangents, self._bare_spec, self._units, -1, RATES)

    @property
    def has_units(self) -> bool:
        """Whether there are quantities among the primals or in the result."""
        return any(unit is not None for unit in (*self._units, *self._result_units))

    def result_nest(self) -> Any:
        """Return the leaves of the result in their containers."""
        return unflatten(self.result_spec, self.targets)

    def target_nest(self) -> Any:
        """Return the leaves of the result in their containers, without units."""
        return unflatten(self._bare_result_spec, self.targets)

    def source_nest(self) -> Any:
        """Return the leaves of the primals in their containers, without units."""
        return unflatten(self._bare_spec, self.sources)

    @property
    def of_numbers(self) -> bool:
        """Whether neither the primals nor what the function read belongs to a recording around this one."""
        return not self.recorded and not any(tag.recording for target in self.targets for tag in target.tags)

    def result(self) -> Any:
        """Return the result as the caller works; numbers are computed together with the residuals that later sweeps need."""
        if self.of_numbers:
            force([*self.targets, *expensive_values(self.targets, self.sources, self.is_outside)])
        return unflatten(self.result_spec, as_given(self.targets, self.recorded))

    def aux(self, aux: Any) -> Any:
        """Return what the function gave besides its result, as the caller works."""
        leaves = Leaves(*flatten(aux), is_handle)
        return leaves.rebuild(as_given([leaf.value for leaf in leaves.traced()], self.recorded))


def recordable_body(function: Callable[..., Any], is_linear: bool = False) -> Callable[..., Any]:
    """Return what to call inside a recording: the body of a jitted function rather than its native entry, in a scope of its own.

    `is_linear` is true of rules of derivatives, which are linear in tangents or cotangents; see `run_function`.
    """
    body = function.site.function if isinstance(function, Jitted) else function

    def run(*args: Any, **kwargs: Any) -> Any:
        with inside(Scope()):
            try:
                return run_function(body, args, kwargs, is_linear)
            except Exception as error:
                mistake = call_error(error, body, args, kwargs)
                if mistake is None:
                    note_package(error, f"while {getattr(body, '__name__', 'a function')} was traced")
                    raise
                raise mistake from None

    return run


def differentiable(leaf: Any, tag: TraceTag, argument: str) -> Value:
    """Return a fresh value equal to an argument, from which `tag` follows."""
    value = leaf.value if isinstance(leaf, Handle) else argument_value(leaf, argument)
    if not is_inexact(value.dtype):
        if not value.aval.weak or value.dtype.kind == "b":
            raise integer_input(argument, value.dtype, len(value.shape), user_site())
        value = convert(value, np.dtype(np.float64))
    fresh = emit(identity, [traceable(value)])
    fresh.aval = value.aval
    fresh.tags = (*fresh.tags, tag)
    return fresh


def differentiable_leaves(leaves: Sequence[Any], tag: TraceTag, name_of: Callable[[int], str]) -> list[Value]:
    """Return fresh values equal to the leaves of arguments; `name_of` says which leaf is at a position, for an error."""
    found: list[Value] = []
    for position, leaf in enumerate(leaves):
        try:
            found.append(differentiable(leaf, tag, "x"))
        except GradtapeError:
            differentiable(leaf, tag, name_of(position))
            raise
        if isinstance(leaf, Handle) and (trace := trace_of(leaf.value)) is not None:
            trace.differentiated.add(leaf.value)
    return found


def primal_leaves(leaves: Sequence[Any], primals: Sequence[Any], tag: TraceTag, caller: str) -> list[Value]:
    """Return fresh values equal to the leaves of primals."""
    names = [f"primal {number}" for number in range(len(primals))]
    return differentiable_leaves(
        leaves, tag, lambda position: f"{caller}: {leaf_of_arguments(names, primals, position)}"
    )


def zeros_like(value: Value) -> Value:
    """Return the gradient of an argument without influence."""
    return broadcast_to(literal(0, value.dtype), value.shape)


def split_aux(result: Any, caller: str) -> tuple[Any, Any]:
    """Return the pair of result and aux that a function with ``has_aux`` must return."""
    if not isinstance(result, tuple) or len(result) != 2:
        raise StructureError(
            f"{caller} with has_aux=True needs a function that returns a pair (number, aux); "
            f"this one returned {_described(result)}",
            where=user_site(),
            remedy="return a pair, or omit has_aux",
        )
    return result


def _described(result: Any) -> str:
    return kind_of(result)


def named(prefix: str, function: Callable[..., Any]) -> Callable[..., Any]:
    """Return a function that shows itself as ``grad(f)`` with the signature of `function`."""

    def stand_in(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    with contextlib.suppress(AttributeError, TypeError):  # builtins and callables without a name
        # A jitted function keeps its name in its __dict__, which must not overwrite ours.
        functools.update_wrapper(stand_in, function, updated=())
    name = getattr(function, "__name__", type(function).__name__)
    stand_in.__name__ = f"{prefix}({name})"
    stand_in.__qualname__ = f"{prefix}({getattr(function, '__qualname__', name)})"
    return stand_in


def as_given(values: Sequence[Value], recorded: bool) -> list[Any]:
    """Return values as the caller works: Arrays in a recording, else ndarrays."""
    values = [
        broadcast_to(value, ()) if isinstance(value, Literal) and not value.ndim else value
        for value in values
    ]
    if recorded or any(tag.recording for value in values for tag in value.tags):
        return [Array(value) for value in values]
    return [array.copy() if array.ndim else array[()] for array in force(values)]
