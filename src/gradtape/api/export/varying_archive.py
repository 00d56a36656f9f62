"""Files of functions whose lengths vary: a graph for each box of lengths, with formulas in place of the numbers that differ."""

from __future__ import annotations

import hashlib
import json
from typing import Any

from gradtape.api.export.archive import VERSION, at_lengths, packed_file, signature_of
from gradtape.api.export.cells import Cell, Sample
from gradtape.api.export.closed import TracedCall, closed_graph
from gradtape.api.export.encoding import Encoder, VaryingEncoder
from gradtape.api.export.fits import Fitter, Point
from gradtape.api.export.varying import VaryingCall, check_shapes
from gradtape.trace.jit.dims import Dim


def pack_varying(call: VaryingCall, name: str, version: str) -> bytes:
    """Return the file of a function whose lengths vary: a graph for each box of lengths, whose numbers are formulas of them.

    Raises
    ------
    ArgumentError
        Where there are none.
    LoweringError
        As `pack_function`.
    """

    def sample(traced: TracedCall) -> Sample:
        encoder = VaryingEncoder()
        graph = closed_graph(traced)
        shapes = [list(value.shape) for value in graph.outputs]
        data = {"graph": encoder.graph(graph), "shapes": shapes}
        numbers: list[int | float] = []
        form = json.dumps(_without_numbers(data, numbers))
        digest = hashlib.blake2b(form.encode())
        for array in [*encoder.arrays, *traced.hidden]:
            digest.update(f"{array.dtype.str}{array.shape}".encode() + array.tobytes())
        return Sample(digest.digest(), tuple(numbers), (data, encoder.arrays, traced, shapes))

    cells = call.cells(sample, _fitted)
    generic, form = next(cell for cell in reversed(cells) if cell[1] is not None)
    assert form is not None
    traced = generic.samples[0].content[2]
    encoder = Encoder()
    signature = signature_of(traced, name, version, encoder)
    stored: list[Any] = []
    found: list[tuple[Point, Any]] = []
    for cell, data in cells:
        failure = cell.samples[0].failure
        if failure is not None or data is None:
            text = str(failure).partition("\n")[0]
            stored.append(
                [cell.ranges, None, [], f"{call.named(cell.points[0])}, {type(failure).__name__}: {text}"]
            )
            continue
        arrays = cell.samples[0].content[1]
        places = range(len(encoder.arrays), len(encoder.arrays) + len(arrays))
        encoder.arrays.extend(arrays)
        stored.append([cell.ranges, data["graph"], list(places), None])
        found += [(point, one.content[3]) for point, one in zip(cell.points, cell.samples, strict=True)]
    check_shapes(call, found, generic, lambda point: at_lengths(form["shapes"], point))
    types = [
        [value.dtype.str, [e.name if isinstance(e, Dim) else e for e in shape], value.aval.weak]
        for value, shape in zip(traced.specialisation.graph.inputs, call.extents(traced), strict=False)
    ]
    lengths = [[dim.name, dim.min, dim.max] for dim in call.dims]
    return packed_file({**signature, "types": types, "lengths": lengths, "cells": stored}, encoder, VERSION)


def _without_numbers(data: Any, numbers: list[int | float]) -> Any:
    """Return data of JSON without their numbers, which are appended to a list."""
    if isinstance(data, dict):
        return {key: _without_numbers(item, numbers) for key, item in data.items()}
    if isinstance(data, list):
        return [_without_numbers(item, numbers) for item in data]
    if isinstance(data, int | float) and not isinstance(data, bool):
        numbers.append(data)
        return type(data).__name__
    return data


def _fitted(cell: Cell) -> Any:
    """Return the data of a cell with formulas in place of the numbers that vary; None where there are none."""
    fitter = Fitter(cell.free_points())
    columns = iter(list(zip(*[sample.numbers for sample in cell.samples], strict=True)))

    def made(data: Any) -> Any:
        if isinstance(data, dict):
            return {key: made(item) for key, item in data.items()}
        if isinstance(data, list):
            return [made(item) for item in data]
        if not isinstance(data, int | float) or isinstance(data, bool):
            return data
        column = next(columns)
        if all(number == column[0] for number in column) or (
            data != data and not any(n == n for n in column)
        ):
            return data
        formula = fitter.fit(column)
        if formula is None:
            raise LookupError
        return {**formula.packed(), "real": isinstance(data, float)}

    try:
        return made(cell.samples[0].content[0])
    except LookupError:
        return None
