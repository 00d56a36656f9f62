"""Pictures and badges are drawn from what the tables and pyproject.toml say now."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).resolve().parents[2] / "docs"


def script_of(name: str) -> Any:
    spec = importlib.util.spec_from_file_location(name, DOCS / f"{name}.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def script() -> Any:
    return script_of("make_pictures")


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


def test_each_picture_of_the_cookbook_is_drawn_from_the_programs_that_there_are() -> None:
    cookbook = script_of("make_cookbook")
    drawn = {path.stem: path.read_text() for path in cookbook.PICTURES.glob("*.svg")}
    assert drawn.keys() == cookbook.pictures().keys()
    for name, origin in cookbook.pictures().items():
        assert f"drawn from {origin}" in drawn[name], f"{name}: python docs/make_cookbook.py {name}"


def test_dark_pictures_have_no_black_ink_and_no_ground() -> None:
    pages = script_of("pages")
    for path in sorted((DOCS / "pictures").rglob("*.svg")):
        light, dark = path.read_text(), pages.darkened(path.read_text())
        assert "#000000" not in dark and "#ffffff" not in dark and dark.count('<svg fill="#e0e0e0" ') == 1
        assert "badge" in path.name or ("#ffffff" in light and "<svg " in light)
