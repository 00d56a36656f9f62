"""The Fourier transforms of the array API standard: NumPy's functions, which take an `Array` as they take an ndarray."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.fft import fft as fft
from numpy.fft import fftn as fftn
from numpy.fft import fftshift as fftshift
from numpy.fft import hfft as hfft
from numpy.fft import ifft as ifft
from numpy.fft import ifftn as ifftn
from numpy.fft import ifftshift as ifftshift
from numpy.fft import ihfft as ihfft
from numpy.fft import irfft as irfft
from numpy.fft import irfftn as irfftn
from numpy.fft import rfft as rfft
from numpy.fft import rfftn as rfftn

from gradtape.array_api.creation import asarray
from gradtape.trace.array.array import Array


def fftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: str | None = None) -> Array:
    """Return the frequencies of a discrete Fourier transform.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.fft.fftfreq(4)
    Array([ 0.  ,  0.25, -0.5 , -0.25])
    """
    return asarray(np.fft.fftfreq(n, d), dtype=dtype, device=device)


def rfftfreq(n: int, /, *, d: float = 1.0, dtype: Any = None, device: str | None = None) -> Array:
    """Return the frequencies of the discrete Fourier transform of real numbers.

    Examples
    --------
    >>> import gradtape.array_api as xp
    >>> xp.fft.rfftfreq(4)
    Array([0.  , 0.25, 0.5 ])
    """
    return asarray(np.fft.rfftfreq(n, d), dtype=dtype, device=device)
