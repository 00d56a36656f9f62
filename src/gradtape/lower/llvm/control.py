"""LLVM instructions for sequential loops, while loops and switches."""

from __future__ import annotations

from typing import Final

from gradtape.loops.ir import IndexSwitch, SequentialFor, WhileLoop
from gradtape.lower.llvm.function import Emitters, FunctionEmitter
from gradtape.lower.llvm.writer import UNLIKELY
from gradtape.lower.resident.interrupts import INSIDE, UNKNOWN_TOTAL


class _LoopHead:
    """The phi nodes of a loop: its variable, and the pointers of double buffers, which are swapped after each iteration."""

    def __init__(self, function: FunctionEmitter, statement: SequentialFor | WhileLoop) -> None:
        self.function = function
        self.name = f"%{statement.var.name}"
        self.pairs = statement.pairs
        self.starts = [(function.place(pair.first), function.place(pair.second)) for pair in self.pairs]
        self.entered = function.label
        for pair in self.pairs:
            function.pointers[pair.current] = f"%{pair.current.name}"
            function.pointers[pair.following] = f"%{pair.following.name}"
        self.at = 0

    def begin(self, label: str) -> None:
        self.function.start_block(label)
        self.at = len(self.function.lines)

    def finish(self) -> str:
        """Write the phi nodes, once the end of the iteration is known; return the number of the next iteration."""
        function = self.function
        following = function.let(f"add nuw nsw i64 {self.name}, 1")
        latch = function.label
        phis = [f"  {self.name} = phi i64 [ 0, %{self.entered} ], [ {following}, %{latch} ]"]
        for pair, (first, second) in zip(self.pairs, self.starts, strict=True):
            current, then = f"%{pair.current.name}", f"%{pair.following.name}"
            phis.append(f"  {current} = phi ptr [ {first}, %{self.entered} ], [ {then}, %{latch} ]")
            phis.append(f"  {then} = phi ptr [ {second}, %{self.entered} ], [ {current}, %{latch} ]")
        function.lines[self.at : self.at] = phis
        return following

    def copy_results(self, latch: str | None) -> None:
        """Copy the final carries to where they belong; `latch` is the predecessor of the present block, None for the head."""
        function = self.function
        copied = [one for one in zip(self.pairs, self.starts, strict=True) if one[0].landing]
        lasts = [(f"%{pair.current.name}", f"%{pair.following.name}") for pair, _ in copied]
        if latch is not None:  # phi nodes stand at the top of their block, before any address or copy
            lasts = [
                (
                    function.let(f"phi ptr [ {first}, %{self.entered} ], [ {then}, %{latch} ]"),
                    function.let(f"phi ptr [ {second}, %{self.entered} ], [ {current}, %{latch} ]"),
                )
                for (_, (first, second)), (current, then) in zip(copied, lasts, strict=True)
            ]
        for (pair, (_, second)), (current, following) in zip(copied, lasts, strict=True):
            assert pair.landing is not None
            size = pair.current.nbytes
            aside = None if pair.aside is None else function.place(pair.aside)
            if aside is not None:
                self._copy(aside, following, size)
            self._copy(function.place(pair.landing), current, size)
            if aside is not None:
                self._copy(second, aside, size)

    def _copy(self, target: str, source: str, size: int) -> None:
        operands = (f"ptr {target}", f"ptr {source}", f"i64 {size}", "i1 false")
        self.function.call("void", "llvm.memmove.p0.p0.i64", *operands)


def _sequential(function: FunctionEmitter, statement: SequentialFor) -> None:
    var = statement.var
    begin, end = f"{var.name}.head", f"{var.name}.exit"
    bound = str(var.high + 1) if statement.count is None else function.number(statement.count)
    head = _LoopHead(function, statement)
    if statement.count is None:
        function.jump(begin)
    else:
        function.branch(function.let(f"icmp sgt i64 {bound}, 0"), begin, end)
    head.begin(begin)
    function.block(statement.body)
    _poll(function, statement, bound)
    following = head.finish()
    latch = function.label
    function.branch(function.let(f"icmp eq i64 {following}, {bound}"), end, begin)
    function.start_block(end)
    head.copy_results(latch)
    _end_progress(function, statement)


def _while(function: FunctionEmitter, statement: WhileLoop) -> None:
    var = statement.var
    begin, test, body, end = (f"{var.name}.{part}" for part in ("head", "test", "body", "exit"))
    head = _LoopHead(function, statement)
    function.jump(begin)
    head.begin(begin)
    function.branch(function.let(f"icmp slt i64 %{var.name}, {var.high + 1}"), test, end)
    function.start_block(test)
    function.positions.append({})
    function.statements(statement.test)
    goes_on = function.number(statement.condition)
    if function.may_fail:
        goes_on = function.unless_failed(goes_on)
    function.branch(goes_on, body, end)
    function.start_block(body)
    function.statements(statement.body)
    function.positions.pop()
    _poll(function, statement, str(UNKNOWN_TOTAL))
    head.finish()
    function.jump(begin)
    function.start_block(end)
    head.copy_results(None)
    _end_progress(function, statement)


def _poll(function: FunctionEmitter, statement: SequentialFor | WhileLoop, total: str) -> None:
    """Append a poll for signals, after some iterations; the function returns if a handler has raised an exception."""
    if not statement.poll:
        return
    name = statement.var.name
    due = function.is_poll_due(f"%{name}", statement.poll)
    function.branch(due, f"{name}.poll", f"{name}.polled.over", UNLIKELY)
    function.start_block(f"{name}.poll")
    done = function.let(f"add nuw nsw i64 %{name}, 1")
    status = function.poll(done, total if statement.shows_progress else INSIDE)
    function.return_unless_zero(status, f"{name}.polled")


def _end_progress(function: FunctionEmitter, statement: SequentialFor | WhileLoop) -> None:
    """Append the end of a loop that shows its progress."""
    if statement.poll and statement.shows_progress:
        function.return_unless_zero(function.end_progress(), f"{statement.var.name}.ended")


def _switch(function: FunctionEmitter, statement: IndexSwitch) -> None:
    index = function.number(statement.index)
    last = len(statement.branches) - 1
    name = function.new_label()
    labels = [f"{name}.branch{number}" for number in range(last + 1)]
    # An index below 0 means the first branch, as in JAX; the default is the last one.
    clamped = function.call("i64", "llvm.smax.i64", f"i64 {index}", "i64 0")
    cases = " ".join(f"i64 {number}, label %{label}" for number, label in enumerate(labels[:-1]))
    function.emit(f"switch i64 {clamped}, label %{labels[-1]} [ {cases} ]")
    for label, branch in zip(labels, statement.branches, strict=True):
        function.start_block(label)
        function.block(branch)
        function.jump(f"{name}.exit")
    function.start_block(f"{name}.exit")


CONTROL: Final[Emitters] = {SequentialFor: _sequential, WhileLoop: _while, IndexSwitch: _switch}
