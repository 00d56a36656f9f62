"""The reference pages are those of the docstrings, and their signatures fit the width of a page."""

import importlib.util
import re
from pathlib import Path

SCRIPT = Path(__file__).parents[2] / "docs" / "make_reference.py"


def test_the_reference_is_up_to_date():
    spec = importlib.util.spec_from_file_location("make_reference", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    pages = module.pages()
    assert {path.name for path in module.FOLDER.glob("*.md")} == {path.name for path in pages}, (
        "run docs/make_reference.py"
    )
    for path, text in pages.items():
        assert path.read_text() == text, f"{path.name}: run docs/make_reference.py"


def test_signatures_fit_the_width_of_a_page():
    folder = SCRIPT.parent / "reference" / "api"
    signatures = [
        (page.name, line)
        for page in folder.glob("*.md")
        for block in re.findall(r"^```text\n(.*?)^```", page.read_text(), re.MULTILINE | re.DOTALL)
        for line in block.splitlines()
    ]
    assert len(signatures) > 200
    assert [(name, line) for name, line in signatures if len(line) > 84] == []
