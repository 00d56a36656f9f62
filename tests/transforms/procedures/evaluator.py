"""Runs procedures statement by statement."""

from __future__ import annotations

import numpy as np

from gradtape.ir.graph import extract
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Check,
    For,
    If,
    Load,
    Pointer,
    Pop,
    Push,
    Read,
    Span,
    Store,
    While,
)


class Evaluator:
    """The state of a run: what leaves and variables hold, the tape, its length in values, and the greatest that it had."""

    def __init__(self):
        self.length = 0
        self.leaves = {}
        self.variables = {}
        self.tape = []
        self.most = 0

    def value(self, content):
        if isinstance(content, Pointer):
            return self.leaves[content]
        known = {}
        nodes, _leaves = extract([content], stop=lambda value: not value.is_made)
        for node in nodes:
            inputs = [known[x] if x in known else self.leaf(x) for x in node.inputs]
            with np.errstate(all="ignore"):
                outs = node.op.evaluate(inputs, node.params)
            known.update(zip(node.outs, outs, strict=True))
        return known[content] if content in known else self.leaf(content)

    def leaf(self, value):
        return value.data if value.data is not None else self.leaves[value]

    def span(self, span):
        start = int(self.value(span.offset))
        return self.leaves[span.pointer][start : start + span.aval.size]

    def run(self, statements):
        for statement in statements:
            self.step(statement)

    def step(self, s):
        if isinstance(s, Load):
            self.leaves[s.out] = np.asarray(self.leaves[s.pointer][self.index(s)])
        elif isinstance(s, Store):
            value = self.value(s.value)
            assert value.dtype == s.pointer.dtype
            self.leaves[s.pointer][self.index(s)] = value
        elif isinstance(s, Read):
            self.leaves[s.out] = self.variables[s.variable]
        elif isinstance(s, Assign):
            self.variables[s.variable] = self.value(s.value)
        elif isinstance(s, Allocate):
            assert s.out not in self.leaves or self.leaves[s.out] is not None
            fill = 0 if s.zero else (np.nan if s.out.dtype.kind in "fc" else 77)
            self.leaves[s.out] = np.full(int(self.value(s.size)), fill, s.out.dtype)
        elif isinstance(s, Check):
            assert self.value(s.condition), s.message
        elif isinstance(s, Apply):
            self.apply(s)
        elif isinstance(s, For):
            for index in range(int(self.value(s.count))):
                self.leaves[s.index] = np.asarray(index)
                self.run(s.body)
        elif isinstance(s, While):
            while True:
                self.run(s.test)
                if not self.value(s.condition):
                    break
                self.run(s.body)
        elif isinstance(s, If):
            self.run(s.then if self.value(s.condition) else s.otherwise)
        elif isinstance(s, Push):
            self.tape.append([self.value(value) for value in s.values])
            self.length += len(s.values)
            self.most = max(self.most, self.length)
        elif isinstance(s, Pop):
            values = self.tape.pop()
            self.length -= len(values)
            assert [x.dtype for x in values] == [x.dtype for x in s.outs]
            self.leaves.update(zip(s.outs, values, strict=True))

    def index(self, s):
        index = int(self.value(s.index))
        assert 0 <= index < len(self.leaves[s.pointer])
        return index

    def apply(self, s):
        known = {
            inner: self.span(x).reshape(x.aval.shape).copy() if isinstance(x, Span) else self.value(x)
            for inner, x in zip(s.graph.inputs, s.inputs, strict=True)
        }
        for node in s.graph.nodes:
            outs = node.op.evaluate([known.get(x, x.data) for x in node.inputs], node.params)
            known.update(zip(node.outs, outs, strict=True))
        for output, span in zip(s.graph.outputs, s.outputs, strict=True):
            self.span(span)[:] = (known.get(output, output.data)).ravel()


def run_procedure(procedure, arrays, state=None):
    """Return the results of a procedure for arguments."""
    state = Evaluator() if state is None else state
    for parameter, type_, array in zip(procedure.parameters, procedure.types, arrays, strict=True):
        array = np.array(array, type_.dtype)
        assert array.shape == type_.shape
        array.flags.writeable = False
        state.leaves[parameter] = array.reshape(-1) if isinstance(parameter, Pointer) else array
    state.run(procedure.body)
    assert not state.tape
    return [
        state.value(result).reshape(type_.shape)
        for result, type_ in zip(procedure.results, procedure.result_types, strict=True)
    ]
