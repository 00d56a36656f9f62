"""Graphs as statements of NumPy: names, loops, conditionals, and the user's lines as comments."""

from __future__ import annotations

import builtins
import keyword
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.api.source.expressions import (
    ADJOINT,
    ATOM,
    SEVERAL,
    Piece,
    dtype_text,
    expression,
    index_text,
    literal_piece,
    refusal,
)
from gradtape.api.source.names import Origins, Statement, counts_of_uses, statement_of
from gradtape.ir.body import bodies_of
from gradtape.ir.graph import Graph, Literal, Node, Value
from gradtape.ir.op import Op
from gradtape.ops.core.cumulative import gated_recurrence, recurrence
from gradtape.ops.core.elementwise.arithmetic import add
from gradtape.ops.core.indexing import put_add, put_row, segment_add, update_row
from gradtape.ops.core.matrices import lu
from gradtape.ops.core.shape import expand_row, pad_row, reshape_row, slice_row

WIDTH: Final = 100
"""The length of the longest line that is not one expression that cannot be divided."""

LONGEST_PART: Final = 44
"""The length of an expression up to which it is written inside another one."""

RESERVED: Final = frozenset({*keyword.kwlist, *dir(builtins), "np", "scipy"})

OPERATORS: Final = ("+ ", "- ", "* ", "/ ", "@ ")
"""The operators before which a line may be divided."""

UNWRITTEN: Final = (lu,)
"""The ops whose results only others use that compute them anew."""

WRITES: Final[dict[Op, str]] = {put_add: "np.add.at", segment_add: "np.add.at", put_row: "", update_row: ""}
"""The ops that write to a copy of their first operand."""


class Writer:
    """Writes the statements of a function.

    Parameters
    ----------
    origins : Origins
    taken : iterable of str
        Names that are in use already.
    spread : bool
        Whether derivatives may have more axes than what they are derivatives of.
    """

    def __init__(self, origins: Origins, names: Iterable[str], *, spread: bool) -> None:
        self.lines: list[str] = []
        self._origins = origins
        self._taken = set(names) | RESERVED
        self._spread = spread
        self._last: tuple[Statement, bool] | None = None
        self._counts: Counter[str] = Counter()

    def unique(self, name: str) -> str:
        """Return a name that is not in use, and take it."""
        free_name = name
        while free_name in self._taken:
            self._counts[name] += 1
            free_name = f"{name}_{self._counts[name] + 1}" if name != "t" else f"t{self._counts[name]}"
        self._taken.add(free_name)
        return free_name

    def block(
        self,
        graph: Graph,
        pieces: dict[Value, Piece],
        indent: str,
        *,
        is_outermost: bool,
        wanted: dict[Value, str],
    ) -> None:
        """Write the nodes of a graph; `pieces` has the texts of its inputs, and receives those of its values."""
        _Block(self, graph, pieces, indent, is_outermost, wanted).write()

    def names_in(self, graph: Graph, is_outermost: bool) -> tuple[dict[Value, str], set[Value]]:
        """Return the user's names for values of a graph, and which of them the user's function computes."""
        return self._origins.named(graph, is_outermost=is_outermost, spread=self._spread)

    def comment(self, node: Node, is_own: bool, indent: str) -> None:
        """Write the user's line that a statement comes from, unless it stands above already."""
        statement = statement_of(node)
        if statement is None or self._last == (statement, is_own):
            return
        self._last = statement, is_own
        text = statement.text if is_own or not self._origins.is_known else f"derivative of: {statement.text}"
        room = WIDTH - len(indent) - 2
        self.lines.append(f"{indent}# {text if len(text) <= room else text[: room - 4] + ' ...'}")


