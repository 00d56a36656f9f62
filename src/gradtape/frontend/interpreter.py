"""The abstract interpreter: runs structured code on abstract values, and appends statements for what depends on data."""

from __future__ import annotations

import operator
import types
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from itertools import chain
from typing import Any, Final

import numpy as np

from gradtape.errors import GradtapeError, UnsupportedCodeError, is_defect
from gradtape.frontend.blocks import Instruction
from gradtape.frontend.builder import TranslationBuilder
from gradtape.frontend.loops.growing_lists import (
    Growth,
    appended,
    as_array,
    assign_item,
    checked_item,
    item_at,
    joined,
    movable,
    moved,
    sliced,
    type_of_items,
    with_room,
)
from gradtape.frontend.loops.merged_lists import BranchMerges, Path, SharedLists, references_in
from gradtape.frontend.loops.storage import (
    Compound,
    Constant,
    Scalar,
    Slot,
    Storage,
    StorageLattice,
    assign_all,
    check_usable,
    holds,
)
from gradtape.frontend.numpy.calls import call_method
from gradtape.frontend.numpy.joins import grid
from gradtape.frontend.operators import (
    BINARY,
    COMPARISONS,
    binary,
    both,
    either,
    is_at,
    item_of,
    needs_static,
    negated,
    unary,
)
from gradtape.frontend.structure import (
    RESULT,
    Branch,
    ForLoop,
    Names,
    Node,
    Raise,
    Run,
    Tree,
    structured,
)
from gradtape.frontend.values import (
    MISSING,
    Closure,
    Conflict,
    GrowingList,
    ListReference,
    NeedsStaticError,
    Places,
    RaisedError,
    RangeValue,
    as_condition,
    as_integer,
    is_concrete_or_traced,
    is_number,
    refuse,
    settled,
    shown,
    typed,
    weak,
)
from gradtape.interruptions import raise_interruption
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, literal, next_serial
from gradtape.ir.site import Site
from gradtape.ir.types import BOOL, Aval, aval
from gradtape.kinds.elementwise import Elementwise
from gradtape.kinds.operands import as_value
from gradtape.ops.core.elementwise.select import where
from gradtape.procedures.arrays.indexing import getitem, setitem
from gradtape.procedures.arrays.nests import check_same_kind, materialise, update
from gradtape.procedures.arrays.view import ArrayView, Deferred, Expression, FlatIterator
from gradtape.procedures.ir import Check, If, Memory, Pointer, Statement, Variable

MOST_CALLS: Final = 40
"""Calls of one function inside each other that are interpreted; a deeper recursion is refused."""

MOST_RECURSIONS: Final = 512
"""Calls of a function from itself that are interpreted of one call: those of a tree double with each level."""

MOST_ITEMS: Final = 512
"""Items of a growing list up to which they can be used one by one."""

MOST_SELECTED: Final = 12.0
"""The cost of what two branches compute up to which both are computed, and one is selected."""


class Frame:
    """A call that is being interpreted.

    Parameters
    ----------
    tree : Tree
        The code.
    module : dict
        The globals.
    closure : Closure
        The function.
    arguments : sequence
        Abstract values.

    Attributes
    ----------
    deferred : dict of str
        The temporaries that have held an expression at some time, in this order.
    place : (Run, int) or None
        The instruction that is being interpreted; None before the first one.
    """

    def __init__(self, tree: Tree, closure: Closure, arguments: Sequence[Any]) -> None:
        self.tree = tree
        self.module = closure.module
        self.closure = closure
        self.arguments = arguments
        self.names: dict[str, Any] = {}
        self.deferred: dict[str, None] = {}
        self.line = tree.line
        self.place: tuple[Run, int] | None = None
        self.load_shared()

    def lookup(self, name: str) -> Any:
        """Return what a variable of this function, or of one around, holds now."""
        if name in self.names:
            return self.names[name]
        return self.closure.lookup(name) if name in self.closure.code.co_freevars else MISSING

    def holders(self, memory: Memory, calling: bool) -> list[str]:
        """Return the live names that hold an array in a memory.

        Those are the names that the instruction at hand, or one after it, may read. The instruction that calls the function which runs now
        has read its names.
        """
        return [name for name, value in self.live(calling).items() if holds(value, memory)]

    def live(self, calling: bool) -> dict[str, Any]:
        """Return the live names with what they hold."""
        if self.place is None:
            return self.names
        run, number = self.place
        live = {name for each in run.instructions[number + calling :] for name in each.names} | run.live
        return {name: value for name, value in self.names.items() if name in live}

    def owner(self, name: str) -> Frame | None:
        """Return the call whose variable a nonlocal one is; None if that function is not translated."""
        frame = self
        while name in frame.tree.nonlocals:
            if frame.closure.frame is None:
                return None
            frame = frame.closure.frame
        return frame

    def load_shared(self) -> None:
        """Let the variables of functions around that this one assigns hold what they hold there."""
        around = self.closure.frame
        if around is not None and self.tree.nonlocals:
            around.load_shared()
        for name in sorted(self.tree.nonlocals):
            self.names[name] = self.closure.lookup(name)

    def store_shared(self) -> None:
        """Let these variables hold there what they hold here."""
        around = self.closure.frame
        if around is None or not self.tree.nonlocals:
            return
        for name in sorted(self.tree.nonlocals):
            around.names[name] = self.names.get(name, MISSING)
        around.store_shared()


