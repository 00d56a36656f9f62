"""Allocation hoisting: arrays of static sizes are allocated once, before the loops that use them anew in each iteration."""

from __future__ import annotations

from collections.abc import Collection

import numpy as np

from gradtape.ir.graph import Literal, literal, number_of
from gradtape.ir.types import INT64
from gradtape.procedures.builder import leaf
from gradtape.procedures.dataflow import escaping_allocations
from gradtape.procedures.ir import Allocate, For, Statement, Store


def hoist_allocations(body: list[Statement], kept: Collection[Statement] | None = None) -> list[Statement]:
    """Move allocations of static sizes out of the loops and branches of a body, and return what is to stand before it.

    What is to be zeros is filled where it was allocated. Arrays that a later iteration may use as well stay where they are.

    Parameters
    ----------
    body : list of statements
        Changed in place.
    kept : collection of statements, optional
        The parallel loops whose iterations have arrays for themselves, which are allocated at the beginning of each; others are parallel no
        more. All by default.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder()
    >>> with build.loop(5):
    ...     row = build.allocate("row", 3)
    ...     build.store(row, 0, 1.0)
    >>> [type(s).__name__ for s in (*hoist_allocations(build.body), *build.body, *build.body[0].body)]
    ['Allocate', 'For', 'Store']
    """
    before: list[Statement] = []
    _hoist(body, before, False, kept, set().union(*escaping_allocations(body).values()))
    return before


def _hoist(
    statements: list[Statement],
    before: list[Statement],
    is_inside: bool,
    parallel: Collection[Statement] | None,
    escaping: Collection[Statement],
) -> None:
    kept: list[Statement] = []
    for statement in statements:
        if isinstance(statement, For) and statement.parallel:
            own: list[Statement] = []
            is_kept = parallel is None or statement in parallel
            _hoist(statement.body, own, not is_kept, parallel, escaping)
            if own and not is_kept:
                statement.parallel = False
                before += own
            else:
                statement.body[:0] = own
        else:
            for block in statement.blocks():
                _hoist(block, before, True, parallel, escaping)
        stays = not is_inside or statement in escaping
        if not stays and isinstance(statement, Allocate) and number_of(statement.size) is not None:
            before.append(Allocate(statement.out, statement.size, False))
            if statement.zero:
                kept.append(_cleared(statement))
        else:
            kept.append(statement)
    statements[:] = kept


def _cleared(statement: Allocate) -> For:
    """Return the loop that fills an array with zeros."""
    index = leaf(INT64)
    zero: Literal = literal(np.zeros((), statement.out.dtype))
    return For(index, statement.size, [Store(statement.out, index, zero)])
