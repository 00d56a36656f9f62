"""NumPy code in each framework, in one form: values, derivatives of both modes, second ones, batches."""

from __future__ import annotations

import importlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

import gradtape as gt

Arrays = Sequence[np.ndarray[Any, Any]]


class Framework(ABC):
    """A framework with numbers of 64 bits.

    The functions take the arrays of `point` one after another. `value` returns what they return, with arrays in the places of the
    framework's; the others are of functions that return one number.

    Attributes
    ----------
    has_singles : bool
        Whether it has numbers of 32 bits as well.
    """

    has_singles = True

    def __init__(self, name: str) -> None:
        self.xp = importlib.import_module(name)

    @abstractmethod
    def value(self, function: Callable[..., Any], point: Arrays) -> Any:
        """Return what a function returns."""

    @abstractmethod
    def gradient(self, function: Callable[..., Any], point: Arrays) -> list[Any]:
        """Return the gradients in all arguments."""

    @abstractmethod
    def pushed(self, function: Callable[..., Any], point: Arrays, tangents: Arrays) -> Any:
        """Return the derivative along tangents."""

    @abstractmethod
    def second(self, function: Callable[..., Any], point: Arrays) -> Any:
        """Return the Hessian in the first argument."""

    @abstractmethod
    def batch(self, function: Callable[..., Any], many: Arrays) -> Any:
        """Return the results for arguments with one more axis."""

    @abstractmethod
    def gradients_of_batch(self, function: Callable[..., Any], many: Arrays) -> Any:
        """Return the gradients in the first argument."""


class Torch(Framework):
    def value(self, function: Callable[..., Any], point: Arrays) -> Any:
        return self._arrays(gt.torch(function)(*self._tensors(point)))

    def gradient(self, function: Callable[..., Any], point: Arrays) -> list[Any]:
        tensors = [tensor.requires_grad_() for tensor in self._tensors(point)]
        gt.torch(function)(*tensors).backward()
        return [tensor.grad.numpy() for tensor in tensors]

    def pushed(self, function: Callable[..., Any], point: Arrays, tangents: Arrays) -> Any:
        return self.xp.func.jvp(
            gt.torch(function), tuple(self._tensors(point)), tuple(self._tensors(tangents))
        )[1].numpy()

    def second(self, function: Callable[..., Any], point: Arrays) -> Any:
        found = self.xp.func.hessian(gt.torch(function))(*self._tensors(point)).numpy()
        first, *others = self._tensors(point)
        by_graph = self.xp.autograd.functional.hessian(lambda x: gt.torch(function)(x, *others), first)
        np.testing.assert_allclose(by_graph.numpy(), found, rtol=1e-9, atol=1e-9)
        return found

    def batch(self, function: Callable[..., Any], many: Arrays) -> Any:
        return self.xp.func.vmap(gt.torch(function))(*self._tensors(many)).numpy()

    def gradients_of_batch(self, function: Callable[..., Any], many: Arrays) -> Any:
        return self.xp.func.vmap(self.xp.func.grad(gt.torch(function)))(*self._tensors(many)).numpy()

    def _tensors(self, arrays: Arrays) -> list[Any]:
        return [self.xp.from_numpy(np.array(array)) for array in arrays]

    def _arrays(self, results: Any) -> Any:
        return gt.tree.map(lambda r: r.numpy() if isinstance(r, self.xp.Tensor) else r, results)


class Jax(Framework):
    def value(self, function: Callable[..., Any], point: Arrays) -> Any:
        with self.xp.enable_x64(True):
            return self.xp.tree.map(np.asarray, self.xp.jit(gt.jax(function))(*point))

    def gradient(self, function: Callable[..., Any], point: Arrays) -> list[Any]:
        with self.xp.enable_x64(True):
            places = tuple(range(len(point)))
            return list(map(np.asarray, self.xp.jit(self.xp.grad(gt.jax(function), places))(*point)))

    def pushed(self, function: Callable[..., Any], point: Arrays, tangents: Arrays) -> Any:
        with self.xp.enable_x64(True):
            return np.asarray(self.xp.jvp(gt.jax(function), tuple(point), tuple(tangents))[1])

    def second(self, function: Callable[..., Any], point: Arrays) -> Any:
        with self.xp.enable_x64(True):
            return np.asarray(self.xp.jit(self.xp.hessian(gt.jax(function)))(*point))

    def batch(self, function: Callable[..., Any], many: Arrays) -> Any:
        with self.xp.enable_x64(True):
            return np.asarray(self.xp.jit(self.xp.vmap(gt.jax(function)))(*many))

    def gradients_of_batch(self, function: Callable[..., Any], many: Arrays) -> Any:
        with self.xp.enable_x64(True):
            return np.asarray(self.xp.vmap(self.xp.grad(gt.jax(function)))(*many))


