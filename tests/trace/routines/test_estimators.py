"""scikit-learn: what is written in Python is traced, and what is compiled is an error that names the remedy."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from sklearn import cluster, decomposition, linear_model, metrics, mixture, preprocessing, tree
from sklearn.metrics import pairwise

import gradtape as gt
from tests.support.differences import gradient_by_differences
from tests.support.processes import words_printed

rng = np.random.default_rng(0)
SAMPLES = rng.normal(size=(12, 2)) + 3
ORDER = (SAMPLES[:, 0] > 3).astype(int)
X = rng.normal(size=(3, 2)) + 3
TARGETS = np.array([[1.0, 3.0], [2.0, 0.5], [0.2, 4.0]])


LOGISTIC = linear_model.LogisticRegression().fit(SAMPLES, ORDER)
MEANS = cluster.KMeans(2, random_state=0, n_init=1).fit(SAMPLES)
MIXTURE = mixture.GaussianMixture(2, random_state=0).fit(SAMPLES)
PCA = decomposition.PCA(1).fit(SAMPLES)


def weighted(found: Any) -> Any:
    return (found * np.arange(1.0, 1.0 + np.size(found)).reshape(np.shape(found))).sum()


FUNCTIONS: dict[str, Callable[[Any], Any]] = {
    "mean_squared_error": lambda x: metrics.mean_squared_error(TARGETS, x),
    "r2_score": lambda x: metrics.r2_score(TARGETS, x),
    "mean_gamma_deviance": lambda x: metrics.mean_gamma_deviance(TARGETS[:, 0], x[:, 0]),
    "log_loss": lambda x: metrics.log_loss([0, 1, 1], x / x.sum(axis=1, keepdims=True), labels=[0, 1]),
    "rbf_kernel": lambda x: weighted(pairwise.rbf_kernel(x, SAMPLES, gamma=0.3)),
    "chi2_kernel": lambda x: weighted(pairwise.chi2_kernel(x, SAMPLES, gamma=0.3)),
    "haversine_distances": lambda x: weighted(pairwise.haversine_distances(x / 4, SAMPLES / 5)),
    "LogisticRegression": lambda x: weighted(LOGISTIC.predict_proba(x)),
    "KMeans.transform": lambda x: weighted(MEANS.transform(x)),
    "KMeans.predict": lambda x: weighted(MEANS.predict(x)) + x.sum(),
    "GaussianMixture": lambda x: weighted(MIXTURE.score_samples(x)),
    "PCA": lambda x: weighted(PCA.transform(x)),
    "PolynomialFeatures": lambda x: weighted(preprocessing.PolynomialFeatures(2).fit(SAMPLES).transform(x)),
    "Ridge.fit": lambda x: weighted(linear_model.Ridge().fit(x, TARGETS[:, 0]).coef_),
    "StandardScaler.fit": lambda x: weighted(preprocessing.StandardScaler().fit_transform(x) ** 3),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_what_is_written_in_python_is_followed(name: str) -> None:
    function = FUNCTIONS[name]
    expected = gradient_by_differences(function, X)
    value, slope = gt.value_and_grad(function)(X)
    np.testing.assert_allclose(value, function(X), rtol=1e-12)
    np.testing.assert_allclose(slope, expected, rtol=1e-5, atol=1e-7)
    with gt.GradientTape() as tape:
        x = tape.watch(X)
        y = function(x)
    np.testing.assert_allclose(tape.gradient(y, x), expected, rtol=1e-5, atol=1e-7)


def test_the_distance_between_equal_points_of_a_sphere_has_a_derivative() -> None:
    slope = gt.grad(lambda x: pairwise.haversine_distances(x, SAMPLES[:1]).sum())(SAMPLES[:1])
    np.testing.assert_array_equal(slope, np.zeros((1, 2)))


COMPILED: dict[str, Callable[[Any], Any]] = {
    "tree": tree.DecisionTreeRegressor().fit(SAMPLES, ORDER).predict,
    "KMeans.fit": lambda x: cluster.KMeans(1, n_init=1).fit(x).cluster_centers_,
    "Lasso.fit": lambda x: linear_model.Lasso().fit(x, TARGETS[:, 0]).coef_,
}


@pytest.mark.parametrize("name", COMPILED)
def test_compiled_estimators_end_what_can_be_traced(name: str) -> None:
    function = COMPILED[name]

    def recorded() -> Any:
        with gt.GradientTape() as tape:
            return function(tape.watch(X))

    for run in (recorded, lambda: gt.jit(function)(X), lambda: gt.jit(lambda x: function(x) + 1.0)(X)):
        with pytest.raises(TypeError) as raised:
            run()
        (note,) = raised.value.__notes__
        assert "is compiled" in note and "gt.callback" in note and "sklearn" + os.sep in note
    assert np.shape(function(X)) == np.shape(gt.jit(lambda x: gt.callback(function, None, x))(X))


WITH_SWITCH = """
import os
os.environ["SCIPY_ARRAY_API"] = "1"
import numpy as np, gradtape as gt, sklearn
from sklearn.decomposition import PCA
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import log_loss, mean_squared_error
from sklearn.metrics.pairwise import rbf_kernel
sklearn.set_config(array_api_dispatch=True)
X = np.random.default_rng(0).normal(size=(8, 2))
y = np.arange(8) % 2
pca, logistic = PCA(1).fit(X), LogisticRegression().fit(X, y)
programs = {
    "mean_squared_error": lambda x: mean_squared_error(np.ones((2, 2)), x),
    "log_loss": lambda x: log_loss([0, 1], abs(x) / abs(x).sum(axis=1, keepdims=True), labels=[0, 1]),
    "rbf_kernel": lambda x: (rbf_kernel(x, X) ** 2).sum(),
    "PCA": lambda x: (pca.transform(x) ** 3).sum(),
    "LogisticRegression": lambda x: (logistic.predict_proba(x) ** 2).sum(),
}
x = np.array([[0.3, -0.7], [1.2, 0.4]])
for name, program in programs.items():
    differences = [[(program(x + d) - program(x - d)) / 2e-6 for d in 1e-6 * np.eye(4)[2 * k : 2 * k + 2].reshape(2, 2, 2)] for k in (0, 1)]
    value, slope = gt.value_and_grad(program)(x)
    np.testing.assert_allclose(value, program(x), rtol=1e-12)
    np.testing.assert_allclose(slope, differences, rtol=1e-5, atol=1e-8)
    with gt.GradientTape() as tape:
        watched = tape.watch(x)
        y = program(watched)
    np.testing.assert_allclose(tape.gradient(y, watched), slope)
    print(name)
"""


def test_arrays_dispatch_to_the_array_api_beside_those_of_numpy() -> None:
    assert words_printed(WITH_SWITCH) == [
        "mean_squared_error",
        "log_loss",
        "rbf_kernel",
        "PCA",
        "LogisticRegression",
    ]
