"""Loops over time, loops that a condition ends, and branches in LLVM's notation."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from gradtape.loops.ir import (
    ControlFlow,
    For,
    GrowStack,
    IndexSwitch,
    OpenStack,
    Place,
    ReserveStack,
    SequentialFor,
    Statement,
    WhileLoop,
)
from gradtape.lower.resident.interrupts import POLL, RAISE
from gradtape.lower.resident.stacks import emit_stack

if TYPE_CHECKING:
    from gradtape.lower.llvm.statements import FunctionEmitter


RARELY: Final = '!prof !{!"branch_weights", i32 1, i32 2000}'


def emit_control(emitter: FunctionEmitter, statement: ControlFlow) -> None:
    """Append a loop whose turns stay in their order, or a branch."""
    if isinstance(statement, SequentialFor):
        _turns(emitter, statement)
    elif isinstance(statement, WhileLoop):
        _while(emitter, statement)
    elif isinstance(statement, IndexSwitch):
        _choose(emitter, statement)
    else:
        assert isinstance(statement, ReserveStack | GrowStack | OpenStack)
        emit_stack(emitter, statement)


class _Turning:
    """The head of a loop: its variable, and the pointers that change places from turn to turn."""

    def __init__(self, emitter: FunctionEmitter, statement: SequentialFor | WhileLoop) -> None:
        self.emitter = emitter
        self.name = f"%{statement.var.name}"
        self.pairs = statement.pairs
        self.starts = [(_address(emitter, pair.first), _address(emitter, pair.second)) for pair in self.pairs]
        self.entered = emitter.label
        for pair in self.pairs:
            emitter.pointers[pair.current] = f"%{pair.current.name}"
            emitter.pointers[pair.following] = f"%{pair.following.name}"
        self.at = 0

    def begin(self, label: str) -> None:
        self.emitter.start_block(label)
        self.at = len(self.emitter.lines)

    def following(self) -> str:
        """Finish the head, at the end of the turn; return the number of the next turn."""
        emitter = self.emitter
        following = emitter.bind(f"add nuw nsw i64 {self.name}, 1")
        latch = emitter.label
        phis = [f"  {self.name} = phi i64 [ 0, %{self.entered} ], [ {following}, %{latch} ]"]
        for pair, (first, second) in zip(self.pairs, self.starts, strict=True):
            now, then = f"%{pair.current.name}", f"%{pair.following.name}"
            phis.append(f"  {now} = phi ptr [ {first}, %{self.entered} ], [ {then}, %{latch} ]")
            phis.append(f"  {then} = phi ptr [ {second}, %{self.entered} ], [ {now}, %{latch} ]")
        emitter.lines[self.at : self.at] = phis
        return following

    def land(self, latch: str | None) -> None:
        """Copy what the last turn has left to where it belongs; `latch` is the block that came before, if not the head."""
        emitter = self.emitter
        landing = [
            (pair, first) for pair, (first, _) in zip(self.pairs, self.starts, strict=True) if pair.landing
        ]
        lasts = [f"%{pair.current.name}" for pair, _ in landing]
        if latch is not None:  # phi nodes stand at the top of their block, before any address or copy
            lasts = [
                emitter.bind(f"phi ptr [ {first}, %{self.entered} ], [ %{pair.following.name}, %{latch} ]")
                for pair, first in landing
            ]
        for (pair, _), last in zip(landing, lasts, strict=True):
            assert pair.landing is not None
            target = _address(emitter, pair.landing)
            declaration = "declare void @llvm.memmove.p0.p0.i64(ptr, ptr, i64, i1)"
            emitter.module.declarations[declaration] = None
            size = pair.current.nbytes
            emitter.line(f"call void @llvm.memmove.p0.p0.i64(ptr {target}, ptr {last}, i64 {size}, i1 false)")


def _turns(emitter: FunctionEmitter, statement: SequentialFor) -> None:
    var = statement.var
    head, end = f"{var.name}.head", f"{var.name}.exit"
    bound = str(var.high + 1) if statement.count is None else emitter.number(statement.count)
    turning = _Turning(emitter, statement)
    if statement.count is None:
        emitter.line(f"br label %{head}")
    else:
        some = emitter.bind(f"icmp sgt i64 {bound}, 0")
        emitter.line(f"br i1 {some}, label %{head}, label %{end}")
    turning.begin(head)
    _block(emitter, statement.body)
    _poll(emitter, statement)
    following = turning.following()
    latch = emitter.label
    done = emitter.bind(f"icmp eq i64 {following}, {bound}")
    emitter.line(f"br i1 {done}, label %{end}, label %{head}")
    emitter.start_block(end)
    turning.land(latch)


def _while(emitter: FunctionEmitter, statement: WhileLoop) -> None:
    var = statement.var
    head, test, body, end = (f"{var.name}.{part}" for part in ("head", "test", "body", "exit"))
    turning = _Turning(emitter, statement)
    emitter.line(f"br label %{head}")
    turning.begin(head)
    more = emitter.bind(f"icmp slt i64 %{var.name}, {var.high + 1}")
    emitter.line(f"br i1 {more}, label %{test}, label %{end}")
    emitter.start_block(test)
    emitter.positions.append({})
    _statements(emitter, statement.test)
    goes_on = emitter.number(statement.condition)
    if emitter.wraps:
        # An index that was wrong has read another element: the condition may hold for ever.
        wrong = emitter.bind("load i1, ptr %bad.slot")
        goes_on = emitter.bind(f"and i1 {goes_on}, {emitter.bind(f'xor i1 {wrong}, true')}")
    emitter.line(f"br i1 {goes_on}, label %{body}, label %{end}")
    emitter.start_block(body)
    _statements(emitter, statement.body)
    emitter.positions.pop()
    _poll(emitter, statement)
    turning.following()
    emitter.line(f"br label %{head}")
    emitter.start_block(end)
    turning.land(None)


def _poll(emitter: FunctionEmitter, statement: SequentialFor | WhileLoop) -> None:
    """Ask now and then whether the loop shall go on; leave the function if not."""
    if not statement.poll:
        return
    module, name = emitter.module, statement.var.name
    module.symbols[POLL] = module.symbols[RAISE] = None
    module.declarations[f'declare i32 @"{POLL}"() cold nounwind'] = None
    rest = emitter.bind(f"and i64 %{name}, {statement.poll - 1}")
    due = emitter.bind(f"icmp eq i64 {rest}, {statement.poll - 1}")
    emitter.line(f"br i1 {due}, label %{name}.poll, label %{name}.goes, {RARELY}")
    emitter.start_block(f"{name}.poll")
    answer = emitter.bind(f'call i32 @"{POLL}"()')
    fine = emitter.bind(f"icmp eq i32 {answer}, 0")
    emitter.line(f"br i1 {fine}, label %{name}.goes, label %{name}.stops")
    emitter.start_block(f"{name}.stops")
    emitter.line(f"ret i32 {answer}")
    emitter.start_block(f"{name}.goes")


def _choose(emitter: FunctionEmitter, statement: IndexSwitch) -> None:
    index = emitter.number(statement.index)
    last = len(statement.branches) - 1
    name = emitter.fresh()[1:]
    labels = [f"{name}.branch{number}" for number in range(last + 1)]
    # Without fewer than none there is only more than all.
    clamped = emitter.call("i64", "llvm.smax.i64", f"i64 {index}, i64 0")
    cases = " ".join(f"i64 {number}, label %{label}" for number, label in enumerate(labels[:-1]))
    emitter.line(f"switch i64 {clamped}, label %{labels[-1]} [ {cases} ]")
    for label, branch in zip(labels, statement.branches, strict=True):
        emitter.start_block(label)
        _block(emitter, branch)
        emitter.line(f"br label %{name}.exit")
    emitter.start_block(f"{name}.exit")


def _block(emitter: FunctionEmitter, statements: Sequence[Statement]) -> None:
    emitter.positions.append({})
    _statements(emitter, statements)
    emitter.positions.pop()


def _statements(emitter: FunctionEmitter, statements: Sequence[Statement]) -> None:
    for statement in statements:
        if not isinstance(statement, For) or not emitter.module.outline(emitter, statement):
            emitter.statement(statement)


def _address(emitter: FunctionEmitter, place: Place) -> str:
    return emitter.pointer(*place)
