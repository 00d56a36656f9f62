"""Run random classes: ``python -m tests.fuzz.classes --programs 1000 --seed 1``."""

from __future__ import annotations

import argparse
import sys

from tests.fuzz.classes.programs import CLASSES, Program, failures


def main() -> int:
    """Run programs, print those that fail, and return how many there are."""
    parser = argparse.ArgumentParser(description=__doc__, prog="python -m tests.fuzz.classes")
    parser.add_argument("--programs", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    failed = 0
    for seed in range(options.seed, options.seed + options.programs):
        found = list(failures(seed))
        if found:
            failed += 1
            program = Program(seed)
            print(
                f"--- seed {seed}\n{program.text.removeprefix(CLASSES)}\n{program.events}",
                *found,
                sep="\n",
                flush=True,
            )
    print(f"{options.programs} programs, {failed} fail")
    return failed


if __name__ == "__main__":
    sys.exit(min(main(), 100))
