"""Reverse mode of procedures: a forward sweep that records, and a reverse sweep that walks its tree backwards.

When the reverse of a statement begins, each restored memory and variable has the contents that it had just after the statement. A block's
record is pushed at its end and popped at the beginning of its reverse; records of inner blocks are pushed before. A. Griewank and
A. Walther, "Evaluating Derivatives", 2nd ed., SIAM 2008, chapters 4 and 12; L. Hascoet, U. Naumann and V. Pascual, "To be recorded
analysis in reverse-mode automatic differentiation", Future Generation Computer Systems 21, 2005.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from gradtape.errors import InternalError
from gradtape.ir.body import Body
from gradtape.ir.graph import Value, extract, literal, number_of
from gradtape.ir.types import INT64, Aval
from gradtape.kinds.operands import conform
from gradtape.ops.core.elementwise.extrema import minimum
from gradtape.ops.core.elementwise.integer import floor_divide
from gradtape.ops.core.elementwise.logic import less, logical_and
from gradtape.ops.scipy.special.quadrature import sums_of_scalars
from gradtape.passes.procedures.residuals import keep_residuals
from gradtape.procedures.builder import ProcedureBuilder, leaf
from gradtape.procedures.hoisting import hoist_allocations
from gradtape.procedures.ir import (
    Allocate,
    Apply,
    Assign,
    Content,
    For,
    If,
    Load,
    Memory,
    Pointer,
    Pop,
    Procedure,
    Push,
    Read,
    Span,
    Statement,
    Store,
    Variable,
    While,
)
from gradtape.procedures.rewrite import Rewriter
from gradtape.procedures.traversal import names, roots
from gradtape.records import replaced, value_record
from gradtape.statements import walk
from gradtape.transforms.loops.budget import Record, best_chunk, chunk_bytes
from gradtape.transforms.procedures.accumulate import empty_sum
from gradtape.transforms.procedures.activity import Activity
from gradtape.transforms.procedures.adjoint import Adjoint
from gradtape.transforms.procedures.blocks import Block, BlockTree, written
from gradtape.transforms.procedures.checkpoint import (
    Chunks,
    Rerun,
    StatementCopy,
    find_reruns,
    record_bytes,
)
from gradtape.transforms.procedures.dependence import Dependence
from gradtape.transforms.procedures.residuals import Planner
from gradtape.transforms.procedures.shadows import Shadows
from gradtape.transforms.procedures.store_forwarding import normal_form


@value_record
class Between:
    """A graph that is computed between the two sweeps of a procedure: seeds that depend on its results.

    Attributes
    ----------
    body : Body
        Its inputs are some results, and further values. Its outputs are seeds, and what else is read of it.
    reads : tuple of int
        The results that are the first inputs of the body.
    makes : tuple of bool
        By seed: whether it is an output of the body.
    """

    body: Body
    reads: tuple[int, ...]
    makes: tuple[bool, ...]

    @property
    def others(self) -> list[Value]:
        """The inputs of the body that are not results."""
        return list(self.body.inputs[len(self.reads) :])

    @property
    def more(self) -> list[Value]:
        """The outputs of the body that are not seeds."""
        return list(self.body.outputs[sum(self.makes) :])


@sums_of_scalars()
def vjp_procedure(
    procedure: Procedure,
    active: Sequence[bool],
    seeded: Sequence[bool],
    policy: Any = None,
    between: Between | None = None,
) -> Procedure:
    """Return the procedure that computes the results and pulls cotangents of them back to parameters.

    Parameters
    ----------
    procedure : Procedure
        Without statements of the tape.
    active : sequence of bool
        By parameter: whether its cotangent is wanted.
    seeded : sequence of bool
        By result: whether it has a cotangent.
    policy : int, "sqrt", ("treeverse", int), "all" or None
        What is kept of the outermost loops, as for `gradtape.scan`: the records of all iterations, or what a loop changes, at the
        beginning of each chunk of so many iterations; with treeverse, at so many iterations at a time.
    between : Between, optional
        What computes seeds from results.

    Returns
    -------
    Procedure
        Its parameters are those of `procedure`, then a cotangent for each seeded result that is not computed between the sweeps, then what
        is read there; its results are those of `procedure`, then the cotangent of each active parameter, and what else is computed between
        the sweeps. Leaves and pointers of `procedure` are used again.

    Examples
    --------
    >>> from gradtape.procedures.builder import ProcedureBuilder
    >>> build = ProcedureBuilder("square")
    >>> x = build.scalar("x")
    >>> vjp_procedure(build.finish([x * x]), [True], [True]).result_types
    (f64[], f64[])
    """
    procedure, counts = normal_form(procedure)
    keep_residuals(procedure)
    mode = _ReverseMode(procedure, counts, active, seeded, policy, between)
    if mode.shares_arrays:
        procedure.body[:0] = hoist_allocations(procedure.body, [rerun.loop for rerun in mode.reruns.values()])
        mode = _ReverseMode(procedure, counts, active, seeded, policy, between)
    return mode.run()


def planned_policy(
    procedure: Procedure,
    active: Sequence[bool],
    seeded: Sequence[bool],
    budget: int,
    between: Between | None = None,
) -> Any:
    """Return the policy with which the tape of a procedure fits in so many bytes: None where it fits without.

    The other parameters are those of `vjp_procedure`. Where a trip count or the size of an array is an operand, chunks bound the memory by
    the square root of the trip count. A loop that cannot run again keeps its whole record, whatever the budget is.
    """
    procedure, counts = normal_form(procedure)
    keep_residuals(procedure)
    mode = _ReverseMode(procedure, counts, active, seeded, None, between)
    tape = mode.tape_bytes()
    if tape is not None and tape <= budget:
        return None
    chunked = _ReverseMode(procedure, counts, active, seeded, "sqrt", between)
    policies: list[Any] = [chunked.policy_within(rerun, budget) for rerun in chunked.reruns.values()]
    least = [policy for policy in policies if isinstance(policy, tuple)]
    return min(least, default="sqrt")


class _ReverseMode:
    """The two sweeps of a procedure.

    The forward sweep uses the leaves of the procedure, the reverse sweep has its own: `_leaves` replaces the former by the latter.
    """

    def __init__(
        self,
        procedure: Procedure,
        counts: Mapping[Value, Value],
        active: Sequence[bool],
        seeded: Sequence[bool],
        policy: Any,
        between: Between | None,
    ) -> None:
        self._procedure = procedure
        self._between = between
        self._policy = None if policy == "all" else policy
        self._flags = active
        self._build = ProcedureBuilder(procedure.name, names(procedure))
        self._active = Activity(procedure, active, seeded)
        self._shadows = Shadows(self._build, self._active.locations, "b")
        self._tree = BlockTree(procedure, counts)
        self._leaves = _ReverseLeaves(self._tree)
        definitions: dict[Content, Statement] = {
            content: statement
            for statement in walk(procedure.body)
            for content in statement.defines()
            if content not in counts
        }
        for pointer in [x for x in self._tree.places if isinstance(x, Pointer) and self._shadows.has(x)]:
            shadow = self._shadows.add(pointer)
            self._tree.places[shadow] = self._tree.places[pointer]
            statement = definitions.get(pointer)
            if isinstance(statement, Read):  # changed whenever the variable of the pointers is
                definitions[shadow] = Read(shadow, self._shadows.variable(statement.variable))
                self._tree.alias(self._shadows.variable(statement.variable), statement.variable)
        self._seeds: list[tuple[Content, Content, Aval]] = []
        build = self._build
        build.parameters += procedure.parameters
        build.types += procedure.types
        makes = iter(() if between is None else between.makes)
        self._made: list[tuple[Content, Aval]] = []
        for content, type_, flag in zip(procedure.results, procedure.result_types, seeded, strict=True):
            if flag:
                is_made = next(makes, False)
                name = f"{content.name}_b" if isinstance(content, Pointer) else "seed"
                seed = self._parameter(name, type_, is_made)
                self._seeds.append((content, seed, type_))
                if is_made:
                    self._made.append((seed, type_))
        self._others = [] if between is None else [self._parameter("x", x.aval) for x in between.others]
        seeds: dict[Value, Value] = {}  # a value may be several results
        for content, seed, _ in self._seeds:
            if isinstance(content, Value) and isinstance(seed, Value):
                seeds[content] = seeds[content] + seed if content in seeds else seed
        dependence = Dependence(self._tree, definitions)
        self._adjoint = Adjoint(procedure, seeds, self._tree, self._active, self._shadows, build, dependence)
        forward, _ = extract(roots(procedure), stop=lambda value: not value.is_made)
        inputs = self._tree, self._adjoint, definitions, set(forward), dependence
        self._plan = Planner(*inputs, {}).best()
        reruns = find_reruns(procedure, self._tree, dependence, self._policy is not None)
        self.reruns = {rerun.block: rerun for rerun in reruns if rerun.own or self._has_records(rerun)}
        if self.reruns:
            self._plan = Planner(*inputs, self.reruns).best()
        self._keeps = True

    def _parameter(self, name: str, type_: Aval, is_made: bool = False) -> Content:
        """Return a new parameter; what is made between the sweeps is none."""
        build = self._build
        if not is_made:
            return (
                build.array(name, type_.shape, type_.dtype)
                if type_.shape
                else build.scalar(name, type_.dtype)
            )
        if not type_.shape:
            return leaf(type_.dtype)
        name = build.unique(name)
        return Pointer(name, Memory(name, type_.dtype))

    @property
    def shares_arrays(self) -> bool:
        """Return whether iterations of a parallel loop that is not run again make arrays, which the reverse sweep would need."""
        return any(
            isinstance(loop, For) and loop.parallel and any(isinstance(s, Allocate) for s in walk(loop.body))
            for block in self._tree.blocks
            if (loop := block.holder) is not None and block.is_loop and block not in self.reruns
        )

    def _has_records(self, rerun: Rerun) -> bool:
        """Return whether the forward sweep would keep anything of a loop."""
        inside = [block for block in self._tree.blocks if rerun.block in block.around()]
        return any(self._plan.records.get(block) or self._plan.olds.get(block) for block in inside)

    def run(self) -> Procedure:
        """Return the procedure."""
        build, procedure, shadows = self._build, self._procedure, self._shadows
        for content, type_ in zip(procedure.parameters, procedure.types, strict=True):
            if isinstance(content, Pointer) and shadows.has(content):
                build.append(Allocate(shadows.of(content), literal(type_.size, INT64), True))
        self._initialise_variables()
        self._append_forward(self._tree.root)
        results = [
            self._saved_result(x, t) for x, t in zip(procedure.results, procedure.result_types, strict=True)
        ]
        extra_results = [] if self._between is None else self._append_between(self._between, results)
        self._append_seeds()
        build.current.extend(self._adjoint.temporaries)
        self._append_reverse(self._tree.root)
        types = list(procedure.result_types)
        for content, type_, flag in zip(procedure.parameters, procedure.types, self._flags, strict=True):
            if flag:
                results.append(self._cotangent(content, type_))
                types.append(type_)
        return build.finish(
            [*results, *[x for x, _ in extra_results]], [*types, *[type_ for _, type_ in extra_results]]
        )

    def _append_between(self, between: Between, results: Sequence[Content]) -> list[tuple[Content, Aval]]:
        """Append the computation between the sweeps; return its further results."""
        build = self._build
        extra_results = [(self._parameter("y", x.aval, True), x.aval) for x in between.more]
        contents = [*self._made, *extra_results]
        spans: list[Span] = []
        for content, type_ in contents:
            if isinstance(content, Pointer):
                build.append(Allocate(content, literal(type_.size, INT64)))
            else:
                content = build.allocate("y", 1, type_.dtype)
            spans.append(Span(content, literal(0, INT64), type_))
        inputs = [
            Span(x, literal(0, INT64), value.aval) if isinstance(x, Pointer) else conform(x, value.dtype, ())
            for x, value in zip(
                [*[results[position] for position in between.reads], *self._others],
                between.body.inputs,
                strict=True,
            )
        ]
        build.append(Apply(between.body, tuple(inputs), tuple(spans)))
        for (content, _), span in zip(contents, spans, strict=True):
            if isinstance(content, Value):
                build.append(Load(content, span.pointer, span.offset))
        return extra_results

    def _cotangent(self, content: Content, type_: Aval) -> Content:
        """Return the cotangent of a parameter."""
        if isinstance(content, Value):
            part = self._adjoint.cotangents.get(content)
            return literal(0.0, type_.dtype) if part is None else self._leaves.value(part) + 0.0  # no -0.0
        if self._shadows.has(content):
            return self._shadows.of(content)
        return self._build.allocate(f"{content.name}_b", type_.size, type_.dtype, zero=True)

    def _saved_result(self, content: Content, type_: Aval) -> Content:
        """Return a result; a copy of an array to which the reverse sweep writes."""
        if isinstance(content, Value) or (
            not any(content.memory in rerun.arrays for rerun in self.reruns.values())
            and not any(
                isinstance(block.statements[position], Store | Apply)
                and content.memory in self._tree.changed(block.statements[position])
                for block, overwritten in self._plan.olds.items()
                for position in overwritten
            )
        ):
            return content
        build = self._build
        copy = build.allocate(content.name, type_.size, type_.dtype)
        with build.loop(type_.size) as i:
            build.store(copy, i, build.load(content, i))
        return copy

    def _append_seeds(self) -> None:
        """Append the first values of the shadows in the reverse sweep."""
        build = self._build
        for location in dict.fromkeys(
            s.variable for s in walk(self._procedure.body) if isinstance(s, Assign)
        ):
            if location in self._active.locations and isinstance(location.type, Aval):
                shadow = self._shadows.variable(location)
                build.assign(shadow, empty_sum(shadow))
        for content, seed, type_ in self._seeds:
            if isinstance(content, Pointer) and isinstance(seed, Pointer) and self._shadows.has(content):
                with build.loop(type_.size) as i:
                    build.store(self._shadows.of(content), i, build.load(seed, i))

    def _initialise_variables(self) -> None:
        """Let variables that are undone, or read again, have a value before their first assignment, which may be in a branch."""
        plan = self._plan
        undone = [block.statements[position] for block, olds in plan.olds.items() for position in olds]
        reloads_and_reads = [
            s for reloads in plan.reloads.values() for each in reloads.values() for s in each
        ]
        undone_statements = dict.fromkeys(
            s.variable for s in (*undone, *reloads_and_reads) if isinstance(s, Assign | Read)
        )
        for variable in undone_statements:
            if isinstance(variable.type, Aval):
                self._build.assign(variable, 0)

    # Forward sweep

    def _append_forward(self, block: Block, first: int = 0, last: int | None = None) -> None:
        """Append the statements of a block, and its record at the end."""
        for position in range(first, len(block.statements) if last is None else last):
            self._append_statement(block, position, block.statements[position])
        records = self._plan.records.get(block)
        if records and last is None and self._keeps and not self._is_run_again_alone(block):
            self._build.append(Push(tuple(records)))

    def _is_run_again_alone(self, block: Block) -> bool:
        """Return whether this is an iteration that runs again just before its reverse."""
        return block in self.reruns and self.reruns[block].is_parallel

    def _append_statement(self, block: Block, position: int, statement: Statement) -> None:
        """Append a statement of the forward sweep with what belongs to it."""
        build, shadows = self._build, self._shadows
        overwritten = self._plan.olds.get(block, {})
        inner = block.inner[position]
        if position in overwritten and self._keeps:
            self._append_old(statement, overwritten[position])
        if inner and inner[0] in self.reruns and inner[0] in self._plan.live and self._keeps:
            self._append_checkpoints(self.reruns[inner[0]])
        elif isinstance(statement, For):
            loop = replaced(statement, body=[])
            build.append(loop)
            with build.block(loop.body):
                self._append_forward(inner[0])
        elif isinstance(statement, While):
            repeat = While(statement.condition)
            build.append(repeat)
            with build.block(repeat.test):
                self._append_forward(inner[0], 0, len(statement.test))
            with build.block(repeat.body):
                self._append_forward(inner[0], len(statement.test))
        elif isinstance(statement, If):
            branch = If(statement.condition)
            build.append(branch)
            for statements, each in zip((branch.then, branch.otherwise), inner, strict=True):
                with build.block(statements):
                    self._append_forward(each)
        else:
            build.append(statement)
        if isinstance(statement, Allocate) and shadows.has(statement.out):
            build.append(Allocate(shadows.of(statement.out), statement.size, True))
        elif (
            isinstance(statement, Read) and isinstance(statement.out, Pointer) and shadows.has(statement.out)
        ):
            build.append(Read(shadows.of(statement.out), shadows.variable(statement.variable)))
        elif (
            isinstance(statement, Assign)
            and isinstance(statement.value, Pointer)
            and shadows.has(statement.value)
        ):
            build.assign(shadows.variable(statement.variable), shadows.of(statement.value))

    def _append_old(self, statement: Statement, old: Value | None) -> None:
        """Append what keeps the contents that a statement is to overwrite."""
        build = self._build
        if isinstance(statement, Store) and old is not None:
            build.append(Load(old, statement.pointer, statement.index, statement.site))
        elif isinstance(statement, Assign) and old is not None:
            build.append(Read(old, statement.variable))
        elif isinstance(statement, Apply):
            for span in statement.outputs:
                with build.loop(span.aval.size) as i:
                    build.append(Push((build.load(span.pointer, span.offset + i),)))

    # Reverse sweep

    def _append_reverse(self, block: Block) -> None:
        """Append the reverse of a block."""
        plan, build = self._plan, self._build
        records = plan.records.get(block)
        if records and not self._is_run_again_alone(block):
            outs = tuple([self._fresh(content) for content in records])
            build.append(Pop(outs))
        for statement in self._adjoint.begins[block]:
            build.append(statement)
        overwritten, reloads = plan.olds[block], plan.reloads.get(block, {})
        order = {**{statement: position for position, statement in enumerate(block.statements)}, **plan.order}
        for position in range(len(block.statements) - 1, -2, -1):
            for statement in sorted(reloads.get(position, ()), key=lambda each: order.get(each, -1)):
                self._append_reload(statement)
            effect = block.statements[position] if position >= 0 else None
            if position in overwritten and not isinstance(effect, Apply):
                self._append_undo(block.statements[position], overwritten[position])
            for step in self._adjoint.steps[block][position]:
                self._append_step(step)
            if position in overwritten and isinstance(effect, Apply):  # whose pullback may use its results
                self._append_undo(effect, overwritten[position])

    def _fresh(self, content: Content) -> Content:
        """Return a leaf of the reverse sweep that stands for what the forward sweep computed."""
        fresh: Content
        if isinstance(content, Pointer):
            fresh = Pointer(self._build.unique(content.name), content.memory)
        else:
            fresh = leaf(content.dtype)
        self._leaves.becomes[content] = fresh
        return fresh

    def _append_reload(self, statement: Load | Read) -> None:
        if isinstance(statement, Read):
            self._build.append(Read(self._fresh(statement.out), statement.variable))
        else:
            pointer, index = self._leaves.pointer(statement.pointer), self._leaves.value(statement.index)
            fresh = self._fresh(statement.out)
            assert isinstance(fresh, Value)
            self._build.append(Load(fresh, pointer, index))

    def _append_undo(self, statement: Statement, old: Value | None) -> None:
        """Append what writes overwritten contents back."""
        build = self._build
        if isinstance(statement, Store) and old is not None:
            build.store(
                self._leaves.pointer(statement.pointer),
                self._leaves.value(statement.index),
                self._leaves.value(old),
            )
        elif isinstance(statement, Assign) and old is not None:
            build.assign(statement.variable, self._leaves.value(old))
        elif isinstance(statement, Apply):
            for span in reversed(statement.outputs):
                pointer, offset, size = (
                    self._leaves.pointer(span.pointer),
                    self._leaves.value(span.offset),
                    span.aval.size,
                )
                with build.loop(size) as i:
                    popped = leaf(span.aval.dtype)
                    build.append(Pop((popped,)))
                    build.store(pointer, offset + (literal(size - 1, INT64) - i), popped)

    def _append_step(self, step: Statement) -> None:
        """Append a statement of the reverse sweep in terms of its leaves."""
        build = self._build
        inner = self._adjoint.inner.get(step)
        if inner is not None and self._plan.live.isdisjoint(inner):
            return
        if isinstance(step, For) and inner is not None and inner[0] in self.reruns:
            self._append_rerun(self.reruns[inner[0]], step)
        elif isinstance(step, For):
            loop = For(step.index, self._leaves.value(step.count), [], step.parallel, step.site)
            build.append(loop)
            with build.block(loop.body):
                if inner is None:
                    for statement in step.body:
                        self._append_step(statement)
                else:
                    (block,) = inner
                    last = loop.count - literal(1, INT64)
                    self._leaves.becomes[block.number] = last - loop.index
                    self._append_reverse(block)
        elif isinstance(step, If):
            branch = If(self._leaves.value(step.condition))
            build.append(branch)
            for statements, steps in ((branch.then, step.then), (branch.otherwise, step.otherwise)):
                with build.block(statements):
                    for statement in steps:
                        self._append_step(statement)
            for statements, block in zip(
                (branch.then, branch.otherwise), inner or (), strict=inner is not None
            ):
                with build.block(statements):
                    if block in self._plan.live:
                        self._append_reverse(block)
        else:
            build.append(self._leaves.statement(step))

    # Loops that run again

    def _kept(self, rerun: Rerun) -> tuple[list[Allocate], list[Variable]]:
        """Return the arrays and the variables that are stored before a loop that runs again, or before each of its chunks."""
        inside = [block for block in self._tree.blocks if rerun.block in block.around()]
        undone = [
            block.statements[position] for block in inside for position in self._plan.olds.get(block, ())
        ]
        locations = dict.fromkeys(
            (*rerun.conflicting, *[x for statement in undone for x in written(statement)])
        )
        arrays = [
            s for memory, allocations in rerun.arrays.items() if memory in locations for s in allocations
        ]
        variables = dict.fromkeys(rerun.variables)
        if not rerun.is_parallel:
            variables.update(dict.fromkeys(x for x in locations if isinstance(x, Variable)))
        for variable in list(variables):
            if isinstance(variable.type, Memory) and self._shadows.has(variable):
                variables[self._shadows.variable(variable)] = None
        return arrays, list(variables)

    def _append_stored(self, rerun: Rerun) -> None:
        """Append what stores the state of a loop on the tape."""
        build = self._build
        arrays, variables = self._kept(rerun)
        for array in arrays:
            with build.loop(array.size) as i:
                build.append(Push((build.load(array.out, i),)))
        if variables:
            build.append(Push(tuple([build.read(variable) for variable in variables])))

    def _append_restored(self, rerun: Rerun) -> None:
        """Append what takes the state of a loop off the tape."""
        build = self._build
        arrays, variables = self._kept(rerun)
        if variables:
            outs = tuple([self._new(x.type) for x in variables])
            build.append(Pop(outs))
            for variable, out in zip(variables, outs, strict=True):
                build.append(Assign(variable, out))
        for array in reversed(arrays):
            size = self._leaves.value(array.size)
            with build.loop(size) as i:
                popped = leaf(array.out.dtype)
                build.append(Pop((popped,)))
                build.store(self._leaves.pointer(array.out), size - (i + 1), popped)

    def _new(self, type_: Aval | Memory) -> Content:
        return Value(type_) if isinstance(type_, Aval) else Pointer(self._build.unique("held"), type_)

    def tape_bytes(self) -> int | None:
        """Return the bytes of the records of all iterations; None where a trip count that is an operand decides."""
        total = 0
        for block in self._tree.blocks:
            around = list(block.around())
            if not block.is_loop or any(outer.is_loop for outer in around[1:]) or block in self.reruns:
                continue
            size = self._record_bytes(block)
            trips = number_of(block.holder.count) if isinstance(block.holder, For) else None
            if size and trips is None:
                return None
            total += size * int(trips or 0)
        return total

    def _record_bytes(self, block: Block) -> int:
        """Return the bytes that an iteration keeps: its records, and what its statements overwrite."""
        records: dict[Block, list[Content]] = {}
        for inner in self._tree.blocks:
            overwritten = self._plan.olds.get(inner, {})
            records[inner] = [*self._plan.records.get(inner, ())]
            for position, old in overwritten.items():
                statement = inner.statements[position]
                if isinstance(statement, Apply):
                    records[inner] += [Value(span.aval) for span in statement.outputs]
                elif old is not None:
                    records[inner].append(old)
        return record_bytes(block, self._tree, records)

    def policy_within(self, rerun: Rerun, budget: int) -> Any:
        """Return the policy of a loop that runs again: chunks where they fit, or where sizes are operands."""
        arrays, variables = self._kept(rerun)
        sizes = [number_of(array.size) for array in arrays]
        trips = number_of(rerun.loop.count) if isinstance(rerun.loop, For) else None
        if rerun.is_parallel or trips is None or any(size is None for size in sizes):
            return "sqrt"
        state = 8 * len(variables)
        state += sum(
            int(size) * array.out.dtype.itemsize
            for array, size in zip(arrays, sizes, strict=True)
            if size is not None
        )
        record = Record(int(trips), self._record_bytes(rerun.block), state)
        if chunk_bytes(record, best_chunk(record)) <= budget:
            return "sqrt"
        return "treeverse", max((budget - record.step) // max(state, 1) - 1, 1)

    def _chunks(self, rerun: Rerun, leaves: Rewriter) -> Chunks:
        """Return the chunks of a loop."""
        arrays, variables = self._kept(rerun)
        stored: Value = literal(8 * len(variables), INT64)
        for array in arrays:
            stored = stored + leaves.value(array.size) * array.out.dtype.itemsize
        return Chunks(self._policy, stored, record_bytes(rerun.block, self._tree, self._plan.records))

    def _append_checkpoints(self, rerun: Rerun) -> None:
        """Append a loop of the forward sweep that runs again in the reverse sweep: without records."""
        build, loop, block = self._build, rerun.loop, rerun.block
        self._keeps = False
        test: list[Statement] = []
        body: list[Statement] = []
        tested = len(loop.test) if isinstance(loop, While) else 0
        with build.block(test):
            self._append_forward(block, 0, tested)
        with build.block(body):
            self._append_forward(block, tested)
        self._keeps = True
        if isinstance(loop, For) and loop.parallel:
            self._append_stored(rerun)
            build.append(For(loop.index, loop.count, body, True))
            return
        if isinstance(self._policy, tuple):
            self._append_checkpoint(rerun, literal(0, INT64))
            build.append(
                replaced(loop, body=body) if isinstance(loop, For) else While(loop.condition, test, body)
            )
            return
        same = Rewriter()
        chunks = self._chunks(rerun, same)
        if isinstance(loop, For):
            length = chunks.length(loop.count)
            with build.loop(floor_divide(loop.count + (length - 1), length)) as number:
                first = number * length
                self._append_stored(rerun)
                with build.loop(minimum(length, loop.count - first)) as offset:
                    copy = StatementCopy(same, {})
                    copy.becomes[loop.index] = first + offset
                    build.current.extend(copy.block(body))
            return
        chunk = build.variable("chunk", 0)
        with build.loop_while() as outer:
            number = build.read(chunk)
            copy = StatementCopy(same, {})
            build.current.extend(copy.block(test))
            build.start_body(outer, copy.value(loop.condition))
            self._append_stored(rerun)
            end = chunks.begin(number + 1)
            with build.loop_while() as repeat:
                copy = StatementCopy(same, {})
                build.current.extend(copy.block(test))
                goes_on = logical_and(copy.value(loop.condition), less(copy.value(block.number), end))
                build.start_body(repeat, goes_on)
                build.current.extend(copy.block(body))
            build.assign(chunk, number + 1)
        build.append(Push((build.read(chunk),)))

    def _append_rerun(self, rerun: Rerun, step: For) -> None:
        """Append the reverse of a loop, whose iterations run again before."""
        build, loop, block = self._build, rerun.loop, rerun.block
        count = self._leaves.value(step.count)
        if rerun.is_parallel:
            self._append_restored(rerun)
            back = For(step.index, count, [], step.parallel, step.site)
            build.append(back)
            with build.block(back.body):
                fresh_variables = {
                    x: Variable(build.unique(x.name), x.type)
                    for x in sorted(rerun.totals, key=lambda x: x.name)
                }
                for variable in fresh_variables.values():
                    build.assign(variable, 0)
                number = count - (back.index + 1)
                copy = self._append_again(rerun, number, fresh_variables)
                self._leaves.becomes[block.number] = number
                for content in self._plan.records.get(block, ()):
                    self._leaves.becomes[content] = copy.content(content)
                self._append_reverse(block)
            return
        if isinstance(self._policy, tuple):
            self._append_treeverse(rerun, count, self._policy[1])
            return
        chunks = self._chunks(rerun, self._leaves)
        if isinstance(loop, For):
            length = chunks.length(count)
            all_: Value = floor_divide(count + (length - 1), length)
        else:
            all_ = leaf(INT64)
            build.append(Pop((all_,)))
        with build.loop(all_) as before:
            chunk = all_ - (before + 1)
            first = chunk * length if isinstance(loop, For) else chunks.begin(chunk)
            end = first + length if isinstance(loop, For) else chunks.begin(chunk + 1)
            size = minimum(end, count) - first
            self._append_restored(rerun)
            with build.loop(size) as offset:
                self._append_again(rerun, first + offset, {})
            with build.loop(size) as offset:
                self._leaves.becomes[block.number] = first + (size - (offset + 1))
                self._append_reverse(block)

    def _append_checkpoint(self, rerun: Rerun, number: Value) -> None:
        """Append what stores the state at the beginning of an iteration, with its number."""
        self._append_stored(rerun)
        self._build.append(Push((number,)))

    def _append_treeverse(self, rerun: Rerun, count: Value, most: int) -> None:
        """Append the reverse of a loop with `most` checkpoints at a time.

        For a step back the loop runs from the last checkpoint, and stores new ones on the way, at distances with the least number of
        iterations that run again: A. Griewank and A. Walther, "Algorithm 799: Revolve", ACM Transactions on Mathematical Software 26, 2000.
        """
        build = self._build
        stored_count = build.variable("held", 1)
        with build.branch(count < 1):
            build.append(Pop((leaf(INT64),)))
            self._append_restored(rerun)
        with build.loop(count) as before:
            goal = count - (before + 1)
            number = leaf(INT64)
            build.append(Pop((number,)))
            self._append_restored(rerun)
            here_ = build.variable("here", number)
            with build.branch(number < goal) as branch:
                self._append_checkpoint(rerun, number)
                build.start_otherwise(branch)
                build.assign(stored_count, build.read(stored_count) - 1)
            with build.loop_while() as repeat:
                build.start_body(repeat, build.read(here_) < goal)
                first = build.read(here_)
                ahead = build.variable("ahead", goal - first)
                with build.branch(build.read(stored_count) < most):
                    slots = most + 1 - build.read(stored_count)
                    build.assign(ahead, self._append_distance(goal + 1 - first, slots))
                with build.loop(build.read(ahead)) as offset:
                    self._keeps = False
                    self._append_again(rerun, first + offset, {})
                    self._keeps = True
                last = first + build.read(ahead)
                build.assign(here_, last)
                with build.branch(last < goal):
                    self._append_checkpoint(rerun, last)
                    build.assign(stored_count, build.read(stored_count) + 1)
            self._append_again(rerun, goal, {})
            self._leaves.becomes[rerun.block.number] = goal
            self._append_reverse(rerun.block)

    def _append_distance(self, remaining: Value, slots: Value) -> Value:
        """Append what computes the distance to the next checkpoint, with `remaining` iterations to cover.

        If each iteration runs r times at most, s checkpoints cover ``(s + r)! / s! r!`` iterations.
        """
        build = self._build
        runs, covered = build.variable("runs", 0), build.variable("covered", 1)
        with build.loop_while() as repeat:
            build.start_body(repeat, build.read(covered) < remaining)
            next_run = build.read(runs) + 1
            build.assign(covered, floor_divide(build.read(covered) * (slots + next_run), next_run))
            build.assign(runs, next_run)
        most = build.read(runs)
        ours = floor_divide(build.read(covered) * most, slots + most)
        fewer = floor_divide(ours * slots, slots + most - 1)
        distance: Value = minimum(ours, remaining - fewer)
        return distance

    def _append_again(
        self, rerun: Rerun, number: Value, variables: Mapping[Variable, Variable]
    ) -> StatementCopy:
        """Append an iteration of the forward sweep once more, with its records."""
        repeated: list[Statement] = []
        with self._build.block(repeated):
            self._append_forward(rerun.block)
        copy = StatementCopy(self._leaves, variables)
        if isinstance(rerun.loop, For):
            copy.becomes[rerun.loop.index] = number
        self._build.current.extend(copy.block(repeated))
        return copy


class _ReverseLeaves(Rewriter):
    """Replaces leaves of the forward sweep by those of the reverse sweep; leaves of the outermost block are known in both."""

    def __init__(self, tree: BlockTree) -> None:
        super().__init__()
        self._tree = tree

    def unknown(self, content: Content) -> None:
        place = self._tree.places.get(content)
        if place is not None and place.block is not self._tree.root:
            raise InternalError("the reverse sweep does not have a leaf of the forward sweep")