class Interpreter:
    """Interprets calls.

    Parameters
    ----------
    build : TranslationBuilder
        Where statements go.
    captured : callable
        Makes an array that code reads from outside a parameter.

    Attributes
    ----------
    path : tuple
        The calls and unrolled iterations that lead to the current instruction.
    storages : dict
        What is known of the carries of loops from earlier passes, by path and loop.
    growths : dict
        How lists grow in loops, likewise.
    merged_lists : dict
        The lists that stand for different ones in the iterations of a loop, likewise.
    shared_lists : SharedLists
        Which lists may be one in Python.
    widened_bounds : dict
        The bounds of integers that loops carry that hold instead of their first values, by path and loop.
    loops : int
        How many loops of the procedure are around.
    appended : dict of ListReference to int or None
        How many items may have been appended to a list since the innermost loop began, None where that is not known.
    arguments : set of ListReference
        The lists of the caller's.
    roomy : set of ListReference
        The growing lists that have room for what the loops around append.
    small_loops : int
        How many of the loops around are small, and could be unrolled.
    recursions : dict of CodeType to int
        How often functions have called themselves, each since it was called by another one.
    dead : bool
        Whether an error was raised on the way to here.
    """

    def __init__(self, build: TranslationBuilder, captured: Callable[[Any, str], Any]) -> None:
        self.build = build
        build.on_write = self.check_write
        self.captured = captured
        self.frames: list[Frame] = []
        self.lists: dict[ListReference, Any] = {}
        self.appended: dict[ListReference, int | None] = {}
        self.roomy: set[ListReference] = set()
        self.path: tuple[Any, ...] = ()
        self.storages: dict[Any, dict[Any, Storage]] = {}
        self.growths: dict[Any, dict[ListReference, Growth]] = {}
        self.merged_lists: dict[Any, dict[Path, ListReference]] = {}
        self.shared_lists = SharedLists()
        self.arguments: set[ListReference] = set()
        self.unrolled: set[Any] = set()
        self.widened_bounds: dict[Any, dict[Any, list[Any]]] = {}
        self.small_loops = 0
        self.loops = 0
        self.recursions: dict[Any, int] = {}
        self.dead = False
        self.noted: list[tuple[Any, str, Any]] = []
        self.for_loop: Callable[[Interpreter, ForLoop], None] = _unset
        self.while_loop: Callable[[Interpreter, Any], None] = _unset
        self.call: Callable[..., Any] = _unset
        self.attribute: Callable[[Interpreter, Any, str], Any] = _unset

    @property
    def frame(self) -> Frame:
        return self.frames[-1]

    @property
    def names(self) -> dict[str, Any]:
        return self.frames[-1].names

    # Calls

    def run_code(self, closure: Closure, arguments: Sequence[Any]) -> Any:
        """Interpret the code of a function, and return what it returns."""
        code, module = closure.code, closure.module
        depth = sum(frame.tree.name == code.co_name for frame in self.frames)
        self.recursions[code] = self.recursions.get(code, 0) + 1 if depth else 0
        is_deep = depth >= MOST_CALLS and sum(f.module is module for f in self.frames) >= MOST_CALLS
        if is_deep or self.recursions[code] > MOST_RECURSIONS:
            refuse(
                f"{code.co_name} calls itself more than {MOST_CALLS if is_deep else MOST_RECURSIONS} times",
                "let the recursion end on a number that is known (len(x), a static argument), or write it as a loop",
                "calls are interpreted in turn, and a recursion that ends on data never ends in translation",
            )
        site = here.site
        caller = self.frames[-1] if self.frames else None
        if caller is not None:
            caller.store_shared()
        frame = Frame(structured(code, module), closure, arguments)
        self._check_shared(frame, caller)
        self.frames.append(frame)
        try:
            self.run(frame.tree.nodes)
            frame.store_shared()
            if caller is not None:
                caller.load_shared()
            return frame.names.get(RESULT, MISSING)
        finally:
            self.frames.pop()
            here.site = site

    def _check_shared(self, frame: Frame, caller: Frame | None) -> None:
        """Refuse a function that assigns variables of another one than that which calls it: loops there would not carry them."""
        for name in frame.tree.nonlocals:
            owner = frame.owner(name)
            if owner is None or owner not in self.frames or caller is None or caller.owner(name) is not owner:
                refuse(
                    f"{frame.tree.name} assigns {name}, a variable of a function other than its caller",
                    "return the new value, and assign it where the variable is",
                )

    def run(self, nodes: Sequence[Node]) -> None:
        """Interpret nodes one after the other."""
        for node in nodes:
            if self.dead:
                return
            if isinstance(node, Run):
                self.run_instructions(node)
            elif isinstance(node, Branch):
                self.at(node.line)
                condition = as_condition(self.value(node.name))
                then, otherwise = partial(self.run, node.then), partial(self.run, node.otherwise)
                self.branch(condition, then, otherwise, node.live)
            elif isinstance(node, ForLoop):
                self.at(node.line)
                self.for_loop(self, node)
            elif isinstance(node, Raise):
                self.at(node.line)
                self.raise_error(self.value(node.name) if node.name else RaisedError(Exception, ""))
            else:
                self.at(node.line)
                self.while_loop(self, node)

    def run_instructions(self, run: Run) -> None:
        """Interpret straight-line code."""
        frame = self.frames[-1]
        for number, instruction in enumerate(run.instructions):
            frame.place = run, number
            self.step(instruction)

    def check_write(self, pointer: Pointer) -> None:
        """Refuse a store to one of two copies that are one array in Python, while names hold both."""
        for copy, other in self.build.copied:
            first, second = copy.memory, other.memory
            if pointer.memory is not first and pointer.memory is not second:
                continue
            mine, theirs = self._holders(first), self._holders(second)
            named = {name for name in mine if name[0] != "$"}
            if (len(named) > 1) if first is second else (mine and theirs):
                name = next(
                    (holder.partition(".")[0] for holder in [*mine, *theirs] if holder[0] != "$"), "an array"
                )
                refuse(
                    f"{name} is written here, and another name may hold the same array on some paths to this line",
                    "write to a copy (y = y.copy()), or into the array where it is bound anew (y[:] = ...)",
                    "the array was bound anew in a loop, or in a branch with another dtype, where its contents were copied",
                )

    def _holders(self, memory: Memory) -> list[str]:
        holders_of_frames = [
            name for frame in self.frames for name in frame.holders(memory, frame is not self.frame)
        ]
        return holders_of_frames + ["a list" for items in self.lists.values() if holds(items, memory)]

    def at(self, line: int) -> None:
        """Let what follows belong to a line of the function."""
        frame = self.frames[-1]
        if line and (line != frame.line or here.site is None or here.site.function != frame.tree.name):
            frame.line = line
            here.site = Site(frame.tree.filename, line, frame.tree.name)

    def step(self, instruction: Instruction) -> None:
        """Interpret one instruction."""
        self.at(instruction.line)
        try:
            result = _STEPS[instruction.kind](self, instruction)
        except UnsupportedCodeError as error:
            if error.where is None:
                raise type(error)(
                    error.what, where=here.site, why=error.why, remedy=error.remedy
                ) from error.__cause__
            raise
        except RecursionError:
            raise
        except Exception as error:
            raise_interruption(error)
            if isinstance(error, GradtapeError) and not is_defect(error):
                raise UnsupportedCodeError(
                    error.what, where=here.site, why=error.why, remedy=error.remedy
                ) from error
            failure = UnsupportedCodeError(
                f"translation fails with {type(error).__name__}: {getattr(error, 'what', error)}",
                where=here.site,
                remedy="correct the line; if Python runs it without an error, please report it",
            )
            failure.unexpected = True
            raise failure from error
        if instruction.target:
            self.bind(instruction.target, result)

    def bind(self, name: str, value: Any) -> None:
        """Let a name hold a value. An expression is stored, since what it reads may be overwritten."""
        frame = self.frames[-1]
        frame.names[name] = value if name in frame.tree.single else in_memory(value)
        if name[0] == "$" and is_deferred(value):
            frame.deferred[name] = None

    def value(self, name: str) -> Any:
        """Return what a name holds. A temporary that holds an expression is read once, and holds nothing then."""
        names = self.frames[-1].names
        content = names.get(name, MISSING)
        if name[0] == "$" and is_deferred(content):
            del names[name]
        return check_usable(content, name)

    def settle(self) -> None:
        """Store the expressions that temporaries hold, because the arrays that they read are about to be overwritten."""
        for frame in self.frames:
            for name in frame.deferred:
                if is_deferred(frame.names.get(name)):
                    frame.names[name] = in_memory(frame.names[name])

    def values(self, names: Sequence[str]) -> list[Any]:
        return [self.value(name) for name in names]

    # Lists

    def new_list(self, items: Sequence[Any]) -> ListReference:
        """Return a new list."""
        reference = ListReference()
        self.lists[reference] = tuple(items)
        return reference

    def check_list_write(self, reference: ListReference) -> None:
        """Refuse a write to a list of the caller's, and to one that may be another one, of which a name holds a copy."""
        others = self.shared_lists.of(reference)
        if not self.arguments.isdisjoint((reference, *others)):
            refuse(
                "a list among the arguments is written",
                "return the new list, or write to a copy (y = list(y))",
                "the items of lists are arguments of the compiled function, which cannot change the list itself",
            )
        if not others:
            return
        values = [value for frame in self.frames for value in frame.live(frame is not self.frame).values()]
        if not references_in(values, self.lists).isdisjoint(others):
            refuse(
                "a list is written here, and another name may hold the same one on some paths to this line",
                "write to a copy (y = list(y)), or make a new list",
                "the list was bound anew in a loop or in a branch, where its items were copied",
            )

    def append(self, reference: ListReference, items: Sequence[Any]) -> None:
        """Append items to a list."""
        self.check_list_write(reference)
        content: Any = self.lists[reference]
        before = self.appended.get(reference, 0)
        self.appended[reference] = None if before is None else before + len(items)
        if not isinstance(content, GrowingList):
            self.lists[reference] = (*self.list_items(reference), *items)
            return
        self.settle()
        for item in items:
            type_ = joined(content.type, type_of_items((item,)))
            if type_ is None:
                refuse(
                    "the items of a list that grows in a loop are not numbers, arrays or tuples of one type"
                )
            if type_ is not content.type or not (content.is_movable or reference in self.roomy):
                content = with_room(self.build, content, type_, 1)
            if content.is_movable:
                content = moved(self.build, content)
            content = appended(content, item)
        self.lists[reference] = content

    def as_array(self, value: Any) -> Any:
        """Return a list that grows in a loop as an array; anything else as it is."""
        content = self.lists.get(value) if isinstance(value, ListReference) else None
        return as_array(content) if isinstance(content, GrowingList) else value

    def growing(self, value: Any) -> GrowingList | None:
        """Return the content of a list that grows in a loop, None for anything else."""
        content = self.lists.get(value) if isinstance(value, ListReference) else None
        return content if isinstance(content, GrowingList) else None

    def list_items(self, reference: ListReference) -> tuple[Any, ...]:
        """Return the items of a list."""
        items: Any = self.lists[reference]
        if items is MISSING:
            refuse("a list is read before it is assigned", "assign it before the loop")
        if isinstance(items, GrowingList):
            if not isinstance(items.length, int) or items.length > MOST_ITEMS:
                raise NeedsStaticError(
                    "the items of a list that grows in a loop are used one by one",
                    where=here.site,
                    why="their number depends on data, or is large",
                    remedy="make an array of the list: np.array(out)",
                )
            return tuple([item_at(items, number) for number in range(items.length)])
        if isinstance(items, Conflict):
            refuse(
                "a list has different items on different paths to this line",
                "write into an array, and count: out[n] = x; n += 1",
                "the length of a list, and the types of its items, are known when code is translated",
            )
        list_contents: tuple[Any, ...] = items
        return list_contents

    def plain(self, value: Any, by_item: bool = False) -> Any:
        """Return a value with lists of Python in place of references, also inside tuples; growing lists as arrays, unless `by_item`."""
        if isinstance(value, ListReference):
            if self.growing(value) is not None and not by_item:
                return self.as_array(value)
            return [self.plain(item, by_item) for item in self.list_items(value)]
        if type(value) is tuple:
            return tuple([self.plain(item, by_item) for item in value])
        return value

    def items(self, value: Any) -> Sequence[Any] | None:
        """Return the items of a static sequence."""
        if isinstance(value, ListReference):
            return self.list_items(value)
        if isinstance(value, tuple | list | range | str):
            return value
        return None

    # Branches

    def branch(
        self, condition: Any, then: Callable[[], None], otherwise: Callable[[], None], live: Names
    ) -> None:
        """Interpret one of two blocks, or both where the condition depends on data."""
        if not isinstance(condition, Value):
            (then if condition else otherwise)()
            return
        first_new = next_serial()
        before = self.state()
        yes = self._arm(then, condition)
        after_yes, dead_yes = self.state(), self.dead
        self.restore(before)
        no = self._arm(otherwise, negated(condition))
        after_no, dead_no = self.state(), self.dead
        if dead_yes or dead_no:
            self._one_arm(condition, yes, no, dead_yes)
            self.restore(after_no if dead_yes else after_yes)
            self.dead = dead_yes and dead_no
            return
        self._join(condition, (yes, after_yes), (no, after_no), live, first_new)

    def _arm(self, run: Callable[[], None], condition: Any) -> list[Statement]:
        statements: list[Statement] = []
        self.dead = False
        with self.build.block(statements), self.build.assuming(condition):
            run()
        return statements

    def _one_arm(self, condition: Value, yes: list[Statement], no: list[Statement], dead_yes: bool) -> None:
        """Append two branches of which one ends in an error; the other one goes on without a branch."""
        failing, going = (yes, no) if dead_yes else (no, yes)
        fails_unless = negated(condition) if dead_yes else condition
        if all(isinstance(statement, Check) for statement in failing):
            for statement in failing:
                assert isinstance(statement, Check)
                self.build.append(Check(fails_unless, statement.error, statement.message, statement.site))
        else:
            self.build.append(If(negated(fails_unless), failing, []))
        for statement in going:
            self.build.append(statement)  # without assuming that the check holds: what fails goes on

    def state(self) -> tuple[dict[str, Any], dict[ListReference, Any]]:
        """Return a copy of what names and lists hold."""
        return dict(self.frames[-1].names), dict(self.lists)

    def restore(self, state: tuple[dict[str, Any], dict[ListReference, Any]]) -> None:
        """Let names and lists hold what they held before."""
        self.frames[-1].names = dict(state[0])
        self.lists = dict(state[1])

    def _join(self, condition: Value, yes: Any, no: Any, live: Names, first_new: int) -> None:
        """Append a branch, and join what names hold after it."""
        (then, (names, lists)), (otherwise, (other_names, other_lists)) = yes, no
        lattice = StorageLattice(self.build)
        storages: dict[Any, Storage] = {}
        firsts: dict[Any, Any] = {}
        seconds: dict[Any, Any] = {}
        merges = BranchMerges(lists, other_lists)
        pairs = _pairs(names, other_names, live, lists, other_lists)
        for key, first, second in chain(pairs, merges.contents()):
            first, second = merges.joined(first, second)
            if isinstance(key, ListReference) and not self.loops:
                first, second = self._grown_alike(first, then, second, otherwise)
            storage = lattice.join(Constant(first), second)
            storages[key], firsts[key], seconds[key] = storage, first, second
        self.shared_lists.add_branch(merges.sources)
        changed = [key for key, storage in storages.items() if not isinstance(storage, Constant)]
        joined: dict[Any, Any] = {}
        selected = not then and not otherwise and _selectable(storages, firsts, seconds, first_new)
        for key, storage in storages.items():
            if isinstance(storage, Constant):
                joined[key] = storage.value
            elif selected:
                joined[key] = _select(condition, storage, firsts[key], seconds[key])
                for part, result, _ in _leaves(storage, joined[key], joined[key]):
                    if isinstance(part, Scalar) and part.types and isinstance(result, Value):
                        self.build.number_types[result] = part.types
        if not selected:
            slots = {key: Slot(self.build, storages[key], _variable_name(key)) for key in changed}
            with self.build.block(then):
                assign_all(slots, firsts)
            with self.build.block(otherwise):
                assign_all(slots, seconds)
            if then or otherwise:
                self.build.append(If(condition, then, otherwise))
            for key, slot in slots.items():
                joined[key] = slot.read()
        self.adopt(joined)

    def _grown_alike(self, first: Any, then: list[Statement], second: Any, otherwise: list[Statement]) -> Any:
        """Return the contents of a list after two branches, of which one has appended to it: as growing ones, if items have one type."""
        lengths = [len(one) if type(one) is tuple else None for one in (first, second)]
        type_ = None if lengths[0] == lengths[1] else type_of_items(Conflict(first, second))
        if type_ is None or None in lengths:
            return first, second
        grown = []
        for content, statements in ((first, then), (second, otherwise)):
            with self.build.block(statements):
                grown.append(movable(self.build, content, type_))
        return grown

    def adopt(self, joined: dict[Any, Any]) -> None:
        """Let names and lists hold what was joined."""
        self.frames[-1].names = {key: value for key, value in joined.items() if isinstance(key, str)}
        self.lists = {key: value for key, value in joined.items() if isinstance(key, ListReference)}

    def raise_error(self, error: Any) -> None:
        """Append the check of an error that the code raises here."""
        if isinstance(error, type):
            error = RaisedError(error, "")
        if not isinstance(error, RaisedError):
            refuse(f"{shown(error)} is raised")
        self.build.append(Check(literal(np.bool_(False)), error.kind.__name__, error.message, here.site))
        self.dead = True

    @contextmanager
    def inside(self, *part_of_path: Any) -> Iterator[None]:
        """Let loops inside have storages of their own."""
        before, self.path = self.path, (*self.path, *part_of_path)
        try:
            yield
        finally:
            self.path = before

    # Functions

    def close(self, value: Any) -> Closure | None:
        """Return a Python function as a closure; None for anything else."""
        value = getattr(value, "py_func", value)
        if isinstance(value, Closure):
            return value
        if not isinstance(value, types.FunctionType):
            return None
        cells = {}
        for name, cell in zip(value.__code__.co_freevars, value.__closure__ or (), strict=True):
            try:
                cells[name] = cell.cell_contents
            except ValueError:  # a cell that is not filled yet
                cells[name] = MISSING
            else:
                cells[name] = self.outside(cell, name, cells[name])
        description = f"a default of {value.__name__}"
        defaults = [self.outside(value, description, x) for x in value.__defaults__ or ()]
        keywords = [(k, self.outside(value, description, x)) for k, x in (value.__kwdefaults__ or {}).items()]
        return Closure(value.__code__, value.__globals__, tuple(defaults), cells, keywords=tuple(keywords))

    def outside(self, origin: Any, name: str, value: Any) -> Any:
        """Return what code reads from a global, a closure or an object: arrays are parameters, the rest is noted as constant."""
        if is_concrete_or_traced(value):
            return self.captured(value, name)
        if isinstance(value, Value | Expression):  # an attribute of an argument
            return value
        if isinstance(value, Aval):
            raise AssertionError(f"{name} is the type of a parameter, not a parameter")
        self.noted.append((origin, name, value))
        return value


