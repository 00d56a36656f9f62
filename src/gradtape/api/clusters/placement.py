"""Where partitions are: which worker of a cluster holds them, and how its threads share them."""

from __future__ import annotations

import asyncio
import sys
import uuid
from collections import Counter, defaultdict
from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple

import dask
from dask.delayed import Delayed

from gradtape.locks import Rank, new_lock
from gradtape.lru import LRU

KEPT: Final = 64
"""Placements whose shares a process knows."""

_known: Final[LRU[str, dict[tuple[str, int], tuple[Any, list[Any]]]]] = LRU(lambda: KEPT)
"""The shares of the workers in this process, by the name of the placement, then by worker and number: what belongs to it, and its keys."""
_lock: Final = new_lock(Rank.LEAF)


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
    name : str
        What the workers know it by.
    """

    client: Any
    keys: list[list[Any]]
    shares: list[Share]
    name: str

    def submit(
        self, function: Callable[..., Any], key: str, own_arguments: Sequence[Any], *args: Any
    ) -> list[Any]:
        """Return the future of a call for each share, with arguments, what belongs to the share, and its parts.

        Another worker makes it if this one is lost.
        """
        future = sys.modules["distributed"].Future
        return [
            self.client.submit(
                _call,
                function,
                args,
                (self.name, number, share.keys),
                each,
                *[future(part, client=self.client) for part in share.keys],
                key=f"{key}-{number}",
                pure=False,
                workers=[share.worker],
                allow_other_workers=True,
            )
            for number, (share, each) in enumerate(zip(self.shares, own_arguments, strict=True))
        ]

    def run(self, function: Callable[..., Any], *args: Any) -> list[Any] | None:
        """Return the results of a call for each share, by messages to the workers that are no tasks; None if one of them cannot answer.

        That is so if a worker or a part is lost, if the function raises, and if tasks have not made the workers know their shares.
        """
        workers = {share.worker for share in self.shares}

        async def answered() -> dict[str, Any]:
            # A scheduler takes half a minute to find that a worker is gone to which it has no connection left.
            answers = asyncio.ensure_future(
                self.client.run(_run, self.name, function, args, workers=list(workers), on_error="return")
            )
            try:
                cores = await self.client.scheduler.ncores()
                return await answers if workers <= cores.keys() else {}
            finally:
                answers.cancel()

        try:
            answers = self.client.sync(answered)
        except Exception:  # "distributed.scheduler.blocked-handlers" may forbid such messages
            return None
        results: dict[int, Any] = {}
        for answer in answers.values():
            if isinstance(answer, dict):
                results.update(answer)
        if len(results) < len(self.shares):
            return None
        return [results[number] for number in range(len(self.shares))]


def _call(
    function: Callable[..., Any],
    args: tuple[Any, ...],
    share: tuple[str, int, list[Any]],
    own_argument: Any,
    *parts: Any,
) -> Any:
    """Call a function for a share, and keep what the share is."""
    name, number, keys = share
    worker = sys.modules["distributed"].get_worker().address
    with _lock:
        shares = _known.get(name)
        if shares is None:
            shares = _known[name] = {}
        shares[worker, number] = own_argument, keys
    return function(*args, own_argument, *parts)


async def _run(
    name: str, function: Callable[..., Any], args: tuple[Any, ...], dask_worker: Any
) -> dict[int, Any] | None:
    """Return the results of a function for the shares of this worker, by their numbers; it runs in the threads that run tasks."""
    loop, threads, data = asyncio.get_running_loop(), dask_worker.executors["default"], dask_worker.data
    with _lock:
        stored = list((_known.get(name) or {}).items())
    shares = {number: share for (worker, number), share in stored if worker == dask_worker.address}
    try:
        results = await asyncio.gather(
            *[
                loop.run_in_executor(threads, function, *(*args, own_argument, *[data[key] for key in keys]))
                for own_argument, keys in shares.values()
            ]
        )
    except Exception:  # the tasks that come in its place raise it where the user sees it
        return None
    return dict(zip(shares, results, strict=True))


def placement(blocks: Sequence[Sequence[Delayed]]) -> Placement | None:
    """Return where blocks are that are given by their parts; None unless the workers of a cluster hold all of them."""
    client = current_client()
    if client is None:
        return None
    keys = keys_of(blocks)

    async def ask() -> Any:
        all_keys = list({key for parts in keys for key in parts})
        return await asyncio.gather(client.scheduler.who_has(keys=all_keys), client.scheduler.ncores())

    holders, threads = client.sync(ask)
    blocks_by_worker: dict[str, list[int]] = defaultdict(list)
    for block, parts in enumerate(keys):
        holding = [[worker for worker in holders.get(key) or () if worker in threads] for key in parts]
        if not all(holding):
            return None
        counts = Counter([worker for workers in holding for worker in workers])
        # What a worker lacks it gets from another one, and keeps.
        best = min(
            sorted(counts),
            key=lambda worker: (-counts[worker], len(blocks_by_worker[worker]) / threads[worker]),
        )
        blocks_by_worker[best].append(block)
    shares: list[Share] = []
    for worker, own_blocks in blocks_by_worker.items():
        for first in range(min(threads[worker], len(own_blocks))):
            mine = own_blocks[first :: threads[worker]]
            shares.append(Share(worker, mine, [key for block in mine for key in keys[block]]))
    return Placement(client, keys, shares, uuid.uuid4().hex)


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
