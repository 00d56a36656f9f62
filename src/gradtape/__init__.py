"""gradtape: keep your NumPy code; get its derivatives at the speed of hand-written C.

>>> import numpy as np, gradtape as gt
>>> gt.grad(lambda x: np.sum(x**2))(np.array([1.0, 2.0]))
array([2., 4.])
"""

import importlib as _importlib
import importlib.machinery as _machinery
import sys as _sys
import typing as _typing

from . import errors as errors
from . import ops as _rows  # noqa: F401 - the rows enter themselves
from .api.create import asarray as asarray
from .api.create import constant as constant
from .api.create import stop_gradient as stop_gradient
from .api.ends import UnconnectedGradients as UnconnectedGradients
from .api.jit import jit as jit
from .api.naming import name as name
from .api.tape import GradientTape as GradientTape
from .api.transform import grad as grad
from .api.transform import jvp as jvp
from .api.transform import value_and_grad as value_and_grad
from .api.transform import vjp as vjp
from .config import config as config
from .trace import conversions as _conversions  # noqa: F401 - lists of traced numbers become arrays
from .trace.array import Array as Array
from .trace.patching import creation as _creation  # noqa: F401 - hooks in NumPy's functions
from .trace.patching import scipy as _scipy  # noqa: F401 - and in SciPy's
from .trace.slices import IndexedSlices as IndexedSlices
from .trace.variable import Variable as Variable

if _typing.TYPE_CHECKING:
    from .api import debug as debug
    from .api import inspect as inspect
    from .api import optimizers as optimizers
    from .api.check import check_grads as check_grads
    from .api.checkpoint import checkpoint as checkpoint
    from .api.checkpoint import recompute_grad as recompute_grad
    from .api.control.branches import cond as cond
    from .api.control.branches import switch as switch
    from .api.control.loops import fori_loop as fori_loop
    from .api.control.loops import while_loop as while_loop
    from .api.control.prefixes import associative_scan as associative_scan
    from .api.control.scanning import map as map
    from .api.control.scanning import scan as scan
    from .api.custom import custom_gradient as custom_gradient
    from .api.custom import grad_pass_through as grad_pass_through
    from .api.custom_rules import custom_jvp as custom_jvp
    from .api.custom_rules import custom_vjp as custom_vjp
    from .api.forward import ForwardAccumulator as ForwardAccumulator
    from .api.functional import hessian as hessian
    from .api.functional import hvp as hvp
    from .api.functional import jacfwd as jacfwd
    from .api.functional import jacobian as jacobian
    from .api.functional import jacrev as jacrev
    from .api.gradients import AggregationMethod as AggregationMethod
    from .api.gradients import gradients as gradients
    from .api.gradients import hessians as hessians
    from .api.linear import linear_transpose as linear_transpose
    from .api.linear import linearize as linearize
    from .api.sparse import gather as gather
    from .api.sparse import scatter_add as scatter_add
    from .api.sparse import scatter_sub as scatter_sub
    from .api.sparse import scatter_update as scatter_update
    from .api.vmap import vectorized_map as vectorized_map
    from .api.vmap import vmap as vmap

__version__ = "0.1.0"


_NAMESPACES = ("debug", "inspect", "optimizers")
_LATER = {
    "check_grads": "check",
    "checkpoint": "checkpoint",
    "recompute_grad": "checkpoint",
    "cond": "control.branches",
    "switch": "control.branches",
    "fori_loop": "control.loops",
    "while_loop": "control.loops",
    "associative_scan": "control.prefixes",
    "map": "control.scanning",
    "scan": "control.scanning",
    "custom_gradient": "custom",
    "grad_pass_through": "custom",
    "custom_jvp": "custom_rules",
    "custom_vjp": "custom_rules",
    "ForwardAccumulator": "forward",
    "hessian": "functional",
    "hvp": "functional",
    "jacfwd": "functional",
    "jacobian": "functional",
    "jacrev": "functional",
    "AggregationMethod": "gradients",
    "gradients": "gradients",
    "hessians": "gradients",
    "linear_transpose": "linear",
    "linearize": "linear",
    "gather": "sparse",
    "scatter_add": "sparse",
    "scatter_sub": "sparse",
    "scatter_update": "sparse",
    "vectorized_map": "vmap",
    "vmap": "vmap",
}
"""Names by the module that has them, imported when first used: a process that needs only a gradient starts sooner."""


def __getattr__(name: str) -> object:
    """Import what is not needed for a gradient when it is first used; `inspect` brings the compiler, which cached kernels do not need."""
    if name in _NAMESPACES:
        return _importlib.import_module(f".api.{name}", __name__)
    if name in _LATER:
        thing = globals()[name] = getattr(_importlib.import_module(f".api.{_LATER[name]}", __name__), name)
        return thing
    habits: _typing.Any = _importlib.import_module(".habits", __name__)
    answer = habits.missing(name, __dir__())
    what = f"module {__name__!r} has no attribute {name!r}{f': {answer}' if answer else ''}"
    imported = (
        _sys._getframe(1).f_globals.get("__name__") == "importlib._bootstrap"
    )  # from gradtape import lax
    if answer and imported and _machinery.PathFinder.find_spec(f"{__name__}.{name}", __path__) is None:
        raise ImportError(what, name=__name__)
    # With the answer in the message, Python needs no `obj` in which to look for a name that is nearly the same.
    raise AttributeError(what, name=name, obj=None if answer else _sys.modules[__name__])


def __dir__() -> list[str]:
    return sorted({*globals(), *_LATER, *_NAMESPACES})
