"""Lane-wise accumulators: sums, and masks of what anything reached, in memory with an element for each lane of a vector.

Where a block of rows adds to many sums, the horizontal additions of the lanes cost more than the sums: 9 of 13 instructions in a mixture's
second moments. With an element for each lane there is one horizontal addition for each sum, at the end. LLVM does not vectorise a loop over
lanes at all that accumulates truth values in one byte.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import field
from typing import Final

from gradtape.loops.affine import Var, affine
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    Declare,
    For,
    Load,
    Register,
    Statement,
    Store,
    const,
)
from gradtape.loops.traversal import Definitions
from gradtape.records import record

LANES: Final = 8
"""Float64 in the widest vectors."""

NEUTRAL: Final[dict[tuple[str, str], float | bool]] = {
    ("add", "d"): -0.0,
    ("logical_or", "?"): False,
    ("bitwise_or", "?"): False,
}
"""What accumulators begin with, by the function and the dtype of the elements."""

ROOM: Final = 2**18
"""Bytes that the sums may take, so that they stay in the second cache."""


@record
class LaneSums:
    """Buffers of sums.

    Attributes
    ----------
    buffers : dict of Buffer to Buffer
        What each became: LANES elements for each of its own.
    steps : dict of Buffer to Compute
        What adds to it.
    """

    buffers: dict[Buffer, Buffer] = field(default_factory=dict)
    steps: dict[Buffer, Compute] = field(default_factory=dict)

    def before(self) -> list[Statement]:
        """Return the loops that set all lanes to what changes no result."""
        return [_cleared(wide, self.steps[buffer]) for buffer, wide in self.buffers.items()]

    def after(self) -> list[Statement]:
        """Return the loops that add up the lanes."""
        return [_joined(buffer, wide, self.steps[buffer]) for buffer, wide in self.buffers.items()]


def find_lane_sums(inside: Sequence[Statement], shared: set[Buffer], var: Var) -> LaneSums:
    """Return the sums of a loop that may have an element for each lane: nothing reads them before the end."""
    definitions = Definitions(inside)
    found = LaneSums()
    for buffer in sorted(shared, key=lambda buffer: buffer.name):
        stores = [s for s in inside if isinstance(s, Store) and s.buffer is buffer]
        steps = [step for s in stores if (step := _step(s, definitions)) is not None]
        sources = {id(definitions.loaded(step.args[0])) for step in steps}
        reads = {id(s) for s in inside if isinstance(s, Load) and s.buffer is buffer}
        bound = any(not isinstance(s.index, int) and var in s.index.variables() for s in stores)
        if (
            len(steps) == len(stores)
            and sources == reads
            and not bound
            and len({s.function for s in steps}) == 1
        ):
            found.buffers[buffer] = Buffer(
                f"{buffer.name}_lanes_{var.name}", buffer.dtype, buffer.size * LANES, "scratch"
            )
            found.steps[buffer] = steps[0]
    return found if sum(wide.nbytes for wide in found.buffers.values()) <= ROOM else LaneSums()


def _step(store: Store, definitions: Definitions) -> Compute | None:
    """Return what adds to the element that a store puts back."""
    step = definitions.computed(store.value)
    if step is None or (step.function, store.buffer.dtype.char) not in NEUTRAL:
        return None
    if store.buffer.dtype.kind == "f" and not step.reassociate:
        return None
    load = definitions.loaded(step.args[0])
    if load is None or (load.buffer, load.index) != (store.buffer, store.index):
        return None
    return step


def _cleared(wide: Buffer, step: Compute) -> For:
    element = Var(f"{wide.name}_zero", 0, wide.size - 1)
    neutral = NEUTRAL[step.function, wide.dtype.char]
    return For(element, [Store(wide, affine(element), const(neutral, wide.dtype))])


def _joined(buffer: Buffer, wide: Buffer, step: Compute) -> For:
    element = Var(f"{wide.name}_sum", 0, buffer.size - 1)
    lane = Var(f"{wide.name}_lane", 0, LANES - 1)
    one, sum_, before, after = (
        Register(f"{wide.name}_{what}", buffer.dtype) for what in ("one", "next", "old", "new")
    )
    total = Register(f"{wide.name}_total", buffer.dtype)
    added = Compute(sum_, step.function, step.body, (total, one), step.reassociate)
    return For(
        element,
        [
            Load(before, buffer, affine(element)),
            Declare(total, before),
            For(lane, [Load(one, wide, affine(element) * LANES + affine(lane)), added, Assign(total, sum_)]),
            Compute(after, "identity", None, (total,)),
            Store(buffer, affine(element), after),
        ],
    )
