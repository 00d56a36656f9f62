"""Where partitions are: which worker of a cluster holds them, and how its threads share them."""

from __future__ import annotations

import asyncio
import sys
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import dask
from dask.delayed import Delayed


class Share(NamedTuple):
    """Blocks that one thread of a worker computes.

    Attributes
    ----------
    client : distributed.Client
    worker : str
        The address of the worker that holds the blocks.
    blocks : list of int
        Their numbers.
    keys : list
        The keys of their parts, in their order.
    """

    client: Any
    worker: str
    blocks: list[int]
    keys: list[Any]

    def submit(self, function: Callable[..., Any], key: str, *args: Any) -> Any:
        """Return the future of a call with arguments and then the parts; another worker makes it if this one is lost."""
        future = sys.modules["distributed"].Future
        held = [future(key, client=self.client) for key in self.keys]
        return self.client.submit(
            function, *args, *held, key=key, pure=False, workers=[self.worker], allow_other_workers=True
        )


def shares(blocks: Sequence[Sequence[Delayed]]) -> list[Share] | None:
    """Return the shares of the threads of a cluster in blocks, given by their parts; None unless its workers hold all of them."""
    client = _client()
    if client is None:
        return None
    keys = [[part.key for part in parts] for parts in blocks]

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
            made.append(Share(client, worker, mine, [key for block in mine for key in keys[block]]))
    return made


def _client() -> Any:
    """Return the client that Dask would compute with; None for other schedulers."""
    distributed = sys.modules.get("distributed")
    if distributed is None or dask.config.get("scheduler", None) not in ("dask.distributed", "distributed"):
        return None
    try:
        client = distributed.Client.current()
    except ValueError:
        return None
    return None if client.asynchronous else client