def is_deferred(value: Any) -> bool:
    """Return whether a value is, or holds, an expression that is not stored."""
    if type(value) is tuple:
        return any(map(is_deferred, value))
    return isinstance(value, Expression) and not isinstance(value, ArrayView)


def in_memory(value: Any) -> Any:
    """Return an array that is an expression as one in memory, also in tuples; anything else as it is."""
    if isinstance(value, Expression) and not isinstance(value, ArrayView):
        stored = materialise(value, temporary=True)
        if isinstance(value, Deferred) and value.viewed is not None:
            value.build.note_copy(stored.pointer, value.viewed.pointer)
        return stored
    if type(value) is tuple and any(isinstance(item, Expression | tuple) for item in value):
        return tuple(map(in_memory, value))
    return value


def _unset(*_: Any) -> Any:
    raise AssertionError("the parts of the interpreter are put together in `translate`")


def _variable_name(key: Any) -> str:
    if not isinstance(key, str):
        return "list"
    return "result" if key == RESULT else "t" if key.startswith("$") else key.partition(".")[0]


def _pairs(
    names: dict[str, Any],
    others: dict[str, Any],
    live: Names,
    lists: dict[Any, Any],
    other_lists: dict[Any, Any],
) -> Iterator[tuple[Any, Any, Any]]:
    """Yield the names and lists of two states with what they hold."""
    for name in names | others:
        if name in live:
            yield name, names.get(name, MISSING), others.get(name, MISSING)
    for reference in lists | other_lists:
        items, other_items = lists.get(reference), other_lists.get(reference)
        items, other_items = (
            other_items if items is None else items,
            items if other_items is None else other_items,
        )
        yield reference, items, other_items


