"""Merged lists: φ functions of list references, for the names that hold another list on each path to a point.

A reference is a constant to the lattice of storage classes. Where paths meet at which a name, or an item of a list or a tuple, holds
different lists, a merged list stands for all of them, and their contents are joined as those of one list are. Python has no copy
there. Hence a list and those that it may be are noted as shared, and a write to one of them is refused while another is live.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeAlias, TypeVar

from gradtape.frontend.loops.storage import parts_of, rebuilt
from gradtape.frontend.values import MISSING, BoundMethod, GrowingList, ListReference

Path: TypeAlias = tuple[Any, ...]
"""A name or a list reference, and the positions that lead from what it holds to a reference."""

Key = TypeVar("Key")


class SharedLists:
    """Pairs of references that may be one list in Python although their contents are joined as those of two."""

    def __init__(self) -> None:
        self._others: dict[ListReference, dict[ListReference, None]] = {}

    def of(self, reference: Any) -> Sequence[ListReference]:
        """Return the references that may be the same list as another one."""
        return tuple(self._others.get(reference, ()))

    def has(self, first: Any, second: Any) -> bool:
        """Return whether two references are, or may be, one list."""
        return first is second or second in self._others.get(first, ())

    def add(self, first: ListReference, second: ListReference) -> bool:
        """Note a pair; return whether it is new."""
        if self.has(first, second):
            return False
        self._others.setdefault(first, {})[second] = None
        self._others.setdefault(second, {})[first] = None
        return True

    def add_branch(self, sources: dict[tuple[ListReference, ListReference], ListReference]) -> None:
        """Note what the merged lists of a branch may be."""
        for position, (pair, merged) in enumerate(sources.items()):
            for other in dict.fromkeys([y for x in pair for y in (x, *self.of(x))]):
                self.add(merged, other)
            for other_pair, other_merged in list(sources.items())[:position]:
                if any(self.has(x, y) for x, y in zip(pair, other_pair, strict=True)):
                    self.add(merged, other_merged)

    def add_merges(self, sources: dict[ListReference, Any], lists: dict[ListReference, Any]) -> bool:
        """Note what merged lists may be, if each is a copy of its source; return whether there is anything new."""
        pairs = list(sources.items())
        news = [
            self.add(merged, other)
            for position, (merged, source) in enumerate(pairs)
            for other, other_source in [
                *pairs[:position],
                *((x, x) for x in (source, *self.of(source)) if x in lists and x not in sources),
            ]
            if source is not MISSING and other is not merged and self.has(source, other_source)
        ]
        return any(news)


class LoopMerges:
    """The merged lists of one loop.

    Parameters
    ----------
    merged : dict of Path to ListReference
        Of earlier passes over the loop; is extended. Paths that always hold one list share their merged list.

    Attributes
    ----------
    entries, ends : dict of ListReference
        Which list each merged one stands for before the loop, and at the end of an iteration.
    undefined : list of ListReference
        The merged lists that a pass has found in paths that hold nothing before the loop.
    has_changed : bool
        Whether a pass has found merged lists.
    """

    def __init__(self, merged: dict[Path, ListReference]) -> None:
        self.merged = merged
        self.entries: dict[ListReference, Any] = {}
        self.ends: dict[ListReference, Any] = {}
        self.has_changed = False
        self.undefined: list[ListReference] = []
        self._new: dict[tuple[Any, Any], ListReference] = {}

    def begin(self) -> None:
        """Begin a pass."""
        self.entries, self.ends, self.undefined, self._new = {}, {}, [], {}
        self.has_changed = False

    def roots(self) -> set[ListReference]:
        """Return the lists whose items may be merged lists."""
        return {path[0] for path in self.merged if isinstance(path[0], ListReference)}

    def entered(self, path: Path, value: Any) -> Any:
        """Return what a path holds before the loop, with merged lists in it."""
        if value is MISSING:
            for inner, merged in self.merged.items():
                if inner[: len(path)] == path:
                    self.entries.setdefault(merged, MISSING)
            return value
        if isinstance(value, ListReference):
            return self._bound(path, value, self.entries) if path in self.merged else value
        return _mapped(value, lambda k, part: self.entered((*path, k), part))

    def contents(self, lists: dict[ListReference, Any]) -> dict[ListReference, Any]:
        """Return the contents of all lists before the loop, those of merged lists among them."""
        roots = self.roots()
        result = {
            key: self.entered((key,), content) if key in roots else content for key, content in lists.items()
        }
        for key in all_keys(self.entries):
            source = self.entries[key]
            content = MISSING if source is MISSING else lists.get(source, MISSING)
            result[key] = self.entered((key,), content)
        return result

    def ended(self, path: Path, before: Any, after: Any, lists: dict[ListReference, Any]) -> Any:
        """Return what the next iteration takes of what one leaves in a path, with merged lists in it.

        Parameters
        ----------
        path : Path
        before, after : object
            What the path holds at the beginning and at the end of the iteration.
        lists : dict of ListReference
            The lists that there were before the loop.
        """
        if isinstance(after, ListReference):
            if path in self.merged:
                merged = self.merged[path]
                self.has_changed |= self._bound(path, after, self.ends) is not merged
                return merged
            if before is after or (before is MISSING and after in lists):
                return after
            if before is not MISSING and not isinstance(before, ListReference):
                return after
            merged = self._new.setdefault((before, after), ListReference())
            self.merged[path] = merged
            self.ends[merged] = after
            self.has_changed = True
            if before is not MISSING:
                return before
            self.undefined.append(merged)
            return merged
        parts = parts_of(before)
        if len(parts) != len(parts_of(after)):
            parts = (MISSING,) * len(parts_of(after)) if before is MISSING else ()
        if not parts:
            return after
        return _mapped(after, lambda k, part: self.ended((*path, k), parts[k], part, lists))

    def _bound(
        self, path: Path, reference: ListReference, bindings: dict[ListReference, Any]
    ) -> ListReference:
        """Return the merged list of a path, which gets one of its own if others of its paths hold other lists."""
        merged = self.merged[path]
        if bindings.get(merged, reference) is not reference:
            merged = self.merged[path] = self._new.setdefault((merged, reference), ListReference())
        bindings[merged] = reference
        return merged


class BranchMerges:
    """The merged lists at the end of a branch.

    Parameters
    ----------
    firsts, seconds : dict of ListReference
        The contents of lists at the ends of both arms.
    """

    def __init__(self, firsts: dict[ListReference, Any], seconds: dict[ListReference, Any]) -> None:
        self.sources: dict[tuple[ListReference, ListReference], ListReference] = {}
        self._contents = firsts, seconds

    def joined(self, first: Any, second: Any) -> tuple[Any, Any]:
        """Return what a path holds at the ends of both arms, with merged lists in it."""
        if isinstance(first, ListReference) and isinstance(second, ListReference):
            if first is second:
                return first, second
            merged = self.sources.setdefault((first, second), ListReference())
            return merged, merged
        parts, others = parts_of(first), parts_of(second)
        if isinstance(first, GrowingList) or type(first) is not type(second) or len(parts) != len(others):
            return first, second
        pairs = [self.joined(x, y) for x, y in zip(parts, others, strict=True)]
        return (
            _mapped(first, lambda k, part: pairs[k][0]),
            _mapped(second, lambda k, part: pairs[k][1]),
        )

    def contents(self) -> Iterator[tuple[ListReference, Any, Any]]:
        """Yield the merged lists, also those that are items of others, with their contents at the ends of both arms."""
        firsts, seconds = self._contents
        for first, second in all_keys(self.sources):
            yield self.sources[first, second], firsts.get(first, MISSING), seconds.get(second, MISSING)


def _mapped(value: Any, function: Callable[[int, Any], Any]) -> Any:
    """Return a tuple or record with other parts; the same object if they are the same."""
    parts = () if isinstance(value, GrowingList) else parts_of(value)
    others = [function(k, part) for k, part in enumerate(parts)]
    if all(x is y for x, y in zip(parts, others, strict=True)):
        return value
    return rebuilt(type(value), others)


def all_keys(entries: dict[Key, Any]) -> Iterator[Key]:
    """Yield the keys of a dictionary, with those that are added meanwhile."""
    done: set[Key] = set()
    while len(done) < len(entries):
        for key in [key for key in entries if key not in done]:
            done.add(key)
            yield key


def references_in(values: Sequence[Any], lists: dict[ListReference, Any]) -> set[ListReference]:
    """Return the lists that values are, or hold, also as items of lists."""
    references: set[ListReference] = set()
    stack = list(values)
    while stack:
        value = stack.pop()
        if isinstance(value, ListReference):
            if value not in references:
                references.add(value)
                stack.append(lists.get(value, ()))
        elif isinstance(value, BoundMethod):
            stack.append(value.owner)
        else:
            stack.extend(parts_of(value))
    return references
