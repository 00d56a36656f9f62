"""Reverse mode through loops: a loop forward that leaves what is needed of each turn, and one backward over that."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from gradtape.ir.builder import at
from gradtape.ir.graph import Literal, Node, Value, extract, literal
from gradtape.ir.primitives import PRIMITIVES
from gradtape.ir.types import BOOL, aval, carries_derivatives
from gradtape.kinds.cotangent import Cotangent
from gradtape.transforms.loops.batch_before_loop import lifted
from gradtape.transforms.loops.checkpoint import ENTRIES, chunk_of, goes_in_chunks, in_chunks, until_in_chunks
from gradtape.transforms.loops.deferred_accumulation import LateSums
from gradtape.transforms.loops.draft import Carry, Draft, Given, Loop, nothing, stand_in, substituted
from gradtape.transforms.loops.licm import hoisted, selected
from gradtape.transforms.loops.prefix_sums import continued
from gradtape.transforms.loops.residuals import kept
from gradtape.transforms.loops.treeverse import Treeverse
from gradtape.transforms.shift_invariance import depending_on
from gradtape.transforms.vjp import sweep_back

Some = Sequence[Cotangent | None]


@dataclass(slots=True)
class _Turn:
    """One turn in reverse.

    Attributes
    ----------
    carries, left : dict of Value to Value
        What stands for the cotangent of a carry after the turn, by what stands for the carry before it; for that of something
        left behind, by its place.
    cut : dict of int to Value
        What stands for the masks of those of what is left behind.
    pulled : dict of Value to Value
        The cotangents of what the turn starts from.
    masks : dict of Value to Carry
        By what stands for a carry: where its cotangent is not zero by selection, which the next turn backward is told. Without it
        an infinite slope there would make NaN of a zero.
    told : dict of Value to Value
        By what stands for a const or an element: where what the turn adds to its cotangent is not zero by selection.
    """

    carries: dict[Value, Value]
    left: dict[int, Value]
    cut: dict[int, Value]
    pulled: dict[Value, Value]
    masks: dict[Value, Carry]
    told: dict[Value, Value]

    def results(self) -> list[Value]:
        """Return all that the turn computes."""
        masks = [mask.after for mask in self.masks.values()]
        return [*self.pulled.values(), *masks, *self.told.values()]

    def substitute(self, becomes: dict[Value, Value]) -> None:
        """Let the turn compute with other values in the place of some."""
        changed = iter(substituted(self.results(), becomes))
        self.pulled = dict(zip(self.pulled, changed, strict=False))
        self.masks = {
            inside: mask._replace(after=after)
            for (inside, mask), after in zip(self.masks.items(), changed, strict=False)
        }
        self.told = dict(zip(self.told, changed, strict=True))


def pull_loop(op: Loop, node: Node, cotangents: Some, wanted: Sequence[bool]) -> list[Cotangent | None]:
    """Return the cotangents of a loop's operands."""
    draft = op.opened(node)
    carries, left, _ = op.parted(cotangents, len(draft.carries))
    ends = zip((*[carry.after for carry in draft.carries], *draft.left), (*carries, *left), strict=True)
    staying = selected(draft, [end for end, each in ends if each is not None and each.mask is not None])
    better = hoisted(draft, staying, deriving=True) or lifted(draft, staying)
    if better is not None:
        return _pulled_through(op.outs(better.emit()), node, cotangents, wanted)
    chunk = chunk_of(draft.params.get("length", 0), draft.params.get("policy"))
    if chunk is not None:
        return _pulled_through(op.outs(in_chunks(draft, chunk)), node, cotangents, wanted)
    if goes_in_chunks(draft):
        return _pulled_through(op.outs(until_in_chunks(draft)), node, cotangents, wanted)
    turn = _turn_back(draft, carries, left, wanted)
    more: list[Carry] = []
    if isinstance(draft.params.get("policy"), tuple):
        back, more = _run_again(op, node, draft, turn)
    else:
        stacks, more, count = _kept_forward(op, node, draft, turn)
        back = op.turned(draft, count)
        back.consts = list(draft.consts)
        back.elements = [*draft.elements, *stacks]
    for place, seed in turn.left.items():
        cotangent = left[place]
        assert cotangent is not None
        back.elements.append(Given(cotangent.value, seed))
        if cotangent.mask is not None:
            back.elements.append(Given(cotangent.mask, turn.cut[place]))
    return _emitted_back(draft, turn, back, more, carries, wanted)


