"""``python -m tests.coverage``: measure the table; ``--write`` writes docs/coverage.md; names restrict it: ``scipy.special jv``."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from tests.coverage.measure import CHECKS, outcome
from tests.coverage.namespaces.table import NAMESPACES
from tests.coverage.page import page

PAGE = Path(__file__).parents[2] / "docs" / "coverage.md"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.coverage", description=__doc__)
    parser.add_argument("namespace", nargs="?", help="measure this one only")
    parser.add_argument("function", nargs="*", help="and of it these only")
    parser.add_argument("--ways", default="jit,tape", help="of jit, tape, vmap and single, with commas")
    parser.add_argument("--write", action="store_true", help="write docs/coverage.md, and measure nothing")
    arguments = parser.parse_args()
    if arguments.write:
        PAGE.write_text(page(NAMESPACES))
        return
    failures = 0
    for namespace in NAMESPACES:
        if arguments.namespace not in (None, namespace.name):
            continue
        groups = ((False, namespace.cases), (True, namespace.constant))
        for constant, group in groups:
            for name, cases in group.items():
                if arguments.function and name not in arguments.function:
                    continue
                for case in cases:
                    for check in [CHECKS[way] for way in arguments.ways.split(",")]:
                        found = outcome(
                            lambda case, check=check, constant=constant: check(case, constant=constant), case
                        )
                        if found:
                            failures += 1
                            print(
                                f"{namespace.name}.{name} {check.__name__}: {' | '.join(found.splitlines())[:220]}",
                                flush=True,
                            )
    print(f"{failures} failures")
    sys.exit(failures > 0)


if __name__ == "__main__":
    main()
