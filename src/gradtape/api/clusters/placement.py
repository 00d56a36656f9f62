"""Where partitions are: which worker of a cluster holds them, and how its threads share them."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import dask
from dask.delayed import Delayed

MOST_SENT: Final = 2**24
"""Bytes of keys in the messages of a step past the scheduler; each worker gets those of all workers."""


class Share(NamedTuple):
    """Blocks that one thread of a worker computes.

    Attributes
    ----------
    worker : str
        The address of the worker that holds the blocks.
    blocks : list of int
        Their numbers.
    keys : list
        The keys of their parts, in their order.
    """

    worker: str
    blocks: list[int]
    keys: list[Any]


class Placement(NamedTuple):
    """Where the blocks of the data are, and who computes them.

    Attributes
    ----------
    client : distributed.Client
    keys : list of list
        The keys of the parts of each block.
    shares : list of Share
        The blocks by threads.
    """

    client: Any
    keys: list[list[Any]]
    shares: list[Share]

    def submit(self, function: Callable[..., Any], name: str, calls: Sequence[tuple[Any, ...]]) -> list[Any]:
        """Return the future of a call for each share, with arguments and then the parts; another worker makes it if this one is lost."""
        future = sys.modules["distributed"].Future
        return [
            self.client.submit(
                function,
                *args,
                *[future(key, client=self.client) for key in share.keys],
                key=f"{name}-{number}",
                pure=False,
                workers=[share.worker],
                allow_other_workers=True,
            )
            for number, (share, args) in enumerate(zip(self.shares, calls, strict=True))
        ]

    def run(self, function: Callable[..., Any], calls: Sequence[tuple[Any, ...]]) -> list[Any] | None:
        """Return the results of a call for each share, by messages to the workers that are no tasks; None if one of them cannot answer.

        That is so if a worker or a part is lost, and if the function raises.
        """
        workers = list({share.worker for share in self.shares})
        if len(workers) * sum([len(str(key)) for share in self.shares for key in share.keys]) > MOST_SENT:
            return None
        message = [(share.worker, args, share.keys) for share, args in zip(self.shares, calls, strict=True)]
        found = self.client.run(_run, function, message, workers=workers, on_error="return")
        results = {worker: iter(made) for worker, made in found.items() if isinstance(made, list)}
        if len(results) < len(workers):
            return None
        return [next(results[share.worker]) for share in self.shares]


async def _run(function: Callable[..., Any], message: list[Any], dask_worker: Any) -> list[Any] | None:
    """Call a function for the shares of this worker, in the threads that run its tasks."""
    call = asyncio.get_running_loop().run_in_executor
    threads = dask_worker.executors["default"]
    try:
        return await asyncio.gather(
            *[
                call(threads, function, *(*args, *[dask_worker.data[key] for key in keys]))
                for worker, args, keys in message
                if worker == dask_worker.address
            ]
        )
    except Exception:  # the tasks that come in its place raise it where the user sees it
        return None


def placement(blocks: Sequence[Sequence[Delayed]]) -> Placement | None:
    """Return where blocks are that are given by their parts; None unless the workers of a cluster hold all of them."""
    client = current_client()
    if client is None:
        return None
    keys = keys_of(blocks)

    async def ask() -> Any:
        known = list({key for parts in keys for key in parts})
        return await asyncio.gather(client.scheduler.who_has(keys=known), client.scheduler.ncores())

    holders, threads = client.sync(ask)
    held: dict[str, list[int]] = defaultdict(list)
    for block, parts in enumerate(keys):
        found = [[worker for worker in holders.get(key) or () if worker in threads] for key in parts]
        if not all(found):
            return None
        counts = Counter([worker for workers in found for worker in workers])
        # What a worker lacks it gets from another one, and keeps.
        best = min(sorted(counts), key=lambda worker: (-counts[worker], len(held[worker]) / threads[worker]))
        held[best].append(block)
    made: list[Share] = []
    for worker, own in held.items():
        for first in range(min(threads[worker], len(own))):
            mine = own[first :: threads[worker]]
            made.append(Share(worker, mine, [key for block in mine for key in keys[block]]))
    return Placement(client, keys, made)


def keys_of(blocks: Sequence[Sequence[Delayed]]) -> list[list[Any]]:
    """Return the keys of the parts of each block."""
    return [[part.key for part in parts] for parts in blocks]


def current_client() -> Any:
    """Return the client that Dask would compute with; None for other schedulers."""
    distributed = sys.modules.get("distributed")
    if distributed is None or dask.config.get("scheduler", None) not in ("dask.distributed", "distributed"):
        return None
    try:
        client = distributed.Client.current()
    except ValueError:
        return None
    return None if client.asynchronous else client
