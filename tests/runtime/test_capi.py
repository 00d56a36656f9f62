"""The layouts of objects that native code reads."""

from __future__ import annotations

import numpy as np
import pytest

from gradtape.runtime.call import capi

FIELDS = {
    "data": "ARRAY_DATA",
    "ndim": "ARRAY_NDIM",
    "dimensions": "ARRAY_DIMENSIONS",
    "descr": "ARRAY_DESCR",
    "flags": "ARRAY_FLAGS",
    "byteorder": "DTYPE_ORDER",
    "num": "DTYPE_NUMBER",
}


@pytest.mark.parametrize(
    "array", [np.zeros((3, 5)), np.zeros((3, 5)).T, np.zeros(9)[::2], np.zeros(17, "u1")[1:].view(float)]
)
def test_fields_are_where_native_code_reads_them(array: np.ndarray) -> None:
    assert capi.unexpected_fields(array) == []


@pytest.mark.parametrize("field", FIELDS)
def test_a_field_that_has_moved_is_an_import_error(field: str, monkeypatch: pytest.MonkeyPatch) -> None:
    beside = {"data": 8, "ndim": -8, "dimensions": 8, "descr": -8, "flags": -8, "byteorder": -1, "num": 4}[
        field
    ]
    monkeypatch.setattr(capi, FIELDS[field], getattr(capi, FIELDS[field]) + beside)
    assert field in capi.unexpected_fields(np.ones((3, 5), np.int16))
    with pytest.raises(ImportError, match=field):
        capi._check_layout()


@pytest.mark.parametrize("name", ["TUPLE_ITEMS", "LIST_ITEMS"])
def test_items_that_have_moved_are_an_import_error(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    # The type of the object, which is a valid address, in place of its items.
    monkeypatch.setattr(capi, name, capi.TYPE)
    with pytest.raises(ImportError, match="tuples and lists"):
        capi._check_layout()
