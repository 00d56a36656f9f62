"""Pictures of sparsity patterns and their colourings."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.api.sparsity.plan import Plan
from gradtape.api.sparsity.transform import SparseTransform, sparse_jacobian
from gradtape.ir.op import NDArray

MOST_ROWS: Final = 32
MOST_COLUMNS: Final = 64
LETTERS: Final = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ"
MANY: Final = "#"
NOTHING: Final = "."


class Sparsity:
    """The pattern and the colours of a sparse matrix of derivatives. It prints as a picture of letters.

    Attributes
    ----------
    plan : Plan
        The pattern, and the products by which the matrix is computed.
    """

    def __init__(self, plan: Plan) -> None:
        self.plan = plan

    @property
    def pattern(self) -> Any:
        """The pattern as a `scipy.sparse.csr_array` of booleans."""
        import scipy.sparse

        plan = self.plan
        ones = np.ones(plan.nnz, bool)
        return scipy.sparse.csr_array((ones, plan.indices.copy(), plan.indptr.copy()), shape=plan.shape)

    @property
    def colours(self) -> NDArray:
        """The number of the product from which each element of the pattern is read; products of rows come after those of columns."""
        return np.searchsorted(np.cumsum(self.plan.lengths), self.plan.positions, side="right")

    def __repr__(self) -> str:
        plan = self.plan
        m, n = plan.shape
        height, width = min(m, MOST_ROWS), min(n, MOST_COLUMNS)
        cells = np.full((height, width), NOTHING)
        if plan.nnz:
            y, x = plan.rows() * height // m, plan.indices * width // n
            letters = np.array(list(LETTERS))[self.colours % len(LETTERS)]
            cells[y, x] = letters
            mixed = cells[y, x] != letters
            cells[y[mixed], x[mixed]] = MANY
        lines = [repr(plan), *["".join(row) for row in cells]]
        return "\n".join(lines)

    def plot(self, ax: Any = None, *, markersize: float | None = None) -> Any:
        """Draw the pattern with Matplotlib; elements of one colour are computed by the same product.

        Parameters
        ----------
        ax : matplotlib.axes.Axes, optional
            Where to draw, by default a new figure.
        markersize : float, optional
            Of an element, in points; by default as large as fits.

        Returns
        -------
        matplotlib.axes.Axes
        """
        import matplotlib.pyplot as plt

        plan = self.plan
        m, n = plan.shape
        if ax is None:
            _, ax = plt.subplots()
        if markersize is None:
            window = ax.get_window_extent()
            widest = min(window.width / max(n, 1), window.height / max(m, 1))
            markersize = max(72 / ax.figure.dpi * widest, 1.0)
        ax.scatter(
            plan.indices, plan.rows(), s=markersize**2, c=self.colours, cmap="turbo", marker="s", linewidths=0
        )
        ax.set_xlim(-0.5, n - 0.5)
        ax.set_ylim(m - 0.5, -0.5)
        ax.set_aspect("equal" if 0.2 < m / max(n, 1) < 5 else "auto")
        ax.set(xlabel="column", ylabel="row")
        ax.set_title(f"{m} x {n}, {plan.nnz} elements, {plan.kinds}")
        return ax


def sparsity(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Sparsity:
    """Return the sparsity pattern of a Jacobian or Hessian, with the products that compute it, as a picture.

    Parameters
    ----------
    function : callable
        The result of `sparse_jacobian` or `sparse_hessian`, or a function, for its sparse Jacobian.
    *args, **kwargs
        The arguments of the function.

    Returns
    -------
    Sparsity
        Prints as text, with one letter per product (``#``: several); ``plot()`` draws it with Matplotlib. Large matrices are
        scaled down.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> gt.inspect.sparsity(lambda x: x[1:] * x[:-1] + x[0], np.ones(6))
    <5 x 6, 14 elements (47 %), products: 3 of columns>
    ab....
    abc...
    a.cb..
    a..bc.
    a...cb
    """
    transform = function if isinstance(function, SparseTransform) else sparse_jacobian(function)
    return Sparsity(transform.plan(*args, **kwargs))