def _run_again(op: Loop, node: Node, draft: Draft, turn: _Turn) -> tuple[Draft, list[Carry]]:
    """Return the loop backward of which each turn knows what it begins with by running forward, and what it carries for that."""
    _, _, trips = op.parted(node.outs, len(draft.carries))
    back = op.turned(draft, trips)
    back.consts = list(draft.consts)
    _, count = draft.params["policy"]
    # Bounds of a few turns are as good as none.
    count = min(max(count, 1), max(draft.params.get("length", count), 1))
    runs = Treeverse(draft, back, count, *op.helpers())
    back.elements = list(draft.elements)
    turn.substitute(runs.entries)
    return back, runs.carries


def _emitted_back(
    draft: Draft,
    turn: _Turn,
    back: Draft,
    more: Sequence[Carry],
    carries: Some,
    wanted: Sequence[bool],
) -> list[Cotangent | None]:
    """Append the loop backward, which reads all that it needs, and return what it comes to for each operand of the node.

    It carries `more` as well.
    """
    starts: list[Value] = []
    for carry, cotangent in zip(draft.carries, carries, strict=True):
        seed = turn.carries.get(carry.inside)
        if seed is not None:
            start = PRIMITIVES["zeros_like"](carry.start) if cotangent is None else cotangent.value
            after = turn.pulled.get(carry.inside)
            back.carries.append(
                Carry(start, seed, PRIMITIVES["zeros_like"](seed) if after is None else after)
            )
            starts.append(carry.inside)
    singles = [element.inside for element in draft.elements if element.inside in turn.pulled]
    cut = [inside for inside in singles if inside in turn.told]
    back.left = [*[turn.pulled[inside] for inside in singles], *[turn.told[inside] for inside in cut]]
    count = len(back.left)
    late = _sum_consts(draft, turn, back, starts)
    if not back.carries and not back.left:
        return [None] * len(wanted)
    shared = [const for const in draft.consts if const.inside in turn.told and const.inside in turn.pulled]
    back.carries += [*more, *turn.masks.values(), *[_gathered_mask(const, turn) for const in shared]]
    outcome = back.emit()
    found = dict(
        zip(
            (*starts, *singles),
            (*outcome.carries[: len(starts)], *outcome.left[: len(singles)]),
            strict=True,
        )
    )
    masks = dict(
        zip(
            (*turn.masks, *[const.inside for const in shared], *cut),
            (*outcome.carries[len(starts) + len(more) :], *outcome.left[len(singles) : count]),
            strict=True,
        )
    )
    if late is not None:
        for const, total in late.totals(outcome.left).items():
            found[const] = PRIMITIVES["add"](found[const], total) if const in found else total
    insides = draft.insides[1:]
    lead: list[Cotangent | None] = [None] * (len(wanted) - len(insides))
    flags = wanted[len(lead) :]
    return [
        *lead,
        *[
            Cotangent(found[inside], masks.get(inside), inside in turn.told)
            if flag and inside in found
            else None
            for inside, flag in zip(insides, flags, strict=True)
        ],
    ]


def _gathered_mask(const: Given, turn: _Turn) -> Carry:
    """Return the carry that says where one of the turns adds something to the cotangent of a const."""
    so_far = Value(aval(const.inside.shape, BOOL))
    never = PRIMITIVES["expand"](literal(False), const.inside.shape, ())
    return Carry(never, so_far, PRIMITIVES["bitwise_or"](so_far, turn.told[const.inside]))


def _sum_consts(draft: Draft, turn: _Turn, back: Draft, starts: list[Value]) -> LateSums | None:
    """Let the turns backward sum up the cotangents of what is the same in each, or leave them behind to be summed up."""
    # With a policy memory counts, and a result must not depend on which it is.
    late = LateSums(back) if "length" in back.params and back.params["policy"] is None else None
    parts: dict[Given, Value] = {}
    for const in draft.consts:
        part = turn.pulled.get(const.inside)
        if part is not None and late is not None:
            part = late.take(const, part)
        if part is not None:
            parts[const] = part
    sums = [stand_in(const.inside) for const in parts]
    totals = [PRIMITIVES["add"](so_far, part) for so_far, part in zip(sums, parts.values(), strict=True)]
    afters = [carry.after for carry in back.carries]
    changed = [value for value in continued([*totals, *afters, *back.left]) if value is not None]
    count = len(totals)
    back.carries = [
        carry._replace(after=after) for carry, after in zip(back.carries, changed[count:], strict=False)
    ]
    back.left = changed[count + len(afters) :]
    for const, so_far, total in zip(parts, sums, changed, strict=False):
        back.carries.append(Carry(PRIMITIVES["zeros_like"](const.outside), so_far, total))
        starts.append(const.inside)
    return late


