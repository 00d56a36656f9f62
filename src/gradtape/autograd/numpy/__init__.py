"""NumPy's names. Functions of several arrays take generators and views of dicts too."""

from typing import Any

import numpy as _numpy

from gradtape.autograd.numpy import fft as fft
from gradtape.autograd.numpy import linalg as linalg
from gradtape.autograd.numpy import numpy_boxes as numpy_boxes
from gradtape.autograd.numpy import numpy_vjps as numpy_vjps
from gradtape.autograd.numpy import numpy_vspaces as numpy_vspaces
from gradtape.autograd.numpy import numpy_wrapper as numpy_wrapper
from gradtape.autograd.numpy import random as random
from gradtape.autograd.numpy.numpy_wrapper import append as append
from gradtape.autograd.numpy.numpy_wrapper import array as array
from gradtape.autograd.numpy.numpy_wrapper import array_from_args as array_from_args
from gradtape.autograd.numpy.numpy_wrapper import column_stack as column_stack
from gradtape.autograd.numpy.numpy_wrapper import concatenate as concatenate
from gradtape.autograd.numpy.numpy_wrapper import concatenate_args as concatenate_args
from gradtape.autograd.numpy.numpy_wrapper import hstack as hstack
from gradtape.autograd.numpy.numpy_wrapper import make_diagonal as make_diagonal
from gradtape.autograd.numpy.numpy_wrapper import metadata as metadata
from gradtape.autograd.numpy.numpy_wrapper import row_stack as row_stack
from gradtape.autograd.numpy.numpy_wrapper import stack as stack
from gradtape.autograd.numpy.numpy_wrapper import vstack as vstack
from gradtape.autograd.numpy.numpy_wrapper import where as where

__version__ = _numpy.__version__
__all__ = sorted({*_numpy.__all__, "row_stack", "make_diagonal"})


def __getattr__(name: str) -> Any:
    return getattr(_numpy, name)


def __dir__() -> list[str]:
    return sorted({*dir(_numpy), *globals()})
