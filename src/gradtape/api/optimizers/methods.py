"""The optimisers."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

import numpy as np

from gradtape.api.optimizers.optimizer import Optimizer, as_factor, fraction, number
from gradtape.habits import suggests_keywords
from gradtape.trace.array.indexed_slices import IndexedSlices


class GradientDescent(Optimizer):
    """Subtract the gradient times the learning rate.

    Parameters
    ----------
    learning_rate : float, Variable or callable, default 0.01
        The factor; a callable is given the number of the step, from 1.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> w = gt.Variable([1.0, 2.0])
    >>> optimizer = gt.optimizers.GradientDescent(learning_rate=0.25)
    >>> loss = optimizer.minimize(lambda: np.sum(w**2), [w])
    >>> w
    Variable([0.5, 1. ])
    """

    @suggests_keywords
    def __init__(self, learning_rate: Any = 0.01) -> None:
        super().__init__(learning_rate)

    def _change(self, gradient: Any, slots: Sequence[Any], step: Any, rate: Any) -> tuple[Any, Sequence[Any]]:
        return gradient * rate, ()


class Momentum(Optimizer):
    """Subtract a running sum of gradients, in which older ones fade, times the learning rate.

    Parameters
    ----------
    learning_rate : float, Variable or callable, default 0.01
        As for `GradientDescent`.
    momentum : float, default 0.9
        What is left of the sum after each step.
    nesterov : bool, default False
        Whether to look one step ahead (Sutskever et al., ICML 2013).

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> w = gt.Variable(1.0)
    >>> optimizer = gt.optimizers.Momentum(0.25, momentum=0.5)
    >>> [float(optimizer.minimize(lambda: w**2, [w])) for _ in range(3)]
    [1.0, 0.25, 0.0]
    """

    slots: tuple[str, ...] = ("velocity",)
    settings: ClassVar[tuple[str, ...]] = ("momentum", "nesterov")

    @suggests_keywords
    def __init__(self, learning_rate: Any = 0.01, momentum: float = 0.9, nesterov: bool = False) -> None:
        super().__init__(learning_rate)
        self._momentum = fraction(momentum, "momentum", type(self).__name__)
        self._nesterov = bool(nesterov)

    def _change(self, gradient: Any, slots: Sequence[Any], step: Any, rate: Any) -> tuple[Any, Sequence[Any]]:
        velocity = self._momentum * slots[0] + gradient
        return (self._momentum * velocity + gradient if self._nesterov else velocity) * rate, (velocity,)


class SGD(Momentum):
    """Subtract the gradient times the learning rate, by default without momentum; name and options are those of Keras and PyTorch.

    Parameters
    ----------
    learning_rate : float, Variable or callable, default 0.01
        As for `GradientDescent`.
    momentum : float, default 0.0
        The share of the running sum of gradients that each step keeps; with 0 no sum is kept.
    nesterov : bool, default False
        Whether to look one step ahead, as for `Momentum`.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> w = gt.Variable([1.0, 2.0])
    >>> loss = gt.optimizers.SGD(0.25).minimize(lambda: np.sum(w**2), [w])
    >>> w
    Variable([0.5, 1. ])
    """

    @suggests_keywords
    def __init__(self, learning_rate: Any = 0.01, momentum: float = 0.0, nesterov: bool = False) -> None:
        super().__init__(learning_rate, momentum, nesterov)
        self.slots = Momentum.slots if self._momentum else ()

    def _change(self, gradient: Any, slots: Sequence[Any], step: Any, rate: Any) -> tuple[Any, Sequence[Any]]:
        return super()._change(gradient, slots, step, rate) if slots else (gradient * rate, ())


class RMSprop(Optimizer):
    """Subtract the gradient, divided by the root of a running mean of its squares (Tieleman and Hinton, Coursera, 2012, lecture 6.5).

    Parameters
    ----------
    learning_rate : float, Variable or callable, default 0.001
        As for `GradientDescent`.
    rho : float, default 0.9
        The share of the mean of squares that each step keeps.
    epsilon : float, default 1e-8
        A small number that is added to the root.

    Notes
    -----
    The step is ``learning_rate * gradient / (sqrt(square) + epsilon)``, as in PyTorch.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> w = gt.Variable([1.0, -2.0])
    >>> optimizer = gt.optimizers.RMSprop(learning_rate=0.1, rho=0.75)
    >>> loss = optimizer.minimize(lambda: np.sum(w**2), [w])
    >>> bool(np.allclose(w, [0.8, -1.8]))
    True
    """

    slots: tuple[str, ...] = ("square",)
    settings: ClassVar[tuple[str, ...]] = ("rho", "epsilon")

    @suggests_keywords
    def __init__(self, learning_rate: Any = 0.001, rho: float = 0.9, epsilon: float = 1e-8) -> None:
        super().__init__(learning_rate)
        self._rho = fraction(rho, "rho", "RMSprop")
        self._epsilon = number(epsilon, "epsilon", "RMSprop")

    def _slot_dtype(self, name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return np.zeros(0, dtype).real.dtype

    def _change(self, gradient: Any, slots: Sequence[Any], step: Any, rate: Any) -> tuple[Any, Sequence[Any]]:
        square = self._rho * slots[0] + (1 - self._rho) * squared(gradient)
        return rate * gradient / (np.sqrt(square) + self._epsilon), (square,)


class Adam(Optimizer):
    """Subtract a running mean of gradients, divided by the root of a running mean of their squares (Kingma and Ba, ICLR 2015).

    Parameters
    ----------
    learning_rate : float, Variable or callable, default 0.001
        As for `GradientDescent`.
    beta_1, beta_2 : float, default 0.9 and 0.999
        The decay rates of the two means.
    epsilon : float, default 1e-8
        A small number that is added to the root.

    Notes
    -----
    With m and v the means, and both divided by 1 - beta**step (they begin at zero), the step is ``learning_rate * m / (sqrt(v) +
    epsilon)``: Algorithm 1 of the paper, as in PyTorch and Optax. Of complex gradients v is the mean of the squared magnitudes.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> w = gt.Variable([1.0, -2.0])
    >>> optimizer = gt.optimizers.Adam(learning_rate=0.5)
    >>> loss = optimizer.minimize(lambda: np.sum(w**2), [w])
    >>> bool(np.allclose(w, [0.5, -1.5]))
    True
    """

    slots: tuple[str, ...] = ("mean", "square")
    settings: ClassVar[tuple[str, ...]] = ("beta_1", "beta_2", "epsilon")

    @suggests_keywords
    def __init__(
        self, learning_rate: Any = 0.001, beta_1: float = 0.9, beta_2: float = 0.999, epsilon: float = 1e-8
    ) -> None:
        super().__init__(learning_rate)
        self._beta_1 = fraction(beta_1, "beta_1", "Adam")
        self._beta_2 = fraction(beta_2, "beta_2", "Adam")
        self._epsilon = number(epsilon, "epsilon", "Adam")

    def _slot_dtype(self, name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return np.zeros(0, dtype).real.dtype if name == "square" else dtype

    def _change(self, gradient: Any, slots: Sequence[Any], step: Any, rate: Any) -> tuple[Any, Sequence[Any]]:
        mean = self._beta_1 * slots[0] + (1 - self._beta_1) * gradient
        square = self._beta_2 * slots[1] + (1 - self._beta_2) * squared(gradient)
        of_mean, of_square = [
            as_factor(1 - beta**step, square.dtype) for beta in (self._beta_1, self._beta_2)
        ]
        return rate * (mean / of_mean) / (np.sqrt(square / of_square) + self._epsilon), (mean, square)


def squared(gradient: Any) -> Any:
    """Return the squared magnitudes; rows of equal indices are added up first."""
    if isinstance(gradient, IndexedSlices):
        rows = gradient.combined() if gradient.dtype.kind == "c" else gradient
        return (
            rows**2
            if rows.dtype.kind != "c"
            else IndexedSlices(squared(rows.values), rows.indices, rows.dense_shape)
        )
    return np.real(gradient * np.conj(gradient)) if gradient.dtype.kind == "c" else gradient * gradient