class _Block:
    """The statements of one graph or body."""

    def __init__(
        self,
        writer: Writer,
        graph: Graph,
        pieces: dict[Value, Piece],
        indent: str,
        is_outermost: bool,
        names: dict[Value, str],
    ) -> None:
        self._writer = writer
        self._graph = graph
        self._pieces = pieces
        self._indent = indent
        self._names, self._own = writer.names_in(graph, is_outermost)
        self._names.update(names)
        self._uses = counts_of_uses(graph, [value for value, _ in graph.guards])
        self._fresh: dict[str, str] = {}
        self._pending: dict[Value, Node] = {}
        self._sums = {value: node for node in graph.nodes if node.op is add for value in node.inputs}
        self._guards: dict[Value, int] = dict(graph.guards)

    def write(self) -> None:
        """Write the nodes: first those of the user's function."""
        for node in self._in_order():
            if not any(self._uses[out] for out in node.outs):
                continue
            self._node(node)
            for out in node.outs:
                if out in self._guards:
                    self._guard(node, out)

    def _in_order(self) -> list[Node]:
        """Return the nodes in the order of the user's lines as far as they can be: first those of his function."""
        ranks: dict[Node, tuple[bool, int]] = {}
        for node in self._graph.nodes:
            is_derived = not all(out in self._own for out in node.outs if self._uses[out])
            statement = None if is_derived else statement_of(node)
            rank = is_derived, 0 if statement is None else statement.line
            before = [ranks[value.node] for value in node.inputs if value.node in ranks]
            ranks[node] = max([rank, *before])
        return sorted(self._graph.nodes, key=ranks.__getitem__)

    def read(self, value: Value) -> Piece:
        """Return the text of a value."""
        if isinstance(value, Literal):
            return literal_piece(value)
        return self._pieces[value]

    def _line(self, text: str) -> None:
        self._writer.lines.append(self._indent + text)

    def _assign(self, node: Node, value: Value, text: str, *, shape: Any = None) -> str:
        """Write an assignment to a name of the value."""
        self._writer.comment(node, value in self._own, self._indent)
        name = self._writer.unique(self._names.get(value, "t"))
        self._line(f"{name} = {text}")
        self._pieces[value] = Piece(name, ATOM, value.shape if shape is None else shape)
        return name

    def _node(self, node: Node) -> None:
        op = node.op
        if bodies_of(node):
            self._writer.comment(node, all(out in self._own for out in node.outs), self._indent)
            (self._branches if "branches" in node.params else self._loop)(node)
        elif op in SEVERAL:
            targets = [self._writer.unique(self._names.get(out, "t")) for out in node.outs]
            self._writer.comment(node, node.outs[0] in self._own, self._indent)
            self._line(f"{', '.join(targets)} = {SEVERAL[op](node, self.read)}")
            for target, out in zip(targets, node.outs, strict=True):
                text = target
                if (op, out.index) in ADJOINT:
                    text = f"{target}.T" if out.ndim == 2 else f"np.swapaxes({target}, -1, -2)"
                    text = f"np.conjugate({text})" if out.dtype.kind == "c" else text
                self._pieces[out] = Piece(text, ATOM, out.shape)
        elif op in UNWRITTEN:
            self._pieces.update({out: Piece("None", ATOM, out.shape) for out in node.outs})
        elif op is pad_row:
            if self._uses[node.out] == 1 and self._consumer(node.out) is not None:
                self._pending[node.out] = node
            else:
                self._padded(node)
        elif op in WRITES:
            self._written(node)
        elif op in (recurrence, gated_recurrence):
            self._recurrence(node)
        elif op is add and self._added_to_part(node):
            pass
        elif len(node.outs) == 1:
            self._expression(node, node.out)
        else:
            raise refusal(node)

    def _expression(self, node: Node, out: Value) -> None:
        piece = expression(node, self.read)
        is_plain = piece.text.isidentifier() or (piece.level == ATOM and _is_number(piece.text))
        short = len(piece.text) <= LONGEST_PART
        is_view = node.op in (slice_row, reshape_row, expand_row) and short
        if is_plain or (
            out not in self._names
            and out not in self._guards
            and short
            and (self._uses[out] == 1 or (is_view and len(piece.text) < 16))
        ):
            self._pieces[out] = piece
            return
        self._assign(node, out, piece.text, shape=piece.shape)

    # Writes to parts of arrays

    def _consumer(self, value: Value) -> Node | None:
        """Return the sum that a value is part of, if that is its only use."""
        node = self._sums.get(value)
        return node if node is not None and self._uses[value] == 1 and node.out.shape == value.shape else None

    def _name_of_sum(self, value: Value) -> str:
        """Return the name of a value, or of what becomes of it by additions."""
        while value not in self._names and (node := self._consumer(value)) is not None:
            value = node.out
        return self._names.get(value, "t")

    def _start(self, node: Node, text: str) -> str:
        """Write the assignment of an array that is written to, and return its name."""
        name_of_sum = self._name_of_sum(node.out)
        self._names.setdefault(node.out, name_of_sum)
        name = self._assign(node, node.out, text)
        self._fresh[name] = name_of_sum
        return name

    def _zeros(self, node: Node) -> str:
        shape, dtype = node.out.shape, node.out.dtype
        size = shape[0] if len(shape) == 1 else shape
        kind = "" if dtype == np.dtype(float) else f", {dtype_text(dtype)}"
        return self._start(node, f"np.zeros({size}{kind})")

    def _padded(self, node: Node) -> None:
        """Write an array of zeros with a part."""
        name = self._zeros(node)
        self._write_to(name, node.inputs[0], self._places(node), "=")

    def _places(self, node: Node) -> str:
        params, v = node.params, node.inputs[0] if node.op is pad_row else node.inputs[1]
        dropped = [axis for axis, extent in enumerate(v.shape) if extent == 1 and self._is_reshaped(v)]
        return index_text(params["starts"], v.shape, params["strides"], node.out.shape, dropped)

    def _is_reshaped(self, v: Value) -> bool:
        """Return whether the axes of extent 1 of a value were added to an element."""
        return v.node is not None and v.node.op is reshape_row and v.node.inputs[0].shape == ()

    def _write_to(self, name: str, v: Value, index_text: str, sign: str) -> None:
        piece = self.read(v)
        if self._is_reshaped(v) and v.node is not None:
            inner = (
                self._pieces.get(v.node.inputs[0])
                if not isinstance(v.node.inputs[0], Literal)
                else self.read(v.node.inputs[0])
            )
            piece = piece if inner is None else inner
        self._line(f"{name}[{index_text}] {sign} {piece.text}")

    def _added_to_part(self, node: Node) -> bool:
        """Write the sum of an array and one that is zero but for a part as an addition to the part."""
        x, y = node.inputs
        if not {x, y} & self._pending.keys() and not any(self._is_fresh(value) for value in (x, y)):
            return False
        if any(isinstance(value, Literal) or value.shape != node.out.shape for value in (x, y)):
            for value in (x, y):
                if value in self._pending:
                    self._padded(self._pending.pop(value))
            return False
        base, other = (
            (y, x)
            if self._is_fresh(y) or (x in self._pending and not self._is_fresh(x) and y not in self._pending)
            else (x, y)
        )
        if base in self._pending:
            self._padded(self._pending.pop(base))
        if not self._is_fresh(base):
            self._start(node, f"np.array({self.read(base).whole(base.shape).text})")
            name = self._pieces[node.out].text
        else:
            name = self._pieces[base].text
            self._writer.comment(node, node.out in self._own, self._indent)
        if other in self._pending:
            part = self._pending.pop(other)
            self._write_to(name, part.inputs[0], self._places(part), "+=")
        else:
            self._line(f"{name} += {self.read(other).text}")
        self._pieces[node.out] = Piece(name, ATOM, node.out.shape)
        name_of_sum = self._names.get(node.out)
        if name_of_sum is not None and self._fresh[name] != name_of_sum:
            del self._fresh[name]
            self._fresh[self._assign(node, node.out, name)] = name_of_sum
        return True

    def _is_fresh(self, value: Value) -> bool:
        """Return whether a value is an array that this code has made, and that nothing else uses."""
        return value in self._pieces and self._pieces[value].text in self._fresh and self._uses[value] == 1

    def _written(self, node: Node) -> None:
        base, v, *indices = node.inputs
        if node.op is segment_add:
            indices = indices[:1]
        base_piece = self.read(base)
        if base_piece.shape == () and base.shape != () and base_piece.text in ("0", "0.0"):
            name = self._zeros(node)
        elif self._is_fresh(base):
            name = base_piece.text
            self._pieces[node.out] = Piece(name, ATOM, node.out.shape)
        else:
            name = self._start(node, f"np.array({base_piece.whole(base.shape).text})")
        if node.op is update_row:
            self._write_to(name, v, self._places(node), "=")
            return
        index_texts = [self.read(index).whole(index.shape).text for index in indices]
        inside = index_texts[0] if len(index_texts) == 1 else ", ".join(index_texts)
        if WRITES[node.op]:
            picked = inside if len(index_texts) == 1 else f"({inside})"
            self._line(f"np.add.at({name}, {picked}, {self.read(v).text})")
        else:
            self._line(f"{name}[{inside}] = {self.read(v).text}")

    def _recurrence(self, node: Node) -> None:
        a, b = node.inputs
        axis, reverse = node.params["axis"], node.params["reverse"]
        factors = self.read(a).whole(a.shape)
        name = self._assign(node, node.out, f"np.array({self.read(b).whole(b.shape).text})")
        index = self._writer.unique("k")
        lead = ":, " * axis
        size = node.out.shape[axis]
        count, before = (
            (f"range({size - 2}, -1, -1)", f"{index} + 1")
            if reverse
            else (f"range(1, {size})", f"{index} - 1")
        )
        if not factors.text.isidentifier():
            factor_name = self._writer.unique("t")
            self._line(f"{factor_name} = {factors.text}")
            factors = Piece(factor_name, ATOM, a.shape)
        self._line(f"for {index} in {count}:")
        here, there, factor = (
            f"{name}[{lead}{index}]",
            f"{name}[{lead}{before}]",
            f"{factors.text}[{lead}{index}]",
        )
        product = f"{factor} * {there}"
        if node.op is gated_recurrence:
            product = f"np.where({factor} != 0, {product}, 0)"
        self._line(f"    {here} += {product}")

    # Loops and branches

    def _guard(self, node: Node, value: Value) -> None:
        expected = self._guards[value]
        piece = self.read(value)
        if value.dtype.kind == "b":
            test = f"not {piece.within(ATOM)}" if expected else piece.text
        else:
            test = f"{piece.text} != {expected}"
        statement = statement_of(node)
        where = "" if statement is None else f": {statement.text}"
        self._line(f"if {test}:")
        message = f"this code is for arguments that take another branch{where}"
        room = WIDTH - len(self._indent) - len("    raise ValueError('')")
        message = message if len(repr(message)) - 2 <= room else f"{message[: room - 10]} ..."
        self._line(f"    raise ValueError({message!r})")

    def _branches(self, node: Node) -> None:
        index, *operands = node.inputs
        names = [self._writer.unique(self._names.get(out, "t")) for out in node.outs]
        branches = bodies_of(node)
        selected = self.read(index)
        is_pair = len(branches) == 2
        test = self._truth(index) if is_pair else ""
        order = [1, 0] if is_pair else range(len(branches))
        branch_name = selected.text
        if not is_pair and not branch_name.isidentifier():
            branch_name = self._writer.unique("branch")
            self._line(f"{branch_name} = {selected.text}")
        for position, number in enumerate(order):
            last = position == len(branches) - 1
            if is_pair:
                self._line("else:" if last else f"if {test}:")
            else:
                compare = f"{branch_name} <= 0" if number == 0 else f"{branch_name} == {number}"
                self._line("else:" if last else f"{'elif' if position else 'if'} {compare}:")
            branch = branches[number]
            inner = dict(zip(branch.inputs, [self.read(value) for value in operands], strict=True))
            self._body(branch, inner, names)
        for name, out in zip(names, node.outs, strict=True):
            self._pieces[out] = Piece(name, ATOM, out.shape)

    def _truth(self, index: Value) -> str:
        """Return the condition that selects the second of two branches."""
        node = index.node
        if node is not None and node.inputs and node.inputs[0].dtype.kind == "b" and len(node.inputs) == 1:
            inner = node.inputs[0]
            if isinstance(inner, Literal) or inner in self._pieces:
                return self.read(inner).text
        return f"{self.read(index).text} > 0"

    def _body(
        self, body: Graph, inner: dict[Value, Piece], targets: Sequence[str], *, after: Sequence[str] = ()
    ) -> None:
        """Write a body that ends with an assignment of its results."""
        deeper = self._indent + "    "
        self._writer.block(body, inner, deeper, is_outermost=False, wanted={})
        results = [
            literal_piece(value).text
            if isinstance(value, Literal) and value.shape == ()
            else _read(inner, value).text
            for value in body.outputs
        ]
        pairs = [
            (target, result) for target, result in zip(targets, results, strict=True) if target != result
        ]
        if pairs:
            self._writer.lines.append(
                f"{deeper}{', '.join(t for t, _ in pairs)} = {', '.join(r for _, r in pairs)}"
            )
        elif not after:
            self._writer.lines.append(f"{deeper}pass")
        self._writer.lines.extend(deeper + line for line in after)

    def _loop(self, node: Node) -> None:
        """Write a loop: carries have the names of the results from the beginning."""
        params, outs = node.params, node.outs
        body, *conditions = bodies_of(node)
        carries, consts = params["carries"], params["consts"]
        operands = list(node.inputs)
        count = None if "length" in params or conditions else operands.pop(0)
        records = outs[len(outs) - len(body.outputs) + carries :]
        names = []
        carried_names = self._carried_names(body, consts, carries)
        for out, start, usual in zip(outs, operands[consts : consts + carries], carried_names, strict=False):
            name = self._writer.unique(self._names.get(out, usual))
            names.append(name)
            self._line(f"{name} = {self.read(start).whole(start.shape).text}")
            self._pieces[out] = Piece(name, ATOM, out.shape)
        stacks = []
        for out, element in zip(records, body.outputs[carries:], strict=True):
            name = self._writer.unique(self._names.get(out, "record"))
            stacks.append(name)
            kind = "" if element.dtype == np.dtype(float) else f", {dtype_text(element.dtype)}"
            if "length" in params:
                shape = (params["length"], *element.shape)
                text = f"np.empty({shape[0] if len(shape) == 1 else shape}{kind})"
            elif conditions:
                text = "[]"
            else:
                assert count is not None
                text = f"[None] * int({self.read(count).text})"
            self._line(f"{name} = {text}")
            self._pieces[out] = Piece(name, ATOM, out.shape)
        if conditions:
            index = self._writer.unique("count")
            self._line(f"{index} = 0")
            self._pieces[outs[carries]] = Piece(index, ATOM, ())
        else:
            index = self._writer.unique("i")
        pieces_of_operands = []
        for value in [*operands[:consts], *operands[consts + carries :]]:
            piece = self.read(value)
            if (
                not isinstance(value, Literal)
                and not piece.text.isidentifier()
                and not _is_number(piece.text)
            ):
                name = self._writer.unique("t")
                self._line(f"{name} = {piece.whole(value.shape).text}")
                piece = Piece(name, ATOM, value.shape)
                self._pieces[value] = piece
            pieces_of_operands.append(piece)
        shared, elements = pieces_of_operands[:consts], pieces_of_operands[consts:]
        inner: dict[Value, Piece] = {body.inputs[0]: Piece(index, ATOM, ())}
        inner.update(zip(body.inputs[1:], shared, strict=False))
        for value, name in zip(body.inputs[1 + consts : 1 + consts + carries], names, strict=True):
            inner[value] = Piece(name, ATOM, value.shape)
        for value, piece in zip(body.inputs[1 + consts + carries :], elements, strict=True):
            text = (
                piece.text
                if piece.shape == () and not piece.text.isidentifier()
                else f"{piece.text}[{index}]"
            )
            inner[value] = Piece(text, ATOM, value.shape if text.endswith("]") else ())
        if conditions:
            limit = params["limit"]
            self._line("while True:" if limit is None else f"while {index} < {limit}:")
            (condition,) = conditions
            test = dict(zip(condition.inputs, [inner[value] for value in body.inputs], strict=True))
            deeper = self._indent + "    "
            self._writer.block(condition, test, deeper, is_outermost=False, wanted={})
            result = _read(test, condition.outputs[0])
            self._writer.lines.append(f"{deeper}if not {result.within(ATOM)}:")
            self._writer.lines.append(f"{deeper}    break")
            appended = [f"{name}.append" for name in stacks]
            self._while_body(body, inner, names, appended, index)
            return
        number = params["length"] if count is None else f"int({self.read(count).text})"
        order = f"reversed(range({number}))" if params["reverse"] else f"range({number})"
        self._line(f"for {index} in {order}:")
        self._body(body, inner, [*names, *[f"{name}[{index}]" for name in stacks]])

    def _while_body(
        self,
        body: Graph,
        inner: dict[Value, Piece],
        names: Sequence[str],
        appended: Sequence[str],
        index: str,
    ) -> None:
        deeper = self._indent + "    "
        self._writer.block(body, inner, deeper, is_outermost=False, wanted={})
        for name, value in zip(appended, body.outputs[len(names) :], strict=True):
            self._writer.lines.append(f"{deeper}{name}({_read(inner, value).text})")
        results = [_read(inner, value).text for value in body.outputs[: len(names)]]
        pairs = [(target, result) for target, result in zip(names, results, strict=True) if target != result]
        if pairs:
            self._writer.lines.append(
                f"{deeper}{', '.join(t for t, _ in pairs)} = {', '.join(r for _, r in pairs)}"
            )
        self._writer.lines.append(f"{deeper}{index} += 1")

    def _carried_names(self, body: Graph, consts: int, carries: int) -> list[str]:
        """Return what the user calls the carried values in the body of a loop."""
        names, _ = self._writer.names_in(body, False)
        return [names.get(value, "carry") for value in body.outputs[:carries]]


