"""What every op is: the contract between the rows, the kinds and the transforms."""

from __future__ import annotations

from abc import ABCMeta, abstractmethod
from collections.abc import Sequence
from typing import Any

import numpy as np

from gradtape.ir.graph import Graph, Node, Value
from gradtape.ir.types import Aval

NDArray = np.ndarray[Any, np.dtype[Any]]


class _KindOfOp(ABCMeta):
    """The class of the kinds. No class is registered as one, so that `isinstance` need not ask ``abc``, which takes twice the time."""

    __instancecheck__ = type.__instancecheck__


class Op(metaclass=_KindOfOp):
    """One operation on arrays. Instances are the rows of `gradtape.ops`, subclasses are the kinds of `gradtape.kinds`."""

    shift: Any = None
    """How the result changes when a value is shifted from which the operands are computed; see `gradtape.ops.core.shift_rules`."""

    finite_derivatives = False
    """Whether derivatives of any order are finite where the operands are, other than by overflow."""

    graph: Graph | None = None
    """The graph that a node stands for; kernels use its nodes."""

    def __init__(self, name: str) -> None:
        self.name = name

    @abstractmethod
    def infer(self, avals: Sequence[Aval], params: dict[str, Any]) -> tuple[Aval, ...]:
        """Return the types of the outputs; raise ShapeError or DtypeError where the inputs do not fit."""

    @abstractmethod
    def evaluate(self, arrays: Sequence[NDArray], params: dict[str, Any]) -> tuple[NDArray, ...]:
        """Compute the outputs with NumPy."""

    @abstractmethod
    def jvp(self, node: Node, tangents: Sequence[Value | None]) -> tuple[Value | None, ...]:
        """Push tangents forward: one per input (None is zero) to one per output, by nodes linear in the tangents."""

    @abstractmethod
    def transpose(
        self, node: Node, cotangents: Sequence[Value | None], linear: Sequence[bool]
    ) -> tuple[Value | None, ...]:
        """Pull cotangents back through a node that is linear in the inputs flagged by `linear`."""

    def is_finite(self, node: Node) -> bool:
        """Return whether the outputs of a node are finite where its inputs are, unless numbers become too large."""
        return self.finite_derivatives

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.name}>"
