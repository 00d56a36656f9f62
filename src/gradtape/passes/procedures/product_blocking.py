"""Blocking of products of a matrix with a vector: those of many iterations of a loop become products of matrices, by BLAS.

In ``for i in range(n): y[i] = X @ X[i]`` each iteration reads the whole matrix for two operations per element. Where a loop stores neither
into the matrix nor into that from which the vectors come, it is strip-mined: the vectors of a block of iterations are the columns of a
panel, the rows of the matrix are cut into tiles, and before the block runs, the products of its panel and of those tiles that it uses
are computed into a table, from which the iterations take their sums. A block that is not full, or that would use few elements of the
tiles, computes its sums as they were written. Sums are rounded as BLAS does it.

Sizes follow from the fact that accesses are within their arrays: where each sum runs over `terms` elements that are `stride` apart, the
first one of them is in the array without its last ``(terms - 1) * stride`` elements.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

import numpy as np

from gradtape.ir.body import make_body
from gradtape.ir.graph import Value, extract, literal, number_of
from gradtape.ir.types import aval
from gradtape.ops.core.contract import contract
from gradtape.ops.core.elementwise.extrema import maximum, minimum
from gradtape.ops.core.elementwise.integer import floor_divide
from gradtape.ops.core.elementwise.logic import logical_and
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.elementwise.signs import absolute
from gradtape.passes.procedures.matrix_vector import MatrixVectorProduct, RowSums, product_at
from gradtape.procedures.builder import ProcedureBuilder, integer
from gradtape.procedures.ir import Apply, For, If, Pointer, Procedure, Span, Statement
from gradtape.procedures.rewrite import BlockPass, Rewriter
from gradtape.procedures.traversal import array_sizes, names, stored
from gradtape.statements import walk

BLOCK: Final = 64
"""Iterations of a block, and rows of a tile."""

MOST_COPIES: Final = 2
"""Blocks copy each element of an array of vectors so many times at most; further ones compute their sums as they were written."""

LEAST_USED: Final = 4
"""A block uses at least one in so many elements that its tiles compute."""


def block_products(procedure: Procedure) -> Procedure:
    """Return the procedure with products of matrices in place of many with vectors; the same procedure where there are none."""
    return _Blocking(procedure).rewritten(procedure)


class _Tables(NamedTuple):
    """The arrays that a product allocates: tiles of the matrix, panels of vectors, and the table of sums of one block."""

    tiles: Pointer
    panels: Pointer
    table: Pointer
    rows: int
    blocks: Value
    """How many blocks of iterations have a panel; 0 if a number is not finite: zeros times others are no zeros."""


class _Blocking(BlockPass):
    """Blocks the outermost loops that have products."""

    def __init__(self, procedure: Procedure) -> None:
        super().__init__()
        self._build = ProcedureBuilder("blocks", names(procedure))
        self._sizes = array_sizes(procedure)

    def replacements(self, statement: Statement) -> list[Statement]:
        if isinstance(statement, For):
            products = [] if statement.parallel else self._products(statement)
            if products:
                self.count += 1
                return self._blocked(statement, products)
        return super().replacements(statement)

    def _products(self, loop: For) -> list[MatrixVectorProduct]:
        """Return the products in the body of a loop that can be computed before it."""
        count = number_of(loop.count)
        if count is not None and int(count) < BLOCK:
            return []
        defined_in_loop = {content for s in walk(loop.body) for content in s.defines()}
        changed = {pointer.memory for pointer in stored(loop.body)}
        products: list[MatrixVectorProduct] = []
        position = 0
        while position < len(loop.body):
            product = product_at(loop.body, position)
            if product is None or not self._fits(product.sums):
                position += 1
                continue
            sums = product.sums
            leaves = extract([sums.left_start, sums.start, product.used])[1]
            if (
                defined_in_loop.isdisjoint([*leaves, sums.left, sums.right])
                and changed.isdisjoint([sums.left.memory, sums.right.memory])
                and loop.index in extract([sums.left_start])[1]
            ):
                products.append(product)
            position += product.extent
        return products

    def _fits(self, sums: RowSums) -> bool:
        """Return whether a matrix is large enough, and its copy not much larger than the array that it is in."""
        if sums.left not in self._sizes or sums.right not in self._sizes:
            return False
        size = self._sizes[sums.right]
        rows = sums.rows(size)
        return rows >= BLOCK and rows * sums.terms <= MOST_COPIES * size

    def _blocked(self, loop: For, products: Sequence[MatrixVectorProduct]) -> list[Statement]:
        """Return the statements that take the place of a loop."""
        build, count = self._build, loop.count
        statements: list[Statement] = []
        with build.block(statements):
            tables = [self._packed(loop, product) for product in products]
            with build.loop(floor_divide(count + (BLOCK - 1), integer(BLOCK))) as block:
                gains = [self._multiplied(loop, block, *pair) for pair in zip(products, tables, strict=True)]
                with build.loop(minimum(integer(BLOCK), count - block * BLOCK)) as number:
                    copy = Rewriter()
                    copy.becomes[loop.index] = block * BLOCK + number
                    build.current.extend(copy.block(self._taken(loop, products, tables, gains, number)))
        return statements

    def _packed(self, loop: For, product: MatrixVectorProduct) -> _Tables:
        """Append the copies of a matrix in tiles and of the vectors in panels."""
        build, sums = self._build, product.sums
        dtype, terms, rows = sums.right.dtype, sums.terms, sums.rows(self._sizes[sums.right])
        odd, largest = build.variable("odd", integer(0)), literal(np.finfo(str(dtype)).max, dtype)

        def copied(source: Pointer, index: Value, packed: Pointer, packed_index: Value) -> None:
            value = build.load(source, index)
            build.store(packed, packed_index, value)
            build.assign(odd, build.read(odd) + where(absolute(value) <= largest, 0, 1))

        tiles = -(-rows // BLOCK)
        packed = build.allocate("tiles", tiles * BLOCK * terms, dtype, zero=True)
        if sums.unit < sums.stride:  # along columns
            for start, some, wide in ((0, rows // BLOCK, BLOCK), (rows // BLOCK, 1, rows % BLOCK)):
                if not some or not wide:
                    continue
                with build.loop(some) as number, build.loop(terms) as term, build.loop(wide) as k:
                    row = (number + start) * BLOCK + k
                    packed_index = ((number + start) * terms + term) * BLOCK + k
                    copied(
                        sums.right, row * sums.unit + term * sums.stride + sums.origin, packed, packed_index
                    )
        else:
            with build.loop(rows) as number, build.loop(terms) as term:
                index = number * sums.unit + term * sums.stride + sums.origin
                copied(sums.right, index, packed, number * terms + term)
        most = max(1, MOST_COPIES * self._sizes[sums.left] // (BLOCK * terms))
        full = maximum(floor_divide(loop.count, integer(BLOCK)), integer(0))
        count = minimum(full, integer(most))
        panels = build.allocate("panels", count * (BLOCK * terms), dtype)
        by_rows = sums.left_stride == 1
        extents = (BLOCK, terms) if by_rows else (terms, BLOCK)
        with build.loop(count) as block, build.loop(extents[0]) as x, build.loop(extents[1]) as y:
            vector, term = (x, y) if by_rows else (y, x)
            begin = _at(sums.left_start, loop.index, block * BLOCK + vector)
            to = block * (BLOCK * terms) + x * extents[1] + y
            copied(sums.left, begin + term * sums.left_stride, panels, to)
        table = build.allocate("table", tiles * BLOCK * BLOCK, dtype)
        return _Tables(packed, panels, table, rows, where(build.read(odd) > 0, integer(0), count))

    def _multiplied(self, loop: For, block: Value, product: MatrixVectorProduct, tables: _Tables) -> Value:
        """Append the products of a block's panel and the tiles that it uses; return whether there are such."""
        build, sums, terms = self._build, product.sums, product.sums.terms
        low = build.variable("low", integer(tables.rows))
        high = build.variable("high", integer(0))
        used = build.variable("used", integer(0))
        with build.branch(block < tables.blocks), build.loop(BLOCK) as number:
            index = block * BLOCK + number
            start, count = (_at(x, loop.index, index) for x in (sums.start, product.used))
            is_used = count > 0
            build.assign(low, minimum(build.read(low), where(is_used, start, integer(tables.rows))))
            build.assign(high, maximum(build.read(high), where(is_used, start + count, integer(0))))
            build.assign(used, build.read(used) + maximum(count, integer(0)))
        first = floor_divide(build.read(low), integer(BLOCK))
        behind = floor_divide(build.read(high) + (BLOCK - 1), integer(BLOCK))
        tiles = maximum(behind - first, integer(0))
        total = build.read(used)
        gains = logical_and(total > 0, total * LEAST_USED >= tiles * (BLOCK * BLOCK))
        by_rows = sums.left_stride == 1
        shapes = (
            aval((terms, BLOCK) if sums.unit < sums.stride else (BLOCK, terms), tables.tiles.dtype),
            aval((BLOCK, terms) if by_rows else (terms, BLOCK), tables.tiles.dtype),
        )
        a, b = map(Value, shapes)
        subscripts = ((1, 0) if sums.unit < sums.stride else (0, 1), (2, 1) if by_rows else (1, 2))
        body = make_body([a, b], [contract(a, b, *subscripts, (0, 2))], "product of a tile and a panel")
        with build.branch(gains), build.loop(tiles) as k:
            tile = first + k
            inputs = (
                Span(tables.tiles, tile * (BLOCK * terms), shapes[0]),
                Span(tables.panels, block * (BLOCK * terms), shapes[1]),
            )
            out = Span(tables.table, tile * (BLOCK * BLOCK), aval((BLOCK, BLOCK), tables.table.dtype))
            build.append(Apply(body, inputs, (out,)))
        return gains

    def _taken(
        self,
        loop: For,
        products: Sequence[MatrixVectorProduct],
        tables: Sequence[_Tables],
        gains: Sequence[Value],
        number: Value,
    ) -> list[Statement]:
        """Return the body of a loop with sums taken from tables."""
        build = self._build
        body: list[Statement] = []
        done = 0
        for product, table, condition in zip(products, tables, gains, strict=True):
            body += loop.body[done : product.place]
            done = product.place + product.extent
            branch = If(condition, [], loop.body[product.place : done])

            def element(
                build: ProcedureBuilder, row: Value, sums: RowSums = product.sums, table: _Tables = table
            ) -> Value:
                return build.load(table.table, (sums.start + row) * BLOCK + number)

            with build.block(branch.then):
                product.write(build, element)
            body.append(branch)
        return [*body, *loop.body[done:]]


def _at(value: Value, index: Value, other: Value) -> Value:
    """Return a value for another number of the iteration."""
    copy = Rewriter()
    copy.becomes[index] = other
    return copy.value(value)
