"""Patching of functions that are written in Python and do not dispatch: they apply their rules to traced arguments."""

from __future__ import annotations

import functools
import importlib
import importlib.util
import os
import sys
import weakref
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from gradtape.ir.builder import here
from gradtape.ir.types import aval
from gradtape.kinds.registry import BORROWED, BORROWED_OUTPUTS, OPAQUE, SOLVERS
from gradtape.trace.array.array import wrap
from gradtape.trace.array.masked import without_selections
from gradtape.trace.array.preallocated import (
    holds_traced,
    is_traced,
    unwrap_keywords,
    unwrap_preallocated,
)
from gradtape.trace.dispatch.op_cache import run
from gradtape.trace.jit.outcomes import compute_now, is_handled
from gradtape.trace.patching.functions import Function, hook_function
from gradtape.trace.patching.imports import when_imported
from gradtape.trace.patching.interpose import When, interpose, without_hook
from gradtape.trace.patching.recorders import RECORDERS
from gradtape.trace.routines import (
    array_api,
    distances,
    filters,
    geometry,
    grids,
    hierarchy,
    multivariate,
    piecewise,
    rotations,
    smoothing,
    sparse_equations,
    sparse_matrices,
    splines,
    statistics,
)
from gradtape.trace.routines.registry import ROUTINES
from gradtape.trace.source.sites import user_site

PACKAGES: Final = (
    array_api,
    distances,
    filters,
    geometry,
    grids,
    hierarchy,
    piecewise,
    rotations,
    sparse_matrices,
    sparse_equations,
    splines,
    smoothing,
    multivariate,
    statistics,
)
"""The modules that enter themselves in `ROUTINES`."""

NESTED: Final = 4
"""The depth to which arguments of routines are searched: a list of lists of matrices."""

_METHODS: Final[dict[tuple[int, str], tuple[Any, str, Function]]] = {}
"""Rules for methods of one object, by the object's id and the method: with the object and the name that the user sees."""

_FOURIER: Final[dict[int, tuple[Any, str, Function]]] = {}
"""Rules for the functions of `scipy.fft`, which ask a backend, by the function's id."""


def _public(name: str) -> str:
    """Return a name without the private modules in it, as messages show it."""
    *modules, function = name.split(".")
    return ".".join([*[module for module in modules if not module.startswith("_")], function])


def _apply_rule(name: str, rule: Function, args: Any, kwargs: dict[str, Any]) -> Any:
    here.site = user_site(via=_public(name))
    result = wrap(run(rule, without_selections(args), without_selections(kwargs)))
    if name.startswith("scipy.linalg.") and is_handled(sys._getframe(2)):
        module, _, function = name.rpartition(".")
        return compute_now(result, getattr(importlib.import_module(module), function), args, kwargs)
    return result


def _is_any_traced(args: Any, kwargs: dict[str, Any]) -> bool:
    return is_traced((args, tuple(kwargs.values())))


