"""gradtape: keep your NumPy code; get its derivatives at the speed of hand-written C.

>>> import numpy as np, gradtape as gt
>>> gt.grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
array([2., 4.])
"""

import importlib as _importlib
import importlib.machinery as _machinery
import importlib.util as _util
import sys as _sys
import typing as _typing

from gradtape import collector as _collector

# Objects made here never become garbage; the collector would take an eighth of the import time.
with _collector.collector_paused():
    from gradtape import errors as errors
    from gradtape import ops as _rows  # noqa: F401 - the rows enter themselves
    from gradtape.api.tape.create import asarray as asarray
    from gradtape.api.tape.create import constant as constant
    from gradtape.api.tape.create import stop_gradient as stop_gradient
    from gradtape.api.tape.endpoints import UnconnectedGradients as UnconnectedGradients
    from gradtape.api.tape.naming import name as name
    from gradtape.api.tape.tape import GradientTape as GradientTape
    from gradtape.api.transforms.gradient import grad as grad
    from gradtape.api.transforms.gradient import jvp as jvp
    from gradtape.api.transforms.gradient import value_and_grad as value_and_grad
    from gradtape.api.transforms.gradient import vjp as vjp
    from gradtape.api.transforms.jit import jit as jit
    from gradtape.config import config as config
    from gradtape.trace.array.array import Array as Array
    from gradtape.trace.array.indexed_slices import IndexedSlices as IndexedSlices
    from gradtape.trace.jit.dims import Dim as Dim
    from gradtape.trace.patching import creation as _creation  # noqa: F401 - hooks in NumPy's functions
    from gradtape.trace.patching import opaque as _opaque  # noqa: F401 - and functions that compute with numbers
    from gradtape.trace.patching import polynomials as _polynomials  # noqa: F401 - numpy.poly1d of traced coefficients
    from gradtape.trace.patching import scipy as _scipy  # noqa: F401 - and in SciPy's
    from gradtape.trace.patching.conversions import hook as _conversions  # noqa: F401 - lists of traced numbers become arrays
    from gradtape.trace.patching.imports import when_imported as _when_imported
    from gradtape.trace.random import generators as _generators  # noqa: F401 - hooks in NumPy's random number generators
    from gradtape.trace.variables.variable import Variable as Variable
    from gradtape.transforms.procedures import loop_pullback as _loop_pullback  # noqa: F401 - enters itself

    _collector.promote_all()

