"""Run random programs: ``python -m tests.fuzz --programs 1000000 --seed 1 --report found.md``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path

from tests.fuzz.programs import Failure, Program, failures, generate, minimised, report


def main() -> int:
    """Run programs until there were enough, and write the smallest one of each bucket; return how many buckets there are."""
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", type=float, default=0.15, help="the share that is compiled as well")
    parser.add_argument("--report", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--only", type=int, default=None, help="the seed of one program to show and run")
    options = parser.parse_args()
    found: dict[str, tuple[int, Program, Failure]] = {}
    begin = time.monotonic()
    seeds = (
        [options.only] if options.only is not None else range(options.seed, options.seed + options.programs)
    )
    done = 0
    for seed in seeds:
        done += 1
        program = generate(seed)
        compiled = options.only is not None or (seed * 2654435761 % 2**32) / 2**32 < options.compiled
        if options.only is not None:
            print(program.text)
        for failure in failures(program, compiled=compiled):
            bucket = failure.bucket
            if bucket in found:
                count, *rest = found[bucket]
                found[bucket] = (count + 1, *rest)
                continue
            small, how = minimised(program, bucket, compiled=compiled)
            found[bucket] = (1, small, how)
            print(f"--- {bucket}\n{small.specs}\n{small.text}{how.what}", flush=True)
            if options.report is not None:
                options.report.write_text(report(found))
        if time.monotonic() - begin > options.seconds:
            break
    print(f"{done} programs in {time.monotonic() - begin:.0f} s, {len(found)} buckets")
    if options.report is not None:
        options.report.write_text(report(found))
    return len(found)


if __name__ == "__main__":
    sys.exit(min(main(), 100))
