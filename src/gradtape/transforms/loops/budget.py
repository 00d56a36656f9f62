"""The memory budget of reversed loops: which carries a loop stores if the record of all its iterations takes too much memory.

The plan is made where a loop is differentiated, since the residuals are known there. It is one of the policies that a user may state, so
that what follows is the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from math import comb, isqrt
from typing import Any, Final, NamedTuple

from gradtape import costs
from gradtape.config import default_memory_budget, memory_budget, memory_name
from gradtape.errors import MemoryBudgetError
from gradtape.ir.graph import Graph, Node, Value
from gradtape.kinds.control import Structured
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.index_map import IndexMap
from gradtape.passes.prologue import work_of
from gradtape.scratch import free_scratch
from gradtape.transforms.loops.checkpoint import is_in_file, is_treeverse, stores_carries

MANY: Final = 4096
"""Carries of a loop of unknown trip count that fit, from which chunks that grow are used: they cover two million iterations, and run each
once more. With fewer, treeverse bounds the memory for any trip count."""

TREEVERSE_MOST: Final = 256
"""Carries that treeverse stores at most: with so many, 30,000 iterations run twice more, and 2 million three times."""


class Record(NamedTuple):
    """The memory that a loop keeps for its backward loop.

    Attributes
    ----------
    length : int or None
        The trip count, where it is known.
    step : int
        Bytes of the residuals of an iteration.
    state : int
        Bytes of the carries, which are stored for a chunk of iterations.
    """

    length: int | None
    step: int
    state: int

    def smallest(self) -> int:
        """Return the bytes that any plan takes: two carries, and the residuals of an iteration."""
        return 2 * self.state + self.step


def planned_policy(record: Record, nodes: Sequence[Node], site: Any) -> Any:
    """Return the policy of a loop for which none was stated: None if the records of all iterations fit in the budget.

    Parameters
    ----------
    record : Record
        Its sizes.
    nodes : sequence of Node
        Those of its body.
    site : object
        The user's line.
    """
    stated = memory_budget()
    if stated is None:
        # Loops in strips (ADR 118) keep no records, and must not become slower where no budget is set.
        if record.length is None or _is_elementwise(nodes):
            return None
        policy = policy_within(record, default_memory_budget())
        return (
            None
            if policy == IMPOSSIBLE
            else in_file_if_faster(record, default_memory_budget(), policy, nodes)
        )
    policy = in_file_if_faster(record, stated, policy_within(record, stated), nodes)
    if policy == IMPOSSIBLE:
        raise MemoryBudgetError(
            f"the gradient of a loop does not fit in {memory_name()} = {in_bytes(stated)}: its carries take {in_bytes(record.state)}, and "
            f"what one iteration computes for the reverse sweep {in_bytes(record.step)}",
            where=site,
            why="two carries and the values of one iteration are needed at a time",
            remedy=f'{memory_name()} = "{in_bytes(record.smallest())}" or more',
        )
    return policy


IMPOSSIBLE: Final = 0
"""The policy where there is none."""


def policy_within(record: Record, budget: int) -> Any:
    """Return the policy that runs the fewest iterations again within a budget, IMPOSSIBLE where there is none.

    Examples
    --------
    >>> [policy_within(Record(1000, 80, 80), budget) for budget in (80_000, 20_000, 4000, 200)]
    [None, 32, ('treeverse', 48), 0]
    """
    length, step, state = record
    if length is None:
        room = (budget - step) // max(state, 1)
        if room >= MANY and 2 * step <= budget // MANY:
            return "sqrt"
        return ("treeverse", min(room, TREEVERSE_MOST)) if room >= 2 else IMPOSSIBLE
    if length * step <= budget:
        return None
    chunk = best_chunk(record)
    if chunk_bytes(record, chunk) <= budget:
        return chunk
    room = (budget - step) // max(state, 1) - 1
    return ("treeverse", room) if room >= 1 else IMPOSSIBLE


def in_file_if_faster(record: Record, budget: int, policy: Any, nodes: Sequence[Node]) -> Any:
    """Return chunks whose carries are in a scratch file in place of treeverse, where to write and read them takes less time.

    Examples
    --------
    >>> in_file_if_faster(Record(1000, 80, 80), 10**6, 32, ())
    32
    """
    if not is_treeverse(policy) or record.length is None:
        return policy
    chunk = file_chunk(record, budget)
    if chunk is None:
        return policy
    stored = -(-record.length // chunk) * record.state
    if stored > free_scratch():
        return policy
    again = runs_again(record.length, policy) - record.length
    seconds = costs.ADDITION * sum(map(work_of, nodes)) + record.step / costs.MEMORY_BYTES
    transfer = costs.FILE_SECONDS + 2 * stored / costs.FILE_BYTES
    return ("file", chunk) if transfer < again * seconds else policy


def file_chunk(record: Record, budget: int) -> int | None:
    """Return the number of iterations of the chunks whose records fit in a budget; None for a single one.

    Examples
    --------
    >>> file_chunk(Record(1000, 80, 80), 2000), file_chunk(Record(1000, 80, 80), 300)
    (23, None)
    """
    assert record.length is not None
    chunk = min((budget - 2 * record.state) // max(record.step, 1), record.length // 2)
    return chunk if chunk > 1 else None


def record_notes(graph: Graph) -> list[str]:
    """Say what the reversed loops of a graph keep, before loops are fused.

    Examples
    --------
    >>> record_notes(Graph((), (), ()))
    []
    """
    notes = []
    stacks = {
        value: node
        for node in graph.nodes
        if isinstance(node.op, Structured) and "length" in node.params
        for value in node.outs[node.params["carries"] :]
    }
    for node in graph.nodes:
        policy: Any = node.params.get("policy")
        length = node.params.get("length")
        if not isinstance(node.op, Structured) or length is None:
            continue
        inits = node.inputs[node.params["consts"] :][: node.params["carries"]]
        if is_treeverse(policy) and any(value.shape[:1] == (policy[1],) for value in inits):
            kept = [value for value in inits if value.shape[:1] == (policy[1],)]
            notes.append(
                f"a reversed loop of {length} iterations keeps {policy[1]} sets of carries at a time, {in_bytes(bytes_of_values(kept))}, "
                f"and runs {runs_again(length, policy)} iterations again"
            )
            continue
        read = [value for value in node.inputs if value in stacks and _is_reverse(node, stacks[value])]
        if not read:
            continue
        size = in_bytes(bytes_of_values(read))
        if policy is None:
            notes.append(f"a reversed loop of {length} iterations records {size}, and runs none again")
            continue
        chunks = [n.params["length"] for n in node.params["body"].nodes if n.op is node.op]
        if chunks and stores_carries(policy):
            where = " in a scratch file" if is_in_file(policy) else ""
            notes.append(
                f"a reversed loop of {length * chunks[0]} iterations keeps the carries of {length} chunks, {size}{where}, and runs each "
                "iteration once more"
            )
    return notes


def _is_reverse(node: Node, forward: Node) -> bool:
    same = node.op is forward.op and node.params["length"] == forward.params["length"]
    return same and node.params["reverse"] != forward.params["reverse"]


def stated_budget() -> tuple[str, int] | None:
    """Return the budget that the user has set as a policy of procedures, which plan when they are differentiated; None where there is none.

    Examples
    --------
    >>> from gradtape.config import config
    >>> with config.override(memory="2 MB"):
    ...     stated_budget()
    ('memory', 2000000)
    """
    stated = memory_budget()
    return None if stated is None else ("memory", stated)


def is_budget(policy: Any) -> bool:
    """Return whether a policy is a budget."""
    return isinstance(policy, tuple) and policy[0] == "memory"


def best_chunk(record: Record) -> int:
    """Return the number of iterations of a chunk with which carries and records take the least memory."""
    length, step, state = record
    assert length is not None
    return max(2, min(isqrt(length * state // max(step, 1)) + 1, length))


def chunk_bytes(record: Record, chunk: int) -> int:
    """Return the bytes of the carries of all chunks and of the records of one."""
    length, step, state = record
    assert length is not None
    return -(-length // chunk) * state + chunk * step


def runs_again(length: int, policy: Any) -> int:
    """Return how many iterations run once more under a policy of a loop of known trip count.

    Examples
    --------
    >>> [runs_again(100, policy) for policy in (None, 10, ("treeverse", 20))]
    [0, 100, 278]
    """
    if policy is None or policy == "all":
        return 0
    if not is_treeverse(policy):
        return length
    count = policy[1]
    runs = 0
    while comb(count + runs, runs) < length:
        runs += 1
    # t(n, s) of Griewank and Walther (2000), and each iteration once more with the reverse step.
    advances = runs * length - comb(count + runs, runs - 1) if runs else 0
    return advances + length


def in_bytes(count: int) -> str:
    """Return a size in the units of `gradtape.config.memory`, rounded up.

    Examples
    --------
    >>> [in_bytes(count) for count in (80, 1_500_001, 2_000_000_000)]
    ['80 B', '1.51 MB', '2 GB']
    """
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if count >= size:
            hundredths = -(-100 * count // size)
            return f"{hundredths / 100:.10g} {unit}"
    return f"{count} B"


def bytes_of_values(values: Sequence[Value]) -> int:
    """Return the bytes that values take; those of a stack of an inner loop of unknown trip count are not known."""
    return sum(value.size * value.dtype.itemsize for value in values if value.dtype.kind != "O")


def _is_elementwise(nodes: Sequence[Node]) -> bool:
    return all(isinstance(node.op, Elementwise | IndexMap) for node in nodes)
