"""Exports for lengths that vary: a function is traced and lowered for many lengths, and what differs between them is made formulas."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from typing import Any, Final, TypeVar

import numpy as np

from gradtape.api.export.cells import Cell, Partition, Sample, attempted
from gradtape.api.export.closed import Traceable, TracedCall, closed_graph, parameter_places, trace_call
from gradtape.api.export.fits import Fitter, Formula, Language, Point
from gradtape.api.export.labels import result_places
from gradtape.api.export.specs import Spec, dims_of, with_lengths
from gradtape.api.export.texts import Parsed, filled, parsed
from gradtape.api.export.texts import with_lengths as passing_lengths
from gradtape.errors import ArgumentError, GradtapeError
from gradtape.ir.fingerprint import fingerprint
from gradtape.ir.graph import Graph
from gradtape.ir.varying import varying_lengths
from gradtape.lower.c.module import (
    NOTE,
    CFiles,
    CFunction,
    CModule,
    Operand,
    c_names,
    c_text,
    header_text,
    workspace_prototype,
)
from gradtape.lower.numba.module import DECORATOR, EntryPoint, NumbaModule, module_text
from gradtape.records import record
from gradtape.runtime.interpret import interpret
from gradtape.trace.array.lengths import Questions, asking_lengths, length_of
from gradtape.trace.array.lengths import plain as plain_number
from gradtape.trace.dispatch.op_cache import own_calls
from gradtape.trace.jit.dims import Dim
from gradtape.trace.jit.signature import CallArguments
from gradtape.trace.patching.creation import with_arrays_of_lengths
from gradtape.trace.patching.functions import replaced_len
from gradtape.trace.source.sites import user_site

CELL: Final = "CELL_OF_LENGTHS"
"""Stands for the name of the function of a cell."""

T = TypeVar("T")


class VaryingCall:
    """A function with descriptions of its arguments in which lengths vary.

    Attributes
    ----------
    function : Traceable
    specs : tuple
        The descriptions.
    dims : list of Dim
    """

    def __init__(self, function: Traceable, specs: tuple[Any, ...]) -> None:
        self.function = function
        self.specs = specs
        self.dims, self._shapes = dims_of(specs)
        self.questions = Questions()

    @property
    def name(self) -> str:
        name: str = self.function.site.name
        return name

    def at(self, point: Point, *, plain: bool = False) -> TracedCall:
        """Trace the function for lengths; unless `plain`, they record what Python asks of them."""
        lengths = dict(zip([dim.name for dim in self.dims], point, strict=True))
        # Rules read whether lengths vary: their nodes are not those of other traces.
        with varying_lengths(), own_calls(), np.errstate(all="ignore"):
            if plain:
                return trace_call(self.function, with_lengths(self.specs, lengths), {})
            with asking_lengths() as self.questions, replaced_len(length_of), with_arrays_of_lengths():
                traced = trace_call(self.function, with_lengths(self.specs, lengths), {})
                for output in traced.specialisation.outputs:
                    if not isinstance(output, int):
                        plain_number(output())
        if traced.specialisation.is_translated:
            raise ArgumentError(
                f"export: {self.name} cannot be exported for lengths that vary: {traced.function.site.name} has a loop that is "
                "compiled from its code",
                where=user_site(),
                why="the use of lengths in such code is not recorded",
                remedy="write the loop as gt.scan or gt.fori_loop, or export one file for each length",
            )
        return traced

    def named(self, point: Point) -> str:
        """Return what a message says about lengths."""
        return ", ".join([f"{dim.name} = {length}" for dim, length in zip(self.dims, point, strict=True)])

    def extents(self, traced: TracedCall) -> list[tuple[int | Dim, ...]]:
        """Return the shapes of the parameters."""
        arguments = CallArguments(self.specs, {}, self.function.site.static)
        values = traced.specialisation.graph.inputs
        leaves = zip(traced.call.select(arguments.leaves), values, strict=False)
        return [leaf.shape if isinstance(leaf, Spec) else value.shape for leaf, value in leaves]

    def cells(
        self, sample: Callable[[TracedCall], Sample], fit: Callable[[Cell], T | None]
    ) -> list[tuple[Cell, T | None]]:
        """Return boxes of lengths, each with the fit to its samples; None where the function has no result."""

        def traced_sample(point: Point) -> Sample:
            traced = self.at(point)
            result = sample(traced)
            arrays = [*traced.hidden, *[value.data for value in traced.specialisation.graph.constants()]]
            result.questions = self.questions
            result.extents = {extent for array in traced.hidden for extent in array.shape}
            result.form = (result.form, self.questions.form())
            sizes = [array.size for array in arrays if array is not None]
            result.made = max([self.questions.largest, *sizes])
            return result

        def at(point: Point) -> Sample:
            return attempted(lambda: traced_sample(point))

        partition = Partition(self.name, self.dims, self._shapes, at, fit)
        self._check_numbers(partition)
        self._check_types(partition.base)
        return partition.divided()

    def _check_numbers(self, partition: Partition[Any]) -> None:
        """Raise an error where Python needs the number of a length that differs from point to point, as loops over elements do."""
        questions: list[Questions] = []
        for point in partition.long_points():
            with suppress(GradtapeError, ValueError, IndexError, ArithmeticError):  # a message comes later
                self.at(point)
            questions.append(self.questions)
            partition.check_numbers(questions)

    def _check_types(self, point: Point) -> None:
        """Raise an error where lengths that are no integers of Python's make another program than integers do."""
        try:
            with_lengths, plain = (closed_graph(self.at(point, plain=is_plain)) for is_plain in (False, True))
            if fingerprint(with_lengths) == fingerprint(plain) or _is_same_function(with_lengths, plain):
                return
        except (GradtapeError, ValueError, IndexError, ArithmeticError):
            return  # a message about these lengths comes later
        else:
            raise ArgumentError(
                f"export: {self.name} cannot be exported for all lengths: it behaves differently for lengths that are not Python integers",
                where=user_site(),
                why="lengths record how they are used, and the code checks their type",
                remedy="use isinstance(n, int) instead of type(n) is int, or export one file for each length",
            )


