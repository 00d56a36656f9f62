"""Loop fusion: which loops the nests share.

The result is a tree of blocks and loops. A block runs the nests in `first`, then each of its loops followed by the nests that come
`after` it. A nest runs in the block of its innermost loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from gradtape.ir.graph import Value
from gradtape.ir.varying import lengths_vary
from gradtape.lower.schedule.access import SEGMENTS, Accesses
from gradtape.lower.schedule.costs import LONG, is_around_long_loop, reads_again_soon
from gradtape.lower.schedule.element_interpreter import Where
from gradtape.lower.schedule.nests import LoopNest, Note, describe
from gradtape.records import frozen_record, record

CROWD: Final = 48
"""Nests in one loop above which registers and the compiler's time run out."""

WHOLE: Final = ("carry", "result", "part")
"""Kinds of nests whose values are in memory although no loop of their own makes them."""

SLACK: Final = 4
"""A loop that is this much shorter still shares a longer one, which is split."""


@record
class Block:
    """What runs in one iteration of the enclosing loop.

    Attributes
    ----------
    first : list of LoopNest
        What runs before its loops.
    loops : list of FusedLoop
        Its loops, in the order in which they run.
    touching : dict
        The places of the loops that make or read a nest, or read an input.
    """

    first: list[LoopNest] = field(default_factory=list)
    loops: list[FusedLoop] = field(default_factory=list)
    touching: dict[LoopNest | Value, set[int]] = field(default_factory=dict)


@record
class FusedLoop:
    """A loop that one or more nests share.

    Attributes
    ----------
    extent : int
        The trip count of the longest.
    level : int
        How many loops are around it.
    place : int
        Which of its block's loops it is.
    closed : bool
        Whether no other nest may share it.
    nests : list of LoopNest
        All that run inside, in the order in which they were placed.
    breaks : set of int
        The iterations before which it is cut.
    sources, reads : set
        The inputs and the nests that are read inside.
    """

    extent: int
    level: int
    place: int
    closed: bool
    body: Block = field(default_factory=Block)
    after: list[LoopNest] = field(default_factory=list)
    nests: list[LoopNest] = field(default_factory=list)
    breaks: set[int] = field(default_factory=set)
    sources: set[Value] = field(default_factory=set)
    reads: set[LoopNest] = field(default_factory=set)


@frozen_record
class Placement:
    """Where a nest runs.

    Attributes
    ----------
    path : tuple of FusedLoop
        Its loops, outermost first.
    block : Block
        What runs in one iteration of the innermost.
    after : int
        After which of the block's loops it runs; -1 before all.
    step : int
        When its outermost loop runs: loop k of the program is step 2 k, what runs between it and the next is step 2 k + 1.
    rank : int
        How many nests were placed before.
    """

    path: tuple[FusedLoop, ...]
    block: Block
    after: int
    step: int
    rank: int


Placements = Mapping[LoopNest, Placement]


