"""``python -m tests.packages``: install the packages of the corpus, run their calls, store the results and write docs/packages.md."""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import platformdirs

from tests.packages import results as stored
from tests.packages.environment import NotInstalled, install, python_in, versions
from tests.packages.page import PAGE, page
from tests.packages.run import STAGES, measure
from tests.packages.table import Package
from tests.packages.trades import PACKAGES, SAMPLE

SAMPLED_CALLS = 2
"""Calls of each package of the sample that a submission runs."""


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.packages", description=__doc__)
    parser.add_argument(
        "--only", action="append", default=[], metavar="PACKAGE", help="run this one; may be repeated"
    )
    parser.add_argument(
        "--sample", action="store_true", help="compare a few calls with the stored results; store nothing"
    )
    parser.add_argument("--jobs", type=int, default=1, help="packages that run at a time")
    parser.add_argument(
        "--write", action="store_true", help="write docs/packages.md from the stored results, and run nothing"
    )
    parser.add_argument(
        "--keep", action="store_true", help="run with what the environments hold, and install nothing"
    )
    parser.add_argument(
        "--environments", type=Path, help="folder of the environments; the user's cache by default"
    )
    arguments = parser.parse_args()
    if arguments.sample:
        sys.exit(sample(arguments.jobs))
    if not arguments.write:
        chosen = [PACKAGES[name] for name in arguments.only or PACKAGES]
        folder = arguments.environments or platformdirs.user_cache_path("gradtape-packages")
        run(chosen, folder, arguments.jobs, not arguments.keep)
    PAGE.write_text(page(stored.load()))


def run(packages: list[Package], folder: Path, jobs: int, installs: bool) -> None:
    """Run the calls of packages and store what becomes of them."""
    for group in sorted({package.group for package in packages}):
        members = [package for package in packages if package.group == group]
        environment = folder / group
        missing = install(environment, members) if installs else {}

        def results(
            package: Package, environment: Path = environment, missing: dict[str, str] = missing
        ) -> Any:
            if package.name in missing:
                failure = {"status": "fails", "error": "pip", "reason": missing[package.name]}
                return [{"plain": failure} for _ in package.calls]
            return measure(package, python_in(environment))

        with ThreadPoolExecutor(jobs) as pool:
            for package, found in zip(members, pool.map(results, members), strict=True):
                stored.store(package, found, versions(environment, ("numpy", "scipy", "numba", "llvmlite")))
                report(package, found)


def report(package: Package, found: list[dict[str, Any]]) -> None:
    """Print what became of a package's calls: a line for each that is not right."""
    right = sum(stored.is_right(result) for result in found)
    print(f"{package.name} {package.version}: {right} of {len(found)} right", flush=True)
    for call, result in zip(package.calls, found, strict=False):
        for stage in STAGES:
            outcome = result.get(stage, {"status": "right"})
            if outcome["status"] not in ("right", "runs"):
                said = " ".join(outcome.get(key, "") for key in ("error", "reason", "warning")).strip()
                print(
                    f"  {stage} {outcome['status']}: {call.program.splitlines()[-1].strip()[:60]}: {said}",
                    flush=True,
                )


def sample(jobs: int) -> int:
    """Run a few calls of light packages with what is installed here; return 1 if one is worse than its stored result."""
    packages, known, worse = [PACKAGES[name] for name in SAMPLE], stored.load(), 0
    with tempfile.TemporaryDirectory() as folder:
        environment = Path(folder) / "sample"
        try:
            install(environment, packages, layered=True)
        except (NotInstalled, subprocess.TimeoutExpired) as error:
            print(f"skipped: the sample of packages cannot be installed: {error}")
            return 0
        with ThreadPoolExecutor(jobs) as pool:
            run = pool.map(lambda package: measure(package, python_in(environment), SAMPLED_CALLS), packages)
            for package, found in zip(packages, run, strict=True):
                report(package, found)
                before = known["packages"][package.name]["calls"]
                for call, result in zip(package.calls, found, strict=False):
                    for stage in ("jit", "tape"):
                        old, new = (
                            each.get(stage, {}).get("status") for each in (before[call.program], result)
                        )
                        if new in ("wrong", "crashes", "hangs") or (old == "right" and new != "right"):
                            worse += 1
                            print(f"  {stage} was {old} and is {new}: {call.program}")
    print(f"{len(packages)} packages of the sample, {worse} calls worse than their stored results")
    return min(worse, 1)


if __name__ == "__main__":
    main()