def _function(name: str, rule: Function) -> Callable[[Function], Function]:
    def handler_of(plain: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if _is_any_traced(args, kwargs):
                return _apply_rule(name, rule, args, kwargs)
            return plain(*unwrap_preallocated(args), **unwrap_keywords(kwargs))

        return call

    return handler_of


def _compiled(name: str, rule: Function) -> Callable[..., Any]:
    """Return the hook of a function written in C. Those that write into an argument take positional arguments."""
    written = BORROWED_OUTPUTS.get(name)

    def hook(function: Any, /, *args: Any, **kwargs: Any) -> Any:
        target: Any = None if written is None else args[written]
        operands = args
        if written is not None:
            operands = (*args[:written], aval(tuple(target.shape), target.dtype), *args[written + 1 :])
        if _is_any_traced(operands, kwargs):
            result = _apply_rule(name, rule, operands, kwargs)
            if written is None:
                return result
            target[...] = result
            return None
        return without_hook(function)(*unwrap_preallocated(args), **unwrap_keywords(kwargs))

    return hook


def _method(plain: Function) -> Function:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        entry = _METHODS.get((id(self), plain.__name__))
        if entry is not None and _is_any_traced(args, kwargs):
            return _apply_rule(*entry[1:], args, kwargs)
        return plain(self, *unwrap_preallocated(args), **unwrap_keywords(kwargs))

    return call


_bound: Final[weakref.WeakKeyDictionary[Any, dict[Function, Function]]] = weakref.WeakKeyDictionary()
"""Rules for methods, with the objects that they are called for: functions that the op cache knows again."""


def _bound_rule(rule: Function, owner: Any) -> Function:
    rules = _bound.setdefault(owner, {})
    bound = rules.get(rule)
    if bound is None:
        reference = weakref.ref(owner)
        bound = rules[rule] = lambda *args, **kwargs: rule(reference(), *args, **kwargs)
    return bound


def _method_of_class(name: str, rule: Function) -> Callable[[Function], Function]:
    """Return the hook for a method of a class: the rule takes the object as well."""

    def handler_of(plain: Function) -> Function:
        def call(self: Any, *args: Any, **kwargs: Any) -> Any:
            if _is_any_traced(args, kwargs):
                owner = _standard_distribution(self)
                home, _, method = name.rpartition(".")
                via = f"{getattr(owner, 'name', None) or home.rpartition('.')[2]}.{method}"
                return _apply_rule(via, _bound_rule(rule, owner), args, kwargs)
            return plain(self, *unwrap_preallocated(args), **unwrap_keywords(kwargs))

        return call

    return handler_of


def _standard_distribution(distribution: Any) -> Any:
    """Return the distribution in `scipy.stats` of which a frozen distribution holds a copy; other objects are returned."""
    original: Any = getattr(sys.modules.get("scipy.stats"), str(getattr(distribution, "name", None)), None)
    if type(original) is not type(distribution) or not hasattr(original, "badvalue"):
        return distribution
    parameters = (distribution.a, distribution.b, distribution.badvalue, distribution.shapes)
    shared = (original.a, original.b, original.badvalue, original.shapes)
    return original if repr(parameters) == repr(shared) else distribution


def _backend(plain: Function) -> Function:
    def call(method: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        entry = _FOURIER.get(id(method))
        if entry is not None and _is_any_traced(args, kwargs):
            return _apply_rule(*entry[1:], args, kwargs)
        return plain(method, unwrap_preallocated(args), unwrap_keywords(kwargs))

    return call


def _lookup(module: ModuleType, name: str) -> tuple[Any, Any]:
    """Return an attribute of a module by its full name, and what it is an attribute of; None where there is none."""
    owner: Any = None
    attribute: Any = module
    for part in name[len(module.__name__) + 1 :].split("."):
        owner = attribute
        attribute = getattr(owner, part, None)
    return owner, attribute


def _hook(module: ModuleType, name: str, rule: Function) -> None:
    """Hook a function of a module, or a method of an object in it."""
    home, hooked = _lookup(module, name)
    if isinstance(home, type) and isinstance(hooked, FunctionType):
        function: FunctionType = hooked
        if (
            vars(home).get(function.__name__) is function
        ):  # a rule on an inherited method would hold for other classes, too
            hook_function(function, _method_of_class(name, rule))
    elif isinstance(hooked, MethodType):
        _METHODS[id(hooked.__self__), hooked.__name__] = hooked.__self__, name.removesuffix(".__call__"), rule
        method: Any = hooked.__func__
        hook_function(method, _method)
    elif isinstance(hooked, FunctionType):
        hook_function(hooked, _function(name, rule))
    elif type(hooked).__name__ in ("builtin_function_or_method", "cython_function_or_method"):
        interpose(_compiled(name, rule), When.ANYWHERE, [hooked])
    elif hooked is not None and (backend := _default_backend(module)) is not None:
        _FOURIER[id(hooked)] = hooked, name, rule
        hook_function(backend, _backend)


def _default_backend(module: Any) -> Any:
    """Return the function by which `scipy.fft` runs its own transforms; None for other modules."""
    backend = getattr(getattr(module, "_backend", None), "_ScipyBackend", None)
    function = getattr(backend, "__ua_function__", None)
    return function if isinstance(function, FunctionType) else None


@functools.cache
def _home_of_helpers() -> str:
    """Return the package in which SciPy keeps helpers of other projects: ``scipy._external`` since version 1.18."""
    spec = importlib.util.find_spec("scipy")
    folders = [] if spec is None else spec.submodule_search_locations or []
    is_new = any(os.path.isdir(os.path.join(folder, "_external")) for folder in folders)
    return "scipy._external" if is_new else "scipy._lib"


def _present_names(name: str) -> tuple[str, ...]:
    """Return the names of a function in what is installed: helpers of the array API are copied by SciPy and by scikit-learn."""
    helper = name.removeprefix("scipy._lib.array_api_")
    if helper == name:
        return (name,)
    return tuple(f"{home}array_api_{helper}" for home in (f"{_home_of_helpers()}.", "sklearn.externals.", ""))


def _hook_when_imported(name: str, rule: Function) -> None:
    """Hook a function when its module is imported: the one before the colon, or else the subpackage."""
    for present in _present_names(name):
        when_imported(_awaited(present), functools.partial(_hook, name=present.replace(":", "."), rule=rule))


def _awaited(name: str) -> str:
    module, colon, _ = name.partition(":")
    return module if colon else ".".join(name.split(".")[:2])


for _name, _rule in BORROWED.items():
    _hook_when_imported(_name, _rule)


def _replaced_by(replacement: Function) -> Callable[[Function], Function]:
    """Return what makes the handler of a routine for which NumPy code stands where something is traced."""

    def handler_of(plain: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if holds_traced(args, NESTED) or (kwargs and holds_traced(tuple(kwargs.values()), NESTED)):
                return replacement(*args, **kwargs)
            return plain(*unwrap_preallocated(args), **unwrap_keywords(kwargs))

        return call

    return handler_of


def _replace(module: ModuleType, name: str, replacement: Function) -> None:
    """Hook a routine in the place where SciPy looks it up: compiled functions have no code to hook."""
    *path, last = name[len(module.__name__) + 1 :].split(".")
    home: Any = module
    for part in path:
        home = getattr(home, part, None)
    routine = vars(home).get(last) if home is not None else None
    if isinstance(routine, FunctionType):
        hook_function(routine, _replaced_by(replacement))
    elif isinstance(routine, staticmethod) and isinstance(routine.__func__, FunctionType):
        hook_function(routine.__func__, _replaced_by(replacement))
    elif isinstance(routine, property):
        getter: Any = routine.fget
        if not hasattr(getter, "__wrapped__"):
            setattr(
                home,
                last,
                property(_forwarding(getter, _replaced_by(replacement)(getter)), doc=routine.__doc__),
            )
    elif callable(routine) and not hasattr(routine, "__wrapped__"):
        setattr(home, last, _forwarding(routine, _replaced_by(replacement)(routine)))


def _forwarding(routine: Any, handler: Function) -> Function:
    @functools.wraps(routine)
    def call(*args: Any, **kwargs: Any) -> Any:
        return (handler if RECORDERS else routine)(*args, **kwargs)

    return call


def replaced_names() -> list[str]:
    """Return the names of all functions that gradtape replaces or refuses; a colon follows the module whose import is awaited."""
    opaque = [f"{module}:{name}" for module, (functions, _) in OPAQUE.items() for name in functions]
    return [*BORROWED, *ROUTINES, *SOLVERS, *opaque]


def missing_names() -> list[str]:
    """Return the names of functions that gradtape replaces, and that the installed versions of SciPy and of other packages do not have.

    Where a private function has been renamed, its replacement is never called, and code that calls it may stop at a traced array. All
    packages with such names are imported.
    """
    names = replaced_names()
    installed = {
        root: importlib.util.find_spec(root) is not None for root in {name.split(".")[0] for name in names}
    }
    existing = {name for name in names if any(_exists(present) for present in _present_names(name))}
    # Versions of the array API's helpers have the same functions in other modules.
    helpers = {name.rpartition(":")[2] for name in existing if len(_present_names(name)) > 1}
    return [
        name
        for name in names
        if installed[name.split(".")[0]]
        and name not in existing
        and not (len(_present_names(name)) > 1 and name.rpartition(":")[2] in helpers)
    ]


def _exists(name: str) -> bool:
    try:
        module = importlib.import_module(_awaited(name))
    except ImportError:
        return False
    return _lookup(module, name.replace(":", "."))[1] is not None


def _replace_when_imported(name: str, replacement: Function) -> None:
    """Replace a routine when its module is imported, as `_hook_when_imported` does."""
    for present in _present_names(name):
        work = functools.partial(_replace, name=present.replace(":", "."), replacement=replacement)
        when_imported(_awaited(present), work)


for _name, _rule in ROUTINES.items():
    _replace_when_imported(_name, _rule)