def _selectable(
    storages: dict[Any, Storage], firsts: dict[Any, Any], seconds: dict[Any, Any], first_new: int
) -> bool:
    """Return whether what two branches compute is cheap, and has finite derivatives, so that both can be computed."""
    cost = 0.0
    selected: set[Value] = set()
    for key, storage in storages.items():
        for part, first, second in _leaves(storage, firsts[key], seconds[key]):
            if not isinstance(part, Scalar):
                return False
            for value in (first, second):
                stack = [value] if isinstance(value, Value) else []
                while stack:
                    current = stack.pop()
                    if (
                        current in selected
                        or not current.is_made
                        or current.node is None
                        or current.node.serial < first_new
                    ):
                        continue
                    selected.add(current)
                    row = current.node.op
                    is_float = current.dtype.kind in "fc"
                    if not isinstance(row, Elementwise) or (is_float and not row.finite_derivatives):
                        return False
                    cost += row.cost
                    if cost > MOST_SELECTED:
                        return False
                    stack.extend(current.node.inputs)
    return True


def _leaves(storage: Storage, first: Any, second: Any) -> Iterator[tuple[Storage, Any, Any]]:
    if isinstance(storage, Constant):
        return
    if isinstance(storage, Compound) and isinstance(first, tuple) and isinstance(second, tuple):
        for item, x, y in zip(storage.items, first, second, strict=True):
            yield from _leaves(item, x, y)
    else:
        yield storage, first, second


