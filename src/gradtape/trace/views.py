"""Views: arrays that are a part of another array, and see and make its changes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from ..ir.graph import Mark, Value
from ..kinds.cotangent import Cotangent
from ..ops.complex_parts import from_parts, imag, real
from ..ops.indexing import Basic
from ..transforms.linear import pull_linear


@dataclass(frozen=True)
class Part:
    """A basic index of the base."""

    index: Basic

    def read(self, base: Value) -> Value:
        return self.index.read(base)

    def write(self, base: Value, v: Value) -> Value:
        return self.index.write(base, v)


@dataclass(frozen=True)
class Rearranged:
    """The base with its elements in another order or shape."""

    rearrange: Callable[[Value], Value]

    def read(self, base: Value) -> Value:
        return self.rearrange(base)

    def write(self, base: Value, v: Value) -> Value:
        """A rearrangement is a permutation of the elements: its transpose is its inverse."""
        mark = Mark()
        start = Value(base.aval, marks=(mark,))
        pulled = pull_linear([(self.rearrange(start), Cotangent(v))], [start], mark).get(start)
        assert pulled is not None
        return pulled.value


@dataclass(frozen=True)
class RealPart:
    """The real parts of the base's complex numbers."""

    def read(self, base: Value) -> Value:
        return real(base)

    def write(self, base: Value, v: Value) -> Value:
        return from_parts(v, imag(base))


@dataclass(frozen=True)
class ImaginaryPart:
    """The imaginary parts of the base's complex numbers."""

    def read(self, base: Value) -> Value:
        return imag(base)

    def write(self, base: Value, v: Value) -> Value:
        return from_parts(real(base), v)


View = Part | Rearranged | RealPart | ImaginaryPart


def stays_contiguous(index: Basic, base: tuple[int, ...]) -> bool:
    """Return whether a basic index of a C-contiguous array is itself C-contiguous."""
    partial = False
    for extent, whole, stride in zip(index.shape, base, index.strides, strict=True):
        if partial and extent != whole:
            return False
        if extent > 1:
            if stride != 1:
                return False
            partial = True
    return True
