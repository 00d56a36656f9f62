"""Frameworks that are not installed: `import gradtape` does not need them, and their functions say what to install."""

from __future__ import annotations

import sys

import numpy as np
import pytest

import gradtape as gt


@pytest.mark.parametrize(
    ("name", "module"), [("torch", "torch_function"), ("jax", "jax_primitive"), ("casadi", "casadi_callback")]
)
def test_a_missing_framework_is_named(name: str, module: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, name, None)
    monkeypatch.delitem(sys.modules, f"gradtape.api.guests.{module}", raising=False)
    with pytest.raises(ImportError, match=rf"gradtape\[{name}\]"):
        getattr(gt, name)(np.sin)