if _typing.TYPE_CHECKING:
    from gradtape import array_api as array_api
    from gradtape.api import dask as dask
    from gradtape.api import debug as debug
    from gradtape.api import inspect as inspect
    from gradtape.api import optimizers as optimizers
    from gradtape.api import plot as plot
    from gradtape.api import scipy as scipy
    from gradtape.api import tree as tree
    from gradtape.api.control.associative_scan import associative_scan as associative_scan
    from gradtape.api.control.branches import cond as cond
    from gradtape.api.control.branches import switch as switch
    from gradtape.api.control.loops import fori_loop as fori_loop
    from gradtape.api.control.loops import while_loop as while_loop
    from gradtape.api.control.scanning import map as map
    from gradtape.api.control.scanning import scan as scan
    from gradtape.api.custom.callback import callback as callback
    from gradtape.api.custom.checkpoint import checkpoint as checkpoint
    from gradtape.api.custom.checkpoint import recompute_grad as recompute_grad
    from gradtape.api.custom.custom_gradient import custom_gradient as custom_gradient
    from gradtape.api.custom.custom_gradient import grad_pass_through as grad_pass_through
    from gradtape.api.custom.printing import print as print
    from gradtape.api.custom.rules import custom_jvp as custom_jvp
    from gradtape.api.custom.rules import custom_vjp as custom_vjp
    from gradtape.api.custom.score_function import score_function as score_function
    from gradtape.api.debug.doctor import doctor as doctor
    from gradtape.api.export.archive import load as load
    from gradtape.api.export.files import export as export
    from gradtape.api.export.specs import spec as spec
    from gradtape.api.guests.foreign_function import from_jax as from_jax
    from gradtape.api.guests.foreign_function import from_torch as from_torch
    from gradtape.api.guests.function import casadi as casadi
    from gradtape.api.guests.function import jax as jax
    from gradtape.api.guests.function import pytensor as pytensor
    from gradtape.api.guests.function import torch as torch
    from gradtape.api.nlp.program import nlp as nlp
    from gradtape.api.ode.stochastic import solve_sde as solve_sde
    from gradtape.api.solvers.implicit import custom_fixed_point as custom_fixed_point
    from gradtape.api.solvers.implicit import custom_root as custom_root
    from gradtape.api.source.program import source as source
    from gradtape.api.sparse import gather as gather
    from gradtape.api.sparse import scatter_add as scatter_add
    from gradtape.api.sparse import scatter_sub as scatter_sub
    from gradtape.api.sparse import scatter_update as scatter_update
    from gradtape.api.sparsity.transform import sparse_hessian as sparse_hessian
    from gradtape.api.sparsity.transform import sparse_jacobian as sparse_jacobian
    from gradtape.api.tape.forward import ForwardAccumulator as ForwardAccumulator
    from gradtape.api.tape.gradients import AggregationMethod as AggregationMethod
    from gradtape.api.tape.gradients import gradients as gradients
    from gradtape.api.tape.gradients import hessians as hessians
    from gradtape.api.transforms.check import check_grads as check_grads
    from gradtape.api.transforms.functional import hessian as hessian
    from gradtape.api.transforms.functional import hvp as hvp
    from gradtape.api.transforms.functional import jacfwd as jacfwd
    from gradtape.api.transforms.functional import jacobian as jacobian
    from gradtape.api.transforms.functional import jacrev as jacrev
    from gradtape.api.transforms.linear import linear_transpose as linear_transpose
    from gradtape.api.transforms.linear import linearize as linearize
    from gradtape.api.transforms.taylor import hessian_diagonal as hessian_diagonal
    from gradtape.api.transforms.taylor import laplacian as laplacian
    from gradtape.api.transforms.taylor import taylor as taylor
    from gradtape.api.transforms.vmap import vectorized_map as vectorized_map
    from gradtape.api.transforms.vmap import vmap as vmap
    from gradtape.api.uncertainty.expectation import expectation as expectation
    from gradtape.api.uncertainty.propagation import propagate as propagate

__version__ = "0.1.0"


def _import_solvers(_: object) -> None:
    for module in (
        "elementwise",
        "fmin",
        "least_squares",
        "linear_programs",
        "minimize",
        "rank_statistics",
        "roots",
    ):
        _importlib.import_module(f"gradtape.api.solvers.{module}")


def _import_integrals(_: object) -> None:
    _importlib.import_module("gradtape.api.solvers.quadratures")
    _importlib.import_module("gradtape.api.ode.initial_value")
    _importlib.import_module("gradtape.api.ode.boundary_value")


def _import_exponentials(_: object) -> None:
    _importlib.import_module("gradtape.api.solvers.exponentials")


_when_imported("scipy.sparse.linalg", _import_exponentials)
_when_imported("scipy.optimize", _import_solvers)
_when_imported("scipy.integrate", _import_integrals)

