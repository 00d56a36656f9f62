"""Runs the notebooks and keeps them with their outputs: ``python docs/make_notebooks.py [name ...]``.

Without names, all of them. Run it on a machine with nothing else to do: some outputs are measured times.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import nbformat
from nbclient import NotebookClient

NOTEBOOKS = Path(__file__).resolve().parents[1] / "notebooks"


def run(path: Path) -> Any:
    """Return the notebook with the outputs of a fresh kernel: one thread, no bars of progress, the kernels of the disk cache not used."""
    notebook = nbformat.read(path, as_version=4)
    settings = {
        "GRADTAPE_PROGRESS": "0",
        "GRADTAPE_DISK_CACHE": "0",
        "OMP_NUM_THREADS": "1",
        "OPENBLAS_NUM_THREADS": "1",
    }
    resources = {"metadata": {"path": str(path.parent)}}
    client = NotebookClient(
        notebook, timeout=600, kernel_name="python3", resources=resources, coalesce_streams=True
    )
    client.execute(env=os.environ | settings)
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)  # when it ran
    notebook.metadata.language_info = {"name": "python"}
    return notebook


def main() -> None:
    for path in sorted(NOTEBOOKS.glob("*.ipynb")):
        if not sys.argv[1:] or path.stem in sys.argv[1:]:
            nbformat.write(run(path), path)
            print(path.stem, f"{path.stat().st_size / 1e3:.0f} kB", flush=True)


if __name__ == "__main__":
    main()