def _is_same_function(one: Graph, other: Graph) -> bool:
    """Return whether two graphs compute the same: one may have constants of NumPy's where the other computes arrays of lengths."""
    if [value.aval for value in one.inputs] != [value.aval for value in other.inputs]:
        return False
    draw = np.random.default_rng(0)
    arrays = [
        np.asarray(draw.uniform(0.1, 1.0, value.shape)).astype(value.dtype)
        if value.dtype.kind in "fc"
        else np.zeros(value.shape, value.dtype)
        for value in one.inputs
    ]
    with np.errstate(all="ignore"):
        results = [interpret(graph, arrays) for graph in (one, other)]
    return len(results[0]) == len(results[1]) and all(
        a.shape == b.shape and np.allclose(a, b, 1e-5, 1e-8, equal_nan=True)
        for a, b in zip(*results, strict=True)
    )


# Programs


@record
class Program:
    """A lowered function as functions of a source text.

    Attributes
    ----------
    parts : dict of str to Parsed
        The text of each function and constant, by name.
    helpers : list of str
        The texts that are the same for all lengths.
    shapes : list of shape
        Of the results.
    results : list of str
        Their names.
    traced : TracedCall
    workspace : int
        Bytes.
    libraries : tuple of str
        Of C.
    """

    parts: dict[str, Parsed]
    helpers: list[str]
    shapes: list[tuple[int, ...]]
    results: list[str]
    traced: TracedCall
    workspace: int = 0
    libraries: tuple[str, ...] = ()

    def sample(self) -> Sample:
        form = (
            tuple([(name, part.form) for name, part in self.parts.items()]),
            tuple(self.helpers),
            tuple(map(len, self.shapes)),
            tuple(self.results),
            self.libraries,
        )
        return Sample(hash(form), content=self)


@record
class Piece:
    """The program of a cell, with formulas.

    Attributes
    ----------
    cell : Cell
    parts : dict of str to str
        Functions and constants by name; those that need the free lengths have them as their first parameters.
    needs_lengths : bool
        Whether the first of them does.
    workspace : Formula
    shapes : list of list of Formula
        Of the results.
    program : Program
        That of the first sample.
    """

    cell: Cell
    parts: dict[str, str]
    needs_lengths: bool
    workspace: Formula
    shapes: list[list[Formula]]
    program: Program


