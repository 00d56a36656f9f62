"""The blocks of a procedure: where leaves and values stand, and which statements may change a location between two places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from gradtape.ir.graph import Node, Value, extract
from gradtape.procedures.ir import (
    Apply,
    Assign,
    Content,
    For,
    If,
    Procedure,
    Read,
    Statement,
    Store,
    While,
)
from gradtape.procedures.traversal import roots
from gradtape.records import record
from gradtape.statements import walk
from gradtape.transforms.procedures.activity import Location


@record
class Block:
    """A list of statements that runs as a whole: the outermost one, a branch, or an iteration.

    Attributes
    ----------
    statements : list of statements
        For an iteration of a `While`, those of the test and then those of the body.
    parent : Block or None
        The block around it.
    place : int
        The position in the parent of the statement that holds this block.
    holder : statement or None
        That statement.
    inner : dict
        By position of a statement, its blocks.
    """

    statements: list[Statement]
    parent: Block | None
    place: int
    holder: Statement | None
    inner: dict[int, list[Block]]

    @property
    def is_loop(self) -> bool:
        return isinstance(self.holder, For | While)

    @property
    def number(self) -> Value:
        """The number of the iteration: for a `While` what the first statement of its test reads."""
        if isinstance(self.holder, For):
            return self.holder.index
        read = self.statements[0]
        assert isinstance(self.holder, While) and isinstance(read, Read) and isinstance(read.out, Value)
        return read.out

    def around(self) -> Iterator[Block]:
        """Yield this block and those around it, the innermost first."""
        block: Block | None = self
        while block is not None:
            yield block
            block = block.parent


class Place:
    """A position in a block: that of a statement, or -1 for the beginning."""

    __slots__ = ("block", "position")

    def __init__(self, block: Block, position: int) -> None:
        self.block = block
        self.position = position


class BlockTree:
    """The blocks of a procedure.

    Attributes
    ----------
    root : Block
        The outermost block.
    blocks : list of Block
        All, each before those inside it.
    places : dict of Content to Place
        Where values and pointers are first known; parameters and numbers of iterations at the beginning of their block.
    counted : dict of Value to Value
        By number of an iteration, the number of iterations of its loop.
    """

    def __init__(self, procedure: Procedure, counts: Mapping[Value, Value]) -> None:
        self.counted = dict(counts)
        self.blocks: list[Block] = []
        self.places: dict[Content, Place | None] = {}
        self._depth: dict[Block, int] = {}
        self._changed: dict[Statement, set[Location]] = {}
        self._aliases: dict[Location, Location] = {}
        self.root = self._add(procedure.body, None, 0, None)
        for parameter in procedure.parameters:
            self.places[parameter] = Place(self.root, -1)
        self._constant = Place(self.root, -1)
        self._users = self._find_users(procedure)

    def _add(
        self, statements: list[Statement], parent: Block | None, place: int, holder: Statement | None
    ) -> Block:
        block = Block(statements, parent, place, holder, {})
        self.blocks.append(block)
        self._depth[block] = 0 if parent is None else self._depth[parent] + 1
        for position, statement in enumerate(statements):
            if isinstance(statement, While):
                inner = [[*statement.test, *statement.body]]
            else:
                inner = list(statement.blocks())
            block.inner[position] = [self._add(each, block, position, statement) for each in inner]
            for content in statement.defines():
                if isinstance(statement, For):
                    self.places[content] = Place(block.inner[position][0], -1)
                    self.counted[statement.index] = statement.count
                else:
                    self.places[content] = Place(block, position)
        return block

    def later(self, a: Place, b: Place) -> Place:
        """Return the later of two places of which one's block is around the other's."""
        return max(a, b, key=lambda place: (self._depth[place.block], place.position))

    def place_of(self, value: Value, user: Block | None = None) -> Place | None:
        """Return where a value is first known; None if a leaf is none of this procedure's.

        That is right after the latest of its leaves, or at the beginning of a branch around all of its uses: its derivative may be infinite
        where the branch is not taken. A number is known at the beginning.

        Parameters
        ----------
        value : Value
        user : Block, optional
            Where it is used, for values that the procedure does not have itself.
        """
        known_places = self.places
        if value not in known_places:
            nodes, leaves = extract([value], stop=lambda value: not value.is_made or value in known_places)
            for leaf in leaves:
                if leaf not in known_places:
                    known_places[leaf] = None if leaf.data is None else self._constant
            for node in nodes:
                place: Place | None = self._constant
                for operand in node.inputs:
                    other = known_places.get(operand, self._constant)
                    place = None if place is None or other is None else self.later(place, other)
                if place is not None:
                    place = self._sunk(place, self._users.get(node, user))
                for out in node.outs:
                    known_places[out] = place
        return known_places.get(value, self._constant)

    def _sunk(self, place: Place, user: Block | None) -> Place:
        """Return the beginning of the innermost branch around a block, if that is in the block of a place; otherwise the place."""
        while user is not None and user is not place.block:
            if isinstance(user.holder, If):
                return Place(user, -1)
            user = user.parent
        return place

    def _find_users(self, procedure: Procedure) -> dict[Node, Block]:
        """Return by node the innermost block around all uses of its results."""
        users: dict[Value, Block] = {}

        def add(value: Content, block: Block) -> None:
            if isinstance(value, Value) and value.is_made:
                before = users.get(value)
                users[value] = block if before is None else self._common(before, block)

        for block in self.blocks:
            for position, statement in enumerate(block.statements):
                user = block.inner[position][0] if isinstance(statement, While) else block
                for content in statement.uses():
                    add(content, user)
        for content in procedure.results:
            add(content, self.root)
        users_of_nodes: dict[Node, Block] = {}
        nodes, _ = extract(roots(procedure), stop=lambda value: not value.is_made)
        for node in reversed(nodes):
            for out in node.outs:
                if out in users:
                    before = users_of_nodes.get(node)
                    users_of_nodes[node] = users[out] if before is None else self._common(before, users[out])
            for operand in node.inputs:
                add(operand, users_of_nodes[node])
        return users_of_nodes

    def _common(self, a: Block, b: Block) -> Block:
        """Return the innermost block around two."""
        while a is not b:
            if self._depth[a] >= self._depth[b]:
                assert a.parent is not None
                a = a.parent
            else:
                assert b.parent is not None
                b = b.parent
        return a

    # What statements change

    def alias(self, shadow: Location, location: Location) -> None:
        """Let a location be changed where another one is."""
        self._aliases[shadow] = location

    def changed(self, statement: Statement) -> set[Location]:
        """Return the locations to which a statement, or one inside it, may write."""
        changed = self._changed.get(statement)
        if changed is None:
            changed = set()
            for inner in walk([statement]):
                changed.update(written(inner))
            self._changed[statement] = changed
        return changed

    def is_assigned_outermost(self, statement: Statement | None) -> bool:
        """Return whether a statement reads a variable that the outermost block assigns."""
        if not isinstance(statement, Read):
            return False
        variable = self._aliases.get(statement.variable, statement.variable)
        return any(isinstance(s, Assign) and s.variable is variable for s in self.root.statements)

    def is_changed_between(self, location: Location, block: Block, first: int, last: int) -> bool:
        """Return whether statements of a block after `first`, up to `last`, may write to a location."""
        location = self._aliases.get(location, location)
        return any(location in self.changed(s) for s in block.statements[first + 1 : last + 1])

    def is_changed_after(self, location: Location, place: Place) -> bool:
        """Return whether anything that may run after a place, to the end of the procedure, may write to a location."""
        position = place.position
        for block in place.block.around():
            if self.is_changed_between(location, block, position, len(block.statements)):
                return True
            if block.is_loop and self.is_changed_between(location, block, -1, position):
                return True
            position = block.place
        return False

    def may_precede(self, a: Place, b: Place, home: Block | None = None) -> bool:
        """Return whether one place may be reached before another one is; with `home`, in one run of that block, not at the same time."""
        path = list(a.block.around())
        positions = {
            block: a.position if block is a.block else path[i - 1].place for i, block in enumerate(path)
        }
        position = b.position
        for block in b.block.around():
            if block in positions:
                around = set() if home is None else set(home.around())
                common = [outer for outer in block.around() if outer.is_loop and outer not in around]
                is_same = a.block is b.block and a.position == b.position
                return bool(common) or positions[block] <= position - (home is not None and is_same)
            position = block.place
        raise AssertionError("places of different procedures")


def written(statement: Statement) -> Sequence[Location]:
    """Return the locations to which a statement itself writes."""
    if isinstance(statement, Store):
        return [statement.pointer.memory]
    if isinstance(statement, Assign):
        return [statement.variable]
    if isinstance(statement, Apply):
        return [span.pointer.memory for span in statement.outputs]
    return ()
