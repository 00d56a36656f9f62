"""The reference pages say what the docstrings say."""

import importlib.util
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
