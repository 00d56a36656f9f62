"""The namespaces of the coverage table."""

from __future__ import annotations

from tests.coverage.cases import Namespace
from tests.coverage.namespaces.fourier import NUMPY_FFT, SCIPY_FFT
from tests.coverage.namespaces.linear_algebra import NUMPY_LINALG, SCIPY_LINALG
from tests.coverage.namespaces.numpy_functions import NUMPY
from tests.coverage.namespaces.numpy_polynomial import NUMPY_POLYNOMIAL
from tests.coverage.namespaces.numpy_random import NUMPY_RANDOM
from tests.coverage.namespaces.scipy_hierarchy import SCIPY_HIERARCHY
from tests.coverage.namespaces.scipy_interpolate import SCIPY_INTERPOLATE
from tests.coverage.namespaces.scipy_ndimage import SCIPY_NDIMAGE
from tests.coverage.namespaces.scipy_optimize import SCIPY_OPTIMIZE
from tests.coverage.namespaces.scipy_signal import SCIPY_SIGNAL, SCIPY_WINDOWS
from tests.coverage.namespaces.scipy_spatial import CLUSTER, DISTANCE, INTEGRATE, SPATIAL, TRANSFORM
from tests.coverage.namespaces.scipy_special import SCIPY_SPECIAL
from tests.coverage.namespaces.scipy_stats import SCIPY_STATS

NAMESPACES: tuple[Namespace, ...] = (
    NUMPY,
    NUMPY_POLYNOMIAL,
    NUMPY_RANDOM,
    NUMPY_LINALG,
    NUMPY_FFT,
    SCIPY_LINALG,
    SCIPY_FFT,
    SCIPY_SPECIAL,
    SCIPY_INTERPOLATE,
    SCIPY_OPTIMIZE,
    SPATIAL,
    DISTANCE,
    TRANSFORM,
    INTEGRATE,
    CLUSTER,
    SCIPY_HIERARCHY,
    SCIPY_NDIMAGE,
    SCIPY_SIGNAL,
    SCIPY_WINDOWS,
    SCIPY_STATS,
)
