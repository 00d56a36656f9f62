"""Visits of classes, and of objects: of the user's classes by attributes, of others by identity."""

from __future__ import annotations

import enum
import io
import logging
import operator
import os
import sys
import weakref
from array import array
from collections import deque
from collections.abc import Iterator
from types import FunctionType, MemberDescriptorType, MethodType
from typing import Any, Final

import numpy as np

from gradtape.containers.quantities import is_wrapped
from gradtape.kinds.refusals import copy_of, is_labelled
from gradtape.trace.jit.captures.containers import MOST_ITEMS, visit_quantity
from gradtape.trace.jit.captures.leaves import visit_generator
from gradtape.trace.jit.captures.methods import AT_CONSTRUCTION, functions_of, read_methods
from gradtape.trace.jit.captures.spec import A_FILE, PLAIN_TYPES
from gradtape.trace.jit.captures.steps import Check, Origin, Source, identity_check, keys_of, label_in_class
from gradtape.trace.jit.captures.user_classes import (
    has_foreign_code,
    is_generator,
    is_package_class,
    is_package_object,
    is_plain_object,
    is_record,
    is_user_class,
    shows_fields,
)
from gradtape.trace.jit.captures.varying import check_environment, note_generator
from gradtape.trace.jit.captures.walk import MOST_STEPS, CaptureWalk, CodeFacts
from gradtape.trace.patching.copies import (
    ABSENT,
    ClassData,
    copy_object,
    set_content,
    shown_by_class,
    slots_of,
)
from gradtape.trace.source.sites import PACKAGE

_MOST_STEPS: Final = 512
"""The number of steps after which objects of packages are checked by identity alone."""

_MOST_NESTED: Final = 4
"""How many containers deep the data of a package's object are looked for."""

_MOST_BYTES: Final = 1 << 16
"""The size of arrays in containers up to which they are data."""

_NOT_CHECKED: Final = frozenset({"__dict__", "__weakref__", "__doc__", "__module__", "__annotations__"})


def visit_class(walk: CaptureWalk, cls: type, origin: Origin, label: str, copying: bool) -> Any:
    """Check a class by identity, and the attributes of the user's classes that code may read."""
    walk.by_identity(cls, origin, label)
    if len(walk.spec.steps) < MOST_STEPS:
        _check_class(walk, cls, whole=True)
    return cls


def _check_class(
    walk: CaptureWalk, cls: type, *, whole: bool, hidden: frozenset[str] = frozenset()
) -> dict[str, Any]:
    """Check the attributes of a user's class and its bases; return, by name, those that its instances inherit.

    If it is `whole`, the class itself is used; else only its instances, which exist, and have the `hidden` attributes of their own.
    """
    known_attributes = walk.classes.get((cls, whole, hidden))
    if known_attributes is not None:
        return known_attributes
    inherited: dict[str, Any] = {}
    walk.classes[cls, whole, hidden] = inherited
    entries: list[tuple[type, str, Any]] = []
    for owner in cls.__mro__:
        if not (is_user_class(owner) or (walk.by_parts and is_package_class(owner))):
            continue
        if walk.facts.stored:
            walk.leave_writable(owner, -1, f"the class {owner.__name__}", owner.__name__ + ".{}")
        entries += [(owner, name, item) for name, item in _class_attributes(walk.facts, owner, whole)]
    for _, name, item in entries:
        if item is not ABSENT:
            inherited.setdefault(name, item)
    if is_user_class(type(cls)) and not issubclass(cls, type):
        _check_class(walk, type(cls), whole=True)
    if not entries:
        return inherited
    read = {name: item for name, item in inherited.items() if name not in hidden}
    expected = [
        (owner, name, *_reference(item))
        for owner, name, item in entries
        if not (_is_data(name, item) and _visit_data(walk, owner, name, item, whole, read))
    ]
    walk.step((Source.FIXED, -1, cls), Check.CLASS, expected, f"the class {cls.__name__}")
    for owner, name, item in entries:  # overridden ones as well, which super() finds
        label = label_in_class(owner, name)
        for function in functions_of(item):
            if not walk.is_visited(function, False):
                walk.visit_fixed(function, label, False)
        # a descriptor, whose code is run
        if hasattr(type(item), "__get__") and is_user_class(type(item)):
            walk.visit_fixed(item, label, False)
    return inherited


def _is_data(name: str, item: Any) -> bool:
    """Return whether an attribute of a class is neither code nor one of Python's own."""
    is_code = item is ABSENT or callable(item) or hasattr(type(item), "__get__") or functions_of(item)
    return not (is_code or name.startswith("__"))


