"""Matrix exponentials times vectors: truncated Taylor series, as loops of the compiled function."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final

import numpy as np

from gradtape.api.control.loops import fori_loop
from gradtape.api.control.scanning import scan
from gradtape.api.solvers.solution import SolverCall, solver
from gradtape.api.tape.create import stop_gradient
from gradtape.trace.routines.registry import known_numbers
from gradtape.trace.routines.sparse_matrices import is_sparse

TERMS: Final = 30
"""Terms of the series after the first one."""

REACH: Final = 3.54
"""The norm up to which so many terms are exact in double precision (Al-Mohy and Higham 2011, table 3.1)."""


@solver("scipy.sparse.linalg.expm_multiply")
def expm_multiply(call: SolverCall) -> Any:
    """Follow `scipy.sparse.linalg.expm_multiply`."""
    A, B = call.given["A"], call.given["B"]
    if not is_sparse(A) and np.ndim(A) != 2:
        return NotImplemented  # an operator, of which only products are known
    if A.shape[0] != A.shape[1]:
        raise ValueError(f"expected A to be like a square matrix, got shape {A.shape}")
    if np.ndim(B) not in (1, 2) or np.shape(B)[0] != A.shape[0]:
        raise ValueError(f"shapes of matrices A {A.shape} and B {np.shape(B)} are incompatible")
    dtype = np.result_type(A.dtype, B.dtype, np.float32)
    x = B.astype(dtype)
    shift = (A.trace() if is_sparse(A) else np.trace(A)) / A.shape[0]
    norm = stop_gradient(np.max(abs(A).sum(axis=0), initial=0.0) + np.abs(shift))

    def advance(time: Any) -> Callable[[Any], Any]:
        """Return the function of a state that returns the one after some time."""
        count = np.maximum(np.ceil(norm * np.abs(stop_gradient(time)) / REACH), 1.0).astype(int)
        if not call.is_compiled:
            count = int(known_numbers(count, "expm_multiply"))
        step = time / count

        def term(k: Any, state: Any) -> Any:
            total, last = state
            last = (A @ last - shift * last) * (step / k)
            return total + last, last

        def part(_: Any, x: Any) -> Any:
            total, _ = fori_loop(1, TERMS + 1, term, (x, x))
            return np.exp(step * shift) * total

        return lambda x: fori_loop(0, count, part, x)

    start, stop, num, endpoint = (call.given[name] for name in ("start", "stop", "num", "endpoint"))
    if start is None and stop is None and num is None and endpoint is None:
        return advance(1.0)(x)
    if start is None or stop is None:
        raise ValueError("expm_multiply: start and stop must be given both")
    count = 50 if num is None else int(num)
    times = np.linspace(start, stop, count, endpoint=True if endpoint is None else bool(endpoint))
    first = advance(times[0])(x)
    if count < 2:
        return first[None]

    step = advance(times[1] - times[0])

    def next_state(x: Any, _: Any) -> Any:
        x = step(x)
        return x, x

    _, rest = scan(next_state, first, length=count - 1)
    return np.concatenate([first[None], rest])
