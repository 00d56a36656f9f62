"""Bundle adjustment: the sum of squared, weighted reprojection errors."""

import numpy as np


def ba(cameras, points, weights, features):
    """Each observation has its camera: rotation (3), centre (3), focal length (1), centre of the image (2), distortion (2)."""
    rotation, focal = cameras[:, :3], cameras[:, 6:7]
    angle = np.sqrt(np.sum(rotation**2, axis=1, keepdims=True))
    axis, cosine = rotation / angle, np.cos(angle)
    offset = points - cameras[:, 3:6]
    turned = offset * cosine + np.cross(axis, offset) * np.sin(angle)
    turned = turned + axis * (np.sum(axis * offset, axis=1, keepdims=True) * (1.0 - cosine))
    flat = turned[:, :2] / turned[:, 2:]
    squared = np.sum(flat**2, axis=1, keepdims=True)
    scale = 1.0 + cameras[:, 9:10] * squared + cameras[:, 10:] * squared**2
    missed = weights[:, None] * (focal * (scale * flat) + cameras[:, 7:9] - features)
    return np.sum(missed**2)
