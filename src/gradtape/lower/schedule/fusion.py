"""Fusion: which loops the roots share.

The tree that results has blocks and loops by turns. A block runs the roots in `first`, then each of its
loops followed by the roots that come `after` it. A root stands in the block of its innermost loop.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import field
from typing import Final

from gradtape.ir.graph import Value
from gradtape.lower.schedule.access import SEGMENTS
from gradtape.lower.schedule.nests import Root
from gradtape.lower.schedule.row_functions import LONG, is_around, reads_again_soon
from gradtape.records import record

CROWD: Final = 48
"""Roots in one loop above which registers and the compiler's time run out."""

WHOLE: Final = ("held", "result")
"""Kinds of roots that stand in memory although no loop of their own makes them."""

SLACK: Final = 4
"""A loop that is this much shorter still shares a longer one, which is split."""


@record
class Block:
    """What runs in one turn of the enclosing loop."""

    first: list[Root] = field(default_factory=list)
    loops: list[Loop] = field(default_factory=list)


@record
class Loop:
    """A loop that one or more roots share.

    Attributes
    ----------
    place : int
        Which of its block's loops it is.
    roots : list of Root
        All that stand inside, in the order in which they were placed.
    opened : str
        Why it is a loop of its own; for `explain`.
    """

    extent: int
    place: int
    closed: bool
    body: Block = field(default_factory=Block)
    after: list[Root] = field(default_factory=list)
    roots: list[Root] = field(default_factory=list)
    breaks: set[int] = field(default_factory=set)
    sources: set[Value] = field(default_factory=set)
    reads: set[Root] = field(default_factory=set)


