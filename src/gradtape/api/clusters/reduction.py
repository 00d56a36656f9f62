"""Sums over partitions: each partition is evaluated where it is, and results are added in a tree in a fixed order.

A task for each partition and each node of the tree leaves all else to Dask, and costs its scheduler one to two milliseconds. Where the
workers of a cluster hold the partitions already, each of their threads gets one task for all of its partitions, and the tree is evaluated
in this process: the same numbers are added in the same order.
"""

from __future__ import annotations

import copy
import math
import time
import uuid
from collections.abc import Callable, Sequence
from typing import Any, Final, Literal, NamedTuple, Self, TypeAlias

import numpy as np
from dask.delayed import Delayed, delayed

from gradtape.api.clusters.partitions import Block, BlockForm, partitions, rows
from gradtape.api.clusters.placement import Placement, current_client, keys_of, placement
from gradtape.api.clusters.shared import Shared
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.gradient import value_and_grad
from gradtape.errors import ShapeError
from gradtape.trees import flatten, unflatten

Reduce: TypeAlias = Literal["sum", "mean"] | Callable[[Any], Any]

Call: TypeAlias = Callable[..., Any]
"""Calls a function, under a key: now, or as a task."""

Combine: TypeAlias = Callable[[Call, str, list[Any]], Any]
"""Combines what the partitions give, by calls of a kind."""

MOST_GATHERED: Final = 2**24
"""Bytes that this process gathers in place of sums that workers have added."""

FAN_IN: Final = 8
"""Results that one task adds. The tree is the same for any number of workers, and so are the rounding errors."""

SHORT_STEP: Final = 0.1
"""Seconds of work for each share below which a step is made without tasks. These would take the scheduler 3 to 8 ms for each share."""


class Step(NamedTuple):
    """A step over blocks that the workers hold.

    Attributes
    ----------
    placement : Placement
    forms : list of BlockForm
        Those of the blocks.
    futures : list of Future
        Those of its tasks.
    seconds : float
        How long the thread worked that took longest.
    """

    placement: Placement
    forms: list[BlockForm]
    futures: list[Any]
    seconds: float


