"""Functions as files: C source, libraries, Numba modules, and files that `load` calls."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

from gradtape.api.export.archive import own_version, pack_function
from gradtape.api.export.closed import (
    TracedCall,
    closed_graph,
    parameter_places,
    trace_call,
)
from gradtape.api.export.labels import result_places
from gradtape.api.export.specs import check_described, dims_of
from gradtape.api.export.toolchain import TARGETS, build
from gradtape.api.export.varying import VaryingCall, varying_c_files, varying_numba_module
from gradtape.api.export.varying_archive import pack_varying
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.jit import Jitted, jit
from gradtape.errors import ArgumentError
from gradtape.habits import suggests_keywords
from gradtape.ir.printer import identifier
from gradtape.lower.c.module import CFiles, CFunction, Operand, c_names, function_name, print_files
from gradtape.lower.numba.module import EntryPoint, print_module
from gradtape.trace.source.sites import user_site

SUFFIXES: Final = {
    "c": (".c",),
    "object": (".o",),
    "static": (".a",),
    "shared": (".so", ".dylib", ".dll"),
    "numba": (".py",),
    "gradtape": (".gradtape",),
}
"""The suffixes of each format."""


@suggests_keywords
def export(
    function: Callable[..., Any],
    *specs: Any,
    path: str | os.PathLike[str],
    format: str | None = None,
    name: str | None = None,
    blas: bool = False,
    target: str = "generic",
    compiler: str | None = None,
) -> tuple[Path, ...]:
    """Write a function to a file that does not need its Python code, for arguments of fixed dtypes and of fixed or varying shapes.

    Parameters
    ----------
    function : callable
        Any function that `gradtape.jit` compiles, or the result of `gradtape.grad`, `gradtape.value_and_grad` or another transform. The
        current content of captured values becomes part of the file.
    *specs
        The arguments: example arrays and numbers, or descriptions (`gradtape.spec`, ``float``), in nested containers. Lengths that are
        a `gradtape.Dim` vary from call to call: ``gt.spec((gt.Dim("n"), 3))``. If the function branches on values (``if x[0] > 0``),
        pass example arrays: their branch is exported, and calls that would take another branch return an error.
    path : path-like
        The file. Its suffix determines the format:

        ``.c``
            C source (C99) with a header of the same name beside it. It needs the C library alone.
        ``.so``, ``.dylib``, ``.dll``, ``.o``, ``.a``
            A shared library, an object file or a static library, which the system's C compiler makes of it, with the header.
        ``.py``
            A module that needs NumPy and Numba alone, as `gradtape.inspect.numba_source`.
        ``.gradtape``
            A file that `gradtape.load` calls, on any machine.

    format : {"c", "shared", "object", "static", "numba", "gradtape"}, optional
        The format, instead of that of the suffix.
    name : str, optional
        The name of the exported function, by default that of `function` (with an underscore if C has a function of this name).
    blas : bool, default False
        Whether exported C calls BLAS (``dgemm_``) for products of large matrices and LAPACK (``dsyevd_``) for decompositions. It must
        then be linked with them; the header names them.
    target : {"generic", "native"}, default "generic"
        The CPU of libraries and object files: any of this architecture, or those like this machine's.
    compiler : str, optional
        The C compiler, by default ``$CC``, ``cc``, ``gcc`` or ``clang``.

    Returns
    -------
    tuple of pathlib.Path
        The files that were written.

    Raises
    ------
    ArgumentError
        For an unknown suffix; if the function reads variables or draws random numbers; if there is no C compiler, or it fails; if
        the program is another one for each of the lengths that vary.
    LoweringError
        For what C or Numba do not have, by its name: functions of SciPy, solvers for bands, calls of Python.

    Notes
    -----
    The exported C function takes the leaves of the arguments in their order: numbers by value, arrays by the address of their elements,
    which are contiguous; then addresses for the leaves of the result, and the workspace. Their names are those of the parameters, with
    the keys of containers: ``params['w']`` is ``params_w``. The results of `gradtape.value_and_grad` are ``value`` and ``grad_x``,
    others ``result``. The header documents all of this.

    Lengths that vary are the first parameters in C, and a function of them returns the bytes of the workspace; elsewhere they are those of
    the arrays. Each call checks them. The function is traced for many lengths; its file has the programs of special ones (0, 1), and one
    for all others, in which extents are expressions in the lengths.

    Examples
    --------
    >>> import tempfile
    >>> import numpy as np, gradtape as gt
    >>> folder = tempfile.mkdtemp()
    >>> loss = lambda w, x: np.sum(np.tanh(x @ w) ** 2)
    >>> files = gt.export(gt.value_and_grad(loss), gt.spec(3), gt.spec((5, 3)), path=f"{folder}/loss.c", name="loss")
    >>> [file.name for file in files]
    ['loss.c', 'loss.h']
    >>> [line for line in files[1].read_text().splitlines() if line.startswith("int ")]
    ['int loss(const double *w, const double *x, double *value, double *grad_w, void *workspace);']
    """
    file = Path(path)
    kind = _format_of(file, format)
    if target not in TARGETS:
        raise ArgumentError(
            f"export: target must be one of {', '.join(TARGETS)}; got {target!r}", where=user_site()
        )
    if name is not None and function_name(name) != name:
        raise ArgumentError(
            f"export: name must be a C identifier that the C library does not use; got {name!r}",
            where=user_site(),
            remedy=f"name={function_name(name)!r}",
        )
    if not file.parent.is_dir():
        raise ArgumentError(
            f"export: there is no folder {str(file.parent)!r}", where=user_site(), remedy="make it first"
        )
    check_callable(function, "export")
    check_described(
        function,
        specs,
        {},
        "export",
        why="a file holds code for one dtype and one shape per argument; the specs follow the function",
        call="gt.export(f{}, path=...)",
    )
    jitted = function if isinstance(function, Jitted) else jit(function)
    name = name or function_name(identifier(jitted.site.name))
    header = file.with_suffix(".h")
    if dims_of(specs)[0]:
        varying = VaryingCall(jitted, specs)
        if kind == "numba":
            return (_written(file, varying_numba_module(varying, name)),)
        if kind == "gradtape":
            _replace(file, pack_varying(varying, varying.name, own_version()))
            return (file,)
        title = f"{varying.name}, exported by gradtape {own_version()}"
        return _c_written(
            file,
            header,
            kind,
            name,
            varying_c_files(varying, name, header.name, blas, title),
            target,
            compiler,
        )
    traced = trace_call(jitted, specs, {})
    if kind == "numba":
        return (_written(file, _numba_module(traced, name)),)
    if kind == "gradtape":
        _replace(file, pack_function(traced, traced.name, own_version()))
        return (file,)
    return _c_written(file, header, kind, name, c_files(traced, name, header.name, blas), target, compiler)


def _c_written(
    file: Path, header: Path, kind: str, name: str, files: CFiles, target: str, compiler: str | None
) -> tuple[Path, ...]:
    """Write a C file, or what the system's compiler makes of it, and the header."""
    if kind == "c":
        return _written(file, files.source), _written(header, files.header)
    with tempfile.TemporaryDirectory() as folder:
        source = _written(Path(folder) / f"{name}.c", files.source)
        _written(source.with_name(header.name), files.header)
        made = source.with_suffix(SUFFIXES[kind][0] if file.suffix not in SUFFIXES[kind] else file.suffix)
        build(source, made, libraries=files.libraries, cpu=target, compiler=compiler)
        _replace(file, made.read_bytes())
    return file, _written(header, files.header)


