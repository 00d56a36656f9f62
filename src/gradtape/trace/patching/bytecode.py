"""Analysis of CPython bytecode: the instruction that a frame executes, exits of loops, handlers of errors, names and constants.

No other module outside this folder reads bytecode. Offsets are those of ``frame.f_lasti``: bytes from the beginning of the code.
"""

from __future__ import annotations

import builtins
import ctypes
import dis
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import lru_cache
from inspect import CO_GENERATOR
from itertools import islice, pairwise
from types import CodeType, FrameType, FunctionType, TracebackType
from typing import Any, Final, NamedTuple, TypeAlias

from gradtape.lru import LRU

_CONDITION_LENGTH: Final = 2
"""Instructions ahead of a jump that may ask for the truth in its place (TO_BOOL, UNARY_NOT)."""


def instruction_at(frame: FrameType) -> str:
    """Return the name of the instruction that a frame executes."""
    first, _ = instruction_span(frame)
    return dis.opname[frame.f_code.co_code[first]]


def instruction_span(frame: FrameType) -> tuple[int, int]:
    """Return the offset of the instruction that a frame executes, and the end of its caches, where ``f_lasti`` may stand as well."""
    return _instruction_span(frame.f_code.co_code, frame.f_lasti)


def _instruction_span(code: bytes, offset: int) -> tuple[int, int]:
    first = offset
    while dis.opname[code[first]] == "CACHE":  # where a call of a Python function stands
        first -= 2
    while dis.opname[code[first]] == "PRECALL" or (first > offset and dis.opname[code[first]] == "CACHE"):
        first += 2  # in Python 3.11 a call of a builtin function may stand before its CALL
    last = first
    while last + 2 < len(code) and dis.opname[code[last + 2]] == "CACHE":
        last += 2
    return first, last


def qualified_name(frame: FrameType) -> str:
    """Return the name of the function of a frame, with its module and classes."""
    return f"{frame.f_globals.get('__name__', '')}.{frame.f_code.co_qualname}"


def line_at(code: CodeType, offset: int) -> int:
    """Return the number of the source line of an instruction."""
    table = _line_tables.get(id(code))
    if table is None:
        # An entry holds its code, so that no other one has its identity.
        table = _line_tables[id(code)] = (code, *_line_table(code))
    _, starts, lines = table
    entry = bisect_right(starts, offset) - 1
    line = lines[entry] if entry >= 0 else None
    return code.co_firstlineno if line is None else line


def _line_table(code: CodeType) -> tuple[list[int], list[int | None]]:
    """Return the offsets at which the lines of a code object begin, and their numbers."""
    table = [(start, line) for start, _, line in code.co_lines()]
    return [start for start, _ in table], [line for _, line in table]


_line_tables: Final[LRU[int, tuple[CodeType, list[int], list[int | None]]]] = LRU(lambda: 64)
"""To go through a long function for each of its operations would take quadratic time."""