def _select(condition: Value, storage: Storage, first: Any, second: Any) -> Any:
    """Return one of two numbers, or tuples of numbers, by a condition."""
    if isinstance(storage, Constant):
        return storage.value
    if isinstance(storage, Compound):
        items = [
            _select(condition, item, x, y) for item, x, y in zip(storage.items, first, second, strict=True)
        ]
        return tuple(items) if storage.kind is tuple else storage.kind._make(items)  # type: ignore[attr-defined]
    assert isinstance(storage, Scalar)
    x, y = (typed(0 if content is MISSING else content, storage.type) for content in (first, second))
    result = where(condition, x, y)
    return weak(result) if storage.type.weak and result is not x and result is not y else result


# The kinds of instructions


def _global(self: Interpreter, instruction: Instruction) -> Any:
    module = self.frame.module
    name = instruction.detail
    if name in module:
        return self.outside(module, name, module[name])
    scope = module.get("__builtins__", {})
    scope = scope if isinstance(scope, dict) else vars(scope)
    if name in scope:
        return scope[name]
    refuse(f"the name {name} is not defined")


def _free(self: Interpreter, instruction: Instruction) -> Any:
    return check_usable(self.frame.closure.lookup(instruction.detail), instruction.detail)


def _call(self: Interpreter, instruction: Instruction) -> Any:
    count, keywords, has_star, has_double_star = instruction.detail
    values = self.values(instruction.names)
    if has_double_star:
        refuse("keyword arguments are unpacked in a call")
    args = values[1 : 1 + count]
    kwargs = dict(zip(keywords, values[1 + count :], strict=False))
    if has_star:
        last = values[-1]
        extra = self.items(last)
        if extra is None and isinstance(last, Expression) and isinstance(last.shape[0], int):
            extra = [getitem(last, k) for k in range(last.shape[0])]
        if extra is None:
            refuse("arguments that are not a tuple are unpacked in a call")
        args += list(extra)
    with self.inside(id(instruction)):
        return settled(self.call(self, values[0], args, kwargs))