class Distributed:
    """A function of the parameters and of data in partitions: what a transform of the user's function gives on each, combined in a tree.

    It is called with the parameters and the data, and with further arguments for the user's function. Made by the functions of ``gt.dask``.
    """

    def __init__(
        self,
        function: Callable[..., Any],
        caller: str,
        transform: Callable[..., Any],
        combine: Combine,
        *,
        weighted: bool = False,
    ) -> None:
        check_callable(function, caller)
        self.__wrapped__ = function
        self.__name__ = f"{caller.rpartition('.')[2]}({getattr(function, '__name__', 'function')})"
        self._caller = caller
        self._shared = Shared(transform, function)
        self._evaluate = _weighted if weighted else _evaluated
        self._combine = combine
        self._last: Step | None = None

    def then(self, last: Callable[[Any], Any]) -> Self:
        """Return this function, followed by another one."""
        copied = copy.copy(self)
        copied._combine = lambda call, run, parts: call(
            last, f"{last.__name__}-{run}", self._combine(call, run, parts)
        )
        return copied

    def __call__(self, params: Any, data: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the result by Dask's scheduler: that of the present client, or the threads of this process."""
        return self.of_blocks(partitions(data, self._caller), params, *args, **kwargs)

    def delayed(self, params: Any, data: Any, *args: Any, **kwargs: Any) -> Delayed:
        """Return the result as a `dask.delayed.Delayed`, to be computed later or together with others."""
        return self._delayed(partitions(data, self._caller), _Content((params, args, kwargs)))

    def of_blocks(self, blocks: Sequence[Block], params: Any, *args: Any, **kwargs: Any) -> Any:
        """Compute the result over blocks."""
        size = sum([np.asarray(leaf).nbytes for leaf in flatten(params)[0]])
        arguments = _Content((params, args, kwargs))
        if size * len(blocks) <= MOST_GATHERED:
            parts = self._without_tasks(blocks, arguments) or self._by_shares(blocks, arguments)
            if parts is not None:
                return self._combine(_called, uuid.uuid4().hex, parts)
        result = self._delayed(blocks, arguments)
        compute: Callable[[], Any] = result.compute  # which is not typed
        return compute()

    def _without_tasks(self, blocks: Sequence[Block], arguments: _Content) -> list[Any] | None:
        """Return what the blocks give, by messages to the workers; None unless the last step was over the same blocks, and short."""
        last = self._last
        if last is None or last.seconds > SHORT_STEP * len(last.placement.shares):
            return None
        earlier_placement = last.placement
        if (
            earlier_placement.client is not current_client()
            or earlier_placement.keys != keys_of([block.parts for block in blocks])
            or last.forms != [block.form for block in blocks]
        ):
            return None
        answers = earlier_placement.run(_of_all, self._evaluate, _Content(self._shared), arguments)
        return None if answers is None else self._parts(last, answers)

    def _by_shares(self, blocks: Sequence[Block], arguments: _Content) -> list[Any] | None:
        """Return what the blocks give, by one task for each share of them; None unless the workers hold all of them."""
        new_placement = placement([block.parts for block in blocks])
        if new_placement is None:
            return None
        forms = [block.form for block in blocks]
        futures = new_placement.submit(
            _of_all,
            f"{self.__name__}-{uuid.uuid4().hex}",
            [[forms[block] for block in share.blocks] for share in new_placement.shares],
            self._evaluate,
            _Content(self._shared),
            arguments,
        )
        # The futures of the step before are let go while the workers compute. A client waits 10 ms after a message before it sends the
        # next one: that these results are needed no longer would hold up the tasks of the next step.
        self._last = step = Step(
            new_placement, forms, futures, math.inf
        )  # other threads may make steps over other blocks meanwhile
        results = new_placement.client.gather(
            futures
        )  # all at once: each request takes a turn of the network
        return self._parts(step, results)

    def _parts(self, step: Step, timed_results: Sequence[tuple[float, list[Any]]]) -> list[Any]:
        """Return what the blocks give, in their order, and keep what the next step needs to know of this one."""
        self._last = step._replace(seconds=max([seconds for seconds, _ in timed_results]))
        step_placement = step.placement
        parts: list[Any] = [None] * len(step_placement.keys)
        for share, (_, results) in zip(step_placement.shares, timed_results, strict=True):
            for block, part in zip(share.blocks, results, strict=True):
                parts[block] = part
        return parts

    def _delayed(self, blocks: Sequence[Block], arguments: _Content) -> Delayed:
        """Return the delayed result over blocks."""
        run = uuid.uuid4().hex
        # Nodes of their own: the function and the parameters go to each worker once, not into each task.
        program = _node(_Content(self._shared), f"program-{run}")
        delayed_arguments = _node(arguments, f"parameters-{run}")
        parts = [
            task(
                self._evaluate,
                f"{self.__name__}-{run}-{number}",
                program,
                delayed_arguments,
                block.form,
                *block.parts,
            )
            for number, block in enumerate(blocks)
        ]
        result: Delayed = self._combine(task, run, parts)
        return result

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_last": None}  # what belongs to the client of this process

    def __repr__(self) -> str:
        return f"<gradtape.dask.{self.__name__}>"


class _Content:
    """What a node holds, hidden from Dask, which would look for collections of its own in containers."""

    __slots__ = ("content",)

    def __init__(self, content: Any) -> None:
        self.content = content


def _node(content: _Content, key: str) -> Delayed:
    node: Delayed = delayed(content, name=key, pure=False, traverse=False)
    return node


def task(function: Callable[..., Any], key: str, *args: Any) -> Delayed:
    """Return a delayed call with a key, by the first word of which Dask's dashboard groups tasks."""
    call: Delayed = delayed(function, pure=False, traverse=False)(*args, dask_key_name=key)
    return call


def _called(function: Callable[..., Any], key: str, *args: Any) -> Any:
    """Call a function now."""
    return function(*args)


def _evaluated(program: _Content, arguments: _Content, form: BlockForm, *parts: Any) -> Any:
    params, args, kwargs = arguments.content
    return form.apply(lambda block: program.content(params, block, *args, **kwargs), parts)


def _weighted(program: _Content, arguments: _Content, form: BlockForm, *parts: Any) -> Any:
    """Return what a block gives times its rows, and these; None for a block without rows, the mean of which is not a number."""
    params, args, kwargs = arguments.content

    def times_rows(block: Any) -> Any:
        count = rows(block)
        return (scaled(program.content(params, block, *args, **kwargs), count), count) if count else None

    return form.apply(times_rows, parts)


def _of_all(
    evaluate: Callable[..., Any],
    program: _Content,
    arguments: _Content,
    forms: Sequence[BlockForm],
    *parts: Any,
) -> tuple[float, list[Any]]:
    """Return how long this takes, in seconds, and what several blocks give."""
    begin = time.perf_counter()
    remaining = iter(parts)
    results = [
        evaluate(program, arguments, form, *[next(remaining) for _ in form.converters]) for form in forms
    ]
    return time.perf_counter() - begin, results


def in_tree(combine: Callable[..., Any], call: Call, run: str, parts: list[Any]) -> Any:
    """Return the parts combined by a tree."""
    level = 0
    while len(parts) > 1:
        parts = [
            call(combine, f"{combine.__name__}-{run}-{level}-{first}", *parts[first : first + FAN_IN])
            for first in range(0, len(parts), FAN_IN)
        ]
        level += 1
    return parts[0]


def added(*parts: Any) -> Any:
    """Return the sum of nested arrays, in their order; parts that are None, of blocks without rows, are passed over."""
    there = [part for part in parts if part is not None]
    if not there:
        return None
    leaves, spec = flatten(there[0])
    for part in there[1:]:
        leaves = [a + b for a, b in zip(leaves, flatten(part)[0], strict=True)]
    return unflatten(spec, leaves)


def scaled(nest: Any, factor: float) -> Any:
    """Return nested arrays times a number; those of single precision stay so."""
    leaves, spec = flatten(nest)
    return unflatten(spec, [leaf * np.asarray(leaf).dtype.type(factor) for leaf in leaves])


def total(call: Call, run: str, parts: list[Any]) -> Any:
    """Add what the partitions give."""
    return in_tree(added, call, run, parts)


def mean(call: Call, run: str, parts: list[Any]) -> Any:
    """Add what the partitions give, each multiplied by its rows, and divide by all rows."""
    return call(_divided, f"mean-{run}", in_tree(added, call, run, parts))


def _divided(sums: Any) -> Any:
    if sums is None:
        raise ShapeError(
            "the data has no rows, so there is no mean", remedy='check the data, or use reduce="sum"'
        )
    nest, count = sums
    return scaled(nest, 1.0 / count)


def reduced(reduce: Callable[[Any], Any]) -> Combine:
    """Return how values and gradients of partitions are combined by a function of the array of the values."""
    slopes = Shared(value_and_grad, reduce)

    def combine(call: Call, run: str, parts: list[Any]) -> Any:
        values = [call(_value, f"value-{run}-{number}", part) for number, part in enumerate(parts)]
        outer = call(_outer, f"reduced-{run}", _Content(slopes), *values)
        weighted = [
            call(_chained, f"chained-{run}-{number}", part, outer, number)
            for number, part in enumerate(parts)
        ]
        return call(_pair, f"value_and_gradient-{run}", outer, in_tree(added, call, run, weighted))

    return combine


def _value(part: Any) -> Any:
    return part[0]


def _outer(slopes: _Content, *values: Any) -> Any:
    return slopes.content(np.array(values))


def _chained(part: Any, outer: Any, number: int) -> Any:
    """Return the part of the gradient that comes from one partition, by the chain rule."""
    return scaled(part[1], outer[1][number])


def _pair(outer: Any, gradient: Any) -> Any:
    return outer[0], gradient
