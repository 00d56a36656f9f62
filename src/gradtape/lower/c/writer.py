"""The writer of C functions: lines in blocks, declarations in front, and what ends a call."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from gradtape.loops.ir import Dtype
from gradtape.lower.c.expressions import Helper, c_type

FAILED: Final = "failed"
"""The variable that says whether an index was out of bounds, a check or a routine has failed (1), or there is no memory (2)."""

INDENT: Final = "    "

_NAME: Final = re.compile(r"[A-Za-z_]\w*")
_WRITE: Final = re.compile(r"\s*((?:const )?\w+ \*?(?:const )?)?(\w+)(\[[^=;]*\])?(?:;| = (.*);)$")
_SUMS: Final = re.compile(r"\s*SUM_LANES\((.*)\)$")


class FunctionWriter:
    """Writes a function line by line.

    Attributes
    ----------
    helper : callable
        Adds functions of the folder ``routines`` to the file.
    frame : list of str
        Declarations at the beginning.
    frees : list of str
        Statements at the end that free memory.
    fails : bool
        Whether the function may fail.
    """

    def __init__(self, helper: Helper) -> None:
        self.helper = helper
        self.lines: list[str] = []
        self.frame: list[str] = []
        self.frees: list[str] = []
        self.fails = False
        self.indent = INDENT

    def write(self, line: str) -> None:
        self.lines.append(self.indent + line)

    def declare(self, line: str) -> None:
        """Add a declaration at the beginning."""
        self.frame.append(INDENT + line)

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Append a block; its statements are what is appended meanwhile."""
        self.write(f"{head} {{")
        self.indent += INDENT
        yield
        self.indent = self.indent[: -len(INDENT)]
        self.write("}")

    def counted(self, index: str, count: object, first: int = 0) -> str:
        """Return the head of a counted loop."""
        return f"for (int64_t {index} = {first}; {index} < {count}; {index}++)"

    def break_unless(self, condition: str) -> None:
        """Append the end of a loop where a condition does not hold; after a failure it may hold for ever."""
        self.write(f"if (!{condition}{f' || {FAILED}' if self.fails else ''})")
        self.write(f"{INDENT}break;")

    def leave(self, status: int) -> str:
        """Return the statement that ends the call with a status."""
        self.fails = True
        return f"{{ {FAILED} = {status}; goto done; }}"

    def text(self, name: str, parameters: Sequence[tuple[str, str]], sign: str = "") -> str:
        """Return the function: its parameters are types and names. It returns the status, with a sign."""
        frame = [f"{INDENT}int {FAILED} = 0;", *self.frame] if self.fails else self.frame
        end = [f"{INDENT}{line}" for line in self.frees]
        end += [f"{INDENT}return {f'{sign}{FAILED}' if self.fails else '0'};", "}"]
        if any("goto done" in line for line in self.lines):
            end.insert(0, "done:")
        body = _without_unused([*frame, *self.lines])
        mentioned = set(_NAME.findall("\n".join(body)))
        unused = [f"(void){parameter};" for _, parameter in parameters if parameter not in mentioned]
        head = ", ".join([f"{type_}{parameter}" for type_, parameter in parameters])
        first = [f"static int {name}({head})", "{", *[f"{INDENT}{' '.join(unused)}"][: bool(unused)]]
        return "\n".join([*first, *body, *end])


def pointer_type(dtype: Dtype, is_pointer: bool = True) -> str:
    """Return the beginning of the declaration of a pointer, or of a number."""
    return f"{c_type(dtype)} {'*' if is_pointer else ''}"


def _without_unused(lines: Sequence[str]) -> list[str]:
    """Return the lines without the variables and arrays on which no effect depends, of which compilers warn."""
    found = list(map(_WRITE.match, lines))
    is_array = {write[2]: bool(write[3]) for write in found if write and write[1]}
    writes: dict[str, list[str]] = {}
    pending: list[str] = []
    kept: list[tuple[str, str]] = []  # lines, and the name without which they are not needed
    for line, write in zip(lines, found, strict=True):
        name = write[2] if write else ""
        # Through a pointer, elements are written that others may read.
        if not write or name not in is_array or (write[3] and not is_array[name]):
            kept.append((line, ""))
            pending += () if _SUMS.match(line) else _NAME.findall(line)
        else:
            kept.append((line, name))
            writes.setdefault(name, []).append(line)
            pending += _NAME.findall(write[4]) if f"&{FAILED}" in (write[4] or "") else ()
    live: set[str] = {FAILED}
    while pending:
        name = pending.pop()
        if name not in live:
            live.add(name)
            pending += [other for line in writes.get(name, ()) for other in _NAME.findall(line)]
    result = []
    for (line, name), write in zip(kept, found, strict=True):
        if not name or name in live:
            result.append(_without_sums(line, live))
        elif write and f"&{FAILED}" in (write[4] or ""):
            result.append(line.replace(write[0].strip(), f"{write[4]};"))
    return result


def _without_sums(line: str, live: set[str]) -> str:
    """Return a line; a pragma does not name sums that are not declared."""
    sums = _SUMS.match(line)
    if sums is None:
        return line
    left = ", ".join([name for name in sums[1].split(", ") if name in live])
    return line.replace(line.strip(), f"SUM_LANES({left})" if left else "LANES")