def _pulled_through(
    outs: Sequence[Value], node: Node, cotangents: Some, wanted: Sequence[bool]
) -> list[Cotangent | None]:
    """Return the cotangents of a node's operands by way of other nodes that compute the same from these."""
    sources = dict.fromkeys(value for value, flag in zip(node.inputs, wanted, strict=True) if flag)
    pairs = [
        (out, cotangent) for out, cotangent in zip(outs, cotangents, strict=True) if cotangent is not None
    ]
    sweep = sweep_back(
        [out for out, _ in pairs],
        list(sources),
        [cotangent.value for _, cotangent in pairs],
        set(node.inputs).__contains__,
        set(sources),
        [cotangent.mask for _, cotangent in pairs],
    )
    arrived = dict(sweep.arrived())
    ends = [arrived.get(source) for source in sources]
    values = continued(
        [
            *[None if end is None else end.value for end in ends],
            *[None if end is None else end.mask for end in ends],
        ]
    )
    found = {
        source: Cotangent(value, mask, end.is_applied)
        for source, value, mask, end in zip(sources, values, values[len(ends) :], ends, strict=False)
        if value is not None and end is not None
    }
    # An operand that is passed twice has its cotangent once.
    return [found.pop(value, None) if flag else None for value, flag in zip(node.inputs, wanted, strict=True)]


def _turn_back(draft: Draft, carries: Some, left: Some, wanted: Sequence[bool]) -> _Turn:
    """Pull back through a turn, as often as it takes to know which carries have cotangents."""
    sources = _reached(draft, wanted)
    active = depending_on(draft.nodes(), sources)
    seeds = {
        carry.inside: stand_in(carry.inside)
        for carry, cotangent in zip(draft.carries, carries, strict=True)
        if cotangent is not None and carry.inside in sources
    }
    seeded = {
        place: stand_in(value)
        for place, (value, cotangent) in enumerate(zip(draft.left, left, strict=True))
        if cotangent is not None and value in active
    }
    insides = [carry.inside for carry in draft.carries]
    begins = {
        inside: cotangent.mask
        for inside, cotangent in zip(insides, carries, strict=True)
        if inside in seeds and cotangent is not None and cotangent.mask is not None
    }
    masks = {inside: Value(aval(inside.shape, BOOL)) for inside in begins}
    cut = {
        place: Value(aval(stand.shape, BOOL))
        for place, stand in seeded.items()
        if (cotangent := left[place]) is not None and cotangent.mask is not None
    }
    while True:  # ends: each round but the last finds a carry more with a cotangent, or with a mask
        targets = [carry for carry in draft.carries if carry.inside in seeds]
        sweep = sweep_back(
            [*[carry.after for carry in targets], *[draft.left[place] for place in seeded]],
            list(sources),
            [*[seeds[carry.inside] for carry in targets], *seeded.values()],
            nothing,
            masks=[*[masks.get(carry.inside) for carry in targets], *map(cut.get, seeded)],
        )
        pulled = {
            source: _typed(result, source)
            for source, result in zip(sources, sweep.results, strict=True)
            if result is not None
        }
        arrived = dict(sweep.arrived())
        masked = [inside for inside in insides if inside in pulled and arrived[inside].mask is not None]
        woken = [inside for inside in insides if inside in pulled and inside not in seeds]
        told = [inside for inside in masked if inside not in masks]
        if not woken and not told:
            break
        seeds.update({inside: stand_in(inside) for inside in woken})
        masks.update({inside: Value(aval(inside.shape, BOOL)) for inside in told})
    carried: dict[Value, Carry] = {}
    for inside, cotangent in zip(insides, carries, strict=True):
        if inside in masks and cotangent is None:  # nothing arrives at the last turn
            begins[inside] = PRIMITIVES["expand"](literal(False), inside.shape, ())
    for inside, mask in masks.items():
        everywhere = PRIMITIVES["expand"](literal(True), inside.shape, ())
        end = arrived.get(inside)
        if end is not None:
            pulled[inside] = _typed(end.value, inside)
        after = everywhere if end is None or end.mask is None else end.mask
        carried[inside] = Carry(begins.get(inside, everywhere), mask, after)
    shares = {
        given.inside: end.mask
        for given in (*draft.consts, *draft.elements)
        if given.outside.dtype.kind != "O"
        and (end := arrived.get(given.inside)) is not None
        and end.mask is not None
        and given.inside in pulled
    }
    return _Turn(seeds, seeded, cut, pulled, carried, shares)


