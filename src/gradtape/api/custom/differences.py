"""Jacobians of functions that are not traced: by central differences with an estimated error, or by complex steps."""

from __future__ import annotations

import importlib
import threading
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Literal

import numpy as np

from gradtape.api.sparsity.plan import jacobian_plan
from gradtape.errors import GradtapeWarning, NotDifferentiableError, ShapeError, warn
from gradtape.ir.op import NDArray
from gradtape.trace.source.sites import user_site
from gradtape.transforms.sparsity.index_sets import from_matrix

Method = Literal["differences", "complex-step"]
METHODS: Final = ("differences", "complex-step")

FIRST_STEPS: Final = (0.05, 0.05 / 64, 0.05 / 4096)
"""The widest step, as a part of a component (or of 1, for components that are 0). SciPy halves it until the estimated error no longer
falls. Smaller ones are tried where the function is not finite at that distance."""

COMPLEX_STEP: Final = 1e-30
"""The square of the step is lost in rounding beside 1: the error of a complex step is that of the function alone."""

FEW_DIGITS: Final = 1e-5
"""The estimated error of a difference, as a part of the largest element of its column, from which a warning says so."""


class _Observed(threading.local):
    """The functions whose differences this thread has computed, while somebody wants to know."""

    names: set[str] | None = None


_OBSERVED: Final = _Observed()


@contextmanager
def observing() -> Iterator[set[str]]:
    """Collect the names of the functions whose Jacobians are computed by differences in the block."""
    before = _OBSERVED.names
    _OBSERVED.names = names = set[str]()
    try:
        yield names
    finally:
        _OBSERVED.names = before


class Differences:
    """The Jacobian of a function of one vector, as a function of that vector.

    Parameters
    ----------
    function : callable
        ``function(vector) -> vector``.
    name : str
        Of the user's function, for warnings and errors.
    method : {"differences", "complex-step"}
        Central differences of order 8, whose steps are halved until the estimated error no longer falls (`scipy.differentiate`), or the
        imaginary part of a complex step.
    sparsity : scipy.sparse.csr_array of bool, or None
        Which elements may differ from zero. Columns with no row in common are moved together.
    dtype : dtype
        The least precise one of the function's arguments and results.

    Notes
    -----
    Complex steps: J. N. Lyness, C. B. Moler, "Numerical Differentiation of Analytic Functions", 1967.
    """

    def __init__(
        self,
        function: Callable[[NDArray], NDArray],
        name: str,
        method: Method,
        sparsity: Any,
        dtype: np.dtype[Any],
    ) -> None:
        self._function, self._name, self._method, self._sparsity = function, name, method, sparsity
        self._tolerance = float(np.sqrt(np.finfo(dtype).eps))

    def __call__(self, point: NDArray, count: int) -> NDArray:
        """Return the Jacobian, of `count` rows, at a point."""
        jacobian = np.zeros((count, len(point)))
        if not jacobian.size:
            return jacobian
        along = self._by_complex_step if self._method == "complex-step" else self._by_differences
        # Each component moves by a part of itself, so that none changes its sign.
        sizes = np.where(point == 0, 1.0, np.abs(point))
        if self._sparsity is None:
            for column in range(len(point)):
                jacobian[:, column] = along(point, np.where(np.arange(len(point)) == column, sizes, 0), count)
            return jacobian / sizes
        plan = jacobian_plan(from_matrix(self._pattern(jacobian.shape)), "fwd")
        colours = range(plan.products[0])
        products = [along(point, np.where(plan.column_colours == k, sizes, 0), count) for k in colours]
        jacobian[plan.rows(), plan.indices] = np.ravel(products)[plan.positions]
        return jacobian / sizes

    def _pattern(self, shape: tuple[int, int]) -> Any:
        if self._sparsity.shape != shape:
            raise ShapeError(
                f"callback: sparsity has the shape {self._sparsity.shape}, and the Jacobian of {self._name} has {shape}",
                where=user_site(),
                remedy="give it a row for each number of the results, and a column for each number of the arguments",
            )
        return self._sparsity

    def _by_complex_step(self, point: NDArray, direction: NDArray, count: int) -> NDArray:
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("error", np.exceptions.ComplexWarning)  # out[k] = z
                result = self._function(point + 1j * COMPLEX_STEP * direction)
        except (TypeError, np.exceptions.ComplexWarning) as error:  # float(z), math.sin(z)
            raise self._takes_no_complex() from error
        if not np.iscomplexobj(result):
            raise self._takes_no_complex()
        return np.imag(result) / COMPLEX_STEP

    def _takes_no_complex(self) -> NotDifferentiableError:
        return NotDifferentiableError(
            f"callback: {self._name} does not compute with complex numbers",
            where=user_site(),
            why="a complex step needs an analytic function that keeps the imaginary part",
            remedy='use derivative="differences"',
        )

    def _by_differences(self, point: NDArray, direction: NDArray, count: int) -> NDArray:
        if _OBSERVED.names is not None:
            _OBSERVED.names.add(self._name)
        derivative = _derivative_of_scipy()
        tolerances = {"rtol": self._tolerance}
        results: dict[float, NDArray] = {}

        def along(steps: NDArray) -> NDArray:
            """Return the results at points of the line: for each row of `steps`, its component of the result."""
            for step in np.unique(steps):
                if step not in results:
                    results[step] = self._function(point + step * direction)
            rows = np.arange(count).reshape(count, *[1] * (steps.ndim - 1))
            stacked = np.stack([results[step] for step in np.unique(steps)])
            return np.asarray(stacked[np.searchsorted(np.unique(steps), steps), rows])

        for step in FIRST_STEPS:
            with np.errstate(all="ignore"):  # of differences of what is not finite
                found = derivative(
                    along, np.zeros(count), initial_step=step, preserve_shape=True, tolerances=tolerances
                )
            if np.all(np.isfinite(found.df)):
                break
        slopes = np.asarray(found.df)
        error, size = np.max(found.error), np.max(np.abs(slopes))
        if not error <= max(FEW_DIGITS, 10 * self._tolerance) * size and error > np.finfo(float).eps:
            digits = f"about {max(0, -np.log10(error / size)):.0f} digits" if error < size else "no digit"
            warn(
                GradtapeWarning,
                f"callback: differences of {self._name} give {digits} of its derivative",
                where=user_site(),
                why="the function is noisy, not smooth or not finite near the point",
                remedy='use derivative="complex-step" where the function takes complex numbers, or a rule by gt.custom_vjp',
            )
        return slopes


def _derivative_of_scipy() -> Any:
    try:
        return importlib.import_module("scipy.differentiate").derivative
    except ImportError as error:
        raise NotDifferentiableError(
            "callback: differences need SciPy 1.15 or later",
            where=user_site(),
            remedy='update SciPy, use derivative="complex-step", or give a rule by gt.custom_vjp',
        ) from error
