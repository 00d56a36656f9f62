"""Run random programs: ``python -m tests.fuzz --programs 1000000 --seed 1 --report found.md``.

Processes take blocks of seeds. A process that crashes, or does not finish a program, costs this program alone: it is a bucket of its own,
and another process goes on behind it. Of the programs that are compiled, LLVM compiles one half with all of its optimisations, and the
other half, in a third of the time, with none.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import sys
import time
from collections.abc import Iterator, Sequence
from multiprocessing.connection import Connection, wait
from pathlib import Path
from typing import Final

import gradtape as gt
from tests.fuzz.programs import Failure, Program, failures, generate, minimised, optimised_by_llvm, report

FORKING: Final = multiprocessing.get_context("fork")

BLOCK: Final = 1000
"""Seeds that a process runs before another one takes its place: what builds up in a process is given back."""

HANGS: Final = 300.0
"""Seconds without a next program after which a process is ended."""

Buckets = dict[str, tuple[int, Program, Failure]]


def share(seed: int, salt: int) -> float:
    """Return a number between 0 and 1 that depends on a seed alone."""
    return ((seed * 2 + salt) * 2654435761 % 2**32) / 2**32


def findings(
    seed: int, compiled: bool, seen: set[str], optimised: bool = True
) -> Iterator[tuple[str, Program, Failure]]:
    """Run a program, and yield the buckets of what fails, with the smallest program where a bucket is new."""
    program = generate(seed)
    with optimised_by_llvm(optimised):
        for failure in failures(program, compiled=compiled):
            bucket = failure.bucket
            if bucket in seen:
                yield bucket, program, failure
                continue
            seen.add(bucket)
            yield bucket, *minimised(program, bucket, compiled=compiled)


class Worker:
    """A process that runs a block of seeds.

    Attributes
    ----------
    seeds : range
        The block.
    seed : shared int
        The seed that runs.
    receiving : Connection
        Where it tells its findings.
    """

    def __init__(self, seeds: range, compiled: float, seen: set[str]) -> None:
        self.seeds = seeds
        self.seed = FORKING.RawValue("q", seeds.start)
        self.receiving, sending = FORKING.Pipe(duplex=False)
        self.process = FORKING.Process(target=self._run, args=(compiled, seen, sending), daemon=True)
        self.process.start()
        sending.close()
        self._last, self._since = seeds.start, time.monotonic()

    def _run(self, compiled: float, seen: set[str], sending: Connection) -> None:
        for seed in self.seeds:
            self.seed.value = seed
            is_compiled = share(seed, 0) < compiled
            for item in findings(seed, is_compiled, seen, share(seed, 1) < 0.5):
                sending.send(item)
        self.seed.value = self.seeds.stop

    def received(self) -> Iterator[tuple[str, Program, Failure]]:
        """Yield what the process told since the last time."""
        try:
            while self.receiving.poll():
                yield self.receiving.recv()
        except EOFError:
            return

    def hangs(self) -> bool:
        """Return whether one program runs for too long, and end the process then."""
        if self.seed.value != self._last:
            self._last, self._since = self.seed.value, time.monotonic()
        if time.monotonic() - self._since < HANGS:
            return False
        self.process.kill()
        self.process.join()
        return True


def add(buckets: Buckets, bucket: str, program: Program, failure: Failure) -> None:
    """Count a failure, and print the first one of a bucket."""
    if bucket in buckets:
        count, *rest = buckets[bucket]
        buckets[bucket] = (count + 1, *rest)
        return
    buckets[bucket] = (1, program, failure)
    print(f"--- {bucket}\nseed {program.seed}: {program.specs}\n{program.text}{failure.what}", flush=True)


def run_all(seeds: range, processes: int, compiled: float, seconds: float) -> tuple[int, Buckets]:
    """Run the programs of seeds in several processes; return how many were run, and what failed."""
    buckets: Buckets = {}
    blocks = [seeds[k : k + BLOCK] for k in reversed(range(0, len(seeds), BLOCK))]
    workers: list[Worker] = []
    done = 0
    begin = time.monotonic()
    while blocks or workers:
        is_late = time.monotonic() - begin > seconds
        while blocks and len(workers) < processes and not is_late:
            workers.append(Worker(blocks.pop(), compiled, set(buckets)))
        if not workers:
            break
        wait([worker.process.sentinel for worker in workers], timeout=min(2.0, HANGS))
        for worker in list(workers):
            for item in worker.received():
                add(buckets, *item)
            hangs = worker.hangs()
            if worker.process.is_alive() and not is_late:
                continue
            if worker.process.is_alive():
                worker.process.terminate()
            worker.process.join()
            for item in worker.received():
                add(buckets, *item)
            workers.remove(worker)
            last = worker.seed.value
            done += last - worker.seeds.start
            if last < worker.seeds.stop and not is_late:
                way = "hang" if hangs else f"the process ended with {worker.process.exitcode}"
                add(buckets, way, generate(last), Failure(way, f"seed {last}"))
                done += 1
                if last + 1 < worker.seeds.stop:
                    blocks.append(range(last + 1, worker.seeds.stop))
    return done, buckets


def main(arguments: Sequence[str] | None = None) -> int:
    """Run programs until there were enough, and write the smallest one of each bucket; return how many buckets there are."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--programs", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--compiled", type=float, default=0.15, help="the share that is compiled as well")
    parser.add_argument("--report", type=Path, default=None)
    parser.add_argument("--seconds", type=float, default=float("inf"))
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1)
    parser.add_argument("--only", type=int, default=None, help="the seed of one program to show and run")
    options = parser.parse_args(arguments)
    begin = time.monotonic()
    with gt.config.override(disk_cache=False):  # no program comes again
        if options.only is not None:
            done, buckets = 1, {}
            print(generate(options.only).text)
            for item in findings(options.only, True, set()):
                add(buckets, *item)
        else:
            seeds = range(options.seed, options.seed + options.programs)
            done, buckets = run_all(seeds, options.processes, options.compiled, options.seconds)
    print(f"{done} programs in {time.monotonic() - begin:.0f} s, {len(buckets)} buckets")
    if options.report is not None:
        options.report.write_text(report(buckets))
    return len(buckets)


if __name__ == "__main__":
    sys.exit(min(main(), 100))
