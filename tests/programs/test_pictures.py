"""Pictures and badges are drawn from what the tables and pyproject.toml say now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "make_pictures.py"


@pytest.fixture(scope="module")
def script() -> Any:
    spec = importlib.util.spec_from_file_location("make_pictures", SCRIPT)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_each_picture_is_drawn_from_the_table_that_there_is(script: Any) -> None:
    for name in script.DRAWN:
        text = (script.PICTURES / f"{name}.svg").read_text()
        assert f"drawn from {script.origin(name)}" in text, f"{name}: run docs/make_pictures.py"


def test_badges_say_what_is_true(script: Any) -> None:
    for name, facts in script.badges().items():
        text = (script.PICTURES / f"badge-{name}.svg").read_text()
        assert text == script.badge(*facts), f"{name}: run docs/make_pictures.py"


def test_numbers_of_tables(script: Any) -> None:
    table = script.rows("text\n\n| a | b |\n|---|---:|\n| x | 1,234 (0.5) |\n| y |  |\n", "a", "b")
    assert script.number(table[0]["b"]) == 1234.0 and script.number("2e-05") == 2e-05
    assert script.number(table[1]["b"]) != script.number(table[1]["b"])
    with pytest.raises(ValueError, match="no table"):
        script.rows("| a |\n|---|\n| 1 |\n", "b")
