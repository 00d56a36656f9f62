"""The control flow graph: dominators and natural loops, and the simplifications that come before structuring."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from gradtape.frontend.blocks import BasicBlock, Code, Instruction
from gradtape.records import record

Blocks = dict[int, BasicBlock]


@record
class FlowGraph:
    """Blocks with their dominator tree and natural loops.

    Attributes
    ----------
    blocks : dict of int to BasicBlock
        Those that control can reach.
    order : dict of int to int
        The positions in reverse postorder.
    predecessors : dict of int to list of int
        Where control comes from.
    dominators : dict of int to int
        The immediate dominator of each block but the first.
    loops : dict of int to set of int
        The blocks of the natural loop of each header.
    """

    blocks: Blocks
    order: dict[int, int]
    predecessors: dict[int, list[int]]
    dominators: dict[int, int]
    loops: dict[int, set[int]]


def flow_graph(code: Code) -> FlowGraph:
    """Return the simplified control flow graph of a function."""
    blocks = {
        label: BasicBlock(label, list(b.instructions), b.end, b.name, list(b.targets), b.line)
        for label, b in code.blocks.items()
    }
    propagate_copies(blocks)
    thread_jumps(blocks)
    while merge_rotated_tests(blocks):
        thread_jumps(blocks)
    while fold_short_circuits(blocks):
        pass
    return analyse(blocks)


def analyse(blocks: Blocks) -> FlowGraph:
    """Return the reachable blocks with dominators and loops."""
    entry = min(blocks)
    order = {label: position for position, label in enumerate(_reverse_postorder(blocks, entry))}
    reachable = {label: blocks[label] for label in order}
    predecessors: dict[int, list[int]] = {label: [] for label in order}
    for label, block in reachable.items():
        for target in block.targets:
            predecessors[target].append(label)
    dominators = _dominators(order, predecessors, entry)
    loops: dict[int, set[int]] = {}
    for label, block in reachable.items():
        for target in block.targets:
            if dominates(dominators, target, label):
                _fill(loops.setdefault(target, {target}), label, predecessors)
    return FlowGraph(reachable, order, predecessors, dominators, loops)


def _fill(loop: set[int], label: int, predecessors: Mapping[int, list[int]]) -> None:
    pending = [label]
    while pending:
        current = pending.pop()
        if current not in loop:
            loop.add(current)
            pending.extend(predecessors[current])


def _reverse_postorder(blocks: Blocks, entry: int) -> list[int]:
    visited = {entry}
    postorder: list[int] = []
    stack = [(entry, iter(blocks[entry].targets))]
    while stack:
        label, targets = stack[-1]
        for target in targets:
            if target not in visited:
                visited.add(target)
                stack.append((target, iter(blocks[target].targets)))
                break
        else:
            postorder.append(label)
            stack.pop()
    return postorder[::-1]


def _dominators(
    order: Mapping[int, int], predecessors: Mapping[int, list[int]], entry: int
) -> dict[int, int]:
    """Return the immediate dominators (Cooper, Harvey, Kennedy 2001)."""
    dominators = {entry: entry}
    changed = True
    while changed:
        changed = False
        for label in order:
            if label == entry:
                continue
            visited = [predecessor for predecessor in predecessors[label] if predecessor in dominators]
            new = visited[0]
            for other in visited[1:]:
                first, second = new, other
                while first != second:
                    while order[first] > order[second]:
                        first = dominators[first]
                    while order[second] > order[first]:
                        second = dominators[second]
                new = first
            if dominators.get(label) != new:
                dominators[label] = new
                changed = True
    del dominators[entry]
    return dominators


def dominates(dominators: Mapping[int, int], above: int, below: int) -> bool:
    """Return whether all ways to one block lead through another one."""
    while True:
        if above == below:
            return True
        if below not in dominators:
            return False
        below = dominators[below]


# Copies


def propagate_copies(blocks: Blocks) -> None:
    """Replace temporaries that only ever hold copies of one other temporary, such as the iterators that Numba hands from block to block."""
    sources: dict[str, set[str]] = {}
    for instruction in _instructions(blocks):
        if instruction.target.startswith("$"):
            if instruction.kind == "copy" and instruction.names[0].startswith("$"):
                sources.setdefault(instruction.target, set()).add(instruction.names[0])
            elif instruction.target in sources:
                sources[instruction.target].add("")
            else:
                sources[instruction.target] = {""}
    # An optimistic search for the unique root of each name; a name that is not a copy is its own root.
    root: dict[str, str] = {name: name for name, originals in sources.items() if "" in originals}
    changed = True
    while changed:
        changed = False
        for name, originals in sources.items():
            if "" in originals:
                continue
            roots = {root[current] for current in originals if current in root and current != name}
            if roots:
                new = roots.pop() if len(roots) == 1 else name
                if root.get(name) not in (new, name):
                    root[name] = new
                    changed = True
    if all(name == originals for name, originals in root.items()):
        return
    for block in blocks.values():
        instructions = []
        for current in block.instructions:
            if current.kind == "copy" and root.get(current.target, current.target) != current.target:
                continue
            current = Instruction(
                current.target,
                current.kind,
                tuple([root.get(n, n) for n in current.names]),
                current.detail,
                current.line,
            )
            instructions.append(current)
        block.instructions = instructions
        block.name = root.get(block.name, block.name)


def _instructions(blocks: Blocks) -> Iterator[Instruction]:
    for block in blocks.values():
        yield from block.instructions


# Empty blocks


def thread_jumps(blocks: Blocks) -> None:
    """Let control go past blocks that do nothing."""
    entry = min(blocks)
    for block in blocks.values():
        for position, target in enumerate(block.targets):
            visited = {block.label}
            while not blocks[target].instructions and blocks[target].end == "jump" and target not in visited:
                visited.add(target)
                target = blocks[target].targets[0]
            block.targets[position] = target
        if block.end == "branch" and block.targets[0] == block.targets[1]:
            block.end, block.name, block.targets = "jump", "", block.targets[:1]
    reachable = set(_reverse_postorder(blocks, entry))
    for label in list(blocks):
        if label not in reachable:
            del blocks[label]


# Short circuits: `a and b` in a condition makes two branches to the same block.


def fold_short_circuits(blocks: Blocks) -> bool:
    """Let two branches that make up one condition be one branch; return whether such were found.

    The second part becomes the detail of an instruction ``shortcut``: whether it is a conjunction, whether the second part is negated,
    the instructions of the second part, and the name that they leave it in.
    """
    predecessors: dict[int, list[int]] = {label: [] for label in blocks}
    users: dict[str, set[int]] = {}
    for label, block in blocks.items():
        for target in block.targets:
            predecessors[target].append(label)
        for name in (block.name, *[name for instruction in block.instructions for name in instruction.names]):
            users.setdefault(name, set()).add(label)
    for block in blocks.values():
        for side in (0, 1) if block.end == "branch" else ():
            second = blocks[block.targets[side]]
            shared = block.targets[1 - side]
            if second.end != "branch" or shared not in second.targets or len(predecessors[second.label]) > 1:
                continue
            if second is block or not all(
                _is_local(instruction, second.label, users) for instruction in second.instructions
            ):
                continue
            _fold(block, second, side, shared)
            del blocks[second.label]
            return True
    return False


def _is_local(instruction: Instruction, label: int, users: Mapping[str, set[int]]) -> bool:
    """Return whether only the block itself uses what an instruction makes."""
    return instruction.target.startswith("$") and users.get(instruction.target, set()) <= {label}


def _fold(block: BasicBlock, second: BasicBlock, position: int, shared: int) -> None:
    is_and = position == 0
    goes_on = 1 - second.targets.index(shared)
    negated = goes_on == (1 if is_and else 0)
    other = second.targets[goes_on]
    defined = {instruction.target for instruction in second.instructions}
    read = [name for instruction in second.instructions for name in instruction.names if name not in defined]
    if second.name not in defined:
        read.append(second.name)
    detail = is_and, negated, tuple(second.instructions), second.name
    name = f"$condition.{second.label}"
    names = (block.name, *dict.fromkeys(read))
    block.instructions.append(Instruction(name, "shortcut", names, detail, second.line))
    block.name = name
    block.targets = [other, shared] if is_and else [shared, other]


# Rotated loops: CPython compiles the test of a while loop twice, before the loop and at the end of its body.


def merge_rotated_tests(blocks: Blocks) -> bool:
    """Let the test at the end of a loop's body and the same test before the loop be one block; return whether one was found."""
    graph = analyse(blocks)
    for label, block in blocks.items():
        if block.end != "branch" or not any(
            dominates(graph.dominators, target, label) for target in block.targets
        ):
            continue
        header = next(target for target in block.targets if dominates(graph.dominators, target, label))
        for other, first in blocks.items():
            if other == label or first.end != "branch" or first.targets != block.targets:
                continue
            if other in graph.loops[header]:
                continue
            length = _common_tail(first, block)
            if length:
                _merge(blocks, first, block, length)
                return True
    return False