def _visit_data(
    walk: CaptureWalk, owner: type, name: str, item: Any, whole: bool, read: dict[str, Any]
) -> bool:
    """Visit data of a class; return whether the trace reads a copy of it, or an input.

    What is not among those that code may `read` is hidden or overridden, and checked by value.
    """
    if (owner, name) in walk.class_data:
        return walk.class_data[owner, name] is not item
    label, is_plain = label_in_class(owner, name), type(item) in PLAIN_TYPES
    varies = label in walk.varying
    if not (varies or read.get(name, ABSENT) is item) or not _may_stand(walk, owner):
        if not is_plain:
            walk.visit_fixed(item, label, False)
        return False
    if is_plain and not (varies or (_is_constant(item) and not whole)):
        return False
    walk.note_use(label, name in walk.facts.attributes and name not in walk.facts.read_attributes)
    holder = walk.step((Source.FIXED, -1, owner), Check.NOTHING, None, f"the class {owner.__name__}")
    copy = walk.class_data[owner, name] = walk.visit(item, (Source.ATTRIBUTE, holder, name), label)
    if copy is not item:
        walk.spec.class_data.append(ClassData(owner, name, copy, walk.spec.trace))
    return copy is not item


def _may_stand(walk: CaptureWalk, owner: type) -> bool:
    """Return whether something may stand in a class for its data during the trace: code reads them as attributes."""
    stands = walk.spec.substitutes_classes and not walk.facts.everything
    return stands and type(owner).__setattr__ is type.__setattr__


def _class_attributes(facts: CodeFacts, owner: type, whole: bool) -> Iterator[tuple[str, Any]]:
    """Yield the names that code may read of a class, with what they stand for: `ABSENT` for those that it could hide of its bases."""
    for name, item in list(vars(owner).items()):
        is_special = name.startswith("__") and name.endswith("__")
        if name in _NOT_CHECKED or not (is_special or facts.everything or name in facts.attributes):
            continue
        if whole or not is_special or name not in AT_CONSTRUCTION:
            yield name, shown_by_class(item, owner)
    of_bases = {name for base in owner.__mro__[1:] for name in vars(base)}
    hideable = facts.attributes if facts.asks else facts.attributes & of_bases
    for name in sorted(hideable - vars(owner).keys()):
        yield name, ABSENT


def _reference(item: Any) -> tuple[Any, bool]:
    """Return how a check refers to the attribute of a class, and whether by a weak reference."""
    check, expected = (Check.SAME, item) if item is ABSENT else identity_check(item)
    return expected, check is Check.ALIVE


def visit_object(walk: CaptureWalk, thing: Any, origin: Origin, label: str, copying: bool) -> Any:
    """Visit an object of a class that has no visitor of its own."""
    if is_generator(thing):
        return visit_generator(walk, thing, origin, label)
    by_parts = walk.by_parts and origin[0] is not Source.FIXED
    if is_plain_object(thing) or (by_parts and is_package_object(thing)):
        return _visit_plain_object(walk, thing, origin, label, copying)
    if is_wrapped(thing):
        return visit_quantity(walk, thing, origin, label, copying)
    has_parts = shows_fields(thing) and not is_labelled(thing)
    if has_parts and len(walk.spec.steps) < _MOST_STEPS:
        return _visit_package_object(walk, thing, origin, label, copying)
    return _visit_opaque(walk, thing, origin, label, copying)