def _format_of(file: Path, given: str | None) -> str:
    known = {suffix: kind for kind, suffixes in SUFFIXES.items() for suffix in suffixes}
    if given is not None:
        if given not in SUFFIXES:
            raise ArgumentError(
                f"export: format must be one of {', '.join(SUFFIXES)}; got {given!r}", where=user_site()
            )
        return given
    if file.suffix not in known:
        raise ArgumentError(
            f"export: unknown format {file.suffix!r} of {file.name!r}",
            where=user_site(),
            remedy=f"end the path with {', '.join(known)}, or pass format=...",
        )
    return known[file.suffix]


def c_files(traced: TracedCall, name: str, header: str, blas: bool) -> CFiles:
    """Return the C source and the header of a traced call."""
    graph = closed_graph(traced)
    places = [*parameter_places(traced), *result_places(traced)]
    values = [*graph.inputs[: len(graph.inputs) - len(traced.hidden)], *graph.outputs]
    operands = [Operand(*facts) for facts in zip(c_names(places), places, values, strict=True)]
    results = len(graph.outputs)
    function = CFunction(
        name,
        f"{traced.name}, exported by gradtape {own_version()}",
        graph,
        tuple(operands[: len(operands) - results]),
        tuple(operands[len(operands) - results :]),
        tuple(traced.hidden),
    )
    return print_files(function, header, blas)


def _numba_module(traced: TracedCall, name: str) -> str:
    graph = closed_graph(traced)
    names = c_names(parameter_places(traced))
    for value, parameter in zip(graph.inputs, names, strict=False):
        value.name = parameter
    entry = EntryPoint(name, graph, tuple(range(len(graph.outputs))), tuple(traced.hidden))
    return print_module([entry])


def _written(file: Path, text: str) -> Path:
    _replace(file, text.encode())
    return file


def _replace(file: Path, data: bytes) -> None:
    """Write a file, which appears whole or not at all."""
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    try:
        temporary.write_bytes(data)
        os.replace(temporary, file)
    except OSError as error:
        raise ArgumentError(f"{str(file)!r} cannot be written: {error.strerror}", where=user_site()) from None
    finally:
        temporary.unlink(missing_ok=True)
