"""Records on the tape without duplicates: a value that a record holds twice is pushed and popped once."""

from __future__ import annotations

from gradtape.ir.graph import Literal
from gradtape.procedures.ir import Content, Pop, Procedure, Push, Statement
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.tape import match_tape


def merge_records(procedure: Procedure) -> Procedure:
    """Return the procedure whose records hold no value twice and no literal; the same procedure where they do not.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder, leaf
    >>> build = ProcedureBuilder("f")
    >>> x, y, z = build.scalar("x"), leaf(float), leaf(float)
    >>> build.append(Push((x, x)))
    >>> build.append(Pop((y, z)))
    >>> merged = merge_records(build.finish([y * z]))
    >>> [len(merged.body[0].values), len(merged.body[1].outs)]
    [1, 1]
    """
    tape = match_tape(procedure.body)
    merging = _Merging()
    for push, pop in (tape or {}).items():
        merging.record(push, pop)
    return merging.rewritten(procedure) if merging.kept else procedure


class _Merging(Rewriter):
    """Keeps the first one of equal values of a record.

    Attributes
    ----------
    kept : dict of Push or Pop to list of int
        The places of a record that is shortened.
    """

    def __init__(self) -> None:
        super().__init__()
        self.kept: dict[Push | Pop, list[int]] = {}

    def record(self, push: Push, pop: Pop) -> None:
        """Take note of what a record holds twice, and of literals."""
        first: dict[Content, Content] = {}
        kept: list[int] = []
        for place, (value, out) in enumerate(zip(push.values, pop.outs, strict=True)):
            if isinstance(value, Literal):
                self.becomes[out] = value
            elif value in first:
                self.becomes[out] = first[value]
            else:
                first[value] = out
                kept.append(place)
        if len(kept) < len(push.values):
            self.kept[push] = self.kept[pop] = kept

    def statement(self, statement: Statement) -> Statement:
        if isinstance(statement, Push | Pop) and statement in self.kept:
            kept = self.kept[statement]
            if isinstance(statement, Pop):
                return Pop(tuple([statement.outs[place] for place in kept]))
            return Push(tuple([self.content(statement.values[place]) for place in kept]))
        return super().statement(statement)