def _getitem(self: Interpreter, instruction: Instruction) -> Any:
    owner, key = self.values(instruction.names)
    return get_item(self, owner, key)


def _static_getitem(self: Interpreter, instruction: Instruction) -> Any:
    return get_item(self, self.value(instruction.names[0]), instruction.detail)


def get_item(self: Interpreter, owner: Any, key: Any) -> Any:
    """Return ``owner[key]``."""
    if isinstance(owner, Expression):
        item = getitem(owner, self.plain(key))
        return settled(
            materialise(item) if isinstance(owner, FlatIterator) and isinstance(item, Expression) else item
        )
    if owner is np.mgrid:
        return grid(self.build, key)
    grown = self.growing(owner)
    if grown is not None and isinstance(key, slice):
        part = self.new_list(())
        self.lists[part] = sliced(grown, key)
        return part
    if grown is not None:
        return settled(checked_item(grown, key))
    items = self.items(owner)
    if items is not None:
        if self.small_loops and isinstance(settled(key), Value):
            raise needs_static("the index of a tuple or list")
        item = item_of(items, key)
        return self.new_list(item) if isinstance(owner, ListReference) and isinstance(key, slice) else item
    if isinstance(owner, RangeValue):
        return binary(
            self.build, operator.add, owner.start, binary(self.build, operator.mul, key, owner.step)
        )
    if isinstance(owner, dict) and not isinstance(key, Value):
        return self.outside(owner, str(key), owner[key])
    refuse(f"{shown(owner)} is indexed")


