"""SciPy patching: Python functions of SciPy apply their rules to traced arguments, and run unchanged for others."""

from __future__ import annotations

import sys
from collections.abc import Callable
from types import FunctionType, MethodType, ModuleType
from typing import Any, Final

from gradtape.ir.builder import here
from gradtape.kinds.registry import BORROWED
from gradtape.trace.array.array import wrap
from gradtape.trace.array.preallocated import is_traced, unwrap_keywords, unwrap_preallocated
from gradtape.trace.dispatch.op_cache import run
from gradtape.trace.jit.outcomes import compute_now, is_handled
from gradtape.trace.patching.functions import Function, hook_function
from gradtape.trace.patching.imports import when_imported
from gradtape.trace.source.sites import user_site

_METHODS: Final[dict[tuple[int, str], tuple[Any, str, Function]]] = {}
"""Rules for methods of one object, by the object's id and the method: with the object and the name that the user sees."""

_FOURIER: Final[dict[int, tuple[Any, str, Function]]] = {}
"""Rules for the functions of `scipy.fft`, which ask a backend, by the function's id."""


def _apply_rule(name: str, rule: Function, args: Any, kwargs: dict[str, Any]) -> Any:
    here.site = user_site(via=name)
    made = wrap(run(rule, args, kwargs))
    return compute_now(made) if name.startswith("scipy.linalg.") and is_handled(sys._getframe(2)) else made


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


def _method(plain: Function) -> Function:
    def call(self: Any, *args: Any, **kwargs: Any) -> Any:
        known = _METHODS.get((id(self), plain.__name__))
        if known is not None and _is_any_traced(args, kwargs):
            return _apply_rule(*known[1:], args, kwargs)
        return plain(self, *unwrap_preallocated(args), **unwrap_keywords(kwargs))

    return call


def _backend(plain: Function) -> Function:
    def call(method: Any, args: Any, kwargs: dict[str, Any]) -> Any:
        known = _FOURIER.get(id(method))
        if known is not None and _is_any_traced(args, kwargs):
            return _apply_rule(*known[1:], args, kwargs)
        return plain(method, unwrap_preallocated(args), unwrap_keywords(kwargs))

    return call


def _hook(module: ModuleType, name: str, rule: Function) -> None:
    """Hook a function of a module, or a method of an object in it."""
    found: Any = module
    for part in name[len(module.__name__) + 1 :].split("."):
        found = getattr(found, part, None)
    if isinstance(found, MethodType):
        _METHODS[id(found.__self__), found.__name__] = found.__self__, name, rule
        method: Any = found.__func__
        hook_function(method, _method)
    elif isinstance(found, FunctionType):
        hook_function(found, _function(name, rule))
    elif found is not None and (backend := _default_backend(module)) is not None:
        _FOURIER[id(found)] = found, name, rule
        hook_function(backend, _backend)


def _default_backend(module: Any) -> Any:
    """Return the function by which `scipy.fft` runs its own transforms; None for other modules."""
    backend = getattr(getattr(module, "_backend", None), "_ScipyBackend", None)
    function = getattr(backend, "__ua_function__", None)
    return function if isinstance(function, FunctionType) else None


def _hook_when_imported(name: str, rule: Function) -> None:
    when_imported(".".join(name.split(".")[:2]), lambda module: _hook(module, name, rule))


for _name, _rule in BORROWED.items():
    _hook_when_imported(_name, _rule)
