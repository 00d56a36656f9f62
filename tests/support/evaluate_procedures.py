"""Running procedures statement by statement."""

import numpy as np

from gradtape.ir.graph import Literal, extract
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Check,
    For,
    If,
    Load,
    Pointer,
    Read,
    Span,
    Store,
    While,
)


def run(procedure, *arguments):
    """Return the results of a procedure."""
    known, variables = {}, {}

    def value(x):
        if isinstance(x, Pointer):
            return known[x]
        if isinstance(x, Literal):
            return x.data
        nodes, _ = extract([x], stop=lambda v: v in known or v.data is not None)
        local = {}
        get = lambda v: known[v] if v in known else local.get(v, v.data)  # noqa: E731
        for node in nodes:
            outs = node.op.evaluate([np.asarray(get(v)) for v in node.inputs], node.params)
            local.update(zip(node.outs, outs, strict=True))
        return np.asarray(get(x))

    def span(s):
        memory, start = known[s.pointer]
        first = start + int(value(s.offset))
        return memory[first : first + s.aval.size].reshape(s.aval.shape)

    def block(statements):
        for s in statements:
            if isinstance(s, Load):
                memory, start = known[s.pointer]
                place = start + int(value(s.index))
                assert 0 <= place < memory.size, (place, memory.size, s)
                known[s.out] = memory[place].copy()
            elif isinstance(s, Store):
                memory, start = known[s.pointer]
                place = start + int(value(s.index))
                assert 0 <= place < memory.size, (place, memory.size, s)
                assert s.value.dtype == memory.dtype
                memory[place] = value(s.value)
            elif isinstance(s, Read):
                known[s.out] = variables[s.variable]
            elif isinstance(s, Assign):
                variables[s.variable] = value(s.value)
            elif isinstance(s, Allocate):
                size = max(int(value(s.size)), 0)
                known[s.out] = (np.zeros(size, s.out.dtype) if s.zero else np.full(size, 99, s.out.dtype), 0)
            elif isinstance(s, Check):
                if not value(s.condition):
                    raise {"IndexError": IndexError, "ValueError": ValueError}[s.error](s.message)
            elif isinstance(s, For):
                for k in range(int(value(s.count))):
                    known[s.index] = np.int64(k)
                    block(s.body)
            elif isinstance(s, While):
                while True:
                    block(s.test)
                    if not value(s.condition):
                        break
                    block(s.body)
            elif isinstance(s, If):
                block(s.then if value(s.condition) else s.otherwise)
            elif isinstance(s, Apply):
                graph = s.graph
                local = dict(
                    zip(
                        graph.inputs,
                        [span(x).copy() if isinstance(x, Span) else value(x) for x in s.inputs],
                        strict=True,
                    )
                )
                for node in graph.nodes:
                    outs = node.op.evaluate(
                        [np.asarray(local.get(v, v.data)) for v in node.inputs], node.params
                    )
                    local.update(zip(node.outs, outs, strict=True))
                for out, target in zip(graph.outputs, s.outputs, strict=True):
                    span(target)[...] = local.get(out, out.data)

    for parameter, argument in zip(procedure.parameters, arguments, strict=True):
        if isinstance(parameter, Pointer):
            known[parameter] = (np.array(argument, parameter.dtype).ravel(), 0)
        else:
            known[parameter] = np.asarray(argument, parameter.dtype)
    block(procedure.body)
    results = []
    for result, type_ in zip(procedure.results, procedure.result_types, strict=True):
        found = known[result] if isinstance(result, Pointer) else value(result)
        results.append(found[0][: type_.size].reshape(type_.shape) if isinstance(result, Pointer) else found)
    return results
