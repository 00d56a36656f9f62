"""Rotations and rigid transforms: SciPy's code for other array packages in place of its compiled code, which has the same functions."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from gradtape.trace.routines.registry import lookup, stands_for

ROTATIONS = (
    "from_quat from_rotvec from_mrp from_euler from_davenport as_quat as_matrix as_rotvec as_mrp as_euler as_davenport "
    "inv magnitude approx_equal mean reduce apply setitem align_vectors pow compose_quat"
)
TRANSFORMS = (
    "from_matrix from_rotation from_translation from_exp_coords from_dual_quat as_exp_coords as_dual_quat compose_transforms "
    "inv apply pow normalize_dual_quaternion setitem mean"
)


def _elsewhere(module: str, name: str) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return getattr(sys.modules[module], name)(*args, **kwargs)

    return call


for _package, _names in (("_rotation", ROTATIONS), ("_rigid_transform", TRANSFORMS)):
    for _name in _names.split():
        _place = f"scipy.spatial.transform.{_package}"
        stands_for(f"{_place}_cy.{_name}")(_elsewhere(f"{_place}_xp", _name))


@stands_for("scipy.spatial.transform._rotation.Slerp.__call__")
def slerp(self: Any, times: Any) -> Any:
    """Interpolate between rotations; which interval a time belongs to has no derivative."""
    rotation = sys.modules["scipy.spatial.transform"].Rotation
    times = np.asarray(times) + 0.0
    if times.ndim > 1:
        raise ValueError("`times` must be at most 1-dimensional.")
    if ((times < self.times[0]) | (times > self.times[-1])).any():
        raise ValueError(
            f"Interpolation times must be within the range [{self.times[0]}, {self.times[-1]}], both inclusive."
        )
    place = np.clip(np.searchsorted(self.times, times) - 1, 0, self.times.shape[0] - 2)
    part = (times - lookup(self.times, place)) / lookup(self.timedelta, place)
    first = rotation.from_quat(lookup(self.rotations.as_quat(), place))
    return first * rotation.from_rotvec(part[..., None] * lookup(self.rotvecs, place))


@stands_for("scipy.spatial.transform._rotation_cy.from_matrix")
def from_matrix(matrix: Any, assume_valid: bool = False) -> Any:
    """Return the quaternions of matrices. SciPy takes the nearest orthogonal matrix, and so does the derivative: two steps of the iteration
    of Newton and Schulz change nothing in an orthogonal matrix but its first two derivatives."""
    if not assume_valid and (np.abs(matrix @ np.swapaxes(matrix, -1, -2) - np.eye(3)) < 1e-9).all():
        for _ in range(2):
            matrix = 1.5 * matrix - 0.5 * matrix @ np.swapaxes(matrix, -1, -2) @ matrix
    return sys.modules["scipy.spatial.transform._rotation_xp"].from_matrix(matrix, assume_valid)