def _setitem(self: Interpreter, instruction: Instruction) -> None:
    owner, key, value = self.values(instruction.names)
    if isinstance(owner, ListReference):
        self.check_list_write(owner)
    if isinstance(owner, ArrayView):
        self.settle()
        setitem(owner, self.plain(key), self.plain(value))
    elif (grown := self.growing(owner)) is not None:
        self.settle()
        assign_item(grown, as_integer(key, "the index"), self.plain(value))
    elif isinstance(owner, ListReference):
        items = list(self.list_items(owner))
        index = as_integer(key, "the index")
        if isinstance(index, Value):
            if not all(map(is_number, items)):
                item_of(items, index)
            items = [where(is_at(index, k, len(items)), value, item) for k, item in enumerate(items)]
        else:
            items[index] = value
        self.lists[owner] = tuple(items)
    else:
        refuse(f"an item of {shown(owner)} is assigned")


def _binary(self: Interpreter, instruction: Instruction) -> Any:
    return _combined(self, instruction.detail, *self.values(instruction.names))


def _combined(self: Interpreter, function: Any, x: Any, y: Any) -> Any:
    if isinstance(x, ListReference) or isinstance(y, ListReference):
        return _lists(self, function, x, y)
    if function in COMPARISONS and isinstance(x, tuple):
        x, y = self.plain(x, by_item=True), self.plain(y, by_item=True)
    return binary(self.build, function, x, y)


def _lists(self: Interpreter, function: Any, x: Any, y: Any) -> Any:
    if function in (operator.is_, operator.is_not) and x is not y and self.shared_lists.has(x, y):
        refuse("lists are compared with `is`, and the result depends on the iteration or the branch")
    if isinstance(x, Expression) or isinstance(y, Expression):
        return binary(self.build, function, self.plain(x), self.plain(y))
    if function in (operator.add, operator.mul):
        if isinstance(x, Value) or isinstance(y, Value):
            refuse("the length of a list depends on data", "use an array: np.full(n, 1.0)")
        result = function(*(self.list_items(v) if isinstance(v, ListReference) else v for v in (x, y)))
        return self.new_list(result)
    if function in COMPARISONS:
        x, y = self.plain(x, by_item=True), self.plain(y, by_item=True)
    return binary(self.build, function, x, y)


def _inplace(self: Interpreter, instruction: Instruction) -> Any:
    x, y = self.values(instruction.names)
    if isinstance(x, ArrayView):
        self.settle()
        update(BINARY[instruction.detail], x, self.plain(y))
        return x
    if isinstance(x, ListReference) and instruction.detail is operator.add:
        self.append(x, self.items(y) or ())
        return x
    result = _combined(self, instruction.detail, x, y)
    if isinstance(x, Expression) and isinstance(result, Expression):
        check_same_kind(result.dtype, x.dtype, BINARY[instruction.detail])
    return result