class Fusion:
    """Places nests one by one, in topological order.

    Parameters
    ----------
    accesses : mapping of LoopNest to Access
        What they read.
    readers : mapping of LoopNest to sequence of LoopNest
        Which nests read which.
    made_for : mapping of LoopNest to LoopNest
        The nests that are made for another one, which is to find their values at hand.

    Attributes
    ----------
    top : Block
        What the program runs.
    placements : dict of LoopNest to Placement
        Where each nest runs.
    explain : list of Note
        Why loops are shared.
    apart : list of Note
        Why nests do not share the loop before theirs.
    """

    def __init__(
        self,
        accesses: Accesses,
        readers: Mapping[LoopNest, Sequence[LoopNest]],
        made_for: Mapping[LoopNest, LoopNest],
    ) -> None:
        self.top = Block()
        self.placements: dict[LoopNest, Placement] = {}
        self.explain: list[Note] = []
        self.apart: list[Note] = []
        self._accesses = accesses
        self._readers = readers
        self._made_for = made_for

    def place(self, nest: LoopNest) -> None:
        """Give a nest its loops."""
        block = self.top
        access = self._accesses[nest]
        path: list[FusedLoop] = []
        for level, axis in enumerate(nest.axes):
            loop = self._shared_loop(block, nest, level)
            if loop is None:
                if block.loops:
                    self._note_apart(block, nest, level)
                loop = FusedLoop(axis.extent, level, len(block.loops), axis.closed)
                block.loops.append(loop)
            loop.nests.append(nest)
            loop.breaks |= access.breaks.get(level, set())
            if axis.extent < loop.extent:
                loop.breaks.add(axis.extent)
            loop.sources |= access.sources
            loop.reads.update(access.reads)
            touched: list[LoopNest | Value] = [nest, *access.sources, *access.reads]
            for value in touched:
                block.touching.setdefault(value, set()).add(loop.place)
            path.append(loop)
            block = loop.body
        last = max([self._place_in(block, read) for read in access.reads], default=-1)
        if last < 0:
            block.first.append(nest)
        else:
            block.loops[last].after.append(nest)
        step = 2 * path[0].place if path else 2 * last + 1
        self.placements[nest] = Placement(tuple(path), block, last, step, len(self.placements))

    def _place_in(self, block: Block, read: LoopNest) -> int:
        """Return the place of the loop of `block` in or after which a nest runs; -1 where it runs before all or outside."""
        placement = self.placements.get(read)
        if placement is None:
            return -1
        enclosing = self.top
        for loop in placement.path:
            if enclosing is block:
                return loop.place
            enclosing = loop.body
        return placement.after if enclosing is block else -1

    def _shared_loop(self, block: Block, nest: LoopNest, level: int) -> FusedLoop | None:
        """Return the last loop of a block that a nest may share and that has to do with it."""
        if nest.axes[level].closed or nest.axes[level].extent < 2:
            return None
        users = self._users(nest, level)
        earliest = max([self._earliest(block, user, level) for user in users])
        # Looked up, since a program of thousands of statements has as many loops.
        touching = [block.touching.get(value, ()) for user in users for value in self._traffic(user)]
        for place in sorted(
            {place for places in touching for place in places if place >= earliest}, reverse=True
        ):
            loop = block.loops[place]
            if loop.closed or not self._fits(loop, nest, level):
                continue
            caller = self._slowed(loop, nest, level)
            if caller is not None:
                function = self._accesses[caller].functions[0]
                why = f"around a loop of {LONG} iterations or more, {function} would be called for one element at a time"
                self.explain.append(
                    Note(nest, f"does not share loop {level} with {describe(loop.nests[0])}: {why}")
                )
                continue
            self.explain.append(Note(nest, f"shares loop {level} with {describe(loop.nests[0])}"))
            return loop
        return None

    def _note_apart(self, block: Block, nest: LoopNest, level: int) -> None:
        """Note why a nest does not share the last loop of a block, unless it has been said."""
        last = block.loops[-1]
        users = self._users(nest, level)
        waits_for = [
            read
            for user in users
            for read in self._accesses[user].reads
            if self._place_in(block, read) == last.place
        ]
        if nest.axes[level].closed:
            why = "what its loop computes is complete only after it, so that nothing shares it"
        elif max([self._earliest(block, user, level) for user in users]) > last.place:
            why = f"it reads {describe(waits_for[0])}, which is complete only after that loop"
        elif last.closed:
            why = "nothing may share that loop, because its result is complete only after it"
        elif not any(self._related(last, user) for user in users):
            why = "it would save nothing, because the two read no array in common"
        elif len(last.nests) >= CROWD:
            why = f"there are {CROWD} computations in it, and registers would run out"
        elif nest.axes[level].extent != last.extent:
            why = f"{nest.axes[level].extent} iterations are not {last.extent}"
        elif not self._fits(last, nest, level):
            why = "it would be cut into too many pieces"
        else:
            return
        self.apart.append(Note(nest, f"does not share loop {level} with {describe(last.nests[0])}: {why}"))

    def _users(self, nest: LoopNest, level: int) -> list[LoopNest]:
        """Return a nest and what it is made for, which is to find it at hand: those that have a loop at this level."""
        users = [nest]
        while (user := self._made_for.get(users[-1])) is not None and level < len(user.axes):
            users.append(user)
        return users

    def _earliest(self, block: Block, nest: LoopNest, level: int) -> int:
        """Return the first loop in which all that a nest reads from this block is complete or in step."""
        earliest = 0
        for read, positions in self._accesses[nest].reads.items():
            place = self._place_in(block, read)
            if place < 0:
                continue
            path = self.placements[read].path
            inside = (
                len(path) > level
                and path[level].place == place
                and (self.top if level == 0 else path[level - 1].body) is block
            )
            in_step = inside and _in_step(read, positions, nest, level)
            earliest = max(earliest, place if in_step else place + 1)
        return earliest

    def _slowed(self, loop: FusedLoop, nest: LoopNest, level: int) -> LoopNest | None:
        """Return the nest whose function could not be called for several elements at a time if another came in."""
        surrounds = any(is_around_long_loop(other, level) for other in loop.nests)
        if is_around_long_loop(nest, level):
            callers = [other for other in loop.nests if self._calls_along(other, level)]
            return callers[0] if callers and not surrounds else None
        stays = surrounds and self._calls_along(nest, level)
        return nest if stays and not self._comes_back(loop, nest, level) else None

    def _calls_along(self, nest: LoopNest, level: int) -> bool:
        """Whether a nest calls functions for the elements along a loop, which is its innermost."""
        return bool(self._accesses[nest].functions) and len(nest.axes) == level + 1

    def _comes_back(self, loop: FusedLoop, nest: LoopNest, level: int) -> bool:
        """Whether in the same iteration more is computed with a nest from what the loop reads, which would be read once more elsewhere."""
        calls = len(self._accesses[nest].functions)
        waiting = [nest]
        while waiting:
            read = waiting.pop()
            for reader in self._readers.get(read, ()):
                if len(reader.axes) <= level:
                    continue
                if not _in_step(read, self._accesses[reader].reads[read], reader, level):
                    continue
                if len(reader.axes) == level + 1:
                    waiting.append(reader)
                elif self._related(loop, reader) and not reads_again_soon(reader, level, calls):
                    return True
        return False

    def _fits(self, loop: FusedLoop, nest: LoopNest, level: int) -> bool:
        """Whether a loop has the right extent, or one that is near, and would not be cut into too many pieces."""
        extent = nest.axes[level].extent
        if len(loop.nests) >= CROWD:
            return False
        breaks = loop.breaks | self._accesses[nest].breaks.get(level, set())
        if extent != loop.extent:
            longer = extent > loop.extent
            if (
                lengths_vary()
                or level > 0
                or len(nest.axes) > 1
                or any(len(other.axes) > 1 for other in loop.nests)
            ):
                return False
            if abs(extent - loop.extent) > SLACK or min(extent, loop.extent) < 8:
                return False
            breaks = breaks | {min(extent, loop.extent)}
            if len(breaks) < SEGMENTS and longer:
                loop.breaks.add(loop.extent)
                loop.extent = extent
        return len(breaks) < SEGMENTS

    def _related(self, loop: FusedLoop, nest: LoopNest) -> bool:
        """Whether sharing saves memory traffic: one makes what the other reads, or both read the same array."""
        inside = {*loop.sources, *loop.reads, *loop.nests}
        return any(value in inside for value in self._traffic(nest))

    def _traffic(self, nest: LoopNest) -> list[LoopNest | Value]:
        """Return what a nest reads from memory that another may make or read as well."""
        access = self._accesses[nest]
        reads = [read for read in access.reads if read.axes or read.kind in WHOLE]
        return [*reads, *(value for value in access.sources if value.shape != ())]


def _in_step(read: LoopNest, positions: Iterable[Where], nest: LoopNest, level: int) -> bool:
    """Whether iteration k of the loop needs of `read` only what its iteration k has made."""
    axis = read.axes[level]
    if axis.position is None or axis.closed:
        return False
    return all(position[axis.position] == nest.variables[level] for position in positions)


def shared_levels(a: Placement, b: Placement) -> int:
    """Return how many loops two nests share."""
    count = 0
    for mine, theirs in zip(a.path, b.path, strict=False):
        if mine is not theirs:
            break
        count += 1
    return count
