"""Analysis for vectorised short loops: which loops qualify, and which small arrays are promoted to registers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from gradtape.ir.varying import is_varying
from gradtape.kinds.elementwise import Instruction, Intrinsic, Libm
from gradtape.loops.affine import Affine, Position, Var, substitute
from gradtape.loops.ir import (
    Assign,
    Buffer,
    Compute,
    For,
    Index,
    Load,
    Number,
    Register,
    Statement,
    Store,
)
from gradtape.loops.traversal import touched
from gradtape.lower.target.host import vector_bytes
from gradtape.lower.target.vecmath import vector_attribute

REGISTERS: Final = 4
"""Vector registers that one value uses at most."""

KEPT: Final = 256
"""Vectors that a sequential loop promotes at most. Those that do not fit into registers are spilled to the stack, from which whole vectors
are loaded faster than parts of vectors from memory."""

REDUCTIONS: Final = {
    "fadd": "fadd",
    "fmul": "fmul",
    "add": "add",
    "mul": "mul",
    "or": "or",
    "and": "and",
    "llvm.maximum": "fmaximum",
    "llvm.minimum": "fminimum",
    "llvm.smax": "smax",
    "llvm.smin": "smin",
    "llvm.umax": "umax",
    "llvm.umin": "umin",
}
"""The reduction of a vector, by the instruction that combines two numbers."""


@dataclass(slots=True)
class VectorPlan:
    """A loop that can be written as vectors.

    Attributes
    ----------
    wide : set of str
        The registers that hold one number for each iteration.
    totals : dict of str to Compute
        What combines the iterations' numbers with an accumulator, by the accumulator's name.
    """

    trip_count: int
    var: Var
    wide: set[str] = field(default_factory=set)
    totals: dict[str, Compute] = field(default_factory=dict)


def are_vectors(loop: For) -> bool:
    """Return whether a loop qualifies."""
    return plan_vectors(loop) is not None


def plan_vectors(loop: For) -> VectorPlan | None:
    """Return the plan of a loop; None for one that is too long, or whose iterations are not independent or have no vector form."""
    trip_count = loop.trip_count
    if trip_count < 2 or loop.lanes or loop.private is not None or trip_count > REGISTERS * _lanes():
        return None
    if is_varying(trip_count):
        return None
    if not all(isinstance(statement, Load | Store | Compute | Assign) for statement in loop.body):
        return None
    plan = VectorPlan(trip_count, loop.var)
    if not _find_totals(plan, loop):
        return None
    combined = {step.target.name for step in plan.totals.values()}
    for statement in loop.body:
        if isinstance(statement, Assign):
            continue
        if isinstance(statement, Store):
            if step_of(statement.index, plan.var) != 1:
                return None
        elif isinstance(statement, Load):
            step = step_of(statement.index, plan.var)
            if step not in (0, 1):
                return None
            if step:
                plan.wide.add(statement.target.name)
        else:
            assert isinstance(statement, Compute)
            if statement.target.name in combined:
                continue
            if any(_is_wide(arg, plan) for arg in statement.args):
                if not _has_vector_form(statement):
                    return None
                plan.wide.add(statement.target.name)
    return plan if _independent(loop) else None


def _lanes() -> int:
    """Return how many numbers of 8 bytes a vector register holds."""
    return vector_bytes() // 8


def _find_totals(plan: VectorPlan, loop: For) -> bool:
    """Find the reductions of a loop; return whether nothing else is loop-carried."""
    made = {s.target.name: s for s in loop.body if isinstance(s, Compute)}
    uses: dict[str, int] = {}
    for statement in loop.body:
        numbers = statement.args if isinstance(statement, Compute) else ()
        if isinstance(statement, Store | Assign):
            numbers = (statement.value,)
        for number in numbers:
            if isinstance(number, Register):
                uses[number.name] = uses.get(number.name, 0) + 1
    for statement in loop.body:
        if not isinstance(statement, Assign):
            continue
        value, name = statement.value, statement.target.name
        step = made.get(value.name) if isinstance(value, Register) else None
        if step is None or not step.reassociate or step.args[0] is not statement.target:
            return False
        if uses[step.target.name] != 1 or uses.get(name) != 1 or name in plan.totals:
            return False
        if combining(step) not in REDUCTIONS:
            return False
        plan.totals[name] = step
    return True


def combining(step: Compute) -> str | None:
    body, kind = step.body, step.target.dtype.kind
    if not isinstance(body, Instruction):
        return None
    return {"f": body.real, "i": body.signed, "u": body.unsigned, "b": body.boolean}[kind]


def step_of(position: Position, var: Var) -> int | None:
    """Return the stride of a position in a loop variable; None where there is no constant one."""
    if not isinstance(position, Affine):
        return 0
    for atom in position.terms:
        if not isinstance(atom, Var) and var in atom.whole.variables():
            return None
    return position.terms.get(var, 0)


def _is_wide(number: Number, plan: VectorPlan) -> bool:
    if isinstance(number, Index):
        return step_of(number.position, plan.var) != 0
    return isinstance(number, Register) and number.name in plan.wide


def _has_vector_form(statement: Compute) -> bool:
    body = statement.body
    if any(isinstance(arg, Index) and isinstance(arg.position, Affine) for arg in statement.args):
        return False
    if isinstance(body, Libm):
        dtype = statement.target.dtype
        return bool(vector_attribute(body, dtype)[1])
    if isinstance(body, Instruction) and statement.args[0].dtype.kind in "iu":
        # Lanes that do not count hold zeros, by which nothing may be divided.
        return not {body.signed, body.unsigned} & {"sdiv", "udiv", "srem", "urem"}
    return body is None or isinstance(body, Instruction | Intrinsic)


def _independent(loop: For) -> bool:
    """Return whether no iteration reads or overwrites what another one stores."""
    places: dict[Buffer, set[Position]] = {}
    stored: set[Buffer] = set()
    for statement in loop.body:
        if isinstance(statement, Load | Store):
            places.setdefault(statement.buffer, set()).add(statement.index)
            if isinstance(statement, Store):
                stored.add(statement.buffer)
    for buffer in stored:
        first, *others = places[buffer]
        for k, one in enumerate((first, *others)):
            for other in (first, *others)[k + 1 :]:
                apart = one - other
                if not isinstance(apart, int) or abs(apart) < loop.trip_count:
                    return False
    return True


@dataclass(frozen=True, slots=True)
class Slot:
    """Elements of a buffer that are promoted to registers in a sequential loop."""

    buffer: Buffer
    start: int
    size: int

    @property
    def name(self) -> str:
        return f"{self.buffer.name}.{self.start}"

    def pieces(self) -> list[str]:
        """Return the names of the stack slots of its vectors."""
        return [f"%{self.name}.{k}" for k in range(-(-self.size // width_of(self.size)))]


def find_slots(
    statements: Sequence[Statement], outlined: Callable[[For], bool]
) -> dict[tuple[Buffer, int], Slot]:
    """Return the elements that can be promoted: those that all statements access as the same whole vectors."""
    finder = _SlotFinder(outlined)
    for statement in statements:
        finder.visit(statement)
    return finder.slots()


class _SlotFinder:
    """Collects the vectors of each buffer that statements access, and the buffers that are accessed in other ways.

    Parameters
    ----------
    outlined : callable
        Whether a loop is a function of its own, which cannot see registers.
    """

    def __init__(self, outlined: Callable[[For], bool]) -> None:
        self.outlined = outlined
        self.sizes: dict[Buffer, dict[int, int]] = {}
        self.excluded: set[Buffer] = set()

    def visit(self, statement: Statement) -> None:
        if isinstance(statement, For):
            self._visit_loop(statement)
            return
        self.excluded.update(buffer for buffer, _ in statement.places())
        self.excluded.update(statement.aliases())
        for block in statement.blocks():
            for inner in block:
                self.visit(inner)

    def _visit_loop(self, loop: For) -> None:
        if self.outlined(loop):
            self.excluded |= touched([loop])
            return
        plan = plan_vectors(loop)
        for inner in loop.body:
            if plan is None:
                self.visit(inner)
            elif isinstance(inner, Load | Store):
                self._add_vector(inner, plan)

    def _add_vector(self, access: Load | Store, plan: VectorPlan) -> None:
        first = substitute(access.index, {plan.var: plan.var.low})
        sizes = self.sizes.setdefault(access.buffer, {})
        if (
            not isinstance(first, int)
            or step_of(access.index, plan.var) != 1
            or access.buffer.role == "stack"
            or sizes.setdefault(first, plan.trip_count) != plan.trip_count
        ):
            self.excluded.add(access.buffer)

    def slots(self) -> dict[tuple[Buffer, int], Slot]:
        """Return the vectors that do not overlap, as long as there are registers for them."""
        slots: dict[tuple[Buffer, int], Slot] = {}
        room = KEPT
        for buffer, sizes in self.sizes.items():
            ends = sorted((start, start + size) for start, size in sizes.items())
            are_apart = all(end <= start for (_, end), (start, _) in pairwise(ends))
            registers = sum(-(-size // width_of(size)) for size in sizes.values())
            if buffer not in self.excluded and are_apart and registers <= room:
                room -= registers
                slots.update({(buffer, start): Slot(buffer, start, size) for start, size in sizes.items()})
        return slots


def width_of(size: int) -> int:
    """Return the number of lanes of the vectors that hold `size` numbers."""
    width = 2
    while width < min(size, _lanes()):
        width *= 2
    return width
