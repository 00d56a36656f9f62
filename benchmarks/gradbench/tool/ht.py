"""Hand tracking: distances of observed points from a hand that is posed by its bones, and their Jacobian."""

import numpy as np
from gradbench import wrap

import gradtape as gt


def pose_parameters(theta, bones):
    """The global rotation, scale and translation, then three angles of each bone (26 numbers in all)."""
    pose = np.zeros((bones + 3, 3))
    pose[0] = theta[0:3]
    pose[1] = 1.0
    pose[2] = theta[3:6]
    fingers = theta[6:].reshape(5, 4)
    first = 5 + 4 * np.arange(5)  # rows of the first joint of each finger
    pose[first, :2] = fingers[:, :2]
    pose[first + 1, 0] = fingers[:, 2]
    pose[first + 2, 0] = fingers[:, 3]
    return pose


def rotations_by_angles(angles):
    """Rotations about x, then y, then z by the columns (x, z, y) of an array of angles."""
    (cx, cz, cy), (sx, sz, sy) = np.cos(angles).T, np.sin(angles).T
    rows = [
        [cz * cy, cz * sy * sx - sz * cx, sz * sx + cz * sy * cx],
        [sz * cy, cz * cx + sz * sy * sx, sz * sy * cx - cz * sx],
        [-sy, cy * sx, cy * cx],
    ]
    return np.moveaxis(np.array(rows), 2, 0)


def rotation_by_axis(axis):
    """Rotates about an axis whose length is the angle."""
    angle = np.linalg.norm(axis)
    if angle < 1e-4:
        return np.eye(3)
    x, y, z = axis / angle
    sine, cosine = np.sin(angle), np.cos(angle)
    cross = np.array([[0.0, -z, y], [z, 0.0, -x], [-y, x, 0.0]])
    outer = np.outer(axis / angle, axis / angle)
    return cosine * np.eye(3) + sine * cross + (1.0 - cosine) * outer


def vertices(theta, model):
    bones = len(model["parents"])
    pose = pose_parameters(theta, bones)
    joints = np.zeros((bones, 4, 4))
    joints[:, :3, :3] = rotations_by_angles(pose[3:])
    joints[:, 3, 3] = 1.0
    relatives = model["base_relatives"] @ joints
    absolutes = []
    for relative, parent in zip(relatives, model["parents"], strict=True):
        absolutes.append(relative if parent == -1 else absolutes[parent] @ relative)
    transforms = np.array(absolutes) @ model["inverse_base_absolutes"]
    moved = model["base_positions"] @ transforms.transpose(0, 2, 1)
    skinned = np.sum(moved[:, :, :3] * model["weights"].T[:, :, None], axis=0)
    if model["is_mirrored"]:
        skinned = skinned * np.array([-1.0, 1.0, 1.0])
    return skinned @ (rotation_by_axis(pose[0]) * pose[1]).T + pose[2]


def errors(theta, barycentric, model, correspondences, points):
    hand = vertices(theta, model)
    if barycentric is None:
        return (points - hand[correspondences]).ravel()
    u, v = barycentric.T[:, :, None]
    a, b, c = np.moveaxis(hand[model["triangles"][correspondences]], 1, 0)
    return (points - (u * a + v * b + (1.0 - u - v) * c)).ravel()


def dense_jacobian(theta, barycentric, *data):
    by_theta = gt.jacobian(errors, mode="fwd")(theta, barycentric, *data)
    if barycentric is None:
        return by_theta
    # Each error depends on the barycentric coordinates of its own point alone: two directions give all.
    of_barycentric = [
        gt.jvp(
            lambda us: errors(theta, us, *data), (barycentric,), (np.zeros_like(barycentric) + direction,)
        )[1]
        for direction in np.eye(2)
    ]
    return np.concatenate([np.stack(of_barycentric, axis=1), by_theta], axis=1)


def arguments(message):
    data = message["data"]
    fixed = data["model"]
    model = {
        name: np.array(fixed[name])
        for name in ("base_relatives", "inverse_base_absolutes", "base_positions", "weights", "triangles")
    }
    model |= {"parents": tuple(fixed["parents"]), "is_mirrored": fixed["is_mirrored"]}
    us = message.get("us")
    barycentric = np.array(us) if us else None
    return (
        np.array(message["theta"]),
        barycentric,
        model,
        np.array(data["correspondences"]),
        np.array(data["points"]),
    )


value = gt.jit(errors)
derivative = gt.jit(dense_jacobian)


@wrap.multiple_runs(pre=arguments, post=np.ndarray.tolist)
def objective(arguments):
    return value(*arguments)


@wrap.multiple_runs(pre=arguments, post=np.ndarray.tolist)
def jacobian(arguments):
    return derivative(*arguments)
