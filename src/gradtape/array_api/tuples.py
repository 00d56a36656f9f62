"""The namespace of version 2025.12 of the array API standard: `gradtape.array_api`, where tuples take the place of lists.

>>> import gradtape as gt
>>> xp = gt.constant([1.0, 2.0]).__array_namespace__(api_version="2025.12")
>>> xp.meshgrid(xp.asarray([1, 2]), xp.asarray([3]))
(Array([[1, 2]], dtype=int64), Array([[3, 3]], dtype=int64))
"""

from __future__ import annotations

from typing import Any

import numpy as np

from gradtape import array_api
from gradtape.trace.array.array import Array

globals().update({name: thing for name, thing in vars(array_api).items() if not name.startswith("_")})

__array_api_version__ = "2025.12"


class __array_namespace_info__(np.__array_namespace_info__):  # type: ignore[misc] # final in its stub
    """The properties of a namespace that the standard defines."""

    def devices(self) -> tuple[str, ...]:  # type: ignore[override] # the difference between the versions
        """Return the devices, of which there is one."""
        return ("cpu",)


def meshgrid(*arrays: Any, indexing: str = "xy") -> tuple[Array, ...]:
    """Return arrays of coordinates, in a tuple."""
    return tuple(array_api.meshgrid(*arrays, indexing=indexing))


def broadcast_arrays(*arrays: Any) -> tuple[Array, ...]:
    """Return the arrays with one shape, in a tuple."""
    return tuple(array_api.broadcast_arrays(*arrays))
