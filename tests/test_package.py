"""The package: metadata, files for the forge, and a wheel that is built and used in an environment of its own."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path
from typing import Any

import pytest
import yaml

import gradtape as gt

ROOT = Path(__file__).parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]


def test_versions_agree() -> None:
    assert PROJECT["version"] == gt.__version__
    assert yaml.safe_load((ROOT / "CITATION.cff").read_text())["version"] == gt.__version__


def test_workflows_and_templates_are_yaml() -> None:
    files = sorted((ROOT / ".github").rglob("*.yml"))
    assert len(files) >= 6
    for file in files:
        content = yaml.safe_load(file.read_text())
        assert content["name"], file
        for job in content.get("jobs", {}).values():
            assert job["runs-on"] and job["steps"], file


def test_workflows_run_the_versions_that_the_metadata_names() -> None:
    matrix = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]["sample"]["strategy"][
        "matrix"
    ]
    classified = {
        name.rpartition(" ")[2] for name in PROJECT["classifiers"] if re.search(r"Python :: 3\.\d", name)
    }
    assert {version.removesuffix("t") for version in matrix["python"]} == classified


def test_workflows_run_the_oldest_and_the_newest_versions() -> None:
    jobs = yaml.safe_load((ROOT / ".github/workflows/test.yml").read_text())["jobs"]
    commands = {name: "\n".join(step.get("run", "") for step in job["steps"]) for name, job in jobs.items()}
    for name in ("numpy", "scipy"):
        (requirement,) = [text for text in PROJECT["dependencies"] if re.match(rf"{name}\b", text)]
        oldest = re.search(r">=([\d.]+)", requirement)
        assert oldest and f'"{name}=={oldest[1]}.*"' in commands["oldest"], requirement
    newest = jobs["newest"]
    assert "--upgrade ${{ matrix.option }} numpy scipy" in commands["newest"]
    options = {row["releases"]: row["option"] for row in newest["strategy"]["matrix"]["include"]}
    assert options == {"final": "", "pre-releases": "--pre"}
    assert newest["continue-on-error"] == "${{ matrix.releases == 'pre-releases' }}"
    readme = (ROOT / "README.md").read_text()
    (test_command,) = re.findall(r"<!-- test command -->\s*```sh\n(.*?)```", readme, re.DOTALL)
    for name in ("sample", "oldest", "newest"):
        assert test_command.rpartition(" && ")[2].strip() in commands[name], name
    assert ".ci/run" in commands["all"]


def test_packages_with_private_names_in_use_have_upper_bounds() -> None:
    for name in ("numpy", "scipy", "numba", "llvmlite"):
        (requirement,) = [text for text in PROJECT["dependencies"] if re.match(rf"{name}\b", text)]
        assert re.search(r",<\d", requirement), requirement


@pytest.mark.skipif(not importlib.util.find_spec("pip"), reason="python -m ensurepip")
def test_the_wheel_is_complete_and_works(tmp_path: Path) -> None:
    """A wheel with its README for the index, in an environment that has the dependencies of this one."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "wheel",
        "-q",
        "--no-deps",
        "--no-cache-dir",
        "-w",
        str(tmp_path),
        str(ROOT),
    ]
    built = subprocess.run(command, capture_output=True, text=True, timeout=300)
    if built.returncode and "hatchling" in built.stderr and "ersion" in built.stderr:
        pytest.skip("the package index cannot be reached: pip download hatchling")
    assert not built.returncode, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = archive.namelist()
        metadata = archive.read(next(name for name in names if name.endswith("METADATA"))).decode()
        archive.extractall(tmp_path / "site")
    assert {"gradtape/py.typed", "gradtape/error_pages/ArgumentError.md", "gradtape/manual.txt"} <= {*names}
    assert "Project-URL: Repository" in metadata and "Author: The gradtape developers" in metadata
    readme = metadata.partition("\n# gradtape")[2]
    relative = re.findall(r"\]\((?!https://|#)[^)]*\)", readme)
    assert readme and not relative
    program = "import gradtape as gt, numpy as np; print(gt.__file__); print(gt.grad(lambda x: np.sum(x**2))(np.ones(2)))"
    path = f"import sys; sys.path.insert(0, {str(tmp_path / 'site')!r}); "
    ran = subprocess.run(
        [sys.executable, "-c", path + program], capture_output=True, text=True, timeout=120, cwd=tmp_path
    )
    where, value = ran.stdout.splitlines()
    assert where.startswith(str(tmp_path)) and value == "[2. 2.]", ran.stderr
