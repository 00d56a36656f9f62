"""Structured programs: loops and branches without jumps, and without variables for jumps where none is needed."""

from __future__ import annotations

import types

from gradtape.frontend.structure import Branch, ForLoop, Node, WhileLoop, show, structured


def nodes(source: str) -> list[Node]:
    """Return the nodes of the first function of a source text."""
    code = compile(source, "structure.py", "exec")
    function = next(one for one in code.co_consts if isinstance(one, types.CodeType))
    return structured(function, {}).nodes


def kinds(source: str) -> list[type]:
    return [type(one) for one in nodes(source) if isinstance(one, Branch | ForLoop | WhileLoop)]


def test_the_test_of_a_while_loop_is_one_test():
    source = """
def f(x, n):
    k = 0
    while k < n and x[k] > 0.0:
        if x[k] > 5.0:
            k += 2
            continue
        k += 1
    return k
"""
    (loop,) = [one for one in nodes(source) if isinstance(one, WhileLoop)]
    assert loop.stops == [] and loop.name
    assert "$to" not in show(nodes(source))


def test_continue_and_early_return_at_the_top_need_no_variables():
    source = """
def f(x):
    if x > 3.0:
        return 1.0
    for i in range(3):
        if x > i:
            continue
        x += 1.0
    return x
"""
    assert kinds(source) == [Branch]
    assert "$to" not in show(nodes(source))


def test_a_break_ends_a_loop_by_a_variable():
    source = """
def f(x):
    for i in range(10):
        if x[i] > 3.0:
            break
    else:
        return 0.0
    return x[i]
"""
    loop = next(one for one in nodes(source) if isinstance(one, ForLoop))
    assert len(loop.stops) == 1
    assert {"x", "i"} <= loop.live | loop.assigned


def test_conditions_of_several_parts_are_one_branch():
    source = """
def f(x, y, z):
    if (x or y) and not (z and x):
        return 1
    return 2
"""
    assert "$to" not in show(nodes(source))
