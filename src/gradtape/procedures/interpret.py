"""The interpreter of procedures: their printed form under plain Python."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from types import CodeType
from typing import Any, Final

import numpy as np

from gradtape.ir.body import Body
from gradtape.ir.evaluate import compute_outputs
from gradtape.ir.graph import Value
from gradtape.ir.op import NDArray
from gradtape.lru import LRU
from gradtape.procedures.ir import Check, Procedure
from gradtape.procedures.printer import Source, source_of

FILENAME: Final = "<procedure>"

_compiled: Final[LRU[str, CodeType]] = LRU(lambda: 256)


def run_procedure(procedure: Procedure, arrays: Sequence[Any]) -> list[NDArray]:
    """Return what a procedure makes of arguments.

    Parameters
    ----------
    procedure : Procedure
    arrays : sequence of array_like
        The arguments; they are not changed.

    Returns
    -------
    list of ndarray
        With the shapes and dtypes of the results; scalars are 0-d.

    Raises
    ------
    Exception
        The one that a failed `Check` names, with its message and the user's line.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("twice")
    >>> x = build.scalar("x")
    >>> run_procedure(build.finish([x + x]), [1.5])
    [array(3.)]
    """
    source = source_of(procedure)
    operands: list[Any] = []
    for content, type_, given in zip(procedure.parameters, procedure.types, arrays, strict=True):
        array = np.array(given, type_.dtype, order="C").reshape(type_.shape)
        operands.append(array[()] if isinstance(content, Value) else array.reshape(-1))
    function = python_function(source)
    try:
        with np.errstate(all="ignore"):
            results = function(*operands)
    except Exception as error:
        failed = _failed_check(source, error)
        if failed is None:
            raise
        raise check_error(failed) from None
    if len(procedure.results) == 1:
        results = (results,)
    return [
        np.asarray(result).astype(type_.dtype).reshape(type_.shape)
        for result, type_ in zip(results or (), procedure.result_types, strict=True)
    ]


def python_function(source: Source) -> Callable[..., Any]:
    """Return the function of a printed procedure, whose graphs NumPy computes."""
    code = _compiled.get(source.text)
    if code is None:
        code = _compiled[source.text] = compile(source.text, FILENAME, "exec")
    names: dict[str, Any] = {"np": np, "math": math}
    if "scipy." in source.text:
        import scipy.special

        names["scipy"] = scipy
    names.update({name: _graph_function(graph) for name, graph in source.graphs.items()})
    exec(code, names)
    function: Callable[..., Any] = names[source.name]
    return function


def check_error(check: Check) -> Exception:
    """Return the exception of a failed check."""
    kind: type[Exception] = getattr(builtins, check.error)
    where = "" if check.site is None else f"\n  where: {check.site}"
    return kind(f"{check.message}{where}")


def _failed_check(source: Source, error: Exception) -> Check | None:
    """Return the check that raised an error."""
    traceback = error.__traceback__
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == FILENAME:
            return source.checks.get(traceback.tb_lineno)
        traceback = traceback.tb_next
    return None


def _graph_function(graph: Body) -> Callable[..., None]:
    """Return a function of flat arrays, inputs before outputs, that fills the outputs."""

    def compute(*arrays: NDArray) -> None:
        inputs = [array.reshape(value.shape) for array, value in zip(arrays, graph.inputs, strict=False)]
        for out, array in zip(arrays[len(inputs) :], compute_outputs(graph, inputs), strict=True):
            out[:] = array.reshape(-1)

    return compute
