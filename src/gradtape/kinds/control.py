"""The control kind: nodes that say how others are differentiated and scheduled.

They compute nothing: their outputs are inputs.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Collection, Sequence
from typing import Any

from gradtape.ir.builder import emit_all
from gradtape.ir.graph import Node, Value
from gradtape.ir.op import NDArray, Op
from gradtape.ir.types import Aval
from gradtape.kinds.cotangent import Cotangent, Tangent


class Rule(ABC):
    """The derivative that a user gave to a function. Its repr is all that a fingerprint sees of it.

    It holds arrays of one call. So it has no hash: no cache of what is known by its structure may keep it.

    Attributes
    ----------
    opens : bool
        Whether a linear function is transposed by way of its body instead of `pull`. A forward rule often calls the
        function itself on tangents (the derivative of a linear function is that function), and `pull` would come back to
        it for ever.
    kinked : collection of int
        The outputs that have a kink which their squares do not have.
    """

    __hash__ = None  # type: ignore[assignment]
    opens = False
    kinked: Collection[int] = ()

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def push(self, node: Node, tangents: Sequence[Value | None]) -> Sequence[Value | None]:
        """Return the tangents of the outputs, from one per operand (None is zero)."""

    @abstractmethod
    def pull(
        self, node: Node, cotangents: Sequence[Value | None], wanted: Sequence[bool]
    ) -> Sequence[Value | None]:
        """Return the cotangents of the operands that are wanted, from one per output (None is zero)."""

    @abstractmethod
    def pull_back(
        self, node: Node, cotangents: Sequence[Cotangent | None], wanted: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        """Do what `pull` does with cotangents that may be zero by selection."""

    def with_square_of(self, result: int) -> Rule:
        """Return the rule of a function that returns the square of one of the `kinked` outputs after all outputs."""
        raise NotImplementedError

    def __repr__(self) -> str:
        return self.name


def pulled_by_value(
    rule: Rule, node: Node, cotangents: Sequence[Cotangent | None], wanted: Sequence[bool]
) -> list[Cotangent | None]:
    """Return what `pull` makes of cotangents in which selections are zeros: a user's rule knows nothing of masks."""
    applied = [None if cotangent is None else cotangent.applied() for cotangent in cotangents]
    return [None if part is None else Cotangent(part) for part in rule.pull(node, applied, wanted)]


class Custom(Op):
    """A function with a derivative of its own.

    The first `hidden` inputs are what the function's body computed, and become the outputs; the others are the
    operands, in which the rule differentiates. The hidden inputs have no derivative.
    """

    def __call__(self, results: Sequence[Value], operands: Sequence[Value], rule: Rule) -> tuple[Value, ...]:
        return emit_all(self, (*results, *operands), hidden=len(results), rule=rule)

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        return tuple(avals[: params["hidden"]])

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        return tuple(arrays[: params["hidden"]])

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        visible = tangents[node.params["hidden"] :]
        if all(tangent is None for tangent in visible):
            return (None,) * len(node.outs)
        rule: Rule = node.params["rule"]
        return tuple(rule.push(node, visible))

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        hidden: int = node.params["hidden"]
        rule: Rule = node.params["rule"]
        if rule.opens:
            return (*cotangents, *(None,) * (len(node.inputs) - hidden))
        return (*(None,) * hidden, *rule.pull(node, cotangents, linear[hidden:]))


class OwnPullback(Op):
    """A node whose derivative in reverse is a node of the same sort, and not the transpose of its jvp."""

    @abstractmethod
    def pull(
        self, node: Node, cotangents: Sequence[Cotangent | None], wanted: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        """Return the cotangents of the inputs that are wanted, from one per output (None is zero)."""

    def pull_linear(
        self, node: Node, cotangents: Sequence[Cotangent | None], linear: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        """Do what `pull` does for inputs in which the node is linear: nothing may depend on these."""
        return self.pull(node, cotangents, linear)

    def with_squares_of(
        self, node: Node, kinked: Sequence[int | None], result: int | None = None
    ) -> tuple[Sequence[int], Callable[[Sequence[Value]], Sequence[Value]]] | None:
        """Return which inputs with a kink are squared inside, and what makes the outputs of these squares; None if there are none.

        `kinked` has by input the place of the first one that is the same number, None where it has no kink. With the number of a
        `result`, the square of that is a further output; None if it has no kink. Loops and branches of a graph are looked into in
        another way (`gradtape.transforms.loops.squares`).
        """
        return None

    def push(self, node: Node, tangents: Sequence[Tangent | None]) -> Sequence[Tangent | None]:
        """Do what `jvp` does with tangents that may be zero by selection."""
        pushed = self.jvp(node, [None if tangent is None else tangent.applied() for tangent in tangents])
        return [None if tangent is None else Tangent(tangent) for tangent in pushed]

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        """Do the same: in what a node is linear in, the derivative is the transpose."""
        given = [None if cotangent is None else Cotangent(cotangent) for cotangent in cotangents]
        return tuple(
            [None if part is None else part.applied() for part in self.pull_linear(node, given, linear)]
        )


class Structured(OwnPullback):
    """A node that holds graphs."""


class Barrier(Op):
    """The first `kept` inputs, as if they were computed from all inputs.

    What is computed from the outputs is not merged with what was computed from the inputs.
    """

    def __call__(self, values: Sequence[Value], after: Sequence[Value]) -> tuple[Value, ...]:
        return emit_all(self, (*values, *after), kept=len(values))

    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        return tuple(avals[: params["kept"]])

    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        return tuple(arrays[: params["kept"]])

    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        return tuple(tangents[: node.params["kept"]])

    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        return (*cotangents, *(None,) * (len(node.inputs) - len(node.outs)))


custom_call = Custom("custom_call")
barrier = Barrier("barrier")


def visible_inputs(node: Node) -> tuple[Value, ...]:
    """Return the inputs of a node that its derivative rule sees: those of a custom rule without the hidden ones."""
    return node.inputs[node.params["hidden"] :] if isinstance(node.op, Custom) else node.inputs


def carried(node: Node) -> tuple[Value, ...]:
    """Return the inputs of a linear node that cotangents are pulled back to."""
    if isinstance(node.op, Custom) and node.params["rule"].opens:
        return node.inputs[: node.params["hidden"]]
    return visible_inputs(node)
