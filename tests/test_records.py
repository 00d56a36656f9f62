"""Records: what dataclasses would be, made sooner."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import field

import pytest

from gradtape.records import frozen_record, record, replaced, value_record


@record
class Node:
    """A node."""

    name: str
    children: list[Node] = field(default_factory=list)
    weight: float = 1.0

    @property
    def size(self) -> int:
        return 1 + sum(child.size for child in self.children)


@value_record
class Place:
    row: int
    column: int = 0


@frozen_record
class Route:
    start: Place
    stops: tuple[Place, ...] = ()


class Shape(ABC):
    __slots__ = ()

    @abstractmethod
    def area(self) -> float: ...


@record
class Wide(Shape):
    width: float

    def area(self) -> float:
        return self.width


@record
class Box(Wide):
    height: float

    def area(self) -> float:
        return self.width * self.height


def test_fields_have_defaults_of_their_own() -> None:
    a, b = Node("a"), Node("b", [Node("c")], weight=2.0)
    assert (a.name, a.children, a.weight, b.weight, b.size) == ("a", [], 1.0, 2.0, 2)
    a.children.append(b)
    assert Node("d").children == [] and a.size == 3
    assert (Node.__doc__, Node.__qualname__, Node.__module__) == ("A node.", "Node", __name__)


def test_records_are_compared_by_identity_or_by_value() -> None:
    assert Node("a") != Node("a") and len({Node("a"), Node("a")}) == 2
    assert Place(1) == Place(1, 0) != Place(0, 1) and len({Place(1), Place(1, 0)}) == 1
    assert Place(1) != (1, 0)
    assert Route(Place(1)) != Route(Place(1)) and Route(Place(1)).stops == ()


def test_records_have_slots_and_show_themselves() -> None:
    with pytest.raises(AttributeError):
        Place(1).other = 2  # type: ignore[attr-defined]
    assert repr(Place(1, 2)) == "Place(row=1, column=2)"
    with pytest.raises(TypeError, match="row"):
        Place()  # type: ignore[call-arg]


def test_records_take_over_the_fields_of_others() -> None:
    box = Box(2.0, 3.0)
    assert (box.area(), Wide(4.0).area(), isinstance(box, Shape)) == (6.0, 4.0, True)
    assert repr(box) == "Box(width=2.0, height=3.0)" and not hasattr(box, "__dict__")
    match box:
        case Box(width, height):
            assert (width, height) == (2.0, 3.0)


def test_fields_are_replaced() -> None:
    old = Node("a", [Node("b")], 2.0)
    new = replaced(old, weight=3.0)
    assert (new.name, new.weight, old.weight) == ("a", 3.0, 2.0) and new.children is old.children
    with pytest.raises(TypeError, match="wieght"):
        replaced(old, wieght=1.0)