def _reached(draft: Draft, wanted: Sequence[bool]) -> dict[Value, None]:
    """Return what derivatives follow of what a turn starts from: a carry as well where an earlier turn makes it so."""
    flags = [flag for group in draft.split(wanted) for flag in group]
    found: dict[Value, None] = {
        inside: None
        for inside, flag in zip(draft.insides[1:], flags, strict=True)
        if flag and carries_derivatives(inside.dtype)
    }
    nodes = draft.nodes()
    while True:  # ends: each round but the last finds a carry more
        active = depending_on(nodes, found)
        woken = [
            carry.inside
            for carry in draft.carries
            if carry.after in active and carry.inside not in found and carries_derivatives(carry.inside.dtype)
        ]
        if not woken:
            return found
        found.update(dict.fromkeys(woken))


def _kept_forward(
    op: Loop, node: Node, draft: Draft, turn: _Turn
) -> tuple[list[Given], list[Carry], Value | None]:
    """Return what is kept of the turns, stacked; what the way back carries besides; and the number of turns where the loop tells it."""
    reads, early = _read_back(draft, turn)
    entries = [carry.inside for carry in draft.carries]
    if draft.params.get("policy") == ENTRIES:
        needed = set(reads).union(*[each.inputs for each in early])
        stored = [carry.inside for carry in draft.carries if carry.inside in needed]
    else:
        stored = kept(entries, reads, early, set(draft.nodes()), draft.left)
    handed = _handed_back(draft, stored)
    stored = [value for value in stored if value not in handed]
    ends, left, count = op.parted(node.outs, len(draft.carries))
    stacks = {value: stack for value, stack in zip(draft.left, left, strict=True) if value in stored}
    more = [value for value in stored if value not in stacks]
    if more:
        with at(node.site):  # it runs forward
            outcome = draft.with_left(more).emit()
        ends, count = outcome.carries, outcome.turns
        stacks.update(zip(more, outcome.left, strict=True))
    carries = [Carry(ends[place], after, draft.carries[place].inside) for after, place in handed.items()]
    return [Given(stacks[value], value) for value in stored], carries, count


def _handed_back(draft: Draft, stored: Sequence[Value]) -> dict[Value, int]:
    """Return the carries after a turn that need not be kept, with their places: they are those before the next turn, which are."""
    chosen = set(stored)
    found: dict[Value, int] = {}
    for place, carry in enumerate(draft.carries):
        computed = carry.after in chosen and carry.after.node is not None and carry.after not in draft.left
        if computed and carry.inside in chosen:
            found.setdefault(carry.after, place)
    return found


def _read_back(draft: Draft, turn: _Turn) -> tuple[dict[Value, None], list[Node]]:
    """Return what the way back reads of the way forward, and the nodes that no cotangent reaches."""
    moving = {*turn.carries.values(), *turn.left.values(), *turn.cut.values()}
    moving.update([mask.inside for mask in turn.masks.values()])
    results = turn.results()
    nodes, _ = extract(results, [*draft.insides, *moving])
    early: list[Node] = []
    late: list[Value] = []
    for node in nodes:
        if any(value in moving for value in node.inputs):
            moving.update(node.outs)
            late.extend(node.inputs)
        else:
            early.append(node)
    known = (value for value in (*late, *results) if value not in moving)
    return {v: None for v in known if not isinstance(v, Literal) and v.data is None}, early


def _typed(part: Value, like: Value) -> Value:
    return part if part.dtype == like.dtype else PRIMITIVES["convert"](part, like.dtype)
