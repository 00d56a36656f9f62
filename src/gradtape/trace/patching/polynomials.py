"""Hooks for `numpy.poly1d`: compiled functions of NumPy's read its coefficients through ``__array__``, as numbers.

Functions of polynomials with a `poly1d` of traced coefficients are called with the coefficients, and their result is a `poly1d` again.
"""

from __future__ import annotations

import sys
from typing import Any, Final

import numpy as np

from gradtape.trace.array.array import Array
from gradtape.trace.array.preallocated import is_traced
from gradtape.trace.patching import recorders
from gradtape.trace.patching.functions import Function, hook_function
from gradtape.trace.patching.imports import when_imported
from gradtape.trace.source.sites import is_user_file

RETURNING_POLYNOMIALS: Final = ("polyadd", "polysub", "polymul", "polydiv", "polyder", "polyint")
"""Functions whose results are polynomials if an argument is one."""


def _is_traced_polynomial(item: Any) -> bool:
    return type(item) is np.poly1d and is_traced(item.coeffs)


def _with_coefficients(name: str) -> Function:
    """Return what makes the handler of a function that takes polynomials."""

    def handler_of(plain: Function) -> Function:
        def call(*args: Any, **kwargs: Any) -> Any:
            if not any(map(_is_traced_polynomial, args)):
                return plain(*args, **kwargs)
            given = [item.coeffs if type(item) is np.poly1d else item for item in args]
            if name == "polydiv":
                given = [np.trim_zeros(np.atleast_1d(item), "f") for item in given]
            made = getattr(np, name)(*given, **kwargs)
            if name not in RETURNING_POLYNOMIALS:
                return made
            return tuple(map(np.poly1d, made)) if isinstance(made, tuple) else np.poly1d(made)

        return call

    return handler_of


def _composition(plain: Function) -> Function:
    """Return the handler of ``p(q)`` for two polynomials: Horner's rule, with their operators."""

    def call(self: Any, val: Any) -> Any:
        if type(val) is not np.poly1d or not (is_traced(self.coeffs) or is_traced(val.coeffs)):
            return plain(self, val)
        total: Any = np.poly1d([0.0])
        for coefficient in self.coeffs:
            total = total * val + coefficient
        return total

    return call


def _constructor(plain: Function) -> Function:
    """Return the handler of ``np.poly1d(c)``: traced coefficients that are zero are not cut off, because they have derivatives."""

    def call(self: Any, c_or_r: Any, r: Any = False, variable: Any = None) -> None:
        coefficients: Any = np.poly(c_or_r) if r and not isinstance(c_or_r, np.poly1d) else c_or_r
        coefficients = coefficients if isinstance(coefficients, np.poly1d) else np.atleast_1d(coefficients)
        if isinstance(coefficients, np.poly1d) or not is_traced(coefficients) or coefficients.ndim != 1:
            plain(self, c_or_r, r, variable)
        else:
            plain(self, np.ones(1), variable=variable)
            self._coeffs = coefficients

    return call


def _keep(plain: Function) -> Function:
    """Return the handler of `numpy.polynomial.polyutils.trimseq`: as above."""
    return lambda seq: seq if is_traced(seq) and len(seq) else plain(seq)


def _with_leading(plain: Function) -> Function:
    """Return the handler of a function that divides by the leading coefficient: zeros are cut off, and their number is guarded."""

    def call(*args: Any) -> Any:
        return plain(*[np.polynomial.polyutils.trimcoef(arg) if is_traced(arg) else arg for arg in args])

    return call


MODULES: Final = {
    "polynomial": "poly",
    "chebyshev": "cheb",
    "legendre": "leg",
    "hermite": "herm",
    "hermite_e": "herme",
    "laguerre": "lag",
}
"""The prefixes of the functions of each module of `numpy.polynomial`."""


def _is_scalar(plain: Function) -> Function:
    """Return the handler of ``np.isscalar(x)``: what would be a scalar of NumPy's is one, and to a package all that has no axes, because
    the number that a user passed to a jitted function may have been one."""

    def call(element: Any) -> Any:
        if not isinstance(element, Array):
            return plain(element)
        caller = sys._getframe(
            3
        ).f_code.co_filename  # of the function of NumPy's, whose code calls a handler, which calls this one
        return element.is_scalar or (not element.ndim and not is_user_file(caller))

    return call


def _hook() -> None:
    polynomial: Any = np.poly1d
    hook_function(polynomial.__init__, _constructor)
    hook_function(np.isscalar, _is_scalar)  # type: ignore[arg-type]
    hook_function(polynomial.__call__, _composition)
    for name in (*RETURNING_POLYNOMIALS, "roots"):
        hook_function(getattr(np, name)._implementation, _with_coefficients(name))


def _hook_package(package: Any) -> None:
    """Hook the functions of `numpy.polynomial`, which NumPy imports when it is first used."""
    hook_function(package.polyutils.trimseq, _keep)
    for module, prefix in MODULES.items():
        for suffix in ("div", "roots", "companion"):
            hook_function(getattr(getattr(package, module), prefix + suffix), _with_leading)


recorders.before_recording(_hook)
when_imported("numpy.polynomial", _hook_package)
