"""The walk over the captures of a function, from object to object; visitors by type say what is checked and copied of each."""

from __future__ import annotations

import io
import random
from collections import OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from types import CellType, CodeType, ModuleType
from typing import Any, Final, TypeAlias

from gradtape.ir.graph import Value
from gradtape.ir.types import aval
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.layout import remember_memory
from gradtape.trace.jit.captures.spec import CaptureSpec
from gradtape.trace.jit.captures.steps import Check, Origin, Source, Step, identity_check, type_key
from gradtape.trace.jit.captures.user_classes import reads_fields
from gradtape.trace.jit.signature import as_input, layout_of_input
from gradtape.trace.patching.copies import Substitute, copy_empty
from gradtape.trace.patching.name_reads import WRITES_FILES, Reads

MOST_STEPS: Final = 4096
"""The number of steps after which objects are checked by identity alone."""

HAS_STATE: Final = random.Random, io.IOBase
"""Classes of objects whose state no check reads, and that calls change."""

WRITABLE: Final = (list, dict, set, deque, OrderedDict, defaultdict)

Visitor: TypeAlias = Callable[["CaptureWalk", Any, Origin, str, bool], Any]
"""Takes the walk, an object, where it is read, its description, and whether it is copied; returns what the trace sees instead."""


class VisitorTable(dict[type, Visitor]):
    """Visitors by type.

    Parameters
    ----------
    exact : dict of type to callable
        For objects of exactly these types.
    families : dict of type to callable
        For all others: that of the first base that is listed; one of them is `object`.
    """

    def __init__(self, exact: dict[type, Visitor], families: dict[type, Visitor]) -> None:
        super().__init__(exact)
        self.families = families

    def __missing__(self, kind: type) -> Visitor:
        for base in kind.__mro__:
            if base in self.families:
                return self.families[base]
        raise KeyError(kind)


class CodeFacts:
    """What the code that is reached reads. A pass collects it, and the next one has it beforehand.

    Attributes
    ----------
    attributes, read_attributes : set of str
        Attributes that are used; those that are not only appended to.
    stored : set of str
        Attributes that are assigned to or deleted.
    everything, asks, asks_types : bool
        See `Reads`.
    reads_records : bool
        Whether what a tape has recorded is read.
    write_only : set of int
        The ids of containers that are written to and never read, which is known once all code has been read.
    of_packages : set of code
        The code of installed packages that has been read.
    classes : set of type
        The classes that it names.
    """

    def __init__(self) -> None:
        self.attributes: set[str] = set()
        self.read_attributes: set[str] = set()
        self.stored: set[str] = set()
        self.everything = self.asks = self.asks_types = self.reads_records = False
        self.write_only: set[int] = set()
        self.of_packages: set[CodeType] = set()
        self.classes: set[type] = set()

    def add(self, reads: Reads) -> None:
        """Add what a code object reads."""
        self.attributes |= reads.attributes
        self.read_attributes |= reads.attributes - reads.appended
        self.stored |= reads.stored
        self.asks_types = self.asks_types or reads.asks_types
        self.everything = self.everything or reads.everything
        self.asks = self.asks or reads.asks

    def extent(self) -> tuple[int, ...]:
        """Return numbers that grow with what is read."""
        sets = (
            len(self.attributes),
            len(self.read_attributes),
            len(self.stored),
            len(self.of_packages),
        )
        return *sets, self.everything, self.asks, self.asks_types, self.reads_records


class Namespace:
    """A namespace of globals, and the copy of it that copied functions have."""

    __slots__ = ("copy", "is_whole", "label", "module_copy", "original", "step", "visited")

    def __init__(self, original: dict[str, Any]) -> None:
        self.original = original
        self.step = -1
        self.label = str(original.get("__name__", "a module"))
        self.module_copy: ModuleType | None = None
        # Only names that the code reads are copied: a function that outlives the trace keeps no other objects alive.
        self.copy = {name: content for name, content in original.items() if name.startswith("__")}
        self.is_whole = False
        self.visited: set[tuple[str, bool]] = set()

    def label_of(self, name: str) -> str:
        """Return the description of a global name for messages."""
        return f"the global {name!r}" if self.label == "__main__" else f"the global {name!r} of {self.label}"


