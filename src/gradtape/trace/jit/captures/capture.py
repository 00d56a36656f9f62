"""The captures of a function: the values from outside that it reads, found before it is traced, and a copy in which they are inputs.

The walk begins with the function and visits what its code names: closure cells, global names, defaults, attributes, entries of
containers, other functions. Each object becomes a step of the checks (see `steps`). Arrays and floating-point numbers become hidden
inputs: the copy of the function, of the functions that it calls, and of the objects and containers that hold them, have traced arrays
in their place. The user's own objects are not changed, so other threads see nothing of the trace.

Objects that cannot be copied stay as they are, and their arrays and numbers are checked by value.
"""

from __future__ import annotations

import functools
import types
import weakref
from collections import Counter, OrderedDict, defaultdict, deque
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.captures.containers import visit_collection, visit_dict, visit_sequence
from gradtape.trace.jit.captures.functions import (
    visit_builtin,
    visit_function,
    visit_method,
    visit_partial,
    visit_reference,
)
from gradtape.trace.jit.captures.leaves import visit_array, visit_handle, visit_plain, visit_scalar
from gradtape.trace.jit.captures.methods import read_methods
from gradtape.trace.jit.captures.namespaces import visit_module
from gradtape.trace.jit.captures.objects import visit_class, visit_object
from gradtape.trace.jit.captures.spec import PLAIN_TYPES, CaptureSpec
from gradtape.trace.jit.captures.walk import CaptureWalk, CodeFacts, VisitorTable
from gradtape.trace.jit.guards import Trace
from gradtape.trace.patching.copies import content_of

VISITORS: Final = VisitorTable(
    exact={
        **dict.fromkeys(PLAIN_TYPES, visit_plain),
        **dict.fromkeys((dict, OrderedDict, defaultdict, Counter), visit_dict),
        **dict.fromkeys((set, frozenset, bytearray, deque, types.MappingProxyType), visit_collection),
        **dict.fromkeys((types.BuiltinFunctionType, types.MethodWrapperType, np.ufunc), visit_builtin),
        list: visit_sequence,
        tuple: visit_sequence,
        types.FunctionType: visit_function,
        types.MethodType: visit_method,
        weakref.ref: visit_reference,
    },
    families={
        np.generic: visit_scalar,
        np.ndarray: visit_array,
        Handle: visit_handle,
        type: visit_class,
        types.ModuleType: visit_module,
        tuple: visit_sequence,
        functools.partial: visit_partial,
        object: visit_object,
    },
)


def capture(
    function: Callable[..., Any],
    leaves: Sequence[Any],
    trace: Trace,
    *,
    substitutes: bool = True,
    varying: frozenset[str] = frozenset(),
    by_parts: bool = False,
    copies_packages: bool = False,
    substitutes_classes: bool = True,
) -> CaptureSpec:
    """Return the captures of a function; walk over them until a pass learns nothing more of the code.

    Parameters
    ----------
    function : callable
        The user's.
    leaves : sequence
        The arguments of the call, flattened.
    trace : Trace
        The tag of the arrays that stand for hidden inputs.
    substitutes : bool
        Whether arrays and numbers become inputs; else they are checked by value.
    varying : set of str
        The names of numbers that have changed between calls; they become inputs.
    by_parts : bool
        Whether functions that code makes anew are checked by their parts, and not by identity.
    copies_packages : bool
        Whether the numbers of packages' objects become inputs; else they are checked by value.
    """
    facts = CodeFacts()
    while True:
        extent = facts.extent()
        walk = CaptureWalk(
            VISITORS,
            CaptureSpec(trace, substitutes, substitutes_classes),
            facts,
            varying,
            by_parts,
            copies_packages,
        )
        spec = walk.run(function, leaves)
        for cls in list(facts.classes):
            read_methods(facts, cls, whole=True)
        if facts.extent() != extent:
            facts.write_only = set()
        elif walk.write_only() <= facts.write_only:
            for each in spec.substituted:
                each.initial = content_of(each.copy)
            return spec
        else:
            facts.write_only |= walk.write_only()
