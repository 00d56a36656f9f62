"""The stored results: tests/packages/results.json, a line for each call."""

from __future__ import annotations

import json
import platform
from pathlib import Path
from typing import Any

from tests.packages.table import Package

PATH = Path(__file__).with_name("results.json")


def load() -> dict[str, Any]:
    """Return the stored results: ``environment``, and ``packages`` by their names."""
    if not PATH.exists():
        return {"environment": {}, "packages": {}}
    loaded: dict[str, Any] = json.loads(PATH.read_text())
    return loaded


def store(package: Package, found: list[dict[str, Any]], environment: dict[str, str]) -> None:
    """Store the results of a package's calls in place of those that it had."""
    results = load()
    results["environment"] = {"python": platform.python_version(), **environment}
    calls = {call.program: result for call, result in zip(package.calls, found, strict=True)}
    results["packages"][package.name] = {"version": package.version, "calls": calls}
    PATH.write_text(text(results))


def text(results: dict[str, Any]) -> str:
    """Return results as text, in which a call is a line."""
    packages = []
    for name, package in sorted(results["packages"].items(), key=lambda item: item[0].lower()):
        calls = ",\n".join(
            f"   {json.dumps(program)}: {json.dumps(result)}" for program, result in package["calls"].items()
        )
        packages.append(
            f'  {json.dumps(name)}: {{"version": {json.dumps(package["version"])}, "calls": {{\n{calls}}}}}'
        )
    return (
        f'{{"environment": {json.dumps(results["environment"])},\n "packages": {{\n'
        + ",\n".join(packages)
        + "}}\n"
    )


def is_right(result: dict[str, Any]) -> bool:
    """Return whether a call is right in jit and on a tape."""
    return all(result.get(way, {}).get("status") == "right" for way in ("jit", "tape"))
