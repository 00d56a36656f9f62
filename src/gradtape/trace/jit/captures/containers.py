"""Visits of containers: dicts, lists, tuples, sets, quantities and others."""

from __future__ import annotations

import builtins
from collections.abc import Collection
from types import MappingProxyType
from typing import Any, Final

from gradtape.trace.jit.captures.spec import PLAIN_TYPES
from gradtape.trace.jit.captures.steps import Check, Origin, Source
from gradtape.trace.jit.captures.walk import MOST_STEPS, CaptureWalk
from gradtape.trace.patching.copies import copy_object

MOST_ITEMS: Final = 64
"""The size up to which the numbers in a container become inputs of their own."""


def visit_dict(walk: CaptureWalk, entries: Any, origin: Origin, label: str, copying: bool) -> Any:
    """Check the keys of a dict, and visit its entries; return its copy, if one of these has another copy than itself."""
    # exec and eval add the builtins to their namespace; those that the code calls are found in the code.
    if entries is vars(builtins):
        walk.by_identity(entries, origin, label)
        return entries
    if _is_large_and_plain(entries.values()):
        return walk.leave(entries, walk.step(origin, Check.EQUAL, entries.copy(), label), copying, label)
    step = walk.step(origin, Check.KEYS, (type(entries), tuple(entries)), label)
    copy = entries.copy() if copying else entries
    walk.remember(entries, copy, step, copying)
    changed = False
    for key, item in list(entries.items()):
        entry_label = f"the entry {key!r} of {label}"
        item_copy = walk.visit(item, (Source.ENTRY, step, key), entry_label, copying)
        if item_copy is not item:
            changed = True
            copy[key] = item_copy
    if not changed:
        return walk.leave(entries, step, copying, label)
    walk.substitute(entries, copy, label, "the entry {!r} of " + label, step)
    return copy


def visit_sequence(walk: CaptureWalk, items: Any, origin: Origin, label: str, copying: bool) -> Any:
    """Check the length of a list or tuple, and visit its items; return its copy, if one of these has another copy than itself."""
    kind = type(items)
    is_list = kind is list
    if _is_large_and_plain(items):
        expected = items.copy() if is_list else items
        return walk.leave(items, walk.step(origin, Check.EQUAL, expected, label), copying, label)
    step = walk.step(origin, Check.LENGTH, (kind, len(items)), label)
    copying = copying and not (is_list and len(walk.spec.steps) >= MOST_STEPS)
    copy = items.copy() if copying and is_list else items
    walk.remember(items, copy, step, copying)
    copies = [
        walk.visit(item, (Source.ITEM, step, number), f"item {number} of {label}", copying)
        for number, item in enumerate(items)
    ]
    if all(item_copy is item for item_copy, item in zip(copies, items, strict=True)):
        return walk.leave(items, step, copying, label)
    if not is_list:
        return walk.remember(items, tuple.__new__(kind, copies), step, copying)
    copy[:] = copies
    walk.substitute(items, copy, label, "the entry {!r} of " + label, step)
    return copy


def visit_collection(walk: CaptureWalk, items: Any, origin: Origin, label: str, copying: bool) -> Any:
    """Check a container that is not copied by its items, and the content of these by value."""
    is_mapping = isinstance(items, MappingProxyType)
    expected = type(items)(dict(items) if is_mapping else items)
    walk.leave(items, walk.step(origin, Check.EQUAL, expected, label), copying, label)
    for item in (items.values() if is_mapping else items) if len(items) <= MOST_ITEMS else ():
        walk.visit_fixed(item, f"an item of {label}", False)
    return items


def visit_quantity(walk: CaptureWalk, quantity: Any, origin: Origin, label: str, copying: bool) -> Any:
    """Check the unit of a quantity of pint, which may be changed in place, and visit its magnitude; return its copy."""
    _ = quantity.dimensionality  # which pint stores when it is first read
    step = walk.step_unless_fixed(origin, Check.TYPE, type(quantity), label)
    copy = copy_object(quantity) if copying else quantity
    walk.remember(quantity, copy, step, copying)
    walk.step((Source.FIELD, step, "_units"), Check.EQUAL, quantity._units, f"the unit of {label}")
    place = Source.FIELD, step, "_magnitude"
    magnitude = walk.visit(quantity._magnitude, place, f"the magnitude of {label}", copying)
    if copying:
        copy._magnitude = magnitude
        walk.substitute(quantity, copy, label, "the attribute {!r} of " + label, step)
    else:
        walk.leave_writable(quantity, step, label, "the attribute {!r} of " + label)
    return copy


def _is_large_and_plain(items: Collection[Any]) -> bool:
    return len(items) > MOST_ITEMS and all(type(item) in PLAIN_TYPES for item in items)
