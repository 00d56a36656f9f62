"""Warnings for missing gradient paths: conversions to numbers that left the tape, with their places."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from gradtape.api.tape.number_flow import reached
from gradtape.errors import GradtapeWarning, warn
from gradtape.ir.graph import Node, TraceTag, Value, extract
from gradtape.ir.types import is_inexact
from gradtape.trace.patching.bytecode import constants_of
from gradtape.trace.source.log import Exit, log_of, sample_of
from gradtape.trace.source.sites import Site

TELLING = 2.0**12
"""A number that times some power of two is an integer below this may be one of many that are written down."""


class Cuts:
    """The conversions to numbers on the way from sources to targets.

    A number has no history. A cut is known by what it leaves behind: a constant in the target's record that is, bit by bit, the number
    that left, or that the code computes from it; a source that has no path at all though something computed from it has left; and a
    conversion that nobody asked for.

    Parameters
    ----------
    tag : TraceTag
        The tape's.
    targets : sequence of Value
        What is differentiated, as it was recorded.
    sources : sequence of sequence of Value
        In what: the values of each source.
    """

    __slots__ = ("_computed", "_exits", "_reused", "_sources")

    def __init__(self, tag: TraceTag, targets: Sequence[Value], sources: Sequence[Sequence[Value]]) -> None:
        self._sources = sources
        values = [value for source in sources for value in source]
        self._exits = [
            exit_ for exit_ in log_of(tag).exits if exit_.numbers and any(map(exit_.comes_from, values))
        ]
        nodes = extract(targets, (), stop=lambda value: tag not in value.tags)[0] if self._exits else []
        self._reused = list(_reused(self._exits, nodes, tag))
        reused_sites = {(exit_.site.code, exit_.site.instruction) for exit_, _ in self._reused}
        others = [
            exit_ for exit_ in self._exits if (exit_.site.code, exit_.site.instruction) not in reused_sites
        ]
        self._computed = list(_computed(others, nodes, tag)) if others else []

    def found(self) -> Iterator[tuple[Exit, str]]:
        """Yield the conversions that took a path away, with what became of the numbers."""
        for exit_, node in self._reused:
            yield (
                exit_,
                f"a value left the tape through {exit_.what}, and re-enters as a constant at {node.site}",
            )
        for exit_, node in self._computed:
            yield (
                exit_,
                f"a value left the tape through {exit_.what}, and a result computed from it is a constant at {node.site}",
            )
        for exit_ in self._exits:
            if not exit_.meant:
                yield (
                    exit_,
                    f"a value left the tape through {exit_.what}, and results computed from these numbers are constants",
                )

    def warn(self, lacking: Sequence[bool]) -> None:
        """Warn of the cuts, each once; `lacking` says which sources have no gradient."""
        warned: set[tuple[object, int]] = set()
        for exit_, node in self._reused:
            _warn(exit_, f"the value re-enters as a constant at {node.site}", warned)
        for exit_, node in self._computed:
            _warn(exit_, f"a result computed from it re-enters as a constant at {node.site}", warned)
        missing = [source for source, is_missing in zip(self._sources, lacking, strict=True) if is_missing]
        for exit_ in self._exits:
            if not exit_.meant:
                _warn(exit_, "results computed from these numbers are constants", warned)
            elif exit_.form != "text" and any(
                exit_.comes_from(value) for source in missing for value in source
            ):
                _warn(exit_, "no other path leads from the source to the target", warned)


def warn_of_unrecorded_lines(tag: TraceTag, targets: Sequence[Value]) -> None:
    """Warn of targets that lines computed from watched values while the tape did not record them: their gradients are None."""
    for target in targets:
        if tag in target.tags:
            continue
        nodes, _ = extract([target], (), stop=lambda value: tag in value.tags)
        first = next((node for node in nodes if any(tag in value.tags for value in node.inputs)), None)
        if first is not None:
            warn(
                GradtapeWarning,
                "the gradient is None: the tape did not record this line, on the way from the source to the target",
                where=first.site,
                why="a tape records inside its with block only, and from the line on that watches the source",
                remedy="move the line into the with block; for a derivative of a gradient, take the first gradient in the block of another "
                "tape, or use gt.hessian(f)(x)",
            )


def warn_of_cuts(tag: TraceTag, targets: Sequence[Value], sources: Sequence[Value]) -> None:
    """Warn of the conversions on the way from sources to targets, where a function has just been recorded.

    A recording around it may tell of them at its own end.
    """
    log = tag.log
    if log is not None and any(log.told_at_end or not exit_.is_told_at_end for exit_ in log.exits):
        cuts = Cuts(tag, targets, [(source,) for source in sources])
        nodes, _ = extract(targets, sources, stop=lambda value: tag not in value.tags)
        used = {*targets, *[operand for node in nodes for operand in node.inputs]}
        cuts.warn([source not in used for source in sources])


def _warn(exit_: Exit, why: str, warned: set[tuple[object, int]]) -> None:
    site = exit_.site.code, exit_.site.instruction
    if site in warned:
        return
    warned.add(site)
    warn(
        GradtapeWarning,
        f"part of the gradient is missing: a value left the tape through {exit_.what}",
        where=exit_.site,
        why=why,
        remedy="keep traced arrays there; if the constant is intended, write gt.stop_gradient(x) instead",
    )


def _reused(exits: Sequence[Exit], nodes: Sequence[Node], tag: TraceTag) -> Iterator[tuple[Exit, Node]]:
    """Yield what left, with the nodes that take it as a constant."""
    for node in nodes:
        for operand in node.inputs:
            if tag in operand.tags or operand.data is None or operand.dtype.kind not in "fc":
                continue
            numbers = sample_of(operand.data)
            for exit_ in exits:
                if exit_.form == "number" and _is_same(exit_, operand, numbers, node.site):
                    yield exit_, node


def _computed(exits: Sequence[Exit], nodes: Sequence[Node], tag: TraceTag) -> Iterator[tuple[Exit, Node]]:
    """Yield what left, with the first node that takes as a constant what the code computes from it."""
    taking = {
        (node.site.code, node.site.instruction): node
        for node in reversed(nodes)
        if isinstance(node.site, Site) and any(_is_constant(operand, tag) for operand in node.inputs)
    }
    uses = list(taking)[::-1]
    for chain, exit_ in {exit_.chain: exit_ for exit_ in exits if exit_.form != "copy"}.items():
        positions = reached(chain, uses, exit_.form == "text")
        if positions:
            yield exit_, taking[uses[min(positions)]]


def _is_constant(operand: Value, tag: TraceTag) -> bool:
    return tag not in operand.tags and is_inexact(operand.dtype)


def _is_same(exit_: Exit, operand: Value, numbers: tuple[float, ...], site: object) -> bool:
    if len(numbers) == 1:
        (number,) = numbers
        return any(number == left for left in exit_.numbers) and (
            _is_telling(number) or _is_computed(number, exit_, site)
        )
    return operand.shape == exit_.shape and numbers == exit_.numbers and any(map(_is_telling, numbers))


def _is_telling(number: float) -> bool:
    """Return whether a number is hardly met by chance."""
    mantissa = abs(number).as_integer_ratio()[0] if abs(number) < float("inf") else 0
    while mantissa and mantissa % 2 == 0:
        mantissa //= 2
    return mantissa >= TELLING


def _is_computed(number: float, exit_: Exit, site: object) -> bool:
    """Return whether a number stands in the function that took it out, and not because it is written down there."""
    if not isinstance(site, Site) or site.code is not exit_.site.code or (exit_.shape and not exit_.in_list):
        return False
    return number not in [
        constant for constant in constants_of(site.code) if isinstance(constant, int | float)
    ]