def pieces_of(call: VaryingCall, sample: Callable[[TracedCall], Sample], language: Language) -> list[Piece]:
    """Return the program of each box of lengths in which the function has results.

    Raises
    ------
    ArgumentError
        Where numbers of the program are no formulas of the lengths, or the results have other shapes at some lengths.
    """
    found = [
        piece
        for _, piece in call.cells(sample, lambda cell: _piece(call, cell, language))
        if piece is not None
    ]
    pieces = [_with_name(piece, f"{CELL}{number}") for number, piece in enumerate(found)]
    generic = pieces[-1]
    shapes = [
        (point, sample.content.shapes)
        for piece in pieces
        for point, sample in zip(piece.cell.points, piece.cell.samples, strict=True)
    ]
    check_shapes(
        call,
        shapes,
        generic.cell,
        lambda at: [tuple([int(e.at(at)) for e in shape]) for shape in generic.shapes],
    )
    return pieces


def check_shapes(
    call: VaryingCall,
    shapes_of_points: Iterable[tuple[Point, Any]],
    generic: Cell,
    expected: Callable[[Point], Any],
) -> None:
    """Raise an error where a result has a shape that is not the formula of the long lengths."""
    for point, shapes in shapes_of_points:
        expected_shapes = expected(tuple([point[k] for k in generic.free]))
        if expected_shapes != shapes:
            raise ArgumentError(
                f"export: {call.name} returns other shapes for {call.named(point)}: {shapes} in place of {expected_shapes}",
                where=user_site(),
                why="axes of length 1 are dropped or stretched, or the lengths are special in another way",
                remedy=f'leave them out: gt.Dim("{call.dims[0].name}", min=2)',
            )


def _piece(call: VaryingCall, cell: Cell, language: Language) -> Piece | None:
    """Return the program of a cell; None where some numbers have no formula."""
    programs: list[Program] = [sample.content for sample in cell.samples]
    first = programs[0]
    fitter = Fitter(cell.free_points())
    names = [_inner_name(call.dims[k].name) for k in cell.free]
    texts: dict[str, str] = {}
    needing: set[str] = set()
    for part, text in first.parts.items():
        columns = list(zip(*[program.parts[part].numbers for program in programs], strict=True))
        filled_text = filled(text.form, columns, fitter, names, language)
        if filled_text is None:
            return None
        texts[part] = filled_text
        if any(re.search(rf"\b{name}\b", filled_text) for name in names):
            needing.add(part)
    texts = passing_lengths(texts, needing, names, language)
    workspace = fitter.fit([program.workspace for program in programs])
    if workspace is None:
        return None
    extents: list[list[Formula]] = []
    for shapes in zip(*[program.shapes for program in programs], strict=True):
        fitted = [fitter.fit(column) for column in zip(*shapes, strict=True)]
        extents.append([formula for formula in fitted if formula is not None])
        if len(extents[-1]) < len(fitted):
            return None
    return Piece(cell, texts, CELL in needing, workspace, extents, first)


def _with_name(piece: Piece, name: str) -> Piece:
    parts = {_renamed(key, name): _renamed(text, name) for key, text in piece.parts.items()}
    return Piece(piece.cell, parts, piece.needs_lengths, piece.workspace, piece.shapes, piece.program)


def _renamed(text: str, name: str) -> str:
    text = re.sub(r"\bCONSTANT_(\d+)\b", rf"CONSTANT_{name}_\1", text)
    return re.sub(rf"\b{CELL}(?=_|\b)", name, text)


def _inner_name(name: str) -> str:
    """Return what a length is called inside, where no register has such a name."""
    (plain,) = c_names([name])
    return f"length_{plain}"


def _conditions(cell: Cell, names: Sequence[str], dims: Sequence[Dim]) -> list[str]:
    """Return the comparisons that lengths within the bounds pass if they are in a cell."""
    conditions = []
    for name, (low, high), dim in zip(names, cell.ranges, dims, strict=True):
        if low == high:
            conditions.append(f"{name} == {low}")
            continue
        if low > dim.min:
            conditions.append(f"{name} >= {low}")
        if high is not None and high != dim.max:
            conditions.append(f"{name} <= {high}")
    return conditions


# C


