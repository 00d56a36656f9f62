"""What each root reads and what is computed where: a dry walk with one symbolic position per root."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from gradtape.ir.budget import spend
from gradtape.ir.graph import Literal, Node, Value
from gradtape.kinds.matrix import Matrix
from gradtape.loops.affine import Affine, Position, Var, affine, interval
from gradtape.lower.schedule.costs import GATHER, LOAD, REPEATED, calls_vector_function, cost_of
from gradtape.lower.schedule.element_interpreter import Test, Walker, Where
from gradtape.lower.schedule.nests import Root, fresh_variables
from gradtape.lower.schedule.row_functions import is_around

SEGMENTS: Final = 6
"""More pieces of one loop than this cost more code than their tests cost time."""


class Explorer(Walker[float]):
    """Notes for one root the roots and sources that it reads, where loops must break, and what is costly.
    Elements are costs."""

    def __init__(self, roots: dict[Value, Root], costs: dict[Value, float]) -> None:
        super().__init__(roots)
        self.costs = costs
        self.known: dict[tuple[Value, Where], float] = {}
        self.root: Root | None = None
        self.levels: dict[Var, int] = {}
        self.level_of: dict[Where, int] = {}
        self.facts: dict[Node, tuple[Value, float, bool]] = {}
        self.gathered = 0

    def explore(self, root: Root) -> None:
        """Fill in what is to be known of a root."""
        self._start(root, split=True)
        self._visit(root)
        if any(len(breaks) >= SEGMENTS for breaks in root.breaks.values()):
            self._start(root, split=False)
            self._visit(root)

    def _start(self, root: Root, split: bool) -> None:
        self.known = {}
        self.root = root
        root.split = split
        root.variables = fresh_variables(root)
        root.reads, root.sources, root.breaks, root.sites = {}, set(), {}, {}
        root.functions, root.outside = [], {}
        self.levels = {}
        self.level_of = {}
        for level, variable in enumerate(root.variables):
            if not isinstance(variable, int):
                ((atom, _),) = variable.terms.items()
                assert isinstance(atom, Var)
                self.levels[atom] = level

    def _visit(self, root: Root) -> None:
        node = root.node
        if any(axis.extent == 0 for axis in root.axes) and root.kind != "scatter":
            return
        index = root.operand_index(root.variables)
        if root.kind == "each" or root.kind == "guard":
            if node is not None and self.roots.get(root.value) is root:
                self.compute(node, root.result_index(root.variables))
            else:
                self.element(root.value, root.result_index(root.variables))
            return
        if root.kind == "held":
            return
        if root.main is not None:
            root.reads[root.main] = set()
            return
        assert node is not None
        if root.kind in ("reduce", "argreduce"):
            self.element(node.inputs[0], index)
        elif root.kind == "scan":
            for value in node.inputs:
                self.element(value, index)
            axis = node.params["axis"]
            if root.axes[axis].extent > 1:
                root.breaks[axis] = {1}
        elif root.kind == "contract":
            for value, letters in zip(node.inputs, (node.params["x"], node.params["y"]), strict=True):
                self.element(value, tuple([root.variables[root.letters[letter]] for letter in letters]))
        elif root.kind == "blas":
            for value, letters in zip(node.inputs, (node.params["x"], node.params["y"]), strict=True):
                anywhere = whole(value)
                places = [root.letters.get(letter) for letter in letters]
                self.element(
                    value,
                    tuple(
                        [
                            anywhere[k] if level is None else root.variables[level]
                            for k, level in enumerate(places)
                        ]
                    ),
                )
        elif root.kind == "join":
            self._whole(node.inputs)
        elif root.kind == "scatter":
            base, v, *indices = node.inputs
            root.base_index = whole(base)
            self._whole((base,))
            if v.size:
                root.target = self.positions(node.op.target, index, base.shape, indices, node.params)  # type: ignore[attr-defined]
                self.element(v, index)
        elif isinstance(node.op, Matrix):
            self._whole([node.inputs[place] for place in node.op.reads])
        else:
            self._whole(node.inputs)

    def _whole(self, values: Sequence[Value]) -> None:
        """Visit values that are read at any position."""
        for value in values:
            if value.size:
                self.element(value, whole(value))

    def recall(self, value: Value, index: Where) -> float | None:
        return self.known.get((value, index))

    def remember(self, value: Value, index: Where, element: float) -> None:
        spend(1)
        self.known[value, index] = element

    def number(self, value: Literal) -> float:
        return 0.0

    def zero(self, value: Value) -> float:
        return 0.0

    def read_root(self, root: Root, index: Where) -> float:
        assert self.root is not None
        self.root.reads.setdefault(root, set()).add(index)
        return LOAD if index else 0.0

    def read_source(self, value: Value, index: Where) -> float:
        assert self.root is not None
        self.root.sources.add(value)
        return LOAD if index else 0.0

    def apply(self, node: Node, args: list[float], index: Where) -> float:
        assert self.root is not None
        level = self.level_of.get(index)
        if level is None:
            level = self.level_of[index] = self._level(index)
        facts = self.facts.get(node)
        if facts is None:
            facts = self.facts[node] = node.out, cost_of(node), calls_vector_function(node)
        out, cost, calls = facts
        if is_around(self.root, level):
            self.root.outside[out] = level
        elif calls:
            self.root.functions.append(node.op.name)
        return self._noted(out, cost + sum(args), index)

    def _level(self, index: Where) -> int:
        """Return the innermost loop that a position follows; -1 for none."""
        variables = [
            var for position in index if isinstance(position, Affine) for var in position.variables()
        ]
        return max([self.levels.get(var, len(self.levels)) for var in variables], default=-1)

    def _noted(self, value: Value, cost: float, index: Where) -> float:
        assert self.root is not None
        if cost > REPEATED and index:
            self.root.sites.setdefault(value, set()).add(index)
            self.costs[value] = max(cost, self.costs.get(value, 0.0))
        return cost

    def moved(self, node: Node, element: float, index: Where) -> float:
        return self._noted(node.out, element + GATHER, index)

    def wrapped(self, element: float, extent: int) -> Position:
        self.gathered += 1
        return affine(Var(f"gather{self.gathered}", 0, max(extent - 1, 1)))

    def select(self, tests: Sequence[Test], element: float, value: Value) -> float:
        return element + 1.0

    def choose(self, test: Test, element: float, other: float, value: Value) -> float:
        return element + other

    def splits(self, test: Test) -> bool:
        assert self.root is not None
        if not self.root.split:
            return False
        expression, low, high = test
        if len(expression.terms) != 1:
            return False
        ((atom, factor),) = expression.terms.items()
        level = self.levels.get(atom) if isinstance(atom, Var) else None
        if level is None or abs(factor) != 1:
            return False
        ends = [low - expression.offset, high - expression.offset]
        if factor == -1:
            ends = [expression.offset - low + 1, expression.offset - high + 1]
        least, greatest = interval(self.root.variables[level])
        inner = {end for end in ends if least < end <= greatest}
        self.root.breaks.setdefault(level, set()).update(inner)
        return True


def whole(value: Value) -> Where:
    """Return a position that may be any in a value, and is in step with no loop."""
    return tuple([affine(Var(f"w{k}", 0, max(extent - 1, 1))) for k, extent in enumerate(value.shape)])