class Placement:
    """Places roots one by one, in topological order.

    Parameters
    ----------
    readers : mapping of Root to sequence of Root
        Which roots read which.
    """

    def __init__(self, readers: Mapping[Root, Sequence[Root]]) -> None:
        self.top = Block()
        self._readers = readers
        self.explain: list[str] = []
        self.placed = 0
        self._after: dict[Root, int] = {}

    def place(self, root: Root) -> None:
        """Give a root its loops."""
        block = self.top
        root.path = []
        root.rank = self.placed
        self.placed += 1
        for level in range(len(root.axes)):
            loop = self._shared_loop(block, root, level) or self._new_loop(block, root, level)
            loop.roots.append(root)
            loop.breaks |= root.breaks.get(level, set())
            if root.axes[level].extent < loop.extent:
                loop.breaks.add(root.axes[level].extent)
            loop.sources |= root.sources
            loop.reads.update(root.reads)
            root.path.append(loop)
            block = loop.body
        root.block = block
        last = self._stand(block, root)
        root.turn = 2 * root.path[0].place if root.path else 2 * last + 1

    def _stand(self, block: Block, root: Root) -> int:
        """Let a root run in a block as early as what it reads allows."""
        last = self._last_needed(block, root)
        if last < 0:
            block.first.append(root)
        else:
            block.loops[last].after.append(root)
        self._after[root] = last
        return last

    def _last_needed(self, block: Block, root: Root) -> int:
        """Return the last loop of a block that must be over before the root can run; -1 for none."""
        last = -1
        for read in root.reads:
            last = max(last, self._place_in(block, read))
        return last

    def _place_in(self, block: Block, read: Root) -> int:
        """Return the place of the loop of `block` in or after which a root stands; -1 where it stands
        before all or outside."""
        enclosing = self.top
        for loop in read.path:
            if enclosing is block:
                return loop.place
            enclosing = loop.body
        if enclosing is block and read.block is block:
            return self._after[read]
        return -1

    def _shared_loop(self, block: Block, root: Root, level: int) -> Loop | None:
        if root.axes[level].closed:
            return None
        users = _users(root, level)
        earliest = max([self._earliest(block, user, level) for user in users])
        for loop in reversed(block.loops[earliest:]):
            related = any(self._related(loop, user) for user in users)
            if loop.closed or not related or not self._fits(loop, root, level):
                continue
            caller = self._slowed(loop, root, level)
            if caller is not None:
                self.explain.append(
                    f"{describe(root)} does not share loop {level} with {describe(loop.roots[0])}: around a loop of {LONG} turns "
                    f"or more, {caller.functions[0]} would be called for one element at a time"
                )
                continue
            self.explain.append(f"{describe(root)} shares loop {level} with {describe(loop.roots[0])}")
            return loop
        return None

    def _earliest(self, block: Block, root: Root, level: int) -> int:
        """Return the first loop in which all that the root reads from this block is complete or in step."""
        earliest = 0
        for read, positions in root.reads.items():
            place = self._place_in(block, read)
            if place < 0:
                continue
            inside = (
                len(read.path) > level
                and read.path[level].place == place
                and self._encloses(block, read, level)
            )
            in_step = inside and self._in_step(read, positions, root, level)
            earliest = max(earliest, place if in_step else place + 1)
        return earliest

    def _encloses(self, block: Block, read: Root, level: int) -> bool:
        return (self.top if level == 0 else read.path[level - 1].body) is block

    def _in_step(self, read: Root, positions: Iterable[tuple[object, ...]], root: Root, level: int) -> bool:
        """Whether turn k of the loop needs of `read` only what its turn k has made."""
        axis = read.axes[level]
        if axis.position is None or axis.closed:
            return False
        return all(position[axis.position] == root.variables[level] for position in positions)

    def _slowed(self, loop: Loop, root: Root, level: int) -> Root | None:
        """Return the root whose function could not be called for several elements at a time if another came in."""
        surrounds = any(is_around(other, level) for other in loop.roots)
        if is_around(root, level):
            callers = [other for other in loop.roots if other.functions and len(other.axes) == level + 1]
            return callers[0] if callers and not surrounds else None
        stays = surrounds and root.functions and len(root.axes) == level + 1
        return root if stays and not self._comes_back(loop, root, level) else None

    def _comes_back(self, loop: Loop, root: Root, level: int) -> bool:
        """Whether in the same turn more is computed with the root from what the loop reads, which would be read once more elsewhere."""
        waiting = [root]
        while waiting:
            read = waiting.pop()
            for reader in self._readers.get(read, ()):
                if len(reader.axes) <= level or not self._in_step(read, reader.reads[read], reader, level):
                    continue
                if len(reader.axes) == level + 1:
                    waiting.append(reader)
                elif self._related(loop, reader) and not reads_again_soon(reader, level, len(root.functions)):
                    return True
        return False

    def _fits(self, loop: Loop, root: Root, level: int) -> bool:
        extent = root.axes[level].extent
        if len(loop.roots) >= CROWD or extent < 2:
            return False
        breaks = loop.breaks | root.breaks.get(level, set())
        if extent != loop.extent:
            longer = extent > loop.extent
            if level > 0 or len(root.axes) > 1 or any(len(other.axes) > 1 for other in loop.roots):
                return False
            if abs(extent - loop.extent) > SLACK or min(extent, loop.extent) < 8:
                return False
            breaks = breaks | {min(extent, loop.extent)}
            if len(breaks) < SEGMENTS and longer:
                loop.breaks.add(loop.extent)
                loop.extent = extent
        return len(breaks) < SEGMENTS

    def _related(self, loop: Loop, root: Root) -> bool:
        """Whether sharing saves memory traffic: one makes what the other reads, or both read the same
        array."""
        for read in root.reads:
            if (read.axes or read.kind in WHOLE) and (read in loop.reads or loop in read.path):
                return True
        return any(value.shape != () and value in loop.sources for value in root.sources)

    def _new_loop(self, block: Block, root: Root, level: int) -> Loop:
        axis = root.axes[level]
        loop = Loop(axis.extent, len(block.loops), axis.closed)
        block.loops.append(loop)
        return loop


def _users(root: Root, level: int) -> list[Root]:
    """Return a root and what it is made for, which is to find it at hand: those that have a loop at this level."""
    users = [root]
    while (user := users[-1].made_for) is not None and level < len(user.axes):
        users.append(user)
    return users


def describe(root: Root) -> str:
    """Return how messages name a root."""
    return f"{root.value.node.op.name if root.value.node is not None else 'copy'}{list(root.shape)}"


def shared_levels(a: Root, b: Root) -> int:
    """Return how many loops two roots share."""
    count = 0
    for mine, theirs in zip(a.path, b.path, strict=False):
        if mine is not theirs:
            break
        count += 1
    return count