def _visit_plain_object(walk: CaptureWalk, thing: Any, origin: Origin, label: str, copying: bool) -> Any:
    """Visit the attributes and methods of an object that code reads; return a copy of the object with copies of these."""
    facts, cls, fields = walk.facts, type(thing), _fields_of(thing)
    is_ours = cls.__module__.partition(".")[0] == PACKAGE
    has_methods = walk.by_parts and read_methods(facts, cls, whole=False)
    may_read_all = facts.everything or is_record(cls) or has_foreign_code(cls, reads_packages=walk.by_parts)
    attributes = _attributes_read(thing, fields, None if may_read_all or is_ours else facts.attributes)
    step = walk.step_unless_fixed(origin, Check.TYPE, cls, label)
    hidden = frozenset(name for name in fields if any(name in vars(base) for base in cls.__mro__))
    inherited = {} if is_ours else _check_class(walk, cls, whole=False, hidden=hidden)
    overridable = {
        name: item
        for name, item in inherited.items()
        if name not in fields and not name.startswith("__") and (_is_method(item) or _is_constant(item))
    }
    is_read = bool(attributes or overridable or has_methods)
    if (facts.asks or (is_read and may_read_all)) and _has_fields(thing):
        _check_names(walk, fields, step, label)
    name = cls.__name__ if label.startswith(("argument", "self of")) else f"{cls.__name__} ({label})"
    described, part = f"an object of the class {cls.__name__}", "the attribute {!r} of " + name
    if not (copying and is_read) and facts.stored:
        walk.leave_writable(thing, step, described, part)
    if not is_read:  # it is only compared or passed on
        if origin[0] is not Source.FIXED:
            identity = walk.spec.steps[step]
            identity.check, identity.expected = identity_check(thing)
        _check_hidden(walk, thing, inherited, step, label)
        return walk.remember(thing, thing, step, copying)
    copy = copy_object(thing) if copying else thing
    walk.remember(thing, copy, step, copying)
    for source, key, content in attributes:
        described = f"the attribute {key!r} of {name}"
        only_written = key in facts.attributes and key not in facts.read_attributes
        walk.note_use(described, only_written and not (is_ours or may_read_all))
        content_copy = walk.visit(content, (source, step, key), described, copying)
        if content_copy is not content and source is Source.FIELD:
            copy.__dict__[key] = content_copy
        elif content_copy is not content:
            object.__setattr__(copy, key, content_copy)
    _check_hidden(walk, thing, inherited, step, name)
    if copying and _has_fields(thing):
        _override_inherited(walk, copy, overridable)
    if copying:
        walk.substitute(thing, copy, described, part, step)
    return copy


def _visit_package_object(walk: CaptureWalk, thing: Any, origin: Origin, label: str, copying: bool) -> Any:
    """Visit an object of an installed package: its data by parts, all else by identity unless the user's code names it.

    The code of the package is not read: it may use any attribute. Numbers are checked by value until one of them has changed; from then on
    the object is copied, and they are hidden inputs.
    """
    cls, copying = type(thing), copying and walk.copies_packages
    step = walk.step_unless_fixed(origin, Check.TYPE, cls, label)
    copy = copy_object(thing) if copying else thing
    walk.remember(thing, copy, step, copying)
    described, part = (
        f"an object of the class {cls.__name__}",
        f"the attribute {{!r}} of {cls.__name__} ({label})",
    )
    outside, walk.in_package = walk.in_package, True
    if copying:
        walk.substitute(thing, copy, described, part, step)
    else:
        walk.leave_writable(thing, step, described, part)
    fields = _fields_of(thing)
    for source, key, content in _attributes_read(thing, fields, None):
        place, described = (source, step, key), part.format(key)
        if key in walk.facts.attributes or _holds_data(content):
            content_copy = walk.visit(content, place, described, copying)
        else:
            content_copy = content
            walk.identity_step(place, content, described)
        if content_copy is not content:
            set_content(copy, key, content_copy)
    for key in sorted(_defaults_of(cls) - fields.keys()) if _has_fields(thing) else ():
        walk.step((Source.FIELD, step, key), Check.ABSENT, None, part.format(key))
    walk.in_package = outside
    return copy


def _holds_data(content: Any, depth: int = 0) -> bool:
    """Return whether something is data: a number, a text, an array, a function, a package's object, or a container of a few of them."""
    kind = type(content)
    if kind in PLAIN_TYPES or kind in (FunctionType, MethodType):
        return True
    if issubclass(kind, np.ndarray):
        return bool(depth == 0 or content.nbytes <= _MOST_BYTES)
    if kind in (list, tuple, dict):
        items = content.values() if kind is dict else content
        return (
            len(items) <= MOST_ITEMS
            and depth < _MOST_NESTED
            and all(_holds_data(item, depth + 1) for item in items)
        )
    return issubclass(kind, np.generic) or shows_fields(content)


def _defaults_of(cls: type) -> frozenset[str]:
    """Return the names of numbers and texts of a class, which an attribute of an object may hide."""
    names = _defaults.get(cls)
    if names is None:
        names = _defaults[cls] = frozenset(
            name
            for owner in cls.__mro__
            for name, item in vars(owner).items()
            if not name.startswith("__") and (type(item) in PLAIN_TYPES or _is_constant(item))
        )
    return names


_defaults: Final[weakref.WeakKeyDictionary[type, frozenset[str]]] = weakref.WeakKeyDictionary()


