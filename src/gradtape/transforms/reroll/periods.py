"""Periods: where a sequence of tokens repeats."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

import numpy as np

Tokens = np.ndarray[Any, np.dtype[np.int64]]

MIN_TRIPS: Final = 8
"""Trip counts below which a loop stays unrolled: short loops are optimised better unrolled."""

MIN_SAVED: Final = 64
"""Nodes that a rolled loop must save: a loop costs about as much as these."""

MAX_PERIODS: Final = 96
"""Distances that are tried for each length of words: those that occur most often."""

_MIX: Final = np.int64(0x9E3779B97F4A7C15 - 2**64)


class Region(NamedTuple):
    """Tokens from `low` up to `high`, each equal to the one `period` later."""

    period: int
    low: int
    high: int


def regions(tokens: Tokens) -> list[Region]:
    """Return the parts that repeat often enough to be loops, short periods first.

    Candidates are the distances between equal words of 1, 2, 4... tokens: in a loop's body some word of the right length occurs once.
    """
    found: list[Region] = []
    for period in _candidates(tokens):
        for region in _repeats(tokens, period):
            if not any(
                period % other.period == 0 and other.low <= region.low and region.high <= other.high
                for other in found
            ):
                found.append(region)
    return found


def is_worth_a_loop(period: int, trips: int) -> bool:
    """Return whether that many trips are worth a loop."""
    return trips >= MIN_TRIPS and (trips - 1) * period >= MIN_SAVED


def _candidates(tokens: Tokens) -> list[int]:
    count = len(tokens)
    words = tokens
    chosen: set[int] = set()
    width = 1
    with np.errstate(over="ignore"):
        while len(words) >= MIN_SAVED:
            order = np.argsort(words, kind="stable")
            ordered = words[order]
            gaps = np.diff(order)[ordered[1:] == ordered[:-1]]
            # A loop has at least MIN_TRIPS periods.
            gaps = gaps[gaps <= count // MIN_TRIPS]
            if not gaps.size:
                break
            often = np.bincount(gaps)
            useful = np.flatnonzero(often >= MIN_TRIPS - 2)
            if useful.size > MAX_PERIODS:
                useful = useful[np.argsort(-often[useful], kind="stable")[:MAX_PERIODS]]
            chosen.update(useful.tolist())
            words = words[:-width] * _MIX + (words[width:] ^ (words[width:] >> 7))
            width *= 2
    return sorted(chosen)


def _repeats(tokens: Tokens, period: int) -> list[Region]:
    differ = np.flatnonzero(tokens[:-period] != tokens[period:])
    edges = np.concatenate([[-1], differ, [len(tokens) - period]])
    lengths = np.diff(edges) - 1
    long = np.flatnonzero(lengths >= max((MIN_TRIPS - 1) * period, MIN_SAVED))
    return [
        Region(period, int(edges[k]) + 1, int(edges[k]) + 1 + int(lengths[k]) + period) for k in long.tolist()
    ]
