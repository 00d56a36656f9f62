"""Functions of `scipy.ndimage` whose results are booleans, labels or distances of pixels: steps, whose derivatives are zero.

SciPy computes them, called by kernels through Python.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.ir.types import Shape
from gradtape.kinds.arguments import as_array, concrete
from gradtape.kinds.registry import borrows
from gradtape.kinds.routines.callback import Callback, callback_row
from gradtape.ops.core.elementwise.cast import stop_gradient

Options = tuple[tuple[str, Any], ...]

BINARY: Final = (
    "binary_closing",
    "binary_dilation",
    "binary_erosion",
    "binary_fill_holes",
    "binary_hit_or_miss",
    "binary_opening",
    "binary_propagation",
)
OTHERS: Final = (
    "distance_transform_bf",
    "distance_transform_cdt",
    "distance_transform_edt",
    "label",
    "watershed_ift",
)
RANKS: Final = 4
"""Axes of images up to which there are rows."""


def _as_literal(option: Any) -> Any:
    """Return an argument as literals, which object code can hold: an array as its dtype, its shape and its numbers."""
    if isinstance(option, Value | np.ndarray):
        array = concrete(option, "an option")
        return ("array", array.dtype.str, array.shape, tuple(array.ravel().tolist()))
    if isinstance(option, list | tuple):
        return ("list", *[_as_literal(part) for part in option])
    return option.item() if isinstance(option, np.generic) else option


def _restored(option: Any) -> Any:
    if isinstance(option, tuple) and option[:1] == ("array",):
        return np.array(option[3], option[1]).reshape(option[2])
    return [_restored(part) for part in option[1:]] if isinstance(option, tuple) else option


def _evaluate(x: NDArray, *, function: str, options: Options) -> tuple[NDArray, ...]:
    import scipy.ndimage

    results = getattr(scipy.ndimage, function)(x, **{name: _restored(option) for name, option in options})
    return tuple([np.asarray(part) for part in (results if isinstance(results, tuple) else (results,))])


def _results(shape: Shape, function: str, options: Options) -> list[tuple[Shape, np.dtype[Any]]]:
    """Return the shapes and dtypes of the results."""
    settings = dict(options)
    if function in BINARY:
        return [(shape, np.dtype(bool))]
    if function == "label":
        return [(shape, np.dtype(np.int32)), ((), np.dtype(int))]
    if function == "watershed_ift":
        return [(shape, np.dtype(settings["markers"][1]))]
    metric = settings.get("metric", "chessboard" if function.endswith("cdt") else "euclidean")
    kind = np.int32 if function.endswith("cdt") else np.float64 if metric == "euclidean" else np.uint32
    results = [(shape, np.dtype(kind))] if settings.get("return_distances", True) else []
    return results + ([((len(shape), *shape), np.dtype(np.int32))] if settings.get("return_indices") else [])


def _row(rank: int) -> Callback:
    return callback_row(
        f"image_steps_{rank}",
        ranks=(rank,),
        shapes=lambda x, *, function, options: tuple([shape for shape, _ in _results(x, function, options)]),
        dtypes=lambda dtype, *, function, options: tuple(
            [kind for _, kind in _results((1,) * rank, function, options)]
        ),
        evaluate=_evaluate,
        tangent=None,
        samples=(),
    )


_ROWS: Final = {rank: _row(rank) for rank in range(1, RANKS + 1)}


def _follow(name: str) -> Callable[..., Any]:
    def follow(input: Any, *args: Any, **kwargs: Any) -> Any:
        import scipy.ndimage

        arguments = inspect.signature(getattr(scipy.ndimage, name)).bind(None, *args, **kwargs).arguments
        stated = [key for key, argument in arguments.items() if argument is not None]
        for key in ("output", "distances", "indices"):
            if key in stated:
                raise TypeError(f"scipy.ndimage.{name} of a traced array does not write into {key}")
        x = stop_gradient(as_array(input, "input"))
        if x.ndim not in _ROWS:
            raise ValueError(f"scipy.ndimage.{name} of a traced array has 1 to {RANKS} axes")
        options = tuple([(key, _as_literal(arguments[key])) for key in stated])
        results = _ROWS[x.ndim].results(x, function=name, options=options)
        return results[0] if len(results) == 1 else results

    return follow


for _name in BINARY:
    borrows(f"scipy.ndimage._morphology.{_name}")(_follow(_name))
for _name in OTHERS:
    _module = "_morphology" if _name.startswith("distance") else "_measurements"
    borrows(f"scipy.ndimage.{_module}.{_name}")(_follow(_name))
