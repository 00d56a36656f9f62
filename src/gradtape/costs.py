"""The cost model: what instructions, functions, memory, calls and loops of unknown length are taken to cost.

One table for all passes, planners, pollers and reports. The unit is an addition of one element in a loop of vectors. The ratios were
rounded once and then kept, since plans, and with them the bits of sums, follow from them. What they were on a Xeon with AVX-512 and
libmvec, in chains over 4,096 elements (``python benchmarks/costs.py``), stands beside each number: "measured 24" is 24 additions.

A throughput counts for less than it measures where a loop has other things to do meanwhile: a quotient, 24 additions in a chain of nothing
but quotients, hides behind the loads and products around it.
"""

from __future__ import annotations

from typing import Final

ADDITION: Final = 2e-11
"""Seconds that the unit takes: measured 2.8e-11."""

SCALAR_ADDITION: Final = 0.3e-9
"""Seconds that it takes in a loop whose iterations wait for each other, without vectors: about a cycle."""

# Rows

INSTRUCTION: Final = 1.0
"""A sum, product, comparison or logical operation: measured 1."""

INTRINSIC: Final = 2.0
"""Two or three instructions, such as a minimum that hands on NaN: measured 3."""

SLOW_INSTRUCTIONS: Final = {
    "fdiv": 4.0,
    "frem": 4.0,
    "sdiv": 4.0,
    "udiv": 4.0,
    "srem": 4.0,
    "urem": 4.0,
    "llvm.sqrt": 5.0,
}
"""Instructions and intrinsics that block a port for several cycles: measured 24 for a quotient and 36 for a root, in chains of them."""

LIBM_FUNCTION: Final = 15.0
"""A function of the C library, four or eight elements at a time: measured 30 for sin."""

LIBM_FUNCTIONS: Final = {"exp": 10.0, "log": 10.0, "pow": 25.0}
"""Functions of the C library of another cost: measured 22 for exp, 37 for log and 208 for pow."""

SCIPY_FUNCTION: Final = 40.0
"""A function of SciPy, for one element after the other: measured 730 for gammaln, which is among the slow ones."""

# Memory

LOAD: Final = 1.0
"""A load whose address follows from the loop variables, and which takes the place of arithmetic."""

PASSING: Final = 0.5
"""A load or store in a report: it mostly finds a cache, and a free slot beside the arithmetic."""

GATHER: Final = 4.0
"""A load whose address is computed from data: measured 12 at random positions in the first cache."""

MOVE: Final = 4.0
"""A store at a computed address, or a step of a scan or sort: what reads and writes single elements."""

NEAR_MEMORY: Final = 2**20
"""Bytes that stay in the second cache until the next call."""

FAR_LOAD: Final = 5.0
"""A load of what comes from farther away."""

MEMORY_BYTES: Final = 1e10
"""Bytes a second that one core writes to memory, or reads."""

FILE_BYTES: Final = 2e8
"""Bytes a second that go to a scratch file, or come from it: measured 2e8, most of it for the system's work on each new page."""

FILE_SECONDS: Final = 2e-3
"""The cost of making and mapping a scratch file."""

CACHE_LINE: Final = 64
"""Bytes of a line of the caches."""

# Residuals: from which cost of an element on a reverse sweep loads it rather than compute it again

EXPENSIVE: Final = 4.0
"""In the first cache, in arrays of a loop of the graph."""

STREAMED_SIZE: Final = 4096
"""Elements from which an iteration's results do not stay in the first cache."""

EXPENSIVE_STREAMED: Final = 5.0
"""The cost where they do not stay there: a vector of quotients takes less time than its way to memory and back."""

EXPENSIVE_ON_TAPE: Final = 6.0
"""On the tape of a procedure, which stands in the way of vectors: quotients and roots cost less."""

# What is kept from call to call

COMPARISON: Final = 8.0
"""A comparison of eight bytes with a copy: 100,000 numbers take 85 microseconds, about as long as their logarithms."""

SAVING: Final = 2.0
"""How many times the comparison of its inputs a prologue must save."""

WORTH_KEEPING: Final = 500_000
"""Additions that a prologue must save: 10 microseconds."""

# Loops

UNKNOWN_TRIP_COUNT: Final = 64
"""Iterations that a loop is taken to have of which only the run knows: enough that what is in it counts more than what is around it."""

UNKNOWN_PARALLEL_TRIP_COUNT: Final = 1000
"""Iterations that a loop of unknown length inside a parallel one is taken to have: who writes ``prange`` expects many. With
`UNKNOWN_TRIP_COUNT`, short parallel loops around long ones stay in one block."""

LONG_LOOP: Final = 2e-4
"""Seconds that a loop takes from which it polls for signals."""

BETWEEN_POLLS: Final = 5e-5
"""Seconds between two polls: each costs 30 nanoseconds, and the loop its registers."""


def poll_period(iteration: float) -> int:
    """Return after how many iterations of so many seconds each a loop polls: a power of 2."""
    return 1 << max(int(BETWEEN_POLLS / iteration).bit_length() - 1, 0)


ARRAY_COMPUTATION: Final = 1e-6
"""Seconds that the call of an array computation in a procedure takes."""

# Blocks that threads share out

WORTHWHILE: Final = 10_000_000
"""Additions from which a loop is cut into blocks: 200 microseconds. Waking a thread takes some 10, and blocks cost a single thread a tenth
in loops that do nothing but load and store."""

LEAST_BLOCK: Final = 500_000
"""Additions in a block: 10 microseconds."""

MOST_BLOCKS: Final = 16
"""Enough for a few threads to end at about the same time; more would cost more sums to bring together."""

PARTIAL_SUM: Final = 800
"""Additions in all that there are to be for each of the sums of a block: zeros, and a trip through memory."""

MOST_DENSE_SUMS: Final = 2**21
"""Bytes that the blocks' own sums may take where each row adds to all of them: the second cache. With `MOST_SCATTERED_SUMS`, a Gaussian
mixture of 50 components in 64 dimensions takes 81 ms for 65."""

MOST_SCATTERED_SUMS: Final = 2**26
"""Bytes that they may take where an iteration adds to some of them. With `MOST_DENSE_SUMS`, a histogram of 2e7 numbers in 200,000 bins
takes 3.0 s for 2.4."""


def even_blocks(trips: int, blocks: int) -> int:
    """Return a number of blocks not far below another one that leaves no iterations over, if there is one."""
    return next((count for count in range(blocks, blocks // 2, -1) if trips % count == 0), blocks)


# Products of matrices, by BLAS

LARGE_PRODUCT: Final = 0.2
"""A multiplication of a matrix product, beside an addition in a loop that waits: measured 0.1 of it (0.03 ns) at 256 by 256."""