def _attributes_read(
    thing: Any, fields: dict[str, Any], names: set[str] | None
) -> list[tuple[Source, str, Any]]:
    """Return the attributes in the ``__dict__`` and the slots of an object that have one of the names; all, if that is None."""
    return [
        *((Source.FIELD, key, content) for key, content in fields.items() if names is None or key in names),
        *(
            (Source.ATTRIBUTE, key, getattr(thing, key))
            for key in slots_of(type(thing))
            if (names is None or key in names) and hasattr(thing, key)
        ),
    ]


def _override_inherited(walk: CaptureWalk, copy: Any, inherited: dict[str, Any]) -> None:
    """Give a copy of an object the copies of methods, and placeholders for constants of its class, as attributes of its own."""
    cls = type(copy)
    for name, item in inherited.items():
        if _is_method(item):
            function = walk.visit_fixed(item, f"{cls.__name__}.{name}")
            if function is not item:
                copy.__dict__[name] = MethodType(function, copy)
            continue
        owner = next(base for base in cls.__mro__ if name in vars(base))
        if (owner, name) not in walk.class_data and name not in walk.facts.stored:
            holder = walk.step((Source.FIXED, -1, owner), Check.NOTHING, None, f"the class {owner.__name__}")
            label = label_in_class(owner, name)
            copy.__dict__[name] = walk.visit(item, (Source.ATTRIBUTE, holder, name), label)


def _check_hidden(walk: CaptureWalk, thing: Any, inherited: dict[str, Any], step: int, label: str) -> None:
    """Check that an object has no attributes of its own which would hide those of its class, and that empty slots stay empty."""
    cls, attributes = type(thing), walk.facts.attributes
    if not hasattr(cls, "__getattr__"):
        for key in attributes.intersection(slots_of(cls)):
            if not hasattr(thing, key):
                origin = Source.ATTRIBUTE, step, key
                walk.step(origin, Check.ABSENT, None, f"the slot {key!r} of {label}")
    if _has_fields(thing):
        for key in sorted((attributes & inherited.keys()) - vars(thing).keys()):
            origin = Source.FIELD, step, key
            walk.step(origin, Check.ABSENT, None, f"the attribute {key!r} of {label}")


def _has_fields(thing: Any) -> bool:
    """Return whether an object has attributes of its own; it may also have an answer for any name, as handles of C libraries have."""
    return isinstance(getattr(thing, "__dict__", None), dict)


def _fields_of(thing: Any) -> dict[str, Any]:
    return thing.__dict__ if _has_fields(thing) else {}


def _check_names(walk: CaptureWalk, fields: dict[str, Any], step: int, label: str) -> None:
    """Check the names of the attributes of an object."""
    origin = Source.ATTRIBUTE, step, "__dict__"
    walk.step(origin, Check.KEYS, (dict, tuple(fields)), f"the attributes of {label}")


def _is_method(item: Any) -> bool:
    return type(item) is FunctionType or type(item).__name__ == "Jitted"


def _is_constant(item: Any) -> bool:
    return issubclass(type(item), float | np.ndarray)


def _visit_opaque(walk: CaptureWalk, thing: Any, origin: Origin, label: str, copying: bool) -> Any:
    """Check an object of an unknown kind by identity, and the arrays that it holds by content."""
    cls, facts, spec = type(thing), walk.facts, walk.spec
    if isinstance(thing, operator.attrgetter | operator.methodcaller):
        names = [part for part in thing.__reduce__()[1] if isinstance(part, str)]
        facts.attributes |= {word for name in names for word in name.split(".")}
    is_file = isinstance(thing, io.IOBase)
    spec.shows = spec.shows or isinstance(thing, io.TextIOBase | logging.Logger | logging.LoggerAdapter)
    if is_file and not (thing.closed or thing in (sys.stdout, sys.stderr, sys.stdin)):
        if origin[0] is Source.ARGUMENT and thing.seekable():  # code need not use it: its position tells
            spec.files.append(thing)
        else:
            spec.unrepeatable[label] = A_FILE
    elif hasattr(cls, "__next__") and hasattr(cls, "__iter__"):
        spec.unrepeatable[label] = "an iterator: it yields each item once, and the trace has consumed it"
    note_generator(walk, thing)
    facts.reads_records = facts.reads_records or getattr(cls, "reads_records", False)
    if cls is type(os.environ):
        check_environment(walk)
    if isinstance(thing, array):
        step = walk.step(origin, Check.EQUAL, thing[:], label)
        walk.leave_writable(thing, step, label, "the entry {!r} of " + label)
        return walk.remember(thing, thing, step, copying)
    if is_labelled(thing):
        step = walk.step(origin, Check.DATA, copy_of(thing), label)
        return walk.remember(thing, thing, step, copying)
    if cls.__name__ == "Jitted" and getattr(thing, "site", None) is not None:
        return _visit_jitted(walk, thing, origin, label, copying)
    step = walk.by_identity(thing, origin, label)
    if len(walk.spec.steps) < MOST_STEPS:
        _visit_content(walk, thing, origin, step, label)
    return thing