def wrapped(line: str) -> list[str]:
    """Return a line, or several where it is too long.

    Examples
    --------
    >>> wrapped("x = 1")
    ['x = 1']
    >>> wrapped(f"    x = f({'a' * 60}, {'b' * 60})")  # doctest: +ELLIPSIS
    ['    x = f(aaa...,', '        bbb...)']
    """
    indent = line[: len(line) - len(line.lstrip())]
    if len(line) <= WIDTH or line.lstrip().startswith(("#", "raise ")):
        return [line]
    columns = _places_to_break(line)
    if not any(20 < column <= WIDTH for column in columns):
        head, sign, tail = line.partition("return " if line.lstrip().startswith("return ") else " = ")
        if not sign or tail.startswith("("):
            return [line]
        line = f"{head}{sign}({tail})"
        columns = _places_to_break(line)
    lines: list[str] = []
    start = 0
    while len(line) - start > WIDTH - (len(indent) + 4 if lines else 0):
        room = start + WIDTH - (len(indent) + 4 if lines else 0)
        fitting = [column for column in columns if start + 20 < column <= room] or [
            column for column in columns if column > room
        ][:1]
        if not fitting:
            break
        column = fitting[-1]
        lines.append(line[start:column].rstrip())
        start = column
    lines.append(line[start:])
    return [lines[0], *[f"{indent}    {part}" for part in lines[1:]]]


def _places_to_break(line: str) -> list[int]:
    """Return where a line may go on in the next one: inside brackets, after a comma or before an operator."""
    columns, depth, quote = [], 0, ""
    for number, letter in enumerate(line):
        if quote:
            quote = "" if letter == quote else quote
        elif letter in "\"'":
            quote = letter
        elif letter in "([{":
            depth += 1
        elif letter in ")]}":
            depth -= 1
        elif (
            depth
            and letter == " "
            and (line[number - 1] == "," or line[number + 1 : number + 3] in OPERATORS)
        ):
            columns.append(number + 1)
    return columns


def _read(pieces: dict[Value, Piece], value: Value) -> Piece:
    return literal_piece(value) if isinstance(value, Literal) else pieces[value].whole(value.shape)


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
