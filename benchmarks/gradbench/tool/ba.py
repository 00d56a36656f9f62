"""Bundle adjustment: reprojection errors, and their sparse Jacobian in compressed rows."""

import numpy as np
from gradbench import wrap

import gradtape as gt

CAMERA = 11  # rotation (3), centre (3), focal length, principal point (2), radial distortion (2)


def rotated(rotation, point):
    """Rotates by an axis whose length is the angle (Rodrigues' formula)."""
    square = np.sum(rotation**2)
    if square == 0.0:
        return point + np.cross(rotation, point)
    angle = np.sqrt(square)
    axis = rotation / angle
    cosine = np.cos(angle)
    return point * cosine + np.cross(axis, point) * np.sin(angle) + axis * (axis @ point) * (1.0 - cosine)


def reprojection_error(camera, point, weight, feature):
    seen = rotated(camera[0:3], point - camera[3:6])
    projected = seen[:2] / seen[2]
    square = np.sum(projected**2)
    distorted = projected * (1.0 + camera[9] * square + camera[10] * square**2)
    return weight * (distorted * camera[6] + camera[7:9] - feature)


def weight_error(weight):
    return 1.0 - weight**2


errors = gt.jit(gt.vmap(reprojection_error))
weight_errors = gt.jit(weight_error)
blocks = gt.jit(gt.vmap(gt.jacobian(reprojection_error, argnums=(0, 1, 2), mode="fwd")))
weight_slopes = gt.jit(gt.vmap(gt.grad(weight_error)))


def arguments(message):
    n, m, p = (message[name] for name in "nmp")
    observations = np.arange(p)
    cameras, points = np.tile(message["cam"], (n, 1)), np.tile(message["x"], (m, 1))
    weights, features = np.full(p, message["w"]), np.tile(message["feat"], (p, 1))
    return cameras, points, weights, features, observations % n, observations % m


def per_observation(cameras, points, weights, features, camera, point):
    return cameras[camera], points[point], weights, features


def first_errors(result):
    reprojection, weight = result
    return {
        "reproj_error": {"elements": reprojection[0].tolist(), "repeated": len(reprojection)},
        "w_err": {"element": float(weight[0]), "repeated": len(weight)},
    }


def first_and_last(matrix):
    return {name: [*part[:30].tolist(), part[-1].item()] for name, part in matrix.items()}


@wrap.multiple_runs(pre=arguments, post=first_errors)
def objective(arguments):
    return errors(*per_observation(*arguments)), weight_errors(arguments[2])


@wrap.multiple_runs(pre=arguments, post=first_and_last)
def jacobian(arguments):
    cameras, points, weights, _, camera, point = arguments
    n, m, p = len(cameras), len(points), len(weights)
    by_camera, by_point, by_weight = blocks(*per_observation(*arguments))
    values = np.concatenate([by_camera, by_point, by_weight[:, :, None]], axis=2)

    columns = np.empty((p, 2, CAMERA + 4), np.int32)  # both rows of an observation have the same columns
    columns[:, :, :CAMERA] = (CAMERA * camera[:, None] + np.arange(CAMERA))[:, None]
    columns[:, :, CAMERA:-1] = (CAMERA * n + 3 * point[:, None] + np.arange(3))[:, None]
    of_weights = CAMERA * n + 3 * m + np.arange(p)
    columns[:, :, -1] = of_weights[:, None]

    in_blocks = (CAMERA + 4) * np.arange(2 * p + 1)
    return {
        "rows": np.concatenate([in_blocks, in_blocks[-1] + 1 + np.arange(p)]),
        "cols": np.concatenate([columns.ravel(), of_weights]),
        "vals": np.concatenate([values.ravel(), weight_slopes(weights)]),
    }