def _visit_jitted(walk: CaptureWalk, jitted: Any, origin: Origin, label: str, copying: bool) -> Any:
    """Check a jitted function by identity, or by its parts, and visit the function that it compiles; return its copy."""
    by_parts = walk.by_parts and origin[0] is not Source.FIXED
    site, cls = jitted.site, type(jitted)
    step = (
        walk.step(origin, Check.TYPE, cls, label) if by_parts else walk.identity_step(origin, jitted, label)
    )
    copy = jitted.with_function(None) if copying else jitted
    walk.remember(jitted, copy, step, copying)
    compiled = Source.FIXED, -1, site.function
    if by_parts:
        holder = walk.step((Source.ATTRIBUTE, step, "site"), Check.TYPE, type(site), label)
        for part in ("static", "shapes", "name"):
            walk.visit(getattr(site, part), (Source.ATTRIBUTE, holder, part), f"{part} of {label}", False)
        compiled = Source.ATTRIBUTE, holder, "function"
    function = walk.visit(site.function, compiled, label, copying)
    if copying:
        copy.site.function = function
    return copy


def _visit_content(walk: CaptureWalk, thing: Any, origin: Origin, step: int, label: str) -> None:
    """Check by value the content of an object that is not copied: arrays, functions, what code reads, all of user objects."""
    cls = type(thing)
    package = cls.__module__.partition(".")[0]
    if package == PACKAGE:
        for key in getattr(thing, "_functions_called", ()):
            origin_of_function = Source.ATTRIBUTE, step, key
            walk.visit(getattr(thing, key), origin_of_function, f"{key} of {label}", False)
    is_users = is_user_class(cls)
    if isinstance(thing, enum.Enum) or (package in ("numpy", "builtins", PACKAGE) and not is_users):
        return
    if is_users:
        _check_class(walk, cls, whole=False)
        if walk.facts.stored:
            walk.leave_writable(thing, step, label, "the attribute {!r} of " + label)
    # A linear operator of SciPy's computes with all that it holds.
    reads_all = is_users or cls.__module__ == "scipy.sparse.linalg._interface"
    fields = _fields_of(thing)
    if is_users and fields:
        _check_names(walk, fields, step, label)
    attributes = [(Source.FIELD, key, item) for key, item in list(fields.items()) if type(key) is str]
    attributes += [
        (Source.ATTRIBUTE, key, getattr(thing, key))
        for key in slots_of(cls)
        if isinstance(getattr(cls, key, None), MemberDescriptorType) and hasattr(thing, key)
    ]
    for source, key, item in attributes:
        computes = issubclass(type(item), np.ndarray) or type(item) in (FunctionType, MethodType)
        if reads_all or computes or key in walk.facts.attributes:
            walk.visit(item, (source, step, key), f"{label}.{key}", False)
    _visit_items(walk, thing, origin, label)


def _visit_items(walk: CaptureWalk, thing: Any, origin: Origin, label: str) -> None:
    """Check the items of an object that is a container; its own methods are not called."""
    cls = type(thing)
    if isinstance(thing, dict):
        step = walk.step(origin, Check.KEYS, (cls, tuple(keys_of(thing))), label)
        walk.leave_writable(thing, step, label, "the entry {!r} of " + label)
        for key, item in list(dict.items(thing)):
            walk.visit(item, (Source.ENTRY, step, key), f"the entry {key!r} of {label}", False)
    elif isinstance(thing, list):
        step = walk.step(origin, Check.LENGTH, (cls, list.__len__(thing)), label)
        walk.leave_writable(thing, step, label, "the entry {!r} of " + label)
        for number, item in enumerate(list.__iter__(thing)):
            walk.visit(item, (Source.ITEM, step, number), f"item {number} of {label}", False)
    elif isinstance(thing, set | deque):
        step = walk.step(origin, Check.EQUAL, thing.copy(), label)
        walk.leave_writable(thing, step, label, "the entry {!r} of " + label)