def varying_c_files(call: VaryingCall, name: str, header: str, blas: bool, title: str) -> CFiles:
    """Return the C source and the header of a function whose first parameters are the lengths."""

    def sample(traced: TracedCall) -> Sample:
        graph = closed_graph(traced)
        names_of_operands = [*parameter_places(traced), *result_places(traced)]
        values = [*graph.inputs[: len(graph.inputs) - len(traced.hidden)], *graph.outputs]
        operands = [
            Operand(*facts)
            for facts in zip(_names(call, names_of_operands), names_of_operands, values, strict=True)
        ]
        count = len(operands) - len(graph.outputs)
        function = CFunction(
            CELL, "", graph, tuple(operands[:count]), tuple(operands[count:]), tuple(traced.hidden)
        )
        module = CModule(blas, f"{CELL}_")
        with varying_lengths():
            workspace = module.add_function(function)
        module.parts[CELL] = f"static {module.parts[CELL]}"
        parts = {key: parsed(text) for key, text in module.parts.items() if key != text}
        helpers = [text for key, text in module.parts.items() if key == text]
        shapes = [value.shape for value in graph.outputs]
        names = [operand.name for operand in operands[count:]]
        return Program(parts, helpers, shapes, names, traced, workspace, module.libraries).sample()

    pieces = pieces_of(call, sample, "c")
    generic = pieces[-1]
    traced = generic.program.traced
    graph = closed_graph(traced)
    lengths = c_names([dim.name for dim in call.dims])
    names_of_operands = [*parameter_places(traced), *result_places(traced)]
    values = [*graph.inputs[: len(graph.inputs) - len(traced.hidden)], *graph.outputs]
    shapes: list[tuple[str, ...]] = [
        tuple([lengths[call.dims.index(e)] if isinstance(e, Dim) else str(e) for e in shape])
        for shape in call.extents(traced)
    ]
    free = [lengths[k] for k in generic.cell.free]
    shapes += [tuple([extent.text(free) for extent in shape]) for shape in generic.shapes]
    operands = [
        Operand(*facts)
        for facts in zip(_names(call, names_of_operands), names_of_operands, values, shapes, strict=True)
    ]
    count = len(operands) - len(graph.outputs)
    descriptions = [f"a length, {_bounds(dim)}" for dim in call.dims]
    function = CFunction(
        name,
        title,
        graph,
        tuple(operands[:count]),
        tuple(operands[count:]),
        (),
        tuple(zip(lengths, descriptions, strict=True)),
    )
    parts: dict[str, str] = {}
    for piece in pieces:
        parts.update({text: text for text in piece.program.helpers})
    for piece in pieces:
        parts.update({key: text.replace(CELL, f"{name}_") for key, text in piece.parts.items()})
    libraries = max([piece.program.libraries for piece in pieces], key=len)
    parts["workspace"] = _c_workspace(call, function, pieces, lengths)
    parts["entry"] = _c_entry(call, function, pieces, lengths)
    source = f'/* {name}: {title}.\n * {NOTE} */\n#include "{header}"\n\n{c_text(parts.values())}'
    return CFiles(source, header_text(function, None, libraries), 0, libraries)


def _names(call: VaryingCall, names: Sequence[str]) -> list[str]:
    """Return the names of parameters and results in C, after those of the lengths."""
    return c_names([*[dim.name for dim in call.dims], *names])[len(call.dims) :]


def _bounds(dim: Dim) -> str:
    return f"{dim.min} or more" if dim.max is None else f"from {dim.min} to {dim.max}"


def _out_of_bounds(dims: Sequence[Dim], names: Sequence[str]) -> str:
    tests = [f"{name} < {dim.min}" for name, dim in zip(names, dims, strict=True)]
    tests += [f"{name} > {dim.max}" for name, dim in zip(names, dims, strict=True) if dim.max is not None]
    return " || ".join(tests)


def _c_branches(
    call: VaryingCall, pieces: Sequence[Piece], names: Sequence[str], result: Callable[[Piece], str]
) -> list[str]:
    lines = [f"    if ({_out_of_bounds(call.dims, names)})", "        return -3;"]
    for piece in pieces:
        tests = _conditions(piece.cell, names, call.dims)
        lines += [f"    if ({' && '.join(tests)})"] if tests else []
        lines.append(f"    {'    ' if tests else ''}return {result(piece)};")
        if not tests:
            return lines
    return [*lines, "    return -3;"]


