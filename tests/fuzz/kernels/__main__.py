"""Run random kernels and programs with LLVM's optimisations and without: ``python -m tests.fuzz.kernels --kernels 10000``."""

from __future__ import annotations

import argparse
import sys
import time

from tests.fuzz.kernels.straight import is_wrong
from tests.fuzz.kernels.vectorised import difference
from tests.fuzz.programs import generate


def main() -> int:
    """Run kernels or programs, write the seeds of those that are wrong, and return how many there are."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.kernels", description=__doc__)
    parser.add_argument("--kernels", type=int, default=1000)
    parser.add_argument("--programs", type=int, default=0)
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    begin, wrong = time.monotonic(), 0
    for seed in range(options.seed, options.seed + options.kernels):
        if is_wrong(seed):
            wrong += 1
            print(f"kernel {seed}", flush=True)
    for seed in range(options.seed, options.seed + options.programs):
        program = generate(seed)
        if differs := difference(program):
            wrong += 1
            print(f"program {seed}: {differs}\n{program.text}", flush=True)
    print(
        f"{options.kernels} kernels and {options.programs} programs in {time.monotonic() - begin:.0f} s, "
        f"{wrong} wrong"
    )
    return wrong


if __name__ == "__main__":
    sys.exit(min(main(), 100))
