"""The functions of SciPy that are replaced exist: a renamed private function would be passed over."""

from __future__ import annotations

import pytest
import scipy

from gradtape.api.debug.doctor import _replaced_names
from gradtape.kinds.registry import BORROWED
from gradtape.trace.patching import scipy as patching
from gradtape.trace.patching.scipy import missing_names, replaced_names

VERSION = tuple(map(int, scipy.__version__.split(".")[:2]))
HAS_ALL = (1, 17)
"""The SciPy from which on all names exist; older ones lack functions that were added later."""


@pytest.mark.skipif(
    VERSION < HAS_ALL, reason=f"SciPy {scipy.__version__} lacks functions that were added later"
)
def test_all_replaced_functions_exist() -> None:
    assert missing_names() == []
    assert len(replaced_names()) > 600


@pytest.mark.parametrize(
    "name",
    [
        "scipy.interpolate._renamed.evaluate",
        "scipy.stats._stats_py._renamed",
        "scipy.spatial._renamed:function",
        "numpy.linalg._linalg._renamed",
    ],
)
def test_a_renamed_function_is_reported(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    before = missing_names()
    monkeypatch.setitem(BORROWED, name, lambda: None)
    assert set(missing_names()) - set(before) == {name}
    assert "may stop at a traced array" in _replaced_names()


def test_names_of_packages_that_are_not_installed_are_not_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    before = missing_names()
    monkeypatch.setitem(BORROWED, "no_such_package.module.function", lambda: None)
    assert missing_names() == before


def test_helpers_that_scikit_learn_alone_has_in_other_modules_are_not_missing(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    before, exists = missing_names(), patching._exists
    monkeypatch.setattr(patching, "_exists", lambda name: name.startswith("scipy.") and exists(name))
    of_scipy = [name for name in missing_names() if name.startswith("scipy.")]
    assert set(of_scipy) <= set(before)
    monkeypatch.setattr(patching, "_exists", lambda name: "array_api_" not in name and exists(name))
    assert [name for name in missing_names() if name.endswith(":is_python_scalar")]
