"""Writes to containers among arguments: functions get copies of them, whose changes are made in the caller's own."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any, Final

from gradtape.containers.pandas import mark_argument
from gradtape.trace.jit.captures.user_classes import is_plain_object
from gradtape.trace.patching.copies import ABSENT, Substitute, content_of, set_content, set_entries, set_items

CONTAINERS: Final = (list, tuple, dict, deque)
"""What trees of arguments are made of, besides objects."""


def argument_copies(tree: Any, copies: Any, name: str) -> list[Substitute]:
    """Return the containers and objects in a tree of arguments with the copies of them, which hold what they do at first.

    Parameters
    ----------
    given, copies : object
        The arguments of the caller, and a tree of the same structure that the function gets.
    name : str
        What the tree is, for messages.
    """
    return list(_copies_in(tree, copies, name, (), set()))


def _copies_in(
    tree: Any, copy: Any, name: str, path: tuple[Any, ...], visited: set[int]
) -> Iterator[Substitute]:
    mark_argument(copy)
    if tree is copy or type(tree) is not type(copy) or id(tree) in visited:
        return
    is_object = is_plain_object(tree)
    if not (is_object or isinstance(tree, CONTAINERS)):
        return
    visited.add(id(tree))
    if not isinstance(tree, tuple):
        each = Substitute(
            tree, copy, name, f"the {'attribute' if is_object else 'entry'} {{!r}} of {name}".format
        )
        each.path, each.initial = path, content_of(copy)
        yield each
    before, items = content_of(tree), content_of(copy)
    pairs = items.items() if isinstance(items, dict) else enumerate(items)
    for key, item in pairs:
        if isinstance(before, dict):
            other = before.get(key, ABSENT)
        else:
            other = before[key] if key < len(before) else ABSENT
        part = f".{key}" if is_object else f"[{key!r}]"
        yield from _copies_in(other, item, f"{name}{part}", (*path, (is_object, key)), visited)


def containers_in(tree: Any) -> Iterator[Any]:
    """Yield the containers and objects in a tree, the tree itself first.

    Examples
    --------
    >>> list(containers_in([1.0, {"a": (2.0,)}]))
    [[1.0, {'a': (2.0,)}], {'a': (2.0,)}, (2.0,)]
    """
    waiting, visited = [tree], set[int]()
    while waiting:
        part = waiting.pop()
        if id(part) in visited or not (isinstance(part, CONTAINERS) or is_plain_object(part)):
            continue
        visited.add(id(part))
        yield part
        content = content_of(part)
        waiting += content.values() if isinstance(content, dict) else content


def has_repeated(tree: Any) -> bool:
    """Return whether a list or dict stands at two places of a tree of arguments: a write at one of them is seen at the other.

    Examples
    --------
    >>> a = [1.0]
    >>> has_repeated(([a, 2.0], {"k": (a,)})), has_repeated(([a, 2.0], {"k": ([1.0],)}))
    (True, False)
    """
    visited: set[int] = set()
    pending = [tree]
    while pending:
        part = pending.pop()
        if not isinstance(part, tuple):
            if id(part) in visited:
                return True
            visited.add(id(part))
        items = part.values() if isinstance(part, dict) else part
        pending += [item for item in items if isinstance(item, CONTAINERS)]
    return False


def with_repeated(tree: Any, copies: Any) -> Any:
    """Return copies of a tree of arguments in which what is one list or dict in the tree is one as well."""
    return _repeated(tree, copies, {}) if has_repeated(tree) else copies


def _repeated(tree: Any, copy: Any, first: dict[int, Any]) -> Any:
    if type(tree) is not type(copy) or not isinstance(tree, CONTAINERS):
        return copy
    if isinstance(tree, tuple):
        items = [_repeated(*pair, first) for pair in zip(tree, copy, strict=True)]
        return type(copy)(items) if type(copy) is tuple else type(copy)(*items)
    if id(tree) in first:
        return first[id(tree)]
    first[id(tree)] = copy
    for key in copy if isinstance(copy, dict) else range(len(copy)):
        copy[key] = _repeated(tree[key], copy[key], first)
    return copy


def resolve(path: Sequence[Any], tree: Any) -> Any:
    """Return the part of a tree that a path of entries and attributes leads to."""
    for is_object, key in path:
        tree = getattr(tree, key) if is_object else tree[key]
    return tree


def write_through(
    copies: Sequence[Substitute], leaves: Sequence[Any], arguments: Sequence[Any]
) -> list[Substitute]:
    """Make the changes of copies in the caller's own containers, with the caller's leaves for those of the copies; return these."""
    changed = [each for each in copies if each.is_changed(each.initial)]
    if not changed:
        return []
    originals = {id(leaf): (leaf, mine) for leaf, mine in zip(leaves, arguments, strict=True)}
    originals.update((id(each.copy), (each.copy, each.original)) for each in copies)

    def mine(value: Any) -> Any:
        copied, original = originals.get(id(value), (ABSENT, None))
        return original if copied is value else value

    written = []
    for each in changed:
        now, own_container = (
            content_of(each.copy),
            Substitute(each.original, each.original, each.name, each.part_label),
        )
        own_container.initial = content_of(each.original)
        written.append(own_container)
        if isinstance(now, list):
            set_items(each.original, list(map(mine, now)))
        elif isinstance(each.copy, dict):
            set_entries(each.original, {key: mine(item) for key, item in now.items()})
        else:
            for key in {**each.initial, **now}:
                if each.is_changed(each.initial, key):
                    item = now.get(key, ABSENT)
                    set_content(each.original, key, item if item is ABSENT else mine(item))
    return written