class CellCopy:
    """A closure cell, its copy, and its description, which is empty until the content of the copy is set.

    `step` is the number of the step that has read the cell, if it is not known from the trace.
    """

    __slots__ = ("copy", "label", "original", "step")

    def __init__(self, original: CellType) -> None:
        self.original, self.copy, self.label = original, CellType(), ""
        self.step: int | None = None


def always(label: str) -> Callable[[Any], str]:
    """Return what names the only part of an object: the content of a cell."""
    return lambda _: label


class CaptureWalk:
    """One pass over the captures of a function.

    Parameters
    ----------
    visitors : VisitorTable
        What is done with objects, by their types.
    spec : CaptureSpec
        What the walk fills.
    facts : CodeFacts
        What passes before have seen of the code.
    varying : set of str
        The names of numbers that have changed between calls; they become inputs.
    by_parts : bool
        Whether functions that code makes anew are checked by their parts, and not by identity.
    copies_packages : bool
        Whether the numbers of packages' objects become hidden inputs, since they change between calls; else they are checked by value.
    """

    def __init__(
        self,
        visitors: VisitorTable,
        spec: CaptureSpec,
        facts: CodeFacts,
        varying: frozenset[str],
        by_parts: bool = False,
        copies_packages: bool = False,
    ) -> None:
        self.by_parts = by_parts
        self.copies_packages = copies_packages
        self.in_package = False
        self.visitors = visitors
        self.spec = spec
        self.facts = facts
        self.varying = varying
        self.cells: dict[int, CellCopy] = {}
        self.namespaces: dict[int, Namespace] = {}
        self.classes: dict[tuple[type, bool, frozenset[str]], dict[str, Any]] = {}
        self.class_data: dict[tuple[type, str], Any] = {}
        self.stored_names: set[str] = set()
        self._read_names: set[str] = set()
        self._written_names: set[str] = set()
        self._containers: dict[int, set[str]] = {}
        self._visited: dict[tuple[int, bool], tuple[Any, Any, int]] = {}
        self._left: set[int] = set()

    def run(self, function: Callable[..., Any], leaves: Sequence[Any]) -> CaptureSpec:
        """Walk over a function and the objects among the arguments of a call."""
        spec = self.spec
        spec.function = self.visit_fixed(function, "the function")
        spec.objects = [
            self.visit(leaf, (Source.ARGUMENT, -1, number), f"argument {number}")
            if reads_fields(leaf) or isinstance(leaf, HAS_STATE)
            else leaf
            for number, leaf in enumerate(leaves)
        ]
        spec.stored = self.facts.stored
        spec.shows = spec.shows or not self.facts.attributes.isdisjoint(WRITES_FILES)
        return spec

    def write_only(self) -> set[int]:
        """Return the ids of the containers that the code which has been read writes to and never reads."""
        written = self._written_names - self._read_names
        return {key for key, names in self._containers.items() if names <= written}

    def visit(self, thing: Any, origin: Origin, label: str, copying: bool = True) -> Any:
        """Append the steps for an object and what is reached from it; return the object that the traced function sees instead."""
        kind = type(thing)
        copying = copying and self.spec.substitutes
        is_fixed = origin[0] is Source.FIXED
        if kind in WRITABLE:
            self._containers.setdefault(id(thing), set()).add(label)
        visit = self._visited.get((id(thing), copying))
        if visit is not None:
            if not is_fixed:
                self.step(origin, Check.AS_STEP, visit[2], label)
            return visit[1]
        if copying and id(thing) in self.facts.write_only and kind in WRITABLE and not is_fixed:
            return self._visit_written(thing, origin, label, copying)
        return self.visitors[kind](self, thing, origin, label, copying)

    def visit_fixed(self, thing: Any, label: str, copying: bool = True) -> Any:
        """Visit an object that is known from the trace, which is not read again."""
        return self.visit(thing, (Source.FIXED, -1, thing), label, copying)

    def _visit_written(self, container: Any, origin: Origin, label: str, copying: bool) -> Any:
        """Check the type alone of a container that the code writes to and never reads: its copy is empty, and gets what is written."""
        step = self.step(origin, Check.TYPE, type(container), label)
        copy = copy_empty(container)
        self.substitute(container, copy, label, "the entry {!r} of " + label, step)
        return self.remember(container, copy, step, copying)

    def step(self, origin: Origin, check: Check, expected: Any, label: str) -> int:
        """Append a step, and return its number."""
        self.spec.steps.append(Step(*origin, check, expected, label))
        return len(self.spec.steps) - 1

    def step_unless_fixed(self, origin: Origin, check: Check, expected: Any, label: str) -> int:
        """Append a step, whose check is left out for an object that is known from the trace."""
        if origin[0] is Source.FIXED:
            return self.step(origin, Check.NOTHING, None, label)
        return self.step(origin, check, expected, label)

    def identity_step(self, origin: Origin, thing: Any, label: str) -> int:
        """Append a step that checks an object by identity, or not at all if it is known from the trace."""
        check, expected = (Check.NOTHING, None) if origin[0] is Source.FIXED else identity_check(thing)
        return self.step(origin, check, expected, label)

    def by_identity(self, thing: Any, origin: Origin, label: str) -> int:
        """Check an object by identity; return the number of the step."""
        step = self.identity_step(origin, thing, label)
        for copying in (True, False):
            self._visited[id(thing), copying] = thing, thing, step
        self.spec.step_of.setdefault(id(thing), (thing, step))
        return step

    def input(self, thing: Any, origin: Origin, label: str, *, weak: bool = False) -> Array:
        """Let an array or number become a hidden input; return its placeholder."""
        spec = self.spec
        step = self.step(origin, Check.INPUT, type_key(thing), label)
        if isinstance(thing, Handle):
            value = Value(thing.value.aval, tags=(spec.trace,))
        else:
            array = as_input(thing)
            value = Value(aval(array.shape, array.dtype, weak), tags=(spec.trace,))
        placeholder = Array(value)
        placeholder._contiguous = layout_of_input(thing)
        remember_memory(placeholder, thing)
        spec.inputs.append(step)
        spec.placeholders.append(placeholder)
        spec.originals.append(thing)
        if weak:  # equal numbers may be one object, and are inputs of their own
            spec.original_of[id(placeholder)] = placeholder, thing
            spec.step_of[id(placeholder)] = placeholder, step
        else:
            self.remember(thing, placeholder, step, True)
        return placeholder

    def remember(self, thing: Any, copy: Any, step: int, copying: bool) -> Any:
        """Let later visits of an object refer to a step, and return its copy."""
        self._visited[id(thing), copying] = thing, copy, step
        self.spec.step_of.setdefault(id(thing), (thing, step))
        if copy is not thing:
            self.spec.original_of[id(copy)] = copy, thing
            self.spec.step_of[id(copy)] = copy, step
        return copy

    def leave(self, container: Any, step: int, copying: bool, label: str) -> Any:
        """Let a container stand for itself in the trace."""
        if isinstance(container, list | dict | set | deque | bytearray):
            self.leave_writable(container, step, label, "the entry {!r} of " + label)
        return self.remember(container, container, step, copying)

    def leave_writable(
        self, holder: Any, step: int, label: str, part: str | Callable[[Any], str] = "{}"
    ) -> None:
        """Note an object without a copy whose content the trace may change."""
        if id(holder) not in self._left:
            self._left.add(id(holder))
            label_of = part.format if isinstance(part, str) else part
            self.spec.uncopied.append(self._substitute_of(holder, holder, label, label_of, step))

    def is_visited(self, thing: Any, copying: bool) -> bool:
        """Return whether an object has been visited."""
        return (id(thing), copying) in self._visited

    def substitute(
        self, original: Any, copy: Any, label: str, part: str | Callable[[Any], str] = "{}", step: int = -1
    ) -> None:
        """Note a copy whose content the trace may change; `part` describes an entry or attribute of it."""
        label_of = part.format if isinstance(part, str) else part
        self.spec.substituted.append(self._substitute_of(original, copy, label, label_of, step))

    def _substitute_of(
        self, original: Any, copy: Any, label: str, label_of: Callable[[Any], str], step: int
    ) -> Substitute:
        made = Substitute(original, copy, label, label_of, step)
        made.is_packages = self.in_package
        return made

    def note_use(self, label: str, logs: bool, stores: bool = False) -> None:
        """Note whether code reads a container, or only appends to it or sets its items."""
        (self._written_names if logs or stores else self._read_names).add(label)
        if stores:
            self.stored_names.add(label)