class PyTensor(Framework):
    def value(self, function: Callable[..., Any], point: Arrays) -> Any:
        variables = self._variables(point)
        results = gt.pytensor(function)(*variables)
        leaves, spec = gt.tree.flatten(results)
        return gt.tree.unflatten(spec, self._computed(variables, leaves, point))

    def gradient(self, function: Callable[..., Any], point: Arrays) -> list[Any]:
        variables = self._variables(point)
        return self._computed(variables, self.xp.grad(gt.pytensor(function)(*variables), variables), point)

    def pushed(self, function: Callable[..., Any], point: Arrays, tangents: Arrays) -> Any:
        variables = self._variables(point)
        result = gt.pytensor(function)(*variables)
        pushed = self.xp.gradient.Rop(
            [result], variables, list(map(np.array, tangents)), use_op_rop_implementation=True
        )
        return self._computed(variables, pushed, point)[0]

    def second(self, function: Callable[..., Any], point: Arrays) -> Any:
        flat = [np.ravel(point[0]), *point[1:]]
        shape = np.shape(point[0])
        variables = self._variables(flat)
        result = gt.pytensor(lambda x, *others: function(x.reshape(shape), *others))(*variables)
        found = self._computed(variables, [self.xp.gradient.hessian(result, variables[0])], flat)[0]
        return found.reshape(shape * 2)

    def batch(self, function: Callable[..., Any], many: Arrays) -> Any:
        return self._of_batch(lambda *variables: gt.pytensor(function)(*variables), many)

    def gradients_of_batch(self, function: Callable[..., Any], many: Arrays) -> Any:
        return self._of_batch(
            lambda *variables: self.xp.grad(gt.pytensor(function)(*variables), variables[0]), many
        )

    def _of_batch(self, of_variables: Callable[..., Any], many: Arrays) -> Any:
        variables, given = self._variables([array[0] for array in many]), self._variables(many)
        replace = importlib.import_module("pytensor.graph.replace")
        graph = replace.vectorize_graph(of_variables(*variables), dict(zip(variables, given, strict=True)))
        return self._computed(given, [graph], many)[0]

    def _variables(self, arrays: Arrays) -> list[Any]:
        tensor = importlib.import_module("pytensor.tensor").tensor
        return [
            tensor(f"x{k}", dtype=np.asarray(array).dtype, shape=np.shape(array))
            for k, array in enumerate(arrays)
        ]

    def _computed(self, inputs: Any, outputs: Any, arrays: Arrays) -> list[Any]:
        mode = self.xp.compile.mode.Mode(linker="py", optimizer="fast_run")
        made = self.xp.function(inputs, outputs, mode=mode, on_unused_input="ignore")
        return list(map(np.asarray, made(*arrays)))


class CasADi(Framework):
    has_singles = False

    def value(self, function: Callable[..., Any], point: Arrays) -> Any:
        symbols = self._symbols(point)
        leaves, spec = gt.tree.flatten(gt.casadi(function)(*symbols))
        return gt.tree.unflatten(spec, self._computed(symbols, leaves, point))

    def gradient(self, function: Callable[..., Any], point: Arrays) -> list[Any]:
        symbols = self._symbols(point)
        result = gt.casadi(function)(*symbols)
        return self._computed(symbols, [self.xp.gradient(result, x) for x in symbols], point)

    def pushed(self, function: Callable[..., Any], point: Arrays, tangents: Arrays) -> Any:
        symbols = self._symbols(point)
        result = gt.casadi(function)(*symbols)
        parts = [
            self.xp.jtimes(result, x, self.xp.DM(np.atleast_1d(t)))
            for x, t in zip(symbols, tangents, strict=True)
        ]
        return self._computed(symbols, [sum(parts[1:], parts[0])], point)[0]

    def second(self, function: Callable[..., Any], point: Arrays) -> Any:
        symbols = self._symbols(point)
        matrix = self.xp.hessian(gt.casadi(function)(*symbols), symbols[0])[0]
        shape = np.shape(point[0])
        (found,) = self._computed(symbols, [matrix], point)
        by_rows = np.reshape(found, (*shape[::-1], *shape[::-1]))
        axes = range(len(shape))
        return np.transpose(by_rows, [*axes[::-1], *[len(shape) + axis for axis in axes[::-1]]])

    def batch(self, function: Callable[..., Any], many: Arrays) -> Any:
        return self._of_batch(lambda *symbols: gt.casadi(function)(*symbols), many)

    def gradients_of_batch(self, function: Callable[..., Any], many: Arrays) -> Any:
        return self._of_batch(
            lambda *symbols: self.xp.gradient(gt.casadi(function)(*symbols), symbols[0]), many
        )

    def _of_batch(self, of_symbols: Callable[..., Any], many: Arrays) -> Any:
        """Map over columns, which is how CasADi has batches, in two threads."""
        symbols = self._symbols([array[0] for array in many])
        mapped = self.xp.Function("f", symbols, [of_symbols(*symbols)]).map(len(many[0]), "thread", 2)
        found = mapped(*[self.xp.horzcat(*map(self._matrix, array)) for array in many])
        parts = self.xp.horzsplit(found, found.shape[1] // len(many[0]))
        return np.stack([self._array(part) for part in parts])

    def _symbols(self, arrays: Arrays) -> list[Any]:
        return [self.xp.MX.sym(f"x{k}", *self._matrix(array).shape) for k, array in enumerate(arrays)]

    def _matrix(self, array: Any) -> Any:
        array = np.asarray(array, float)
        return self.xp.DM(array) if array.size else self.xp.DM.zeros(*(*array.shape, 1)[:2])

    def _computed(self, symbols: Any, outputs: Any, arrays: Arrays) -> list[Any]:
        found = self.xp.Function("f", symbols, outputs).call(list(map(self._matrix, arrays)))
        return list(map(self._array, found))

    def _array(self, matrix: Any) -> Any:
        array = matrix.full()
        return array if array.shape[1] != 1 else array[:, 0] if array.shape[0] != 1 else array[0, 0]


FRAMEWORKS: dict[str, type[Framework]] = {
    "torch": Torch,
    "jax": Jax,
    "pytensor": PyTensor,
    "casadi": CasADi,
}
