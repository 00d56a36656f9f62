"""Visits of global names and modules."""

from __future__ import annotations

import builtins
import sys
from types import ModuleType, NoneType
from typing import Any, Final

import numpy as np

from gradtape.trace.jit.captures.steps import Check, Origin, Source
from gradtape.trace.jit.captures.varying import note_function, note_module
from gradtape.trace.jit.captures.walk import CaptureWalk, Namespace
from gradtape.trace.patching.copies import copy_module
from gradtape.trace.patching.name_reads import Reads
from gradtape.trace.source.sites import PACKAGE, is_user_file

BY_TEXT: Final = frozenset({"eval", "exec", "globals"})
"""Functions by which code reads global names that it computes."""

_DATA: Final = (float, int, complex, str, bytes, NoneType, np.number, np.ndarray)


def namespace_of(walk: CaptureWalk, names: dict[str, Any]) -> Namespace:
    """Return the namespace of globals that is a dict."""
    namespace = walk.namespaces.get(id(names))
    if namespace is None:
        namespace = walk.namespaces[id(names)] = Namespace(names)
        label = f"the names of {namespace.label}"
        namespace.step = walk.step((Source.FIXED, -1, names), Check.NOTHING, None, label)
        walk.substitute(
            names, namespace.copy, f"the module {namespace.label}", namespace.label_of, namespace.step
        )
    return namespace


def read_names(walk: CaptureWalk, namespace: Namespace, reads: Reads, copying: bool) -> None:
    """Visit the globals that code reads, and the modules that it imports."""
    if copying and not namespace.is_whole and (reads.everything or "globals" in reads.names):
        namespace.is_whole = True
        for name in namespace.original.keys() - namespace.copy.keys():
            namespace.copy[name] = namespace.original[name]
    if not copying and reads.stores_globals:
        walk.leave_writable(namespace.original, namespace.step, namespace.label, namespace.label_of)
    names = reads.names
    if names & BY_TEXT:
        names |= _data_of(namespace.original)
    for name in sorted(names):
        walk.note_use(namespace.label_of(name), name in reads.logs, name in reads.stores)
        _visit_name(walk, namespace, name, copying)
    for name in sorted(reads.modules):
        module = sys.modules.get(name)
        if module is not None:
            walk.visit_fixed(module, f"the module {name}", False)


def _data_of(names: dict[str, Any]) -> frozenset[str]:
    """Return the names of numbers, texts and arrays, which code may read by names that it computes."""
    return frozenset(
        [
            name
            for name, content in list(names.items())
            if isinstance(content, _DATA) and not name.startswith("__")
        ]
    )


def _visit_name(walk: CaptureWalk, namespace: Namespace, name: str, copying: bool) -> None:
    if (name, copying) in namespace.visited:
        return
    namespace.visited.add((name, copying))
    origin, label = (Source.ENTRY, namespace.step, name), namespace.label_of(name)
    if name not in namespace.original:
        walk.step(origin, Check.ABSENT, None, label)
        note_function(walk, vars(builtins).get(name), name)
        return
    content = namespace.original[name]
    substitute = walk.visit(content, origin, label, copying)
    if copying:
        namespace.copy[name] = substitute
    else:
        namespace.copy.setdefault(name, content)


def visit_module(walk: CaptureWalk, module: ModuleType, origin: Origin, label: str, copying: bool) -> Any:
    """Check a module by identity, and visit the names of the user's that code may read."""
    file = getattr(module, "__file__", None)
    is_made = file is None and type(module) is ModuleType and module.__spec__ is None  # by the user's code
    is_users = module.__name__ == "__main__" or is_made or (file is not None and is_user_file(file))
    if not is_users or module.__name__.partition(".")[0] in (PACKAGE, "numpy", "scipy"):
        note_module(walk, module)
        walk.by_identity(module, origin, label)
        return module
    step = walk.identity_step(origin, module, label)
    namespace, copy = namespace_of(walk, vars(module)), module
    if copying:
        if namespace.module_copy is None:
            namespace.module_copy = copy_module(module, namespace.copy)
        copy = namespace.module_copy
    if not copying and walk.facts.stored:
        walk.leave_writable(namespace.original, namespace.step, namespace.label, namespace.label_of)
    walk.remember(module, copy, step, copying)
    attributes = walk.facts.attributes
    for name in sorted(attributes if walk.facts.asks else attributes & namespace.original.keys()):
        _visit_name(walk, namespace, name, copying)
    # `vars(module)` is that of the module itself: the values are checked, and not replaced.
    if walk.facts.everything:
        for name in sorted(_data_of(namespace.original) - attributes):
            _visit_name(walk, namespace, name, False)
    return copy