_PUBLIC_MODULES = {"errors", "config"}
_NAMESPACES = {
    "array_api": ".array_api",
    **{name: f".api.{name}" for name in ("dask", "debug", "inspect", "optimizers", "plot", "scipy", "tree")},
}
_LATER = {
    "check_grads": "transforms.check",
    "checkpoint": "custom.checkpoint",
    "recompute_grad": "custom.checkpoint",
    "cond": "control.branches",
    "switch": "control.branches",
    "fori_loop": "control.loops",
    "while_loop": "control.loops",
    "associative_scan": "control.associative_scan",
    "map": "control.scanning",
    "scan": "control.scanning",
    "custom_gradient": "custom.custom_gradient",
    "grad_pass_through": "custom.custom_gradient",
    "custom_jvp": "custom.rules",
    "custom_vjp": "custom.rules",
    "score_function": "custom.score_function",
    "doctor": "debug.doctor",
    "print": "custom.printing",
    "export": "export.files",
    "load": "export.archive",
    "from_jax": "guests.foreign_function",
    "from_torch": "guests.foreign_function",
    "casadi": "guests.function",
    "jax": "guests.function",
    "pytensor": "guests.function",
    "torch": "guests.function",
    "spec": "export.specs",
    "source": "source.program",
    "callback": "custom.callback",
    "custom_fixed_point": "solvers.implicit",
    "custom_root": "solvers.implicit",
    "ForwardAccumulator": "tape.forward",
    "hessian": "transforms.functional",
    "hvp": "transforms.functional",
    "taylor": "transforms.taylor",
    "hessian_diagonal": "transforms.taylor",
    "laplacian": "transforms.taylor",
    "jacfwd": "transforms.functional",
    "jacobian": "transforms.functional",
    "jacrev": "transforms.functional",
    "AggregationMethod": "tape.gradients",
    "gradients": "tape.gradients",
    "hessians": "tape.gradients",
    "linear_transpose": "transforms.linear",
    "linearize": "transforms.linear",
    "gather": "sparse",
    "scatter_add": "sparse",
    "scatter_sub": "sparse",
    "scatter_update": "sparse",
    "nlp": "nlp.program",
    "solve_sde": "ode.stochastic",
    "sparse_hessian": "sparsity.transform",
    "sparse_jacobian": "sparsity.transform",
    "vectorized_map": "transforms.vmap",
    "vmap": "transforms.vmap",
    "propagate": "uncertainty.propagation",
    "expectation": "uncertainty.expectation",
}
"""Names by the module that has them, imported when first used: a process that needs only a gradient starts sooner."""


def __getattr__(name: str) -> object:
    """Import what is not needed for a gradient when it is first used; `inspect` brings the compiler, which cached kernels do not need."""
    if name in _NAMESPACES:
        return _importlib.import_module(_NAMESPACES[name], __name__)
    if name in _LATER:
        thing = globals()[name] = getattr(_importlib.import_module(f".api.{_LATER[name]}", __name__), name)
        return thing
    habits: _typing.Any = _importlib.import_module(".habits", __name__)
    answer = habits.missing(name, __dir__(), _namespace_of)
    what = f"module {__name__!r} has no attribute {name!r}{f': {answer}' if answer else ''}"
    imported = (
        _sys._getframe(1).f_globals.get("__name__") == "importlib._bootstrap"
    )  # from gradtape import lax
    if answer and imported and _machinery.PathFinder.find_spec(f"{__name__}.{name}", __path__) is None:
        raise ImportError(what, name=__name__)
    # The message has the suggestion, so Python gets no `obj` in which to search for similar names.
    raise AttributeError(what, name=name, obj=None if answer else _sys.modules[__name__])


def _namespace_of(name: str) -> str:
    """Return the namespace that has a name, or an empty string: gt.digits is gt.debug.digits."""
    # dask needs a package that may not be installed; the array API has NumPy's names.
    modules = (space for space in _NAMESPACES if space not in ("array_api", "dask"))
    return next((space for space in modules if name in dir(__getattr__(space))), "")


def __dir__() -> list[str]:
    # A namespace whose package is not installed is not listed: importing it is an error that names the remedy.
    found = [name for name in _NAMESPACES if name != "dask" or _util.find_spec(name) is not None]
    # The folders of the package become attributes when they are imported; they are no names for users.
    inner = {name.removeprefix(f"{__name__}.") for name in _sys.modules if name.startswith(f"{__name__}.")}
    public = {name for name in globals() if not name.startswith("_") and name not in inner - _PUBLIC_MODULES}
    return sorted({*public, *_LATER, *found, "__version__", "__doc__"})
