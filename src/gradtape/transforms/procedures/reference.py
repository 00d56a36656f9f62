"""References to procedures: what nodes hold. The procedures of derivatives and batches are made when their statements are first needed."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import Any, Final, TypeAlias, cast

from gradtape.ir.builder import at
from gradtape.ir.op import Op
from gradtape.ir.types import Aval, aval, is_inexact
from gradtape.passes.procedures.fusion import contract_arrays
from gradtape.passes.procedures.interchange import permute_loops
from gradtape.passes.procedures.product_blocking import block_products
from gradtape.procedures.fingerprint import procedure_digest
from gradtape.procedures.ir import Procedure
from gradtape.transforms.kinks.procedures import with_flat_roots
from gradtape.transforms.loops.budget import is_budget
from gradtape.transforms.procedures.batch import batch_procedure
from gradtape.transforms.procedures.jvp import jvp_procedure
from gradtape.transforms.procedures.shadows import with_given_squares, with_smooth_squares
from gradtape.transforms.procedures.vjp import Between, planned_policy, vjp_procedure

Flags: TypeAlias = tuple[bool, ...]
Equals: TypeAlias = tuple[int | None, ...]

Policy: TypeAlias = str | int | tuple[str, int] | None
"""What reverse mode keeps of loops: see `gradtape.scan`."""


class ProcedureReference:
    """A procedure as a parameter of nodes: it equals another that computes the same by the same statements.

    Attributes
    ----------
    name : str
        For prints.
    digest : str
        The identity.
    types, result_types : tuple of Aval
        Of the parameters and of the results.
    primal : ProcedureReference or None
        The procedure of which this one is a derivative.
    moving : tuple of bool, optional
        Of a forward derivative: the parameters of `primal` that have tangents.
    loop : (Op, dict), optional
        The op and the parameters of the loop of a graph that the procedure was made of, if its derivatives can be loops as well.
    """

    __slots__ = ("_form", "_procedure", "digest", "loop", "moving", "name", "primal", "result_types", "types")

    def __init__(
        self,
        name: str,
        digest: str,
        types: Sequence[Aval],
        result_types: Sequence[Aval],
        form: Callable[[], Procedure],
        primal: ProcedureReference | None = None,
        moving: Flags | None = None,
    ) -> None:
        self.name = name
        self.digest = digest
        self.types = tuple(types)
        self.result_types = tuple(result_types)
        self.primal = primal
        self.moving = moving
        self.loop: tuple[Op, dict[str, Any]] | None = None
        self._form = form
        self._procedure: Procedure | None = None

    @property
    def procedure(self) -> Procedure:
        """The procedure itself."""
        if self._procedure is None:
            with at(None):  # lines of their own have what a transform makes of lines
                self._procedure = self._form()
        return self._procedure

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ProcedureReference) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        """Say all of it: fingerprints see a parameter by its repr."""
        return f"<{self.name}: {self.digest}>"


def reference_to(procedure: Procedure) -> ProcedureReference:
    """Return the reference to a procedure that was built."""
    made = ProcedureReference(
        procedure.name,
        procedure_digest(procedure),
        procedure.types,
        procedure.result_types,
        lambda: procedure,
    )
    return _the_one(made)


def tangent_of(reference: ProcedureReference, active: Flags) -> ProcedureReference:
    """Return the reference to the forward derivative: see `jvp_procedure`."""
    return _tangent_of(_the_one(reference), active)


def cotangent_of(
    reference: ProcedureReference,
    active: Flags,
    seeded: Flags,
    policy: Policy = None,
    between: Between | None = None,
) -> ProcedureReference:
    """Return the reference to the derivative in reverse: see `vjp_procedure`."""
    return _cotangent_of(_the_one(reference), active, seeded, policy, between)


def batch_of(reference: ProcedureReference, size: int, batched: Flags) -> ProcedureReference:
    """Return the reference to the procedure for all elements of a mapped axis: see `batch_procedure`."""
    return _batch_of(_the_one(reference), size, batched)


def with_squares_of(
    reference: ProcedureReference, kinked: Equals, result: int | None = None
) -> tuple[ProcedureReference, tuple[int, ...]] | None:
    """Return the reference to the procedure that knows squares, and of which parameters: see `with_given_squares`."""
    return _with_squares_of(_the_one(reference), kinked, result)


MOST: Final = 512
"""Derived procedures that are kept."""


@lru_cache(maxsize=MOST)
def _the_one(reference: ProcedureReference) -> ProcedureReference:
    """Return the first of equal references, which has the derived procedures that were made of it."""
    return reference


@lru_cache(maxsize=MOST)
def _tangent_of(reference: ProcedureReference, active: Flags) -> ProcedureReference:
    tangents = [type_ for type_, flag in zip(reference.types, active, strict=True) if flag]
    pushed = [type_ for type_ in reference.result_types if is_inexact(type_.dtype)]
    return _derived(
        f"{reference.name}_jvp",
        ("jvp", reference.digest, active),
        (*reference.types, *tangents),
        (*reference.result_types, *pushed),
        lambda: jvp_procedure(_with_kinks(reference.procedure), active),
        reference,
        active,
    )


@lru_cache(maxsize=MOST)
def _cotangent_of(
    reference: ProcedureReference, active: Flags, seeded: Flags, policy: Policy, between: Between | None
) -> ProcedureReference:
    seeds = [type_ for type_, flag in zip(reference.result_types, seeded, strict=True) if flag]
    pulled = [type_ for type_, flag in zip(reference.types, active, strict=True) if flag]
    if between is not None:
        seeds = [type_ for type_, is_made in zip(seeds, between.makes, strict=True) if not is_made]
        seeds += [x.aval for x in between.others]
        pulled += [x.aval for x in between.more]
    return _derived(
        f"{reference.name}_vjp",
        ("vjp", reference.digest, active, seeded, policy, between),
        (*reference.types, *seeds),
        (*reference.result_types, *pulled),
        lambda: _reversed(reference.procedure, active, seeded, policy, between),
        reference,
    )


def _reversed(
    procedure: Procedure, active: Flags, seeded: Flags, policy: Policy, between: Between | None
) -> Procedure:
    """Return the derivative in reverse, with records of all iterations where these fit in a memory budget."""

    def reverse(policy: Any) -> Procedure:
        prepared = _with_kinks(_prepared(procedure, policy))
        return vjp_procedure(prepared, active, seeded, policy, between)

    if not is_budget(policy):
        return reverse(policy)
    (_, most) = cast(tuple[str, int], policy)
    normal = _with_kinks(_prepared(procedure, None))
    chosen = planned_policy(normal, active, seeded, most, between)
    return reverse(chosen)


def _with_kinks(procedure: Procedure) -> Procedure:
    """Return a procedure whose squares and roots are differentiated as one function with what they are computed from."""
    return with_smooth_squares(with_flat_roots(procedure))


def _prepared(procedure: Procedure, policy: Policy) -> Procedure:
    """Return a procedure with its loops fused; a checkpoint policy names the original loops, so that these are kept."""
    if policy not in (None, "all"):
        return contract_arrays(procedure)
    return permute_loops(contract_arrays(block_products(procedure)))


@lru_cache(maxsize=MOST)
def _with_squares_of(
    reference: ProcedureReference, kinked: Equals, result: int | None
) -> tuple[ProcedureReference, tuple[int, ...]] | None:
    found = with_given_squares(reference.procedure, kinked, result)
    if found is None:
        return None
    squared, places = found
    key = ("squares", reference.digest, kinked, result)
    made = _derived(reference.name, key, squared.types, squared.result_types, lambda: squared, None)
    return made, places


@lru_cache(maxsize=MOST)
def _batch_of(reference: ProcedureReference, size: int, batched: Flags) -> ProcedureReference:
    types = [
        _stacked(type_, size) if flag else type_ for type_, flag in zip(reference.types, batched, strict=True)
    ]
    return _derived(
        f"{reference.name}_batch",
        ("batch", reference.digest, size, batched),
        types,
        [_stacked(type_, size) for type_ in reference.result_types],
        lambda: batch_procedure(reference.procedure, size, batched),
        None,
    )


def _derived(
    name: str,
    key: Any,
    types: Sequence[Aval],
    result_types: Sequence[Aval],
    form: Callable[[], Procedure],
    primal: ProcedureReference | None,
    moving: Flags | None = None,
) -> ProcedureReference:
    digest = hashlib.blake2b(repr(key).encode(), digest_size=20).hexdigest()
    return ProcedureReference(name, digest, types, result_types, form, primal, moving)


def _stacked(type_: Aval, size: int) -> Aval:
    return aval((size, *type_.shape), type_.dtype)
