"""Frameworks that are not installed: `import gradtape` does not need them, and their functions say what to install."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import gradtape as gt


@pytest.mark.parametrize(
    ("name", "package", "module"),
    [
        ("torch", "torch", "torch_function"),
        ("jax", "jax", "jax_primitive"),
        ("pytensor", "pytensor", "pytensor_op"),
        ("casadi", "casadi", "casadi_callback"),
        ("from_torch", "torch", "torch_library"),
        ("from_jax", "jax", "jax_library"),
    ],
)
def test_a_missing_framework_is_named(
    name: str, package: str, module: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, package, None)
    monkeypatch.delitem(sys.modules, f"gradtape.api.guests.{module}", raising=False)
    with pytest.raises(ImportError, match=rf"gradtape\[{package}\]"):
        getattr(gt, name)(np.sin)