def _c_workspace(
    call: VaryingCall, function: CFunction, pieces: Sequence[Piece], names: Sequence[str]
) -> str:
    def result(piece: Piece) -> str:
        return piece.workspace.text([names[k] for k in piece.cell.free])

    lines = _c_branches(call, pieces, names, result)
    return "\n".join([workspace_prototype(function), "{", *lines, "}"])


def _c_entry(call: VaryingCall, function: CFunction, pieces: Sequence[Piece], names: Sequence[str]) -> str:
    operands = [*[operand.name for operand in (*function.parameters, *function.results)], "workspace"]

    def result(piece: Piece) -> str:
        cell = next(key for key in piece.parts if re.fullmatch(rf"{CELL}\d+", key))
        lengths = [names[k] for k in piece.cell.free] if piece.needs_lengths else []
        return f"{cell.replace(CELL, f'{function.name}_')}({', '.join([*lengths, *operands])})"

    lines = _c_branches(call, pieces, names, result)
    return "\n".join([function.prototype(), "{", *lines, "}"])


# Numba


def varying_numba_module(call: VaryingCall, name: str) -> str:
    """Return a module for Numba with a function that finds the lengths in its arguments, and checks them."""

    def sample(traced: TracedCall) -> Sample:
        graph = closed_graph(traced)
        for value, parameter in zip(graph.inputs, _parameters(traced), strict=False):
            value.name = parameter
        module = NumbaModule()
        with varying_lengths():
            module.add_entry(EntryPoint(CELL, graph, tuple(range(len(graph.outputs))), tuple(traced.hidden)))
        parts = {key: parsed(text) for key, text in module.parts.items()}
        return Program(parts, [], [value.shape for value in graph.outputs], [], traced).sample()

    pieces = pieces_of(call, sample, "python")
    traced = pieces[-1].program.traced
    parameters = _parameters(traced)
    parts: dict[str, str] = {}
    for piece in pieces:
        for key, text in piece.parts.items():
            if parts.setdefault(
                key.replace(CELL, f"{name}_"), text.replace(CELL, f"{name}_")
            ) != text.replace(CELL, f"{name}_"):
                raise ArgumentError(
                    f"export: {call.name} cannot be a Numba module for varying lengths",
                    where=user_site(),
                    why=f"its part {key} differs between lengths",
                    remedy="export C, a library, or a .gradtape file",
                )
    names = [_inner_name(dim.name) for dim in call.dims]
    lines = [f"{DECORATOR}", f"def {name}({', '.join(parameters)}):"]
    bound_lengths: set[str] = set()
    for parameter, shape in zip(parameters, call.extents(traced), strict=True):
        for axis, extent in enumerate(shape):
            length = names[call.dims.index(extent)] if isinstance(extent, Dim) else str(extent)
            if isinstance(extent, Dim) and length not in bound_lengths:
                bound_lengths.add(length)
                lines.append(f"    {length} = {parameter}.shape[{axis}]")
                continue
            listed = ", ".join([e.name if isinstance(e, Dim) else str(e) for e in shape])
            lines.append(f"    if {parameter}.shape[{axis}] != {length}:")
            lines.append(f'        raise ValueError("{parameter} has another shape than ({listed})")')
    lines.append(f"    if {_out_of_bounds(call.dims, names).replace('||', 'or')}:")
    lines.append(
        f'        raise ValueError("a length is out of bounds: {"; ".join([f"{d.name}: {_bounds(d)}" for d in call.dims])}")'
    )
    for piece in pieces:
        tests = _conditions(piece.cell, names, call.dims)
        cell = next(key for key in piece.parts if re.fullmatch(rf"{CELL}\d+", key)).replace(CELL, f"{name}_")
        lengths = [names[k] for k in piece.cell.free] if piece.needs_lengths else []
        returned = f"return {cell}({', '.join([*lengths, *parameters])})"
        lines += [f"    if {' and '.join(tests)}:", f"        {returned}"] if tests else [f"    {returned}"]
    if _conditions(pieces[-1].cell, names, call.dims):
        lines.append('    raise ValueError("the function does not take these lengths")')
    return module_text([*parts.values(), "\n".join(lines)])


def _parameters(traced: TracedCall) -> list[str]:
    return c_names(parameter_places(traced))
