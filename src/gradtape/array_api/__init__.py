"""gradtape's arrays under the names of the array API standard, version 2024.12.

``x.__array_namespace__()`` returns this module. Most of its names are NumPy's own functions, which take an `Array` as they take an ndarray
and follow the standard; those that create arrays return an `Array`. The names of version 2025.12 are there as well, and
``x.__array_namespace__(api_version="2025.12")`` has its tuples. Other names are those of NumPy: ``xp.cumsum`` is `numpy.cumsum`.

>>> import gradtape as gt, gradtape.array_api as xp
>>> x = xp.linspace(0.0, 1.0, 3)
>>> gt.grad(lambda x: xp.sum(xp.square(x)))(x)
Array([0., 1., 2.])
"""

import numpy as _numpy
from numpy import __array_namespace_info__ as __array_namespace_info__
from numpy import abs as abs
from numpy import acos as acos
from numpy import acosh as acosh
from numpy import add as add
from numpy import all as all
from numpy import any as any
from numpy import argmax as argmax
from numpy import argmin as argmin
from numpy import asin as asin
from numpy import asinh as asinh
from numpy import atan as atan
from numpy import atan2 as atan2
from numpy import atanh as atanh
from numpy import bitwise_and as bitwise_and
from numpy import bitwise_invert as bitwise_invert
from numpy import bitwise_left_shift as bitwise_left_shift
from numpy import bitwise_or as bitwise_or
from numpy import bitwise_right_shift as bitwise_right_shift
from numpy import bitwise_xor as bitwise_xor
from numpy import bool as bool
from numpy import broadcast_shapes as broadcast_shapes
from numpy import broadcast_to as broadcast_to
from numpy import can_cast as can_cast
from numpy import ceil as ceil
from numpy import complex64 as complex64
from numpy import complex128 as complex128
from numpy import concat as concat
from numpy import conj as conj
from numpy import copysign as copysign
from numpy import cos as cos
from numpy import cosh as cosh
from numpy import count_nonzero as count_nonzero
from numpy import cumulative_prod as cumulative_prod
from numpy import cumulative_sum as cumulative_sum
from numpy import diff as diff
from numpy import divide as divide
from numpy import e as e
from numpy import equal as equal
from numpy import exp as exp
from numpy import expand_dims as expand_dims
from numpy import expm1 as expm1
from numpy import flip as flip
from numpy import float32 as float32
from numpy import float64 as float64
from numpy import floor as floor
from numpy import floor_divide as floor_divide
from numpy import greater as greater
from numpy import greater_equal as greater_equal
from numpy import hypot as hypot
from numpy import imag as imag
from numpy import inf as inf
from numpy import int8 as int8
from numpy import int16 as int16
from numpy import int32 as int32
from numpy import int64 as int64
from numpy import isdtype as isdtype
from numpy import isfinite as isfinite
from numpy import isinf as isinf
from numpy import isnan as isnan
from numpy import less as less
from numpy import less_equal as less_equal
from numpy import log as log
from numpy import log1p as log1p
from numpy import log2 as log2
from numpy import log10 as log10
from numpy import logaddexp as logaddexp
from numpy import logical_and as logical_and
from numpy import logical_not as logical_not
from numpy import logical_or as logical_or
from numpy import logical_xor as logical_xor
from numpy import matmul as matmul
from numpy import matrix_transpose as matrix_transpose
from numpy import max as max
from numpy import maximum as maximum
from numpy import mean as mean
from numpy import min as min
from numpy import minimum as minimum
from numpy import moveaxis as moveaxis
from numpy import multiply as multiply
from numpy import nan as nan
from numpy import negative as negative
from numpy import newaxis as newaxis
from numpy import nextafter as nextafter
from numpy import not_equal as not_equal
from numpy import permute_dims as permute_dims
from numpy import pi as pi
from numpy import positive as positive
from numpy import pow as pow
from numpy import prod as prod
from numpy import real as real
from numpy import reciprocal as reciprocal
from numpy import remainder as remainder
from numpy import repeat as repeat
from numpy import reshape as reshape
from numpy import result_type as result_type
from numpy import roll as roll
from numpy import round as round
from numpy import searchsorted as searchsorted
from numpy import sign as sign
from numpy import signbit as signbit
from numpy import sin as sin
from numpy import sinh as sinh
from numpy import sqrt as sqrt
from numpy import square as square
from numpy import squeeze as squeeze
from numpy import stack as stack
from numpy import std as std
from numpy import subtract as subtract
from numpy import sum as sum
from numpy import take as take
from numpy import take_along_axis as take_along_axis
from numpy import tan as tan
from numpy import tanh as tanh
from numpy import tensordot as tensordot
from numpy import tile as tile
from numpy import tril as tril
from numpy import triu as triu
from numpy import trunc as trunc
from numpy import uint8 as uint8
from numpy import uint16 as uint16
from numpy import uint32 as uint32
from numpy import uint64 as uint64
from numpy import unique_values as unique_values
from numpy import unstack as unstack
from numpy import var as var
from numpy import vecdot as vecdot
from numpy import where as where

from gradtape.array_api import fft as fft
from gradtape.array_api import linalg as linalg
from gradtape.array_api.creation import arange as arange
from gradtape.array_api.creation import asarray as asarray
from gradtape.array_api.creation import empty as empty
from gradtape.array_api.creation import empty_like as empty_like
from gradtape.array_api.creation import eye as eye
from gradtape.array_api.creation import from_dlpack as from_dlpack
from gradtape.array_api.creation import full as full
from gradtape.array_api.creation import full_like as full_like
from gradtape.array_api.creation import linspace as linspace
from gradtape.array_api.creation import ones as ones
from gradtape.array_api.creation import ones_like as ones_like
from gradtape.array_api.creation import zeros as zeros
from gradtape.array_api.creation import zeros_like as zeros_like
from gradtape.array_api.functions import argsort as argsort
from gradtape.array_api.functions import astype as astype
from gradtape.array_api.functions import broadcast_arrays as broadcast_arrays
from gradtape.array_api.functions import clip as clip
from gradtape.array_api.functions import finfo as finfo
from gradtape.array_api.functions import iinfo as iinfo
from gradtape.array_api.functions import isin as isin
from gradtape.array_api.functions import meshgrid as meshgrid
from gradtape.array_api.functions import nonzero as nonzero
from gradtape.array_api.functions import sort as sort
from gradtape.array_api.functions import unique_all as unique_all
from gradtape.array_api.functions import unique_counts as unique_counts
from gradtape.array_api.functions import unique_inverse as unique_inverse

__array_api_version__ = "2024.12"


def __getattr__(name: str) -> object:
    """Return what NumPy has under a name that the standard does not have: xarray asks for such names."""
    if name.startswith("_"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found: object = getattr(_numpy, name)
    return found
