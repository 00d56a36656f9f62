"""The environments that the packages are installed in."""

from __future__ import annotations

import os
import subprocess
import sys
import sysconfig
import tomllib
from collections.abc import Iterable
from pathlib import Path

from tests.packages.table import Package

ROOT = Path(__file__).parents[2]


class NotInstalled(Exception):
    """What pip says where it installs nothing."""


def dependencies() -> list[str]:
    """Return what gradtape itself needs; it is imported from the source tree."""
    listed: list[str] = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    return listed


def python_in(folder: Path) -> Path:
    """Return the interpreter of an environment."""
    return folder / ("Scripts/python.exe" if os.name == "nt" else "bin/python")


def make(folder: Path, layered: bool) -> None:
    """Make an environment, unless it is there; a layered one sees what is installed for this interpreter."""
    if not python_in(folder).exists():
        subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    if layered:
        (target,) = (
            folder.glob("lib/python*/site-packages") if os.name != "nt" else [folder / "Lib/site-packages"]
        )
        (target / "layer.pth").write_text(sysconfig.get_path("purelib") + "\n")


def pip(folder: Path, requirements: Iterable[str]) -> None:
    """Install requirements in an environment."""
    command = [str(python_in(folder)), "-m", "pip", "install", "--quiet", "--prefer-binary", *requirements]
    done = subprocess.run(command, capture_output=True, text=True, timeout=1200)
    if done.returncode:
        errors = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
        raise NotInstalled((errors or done.stderr.splitlines() or ["pip failed"])[-1])


def install(folder: Path, packages: list[Package], layered: bool = False) -> dict[str, str]:
    """Install packages in an environment; return the names of those that pip refuses, with the reasons."""
    make(folder, layered)
    pip(folder, dependencies())
    try:
        pip(folder, [each for package in packages for each in package.requirements])
    except (NotInstalled, subprocess.TimeoutExpired):
        if layered:
            raise
    else:
        return {}
    refused = {}
    for package in packages:
        try:
            pip(folder, [*dependencies(), *package.requirements])
        except (NotInstalled, subprocess.TimeoutExpired) as error:
            refused[package.name] = str(error).splitlines()[0][:240]
    return refused


def versions(folder: Path, names: Iterable[str]) -> dict[str, str]:
    """Return the versions of distributions in an environment."""
    program = "import importlib.metadata as m, sys; print(*[m.version(n) for n in sys.argv[1:]])"
    names = list(names)
    done = subprocess.run(
        [str(python_in(folder)), "-c", program, *names], capture_output=True, text=True, check=True
    )
    return dict(zip(names, done.stdout.split(), strict=True))