def position_at(code: CodeType, offset: int) -> tuple[int, int, int, int] | None:
    """Return where the expression of an instruction stands in the source: its first and last line, its first column and the one after it,
    in bytes; None if it is not known."""
    first = _instruction_span(code.co_code, offset)[0]
    line, last, column, end = next(islice(code.co_positions(), first // 2, None))
    if line is None or last is None or column is None or end is None:
        return None
    return line, last, column, end


def callee_names(frame: FrameType, offset: int | None = None) -> tuple[str, ...]:
    """Return the parts of the expression that a frame calls, ``("np", "zeros")``, with an empty string for each that is no name.

    It is empty where no call is executed. An expression's instructions begin where it begins in the source, and end before the call does.
    For a frame that an error has left, `offset` is where that was: the frame may execute its handler since.
    """
    code = frame.f_code
    return _callee_names(
        code, _instruction_span(code.co_code, frame.f_lasti if offset is None else offset)[0]
    )


def is_extension_code(code: CodeType) -> bool:
    """Return whether code is what an extension module (Cython, pybind11) puts into tracebacks for its functions: it holds no program.

    Modules of Cython's for many versions of Python put the code of ``_getframe()`` there, under the name and line of their function.
    """
    return code.co_code == _NO_PROGRAM or (code.co_names == ("_getframe",) and code.co_code == _GETFRAME)


def _code_without_program() -> bytes:
    make: Any = ctypes.pythonapi.PyCode_NewEmpty
    make.restype, make.argtypes = ctypes.py_object, [ctypes.c_char_p, ctypes.c_char_p, ctypes.c_int]
    code: bytes = make(b"", b"", 1).co_code
    return code


_NO_PROGRAM: Final = _code_without_program()
_GETFRAME: Final = compile("_getframe()", "", "eval").co_code


def _callee_names(code: CodeType, here: int) -> tuple[str, ...]:
    entry = _callees.get(id(code))
    if entry is None:
        # An entry holds its code, so that no other one has its identity.
        entry = _callees[id(code)] = _Callees(code, list(code.co_positions()), {})
    names = entry.names.get(here)
    if names is None:
        names = entry.names[here] = _read_callee_names(code, here, entry.positions)
    return names


class _Callees(NamedTuple):
    """The calls of a code object: the names of the callees by the offsets of the calls."""

    code: CodeType
    positions: list[tuple[int | None, int | None, int | None, int | None]]
    names: dict[int, tuple[str, ...]]


_callees: Final[LRU[int, _Callees]] = LRU(lambda: 64)
"""A trace looks this up for each array that a Python loop makes: decoding the function each time would take most of its time."""


def _read_callee_names(
    code: CodeType, here: int, positions: Sequence[tuple[int | None, int | None, int | None, int | None]]
) -> tuple[str, ...]:
    line, last_line, column, end = positions[here // 2]
    is_call = dis.opname[code.co_code[here]].startswith("CALL")
    if line is None or last_line is None or end is None or not is_call:
        return ()
    parts: dict[tuple[int, int], str] = {}
    for instruction, _ in _instructions(code).values():
        if instruction.offset >= here:
            break
        first, last, begin, stop = positions[instruction.offset // 2]
        if (
            (first, begin) != (line, column)
            or last is None
            or stop is None
            or (last, stop) >= (last_line, end)
        ):
            continue
        name = instruction.opname
        if name.startswith("LOAD") and isinstance(instruction.argval, str):
            parts.setdefault((last, stop), instruction.argval)
        elif name.startswith(("CALL", "BINARY", "BUILD")):
            parts.setdefault((last, stop), "")
    return tuple([parts[position] for position in sorted(parts)])


def handles_error(frame: FrameType) -> bool:
    """Return whether an error at a frame's instruction is caught by an ``except`` or ``finally`` of the same function."""
    return _handles_error(frame.f_code, frame.f_lasti)


def _handles_error(code: CodeType, offset: int) -> bool:
    return bool(_handlers(code, offset))


@lru_cache(maxsize=4096)
def _handlers(code: CodeType, offset: int) -> tuple[int, ...]:
    """Return the offsets of the ``except`` and ``finally`` blocks around an instruction."""
    entries = dis._parse_exception_table(code)  # type: ignore[attr-defined]
    targets = {entry.target for entry in entries if entry.start <= offset < entry.end}
    if not targets:
        return ()
    names = [(step.offset, step.opname) for step in dis.get_instructions(code)]
    return tuple(
        [
            begin
            for (begin, name), (_, following) in pairwise(names)
            if begin in targets and name == "PUSH_EXC_INFO" and following != "WITH_EXCEPT_START"
        ]
    )


def raises_explicitly(trace: TracebackType) -> bool:
    """Return whether an entry of a traceback stands at a ``raise`` statement."""
    return trace.tb_frame.f_code.co_code[trace.tb_lasti] == dis.opmap["RAISE_VARARGS"]


@lru_cache(maxsize=1024)
def has_other_exit(code: CodeType, offset: int, conditions: frozenset[int]) -> bool:
    """Return whether the innermost loop around an instruction has an exit that does not depend on traced values alone.

    Parameters
    ----------
    code : code
        Of the function with the loop.
    offset : int
        The instruction; without a loop around it the answer is True.
    conditions : frozenset of int
        The offsets at which Python needed the truth of a traced value.
    """
    instructions = list(dis.get_instructions(code))
    loops = [loop for loop in _loops_of(code) if loop[0] <= offset <= loop[1]]
    if not loops:
        return True
    head, tail = min(loops, key=lambda loop: loop[1] - loop[0])
    for number, jump in enumerate(instructions):
        if not head <= jump.offset <= tail:
            continue
        if jump.opname.startswith(("FOR_ITER", "SEND")):
            return True
        conditional = jump.opname.startswith(("POP_JUMP", "JUMP_IF"))
        before = instructions[max(number - _CONDITION_LENGTH, 0) : number + 1]
        if conditional and not any(one.offset in conditions for one in before):
            return True
    return False


def only_raises(frame: FrameType, answer: bool, is_own: Callable[[FrameType], bool]) -> bool:
    """Return whether Python raises an error, whatever else it finds, if the truth that a frame asks for has this answer.

    The code is interpreted from the instruction on, into callers that the answer is returned to. Where a truth is not known, both paths
    have to end with an error that no function on the way handles.

    Parameters
    ----------
    frame : frame
        Its instruction asks for the truth of an object.
    answer : bool
    is_own : callable
        Whether a frame belongs to the library that runs the code: nothing is known of what it does with a result.
    """
    name = instruction_at(frame)
    offset, last = instruction_span(frame)
    if not name.startswith("CALL"):
        return _Paths(frame, is_own).all_raise([(0, offset, answer, frozenset(), True)])
    callees = callee_names(frame)
    callee = callees[0] if len(callees) == 1 else ""
    if (
        callee in frame.f_code.co_varnames
        or {"any": True, "all": False, "bool": answer}.get(callee) is not answer
    ):
        return False  # another element may decide
    if frame.f_globals.get(callee) not in (None, getattr(builtins, callee)):
        return False
    return _Paths(frame, is_own).all_raise([(0, last + 2, answer, frozenset(), False)])


def passes_error_on(frame: FrameType, is_own: Callable[[FrameType], bool]) -> bool:
    """Return whether an error at a frame's instruction leaves the function, possibly as another error; see `only_raises`."""
    return all(
        _Paths(frame, is_own).all_raise([(0, target, None, frozenset(), False)])
        for target in _handlers(frame.f_code, frame.f_lasti)
    )


_Known: TypeAlias = frozenset[tuple[str, bool]]
"""Local variables whose truth is known."""

_State: TypeAlias = tuple[int, int, bool | None, _Known, bool]
"""How many frames up, the offset of the next instruction, the truth of what is on top of the stack, and of local variables; whether the
truth of the top is that of an object, which the instruction asks for."""

_MOST_STATES: Final = 20_000

_KEEP_TOP: Final = frozenset(
    {"CACHE", "EXTENDED_ARG", "MAKE_CELL", "NOP", "NOT_TAKEN", "PRECALL", "RESUME", "TO_BOOL"}
)


class _Paths:
    """What code may do from an instruction on, in a frame and those that called it; None for a function that is not called yet."""

    def __init__(
        self, frame: FrameType | None, is_own: Callable[[FrameType], bool], code: CodeType | None = None
    ) -> None:
        self._frames = [] if frame is None else [frame]
        self._codes = [code if frame is None else frame.f_code]
        self._is_own = is_own

    def all_raise(self, pending: list[_State]) -> bool:
        """Return whether all paths from these states end with an error."""
        visited: set[_State] = set()
        while pending:
            state = pending.pop()
            if state in visited:
                continue
            visited.add(state)
            following = self._after(*state)
            if following is None or len(visited) > _MOST_STATES:
                return False
            pending += following
        return True

    def _after(
        self, level: int, offset: int, top: bool | None, truths: _Known, asks: bool
    ) -> list[_State] | None:
        """Return the states after an instruction: none after an error, None where the code goes on elsewhere."""
        code = self._codes[level]
        assert code is not None
        step, following = _instructions(code)[offset]
        name = step.opname

        def to(offset: int, top: bool | None = None, truths: _Known = truths) -> _State:
            return level, offset, top, truths, False

        if name in ("RAISE_VARARGS", "RERAISE"):
            return [] if name == "RERAISE" else self._raised(level, offset)
        if name in ("RETURN_VALUE", "RETURN_CONST"):
            return self._returned(level, top if name == "RETURN_VALUE" else _truth_of(step.argval))
        if name.startswith("YIELD"):
            return None
        if "JUMP" in name or name in ("FOR_ITER", "SEND"):
            ways = _jumps(step, following, top)
            return [to(target, left) for target, left in ways]
        if name.startswith("CALL") and self._never_returns(level, offset):
            return self._raised(level, offset)
        if name == "LOAD_CONST":
            return [to(following, _truth_of(step.argval))]
        if name.startswith("LOAD_FAST") and isinstance(step.argval, str):
            return [to(following, dict(truths).get(step.argval))]
        if name.startswith(("STORE_FAST", "DELETE_FAST")):
            names = step.argval if isinstance(step.argval, tuple) else (step.argval,)
            unassigned = frozenset((tested, truth) for tested, truth in truths if tested not in names)
            single = name == "STORE_FAST" and top is not None
            return [to(following, None, unassigned | {(step.argval, bool(top))} if single else unassigned)]
        if name == "UNARY_NOT" and top is not None:
            return [to(following, not top)]
        keeps = name in _KEEP_TOP or (name == "COPY" and step.arg == 1)
        return [to(following, top)] if keeps else None if asks else [to(following)]

    def _raised(self, level: int, offset: int) -> list[_State]:
        """Return the states of the blocks that handle an error; a ``finally`` raises it again."""
        code = self._codes[level]
        assert code is not None
        return [(level, target, None, frozenset(), False) for target in _handlers(code, offset)]

    def _returned(self, level: int, top: bool | None) -> list[_State] | None:
        """Return the state of the caller after a return."""
        if not self._frames:
            return None
        frame = self._frames[level]
        caller = frame.f_back
        if caller is None or self._is_own(caller) or frame.f_code.co_flags & CO_GENERATOR:
            return None
        if not instruction_at(caller).startswith("CALL") or callee_names(caller)[-1:] != (
            frame.f_code.co_name,
        ):
            return None
        if level + 1 == len(self._frames):
            self._frames.append(caller)
            self._codes.append(caller.f_code)
        return [(level + 1, instruction_span(caller)[1] + 2, top, frozenset(), False)]

    def _never_returns(self, level: int, offset: int) -> bool:
        """Return whether a call is one of a function that only raises."""
        code = self._codes[level]
        names = _callee_names(code, offset)  # type: ignore[arg-type]
        if len(names) != 1 or not self._frames:
            return False
        callee = self._frames[level].f_globals.get(names[0])
        cells = {*code.co_freevars, *code.co_cellvars}  # type: ignore[union-attr]
        if names[0] in cells:
            callee = self._frames[level].f_locals.get(names[0])
        if not isinstance(callee, FunctionType) or callee.__code__.co_flags & CO_GENERATOR:
            return False
        first = next(iter(_instructions(callee.__code__)))
        return _Paths(None, self._is_own, callee.__code__).all_raise([(0, first, None, frozenset(), False)])


def _truth_of(constant: Any) -> bool | None:
    return bool(constant) if constant is None or isinstance(constant, bool | int | str) else None


def _jumps(step: dis.Instruction, following: int, top: bool | None) -> list[tuple[int, bool | None]]:
    """Return where control may go after a jump, with the truth of what is on top of the stack then."""
    name, target = step.opname, step.argval
    if "NONE" in name or not name.startswith(("POP_JUMP", "JUMP_IF")):
        return [(target, None), *([] if name.startswith("JUMP_") else [(following, None)])]
    sense = "TRUE" in name
    stays = sense if name.endswith("OR_POP") else None
    jumps, falls_through = (target, stays), (following, None)
    return [jumps, falls_through] if top is None else [jumps] if top is sense else [falls_through]


@lru_cache(maxsize=256)
def _instructions(code: CodeType) -> dict[int, tuple[dis.Instruction, int]]:
    """Return the instructions of a code object by offset, each with the offset of the next one."""
    steps = list(dis.get_instructions(code))
    ends = [*[step.offset for step in steps[1:]], len(code.co_code)]
    return {step.offset: (step, end) for step, end in zip(steps, ends, strict=True)}


def constant_key(frame: FrameType) -> Any:
    """Return the constant by which a frame subscripts what it writes to; None for other keys."""
    steps = _instructions(frame.f_code)
    store_offset, _ = instruction_span(frame)
    before = max((offset for offset in steps if offset < store_offset), default=None)
    step = None if before is None else steps[before][0]
    return step.argval if step is not None and step.opname.startswith("LOAD_CONST") else None


@lru_cache(maxsize=4096)
def stores_items(code: CodeType) -> bool:
    """Return whether code assigns to subscripts other than texts: ``y[k] = x``, not ``d["rate"] = x``."""
    if STORES.isdisjoint(code.co_code[::2]):  # most code: quickly
        return False
    steps = [step for step, _ in _instructions(code).values()]
    return any(
        dis.opmap.get(step.opname) in STORES
        and not (before.opname == "LOAD_CONST" and isinstance(before.argval, str))
        for before, step in pairwise(steps)
    )


STORES: Final = frozenset([dis.opmap[name] for name in ("STORE_SUBSCR", "STORE_SLICE") if name in dis.opmap])


def is_in_loop(frame: FrameType) -> bool:
    """Return whether a frame executes an instruction of a loop."""
    return any(head <= frame.f_lasti <= tail for head, tail in _loops_of(frame.f_code))


@lru_cache(maxsize=1024)
def _loops_of(code: CodeType) -> list[tuple[int, int]]:
    """Return the offsets of the first and the last instruction of each loop."""
    return [
        (jump.argval, jump.offset)
        for jump in dis.get_instructions(code)
        if "JUMP" in jump.opname and isinstance(jump.argval, int) and jump.argval <= jump.offset
    ]


def nested_codes(code: CodeType) -> Iterator[CodeType]:
    """Yield a code object and those of the functions, classes and comprehensions inside it."""
    yield code
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from nested_codes(constant)


def constants_of(code: CodeType) -> tuple[Any, ...]:
    """Return the constants in the source of a function, and the numbers in its constant slices.

    Since Python 3.14 small integers are operands of instructions, and slices of constants are constants.

    Examples
    --------
    >>> 3 in constants_of(compile("x[3:]", "<code>", "eval"))
    True
    """
    small = (
        instruction.arg
        for instruction in dis.get_instructions(code)
        if instruction.opname == "LOAD_SMALL_INT"
    )
    return (*code.co_consts, *small, *_within_slices(code.co_consts))


def _within_slices(constants: Iterable[Any]) -> Iterator[Any]:
    for constant in constants:
        if isinstance(constant, slice):
            yield from (constant.start, constant.stop, constant.step)
        elif isinstance(constant, tuple):
            yield from _within_slices(constant)


def names_in(code: CodeType) -> frozenset[str]:
    """Return the names of globals and attributes that code reads."""
    return frozenset(code.co_names)


def local_names(function: Any) -> tuple[str, ...] | None:
    """Return the names of a Python function's local variables, its parameters first; None for other callables."""
    code = getattr(function, "__code__", None)
    return None if code is None else code.co_varnames
