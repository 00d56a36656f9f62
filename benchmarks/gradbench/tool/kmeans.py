"""The cost of k-means clusters, and Newton's direction by the diagonal of its Hessian."""

import numpy as np
from gradbench import wrap

import gradtape as gt


def cost_of_clusters(centroids, points):
    squares = np.sum(points**2, axis=1)[:, None] + np.sum(centroids**2, axis=1)
    return np.sum(np.min(squares - 2.0 * points @ centroids.T, axis=1))


def newton_direction(centroids, points):
    # The Hessian is diagonal: its product with ones is its diagonal.
    gradient, diagonal = gt.jvp(
        lambda centroids: gt.grad(cost_of_clusters)(centroids, points),
        (centroids,),
        (np.ones_like(centroids),),
    )
    return gradient / diagonal


value = gt.jit(cost_of_clusters)
direction = gt.jit(newton_direction)


def arguments(message):
    return np.array(message["centroids"]), np.array(message["points"])


@wrap.multiple_runs(pre=arguments, post=float)
def cost(arguments):
    return value(*arguments)


@wrap.multiple_runs(pre=arguments, post=np.ndarray.tolist)
def dir(arguments):
    return direction(*arguments)
