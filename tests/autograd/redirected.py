"""Run tests that import autograd with `gradtape.autograd` in its place, and list what fails by its cause.

    python tests/autograd/redirected.py ../autograd/tests
    python tests/autograd/redirected.py --itself ../autograd/tests

`PATH` is a folder or file of tests of autograd or of a package that is built on it, for one of a copy of https://github.com/HIPS/autograd.
Further arguments are pytest's. With ``--itself`` autograd runs.
"""

from __future__ import annotations

import os
import sys
from collections import defaultdict
from typing import Any

import pytest

from gradtape.autograd.redirect import redirect_imports


class Causes:
    """Plugin of pytest that collects what fails, by the error."""

    def __init__(self) -> None:
        self.failed: dict[str, list[str]] = defaultdict(list)
        self.counts: dict[str, int] = defaultdict(int)

    def pytest_runtest_logreport(self, report: Any) -> None:
        if report.when == "call" or report.outcome == "failed" or report.skipped:
            self.counts[report.outcome] += 1
        if report.failed:
            self._add(report)

    def pytest_collectreport(self, report: Any) -> None:
        if report.failed:
            self.counts["failed"] += 1
            self._add(report)

    def _add(self, report: Any) -> None:
        crash = getattr(report.longrepr, "reprcrash", None)
        said = crash.message if crash else str(report.longrepr).strip().splitlines()[-1]
        self.failed[said.strip().splitlines()[0][:160]].append(report.nodeid)

    def print(self) -> None:
        """Print each cause with its tests, and the figures."""
        for cause, tests in sorted(self.failed.items(), key=lambda item: -len(item[1])):
            print(f"\n{len(tests)} {cause}")
            for test in tests:
                print(f"    {test}")
        print("\n" + ", ".join(f"{count} {outcome}" for outcome, count in sorted(self.counts.items())))


def main() -> int:
    arguments = sys.argv[1:]
    del sys.path[0]  # the folder of this file, whose modules are no part of other suites
    if "--itself" in arguments:
        arguments.remove("--itself")
    else:
        redirect_imports()
    causes = Causes()
    options = [
        "-q",
        "--tb=short",
        "-p",
        "no:cacheprovider",
        "-c",
        os.devnull,
        "-W",
        "ignore",
        "--rootdir",
        os.getcwd(),
        *arguments,
    ]
    status = pytest.main(options, plugins=[causes])
    causes.print()
    return int(status)


if __name__ == "__main__":
    sys.exit(main())
