"""The notebooks run from top to bottom, and are kept with the outputs of such a run."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path
from typing import Any

import nbformat
import pytest

import gradtape

ROOT = Path(__file__).resolve().parents[2]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
every = pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)


def run(path: Path) -> Any:
    spec = importlib.util.spec_from_file_location("make_notebooks", ROOT / "docs" / "make_notebooks.py")
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.run(path)


def kinds(cell: Any) -> list[tuple[str, ...]]:
    """Return what the outputs of a cell are: streams by their names, values by their forms."""
    return [
        (output.output_type, output.get("name", ""), *sorted(output.get("data", {})))
        for output in cell.outputs
    ]


@every
def test_it_is_kept_with_its_outputs(path: Path) -> None:
    cells = [cell for cell in nbformat.read(path, as_version=4).cells if cell.cell_type == "code"]
    assert [cell.execution_count for cell in cells] == list(range(1, len(cells) + 1)), (
        "run docs/make_notebooks.py"
    )
    outputs = [output for cell in cells for output in cell.outputs]
    assert any("image/png" in output.get("data", {}) for output in outputs)
    assert path.stat().st_size < 1e6


@every
@pytest.mark.filterwarnings("default")
def test_it_runs(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    places = [str(Path(gradtape.__file__).parents[1]), os.environ.get("PYTHONPATH", "")]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(filter(None, places)))
    kept = nbformat.read(path, as_version=4)
    for cell, before in zip(run(path).cells, kept.cells, strict=True):
        for output in cell.get("outputs", []):
            assert output.get("name") != "stderr", output["text"]
        if cell.cell_type == "code":
            assert kinds(cell) == kinds(before), f"run docs/make_notebooks.py: {cell.source}"