def _shortcut(self: Interpreter, instruction: Instruction) -> Any:
    """Return the conjunction or disjunction of two conditions of which the second may be computed only if the first one leaves it open."""
    is_and, is_negated, instructions, name = instruction.detail
    first = as_condition(self.value(instruction.names[0]))

    def second() -> Any:
        for each in instructions:
            self.step(each)
        condition = as_condition(self.value(name))
        return negated(condition) if is_negated else condition

    if not isinstance(first, Value):
        return second() if bool(first) is is_and else bool(first)
    statements: list[Statement] = []
    open_ = first if is_and else negated(first)
    with self.build.block(statements), self.build.assuming(open_):
        condition = second()
    if not statements:
        return both(first, condition) if is_and else either(first, condition)
    variable = Variable(self.build.unique("condition"), aval((), BOOL))
    with self.build.block(statements):
        self.build.assign(variable, condition)
    decided: list[Statement] = []
    with self.build.block(decided):
        self.build.assign(variable, np.bool_(not is_and))
    self.build.append(If(first, statements, decided) if is_and else If(first, decided, statements))
    result = self.build.read(variable)
    self.build.counts.meant[result] = (is_and, first, as_value(condition))
    return result


def _iterator(self: Interpreter, instruction: Instruction) -> Any:
    return self.value(instruction.names[0])


def _unpack(self: Interpreter, instruction: Instruction) -> Any:
    value = self.value(instruction.names[0])
    items = self.items(value)
    if isinstance(instruction.detail, tuple):
        return _unpack_star(self, value, *instruction.detail)
    if isinstance(value, Expression) and value.ndim:
        if value.shape[0] != instruction.detail:
            refuse(f"an array of {value.shape[0]} rows is unpacked to {instruction.detail} names")
        return tuple([getitem(value, k) for k in range(instruction.detail)])
    if isinstance(value, Places):
        items = tuple(value.shape)
    if items is None:
        refuse(f"{shown(value)} is unpacked")
    if len(items) != instruction.detail:
        refuse(f"{len(items)} items are unpacked to {instruction.detail} names")
    return tuple(items)


def _unpack_star(self: Interpreter, value: Any, before: int, after: int) -> Any:
    """Return the items of a sequence for targets of which one, with a star, takes the list of what the others leave."""
    items: tuple[Any, ...] = self.call(self, tuple, (value,), {})
    if len(items) < before + after:
        refuse(f"{len(items)} items are unpacked to {before + after} names and one with a star")
    end = len(items) - after
    return (*items[:before], self.new_list(items[before:end]), *items[end:])


def _function(self: Interpreter, instruction: Instruction) -> Any:
    code, defaults, keywords = instruction.detail
    values = self.values(instruction.names)
    if defaults is True:
        defaults = values.pop(0)
    by_keyword = tuple(zip(keywords, values, strict=True))
    return Closure(code, self.frame.module, defaults or (), {}, self.frame, by_keyword)


def _setattr(self: Interpreter, instruction: Instruction) -> None:
    """Assign the shape of an array: each name of the array holds a view of another shape then."""
    owner, value = self.values(instruction.names)
    if not isinstance(owner, ArrayView) or instruction.detail != "shape":
        refuse(f"the attribute {instruction.detail} of {shown(owner)} is assigned")
    if not owner.is_contiguous:
        refuse("the shape of an array that is a view with gaps is assigned", "use y = x.reshape(shape)")
    changed = call_method(self.build, owner, "reshape", (self.plain(value),), {})
    for frame in self.frames:
        frame.names.update({name: changed for name, content in frame.names.items() if content is owner})


def _getattr(self: Interpreter, instruction: Instruction) -> Any:
    return self.attribute(self, self.value(instruction.names[0]), instruction.detail)


_STEPS: Final[dict[str, Callable[[Interpreter, Instruction], Any]]] = {
    "const": lambda self, instruction: instruction.detail,
    "global": _global,
    "free": _free,
    "argument": lambda self, instruction: self.frame.arguments[instruction.detail],
    "copy": lambda self, instruction: self.value(instruction.names[0]),
    "call": _call,
    "getitem": _getitem,
    "static_getitem": _static_getitem,
    "setitem": _setitem,
    "getattr": _getattr,
    "setattr": _setattr,
    "binary": _binary,
    "inplace": _inplace,
    "unary": lambda self, instruction: unary(
        self.build, instruction.detail, self.value(instruction.names[0])
    ),
    "tuple": lambda self, instruction: tuple(self.values(instruction.names)),
    "list": lambda self, instruction: self.new_list(self.values(instruction.names)),
    "iterator": _iterator,
    "shortcut": _shortcut,
    "unpack": _unpack,
    "function": _function,
}