def _common_tail(first: BasicBlock, second: BasicBlock) -> int:
    """Return how many instructions at the ends of two blocks do the same."""
    same = {first.name: second.name}
    best = 0
    for length in range(1, min(len(first.instructions), len(second.instructions)) + 1):
        mine, theirs = first.instructions[-length], second.instructions[-length]
        if (mine.kind, len(mine.names)) != (theirs.kind, len(theirs.names)) or not _equal(
            mine.detail, theirs.detail
        ):
            break
        if mine.target in same:
            if same.pop(mine.target) != theirs.target:
                break
        elif mine.target != theirs.target:
            break
        for name, their_name in zip(mine.names, theirs.names, strict=True):
            if same.setdefault(name, their_name) != their_name:
                return best
        if all(a == b for a, b in same.items()):
            best = length
    return best


def _equal(first: object, second: object) -> bool:
    return first is second or (type(first) is type(second) and repr(first) == repr(second))


def _merge(blocks: Blocks, first: BasicBlock, second: BasicBlock, length: int) -> None:
    if length == len(first.instructions):
        shared = first.label
    else:
        shared = max(blocks) + 1
        tail = first.instructions[-length:]
        blocks[shared] = BasicBlock(shared, tail, "branch", first.name, first.targets, first.line)
        first.instructions = first.instructions[:-length]
        first.end, first.name, first.targets = "jump", "", [shared]
    second.instructions = second.instructions[:-length]
    second.end, second.name, second.targets = "jump", "", [shared]
