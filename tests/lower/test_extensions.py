"""BLAS is reached without importing SciPy's packages, which find the same module later."""

from __future__ import annotations

import importlib
import sys

import pytest

from gradtape.lower.target import extensions
from tests.support.processes import words_printed

PRODUCT = """
import sys, numpy as np, gradtape as gt
x = np.ones((50, 60))
product = gt.jit(lambda x: x @ x.T + 1.0)
assert (product(x) == 61.0).all()
assert "gemm" in gt.inspect.llvm(product, x)
"""


def test_a_product_does_not_import_the_package():
    text = PRODUCT + "print('scipy.linalg' in sys.modules, 'scipy.linalg.cython_blas' in sys.modules)"
    assert words_printed(text) == ["False", "False"]


def test_the_package_finds_the_same_module_later():
    text = (
        PRODUCT
        + """
from gradtape.lower.target.extensions import compiled_module
mine = compiled_module("scipy.linalg.cython_blas")
import scipy.linalg.cython_blas
from scipy.linalg import cython_blas, solve
from scipy.linalg.blas import dgemm
assert scipy.linalg.cython_blas is cython_blas is sys.modules["scipy.linalg.cython_blas"]
assert repr(cython_blas.__pyx_capi__["dgemm"]) == repr(mine.__pyx_capi__["dgemm"])
assert solve([[2.0]], [1.0])[0] == 0.5
assert (dgemm(1.0, x, x.T) == 60.0).all()
assert (product(x) == 61.0).all()
print("fine")
"""
    )
    assert words_printed(text) == ["fine"]


def test_a_package_that_is_there_already_is_used():
    text = (
        "import scipy.linalg, scipy.linalg.cython_blas as theirs\n"
        + PRODUCT
        + "from gradtape.lower.target.extensions import compiled_module\n"
        + "print(compiled_module('scipy.linalg.cython_blas') is theirs)"
    )
    assert words_printed(text) == ["True"]


@pytest.mark.parametrize("trouble", ["no file", "not loadable"])
def test_without_the_file_the_package_is_imported(trouble, monkeypatch):
    name = "scipy.linalg.cython_blas"
    if trouble == "no file":
        monkeypatch.setattr(extensions, "EXTENSION_SUFFIXES", [".none"])
    else:

        def refuse(spec):
            raise ImportError("no")

        monkeypatch.setattr(extensions, "module_from_spec", refuse)
    for package in [key for key in sys.modules if key == "scipy.linalg" or key.startswith("scipy.linalg.")]:
        monkeypatch.delitem(sys.modules, package)
    monkeypatch.setattr(extensions, "importlib", Recorder())
    assert extensions.compiled_module.__wrapped__(name) == f"imported {name}"


class Recorder:
    """Stands for the module `importlib`."""

    def import_module(self, name):
        return importlib.import_module(name) if name == "scipy" else f"imported {name}"
