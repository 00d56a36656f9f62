"""The writer of LLVM IR: modules, functions, and routines from ``.ll`` files."""

from __future__ import annotations

import functools
import pkgutil
import re
from typing import Final

from gradtape.lower.target.host import vector_bytes

KERNEL: Final = "kernel"
"""The function ``int32_t (void **inputs, void **outputs, void *workspace)`` of a kernel's module."""

PURE: Final = "nounwind willreturn memory(none)"
"""The attributes of functions that do nothing but compute their result."""

LIKELY: Final = '!prof !{!"branch_weights", i32 2000, i32 1}'
UNLIKELY: Final = '!prof !{!"branch_weights", i32 1, i32 2000}'

ITSELF: Final = "!itself"
"""Stands in metadata for their own number."""

_PLACE: Final = re.compile(r"\$(?:(\w+)|\{(\w+)\})")
_TYPE: Final = re.compile(r"<[^>]*>|\S+")
_QUOTED: Final = re.compile(r'@"([^"]+)"')


def read_ll(package: str, file: str, /, **places: object) -> str:
    """Return the text of an ``.ll`` file of a package, with ``$name`` and ``${name}`` replaced by what `places` has for them.

    Examples
    --------
    >>> print(read_ll("gradtape.lower.resident", "thread_windows.ll").splitlines()[0])
    declare i32 @GetCurrentThreadId()
    """
    text = _text(package, file)
    return _PLACE.sub(lambda match: str(places[match[1] or match[2]]), text) if places else text


@functools.cache
def _text(package: str, file: str) -> str:
    data = pkgutil.get_data(package, file)
    assert data is not None
    return data.decode()


def own_function() -> str:
    """Return the attributes of a function with loops, which is not inlined.

    Its frame is aligned to vectors, which LLVM may spill: otherwise each of them would be in two lines of the cache.
    """
    return f"noinline nounwind alignstack({vector_bytes()})"


class ModuleWriter:
    """Builds the text of a module.

    Attributes
    ----------
    functions : list of str
        Definitions, in their order.
    helpers : dict of str to str
        Definitions of functions that several others call, by name.
    declarations : dict of str to None
        Declarations and constants, a line each.
    symbols : dict of str to None
        Names that are bound when the machine code is loaded.
    attributes : dict of str to str
        The number of each group of attributes.
    kept : dict of str to None
        Functions that only the vectoriser calls; LLVM must not remove their declarations before.
    metadata : list of str
        Metadata, of loops and of memory, by their numbers less one. `ITSELF` stands for the number.
    """

    def __init__(self) -> None:
        self.functions: list[str] = []
        self.helpers: dict[str, str] = {}
        self.declarations: dict[str, None] = {}
        self.symbols: dict[str, None] = {}
        self.attributes: dict[str, str] = {}
        self.kept: dict[str, None] = {}
        self.metadata: list[str] = []

    def text(self) -> str:
        """Return the module."""
        lines = [*self.helpers.values(), *self.functions, *self.declarations]
        if self.kept:
            names = ", ".join(f"ptr @{name}" for name in self.kept)
            array = f"[{len(self.kept)} x ptr] [{names}]"
            lines.append(f'@llvm.compiler.used = appending global {array}, section "llvm.metadata"')
        lines.extend(f"attributes #{number} = {{ {text} }}" for text, number in self.attributes.items())
        if self.metadata:
            lines.append('!0 = !{!"llvm.loop.unroll.disable"}')
            lines.extend(
                f"!{number} = {text.replace(ITSELF, f'!{number}')}"
                for number, text in enumerate(self.metadata, 1)
            )
        return "\n".join(lines) + "\n"

    def declare(self, *lines: str) -> None:
        """Add declarations or constants that are not there yet."""
        for line in lines:
            self.declarations[line] = None

    def constant(self, name: str, type_: str, value: str) -> str:
        """Add a constant that is not there yet, and return its address."""
        self.declarations[f"@{name} = internal constant {type_} {value}"] = None
        return f"@{name}"

    def bind(self, *symbols: str) -> None:
        """Enter symbols that are bound when the machine code is loaded."""
        self.symbols.update(dict.fromkeys(symbols))

    def attribute(self, text: str) -> str:
        """Return the number of a group of attributes."""
        return self.attributes.setdefault(text, str(len(self.attributes)))

    def add_metadata(self, text: str) -> int:
        """Add metadata, and return their number; `ITSELF` makes them distinct from all others."""
        self.metadata.append(text)
        return len(self.metadata)

    def add_routine(self, name: str, /, **places: object) -> str:
        """Add the functions of the file ``routines/<name>.ll`` that are not there yet; return the name of the last one.

        Its declarations and constants become those of the module. What is declared under a quoted name is bound at load.
        """
        heads, *definitions = read_ll("gradtape.lower.llvm", f"routines/{name}.ll", **places).split("define ")
        for line in heads.splitlines():
            if line.startswith(("declare ", "@")):
                self.declarations[line] = None
        self.symbols.update(dict.fromkeys(_QUOTED.findall(heads)))
        symbol = ""
        for definition in definitions:
            symbol = definition[definition.index("@") + 1 : definition.index("(")]
            self.helpers.setdefault(symbol, f"define {definition.rstrip()}")
        return symbol


class FunctionWriter:
    """Builds the text of a function, instruction by instruction.

    Attributes
    ----------
    module : ModuleWriter
        Has the declarations of what the function calls.
    entry : list of str
        Instructions at the beginning: allocations on the stack.
    lines : list of str
        The instructions after these.
    label : str
        The basic block that is being written.
    """

    def __init__(self, module: ModuleWriter) -> None:
        self.module = module
        self.entry: list[str] = []
        self.lines: list[str] = []
        self.label = "entry"
        self.count = 0

    def text(self, header: str, *end: str) -> str:
        """Return the function, with these instructions at its end."""
        return "\n".join([f"{header} {{", "entry:", *self.entry, *self.lines, *end, "}"])

    def new_label(self) -> str:
        """Return a label that is not in use."""
        self.count += 1
        return f"L{self.count}"

    def emit(self, instruction: str) -> None:
        """Append an instruction."""
        self.lines.append(f"  {instruction}")

    def let(self, instruction: str) -> str:
        """Append an instruction and return the name of its result."""
        self.count += 1
        name = f"%v{self.count}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def call(self, result: str, function: str, *operands: str, flags: str = "") -> str:
        """Append a call, declare what it calls, and return the name of its result; operands have their types in front."""
        types = ", ".join([_TYPE.match(operand)[0] for operand in operands])  # type: ignore[index]
        self.module.declarations[f"declare {result} @{function}({types})"] = None
        text = f"call{flags} {result} @{function}({', '.join(operands)})"
        if result == "void":
            self.emit(text)
            return ""
        return self.let(text)

    # Blocks

    def start_block(self, label: str) -> None:
        """Begin a basic block."""
        self.lines.append(f"{label}:")
        self.label = label

    def branch(self, condition: str, then: str, otherwise: str, weights: str = "") -> None:
        """Append a conditional branch."""
        self.lines.append(
            f"  br i1 {condition}, label %{then}, label %{otherwise}{weights and ', '}{weights}"
        )

    def jump(self, label: str) -> None:
        """Append an unconditional branch."""
        self.lines.append(f"  br label %{label}")

    def return_unless_zero(self, status: str, name: str) -> None:
        """Append a return of an int32, unless it is zero."""
        self.branch(self.let(f"icmp eq i32 {status}, 0"), f"{name}.over", f"{name}.stopped")
        self.start_block(f"{name}.stopped")
        self.emit(f"ret i32 {status}")
        self.start_block(f"{name}.over")

    # Memory

    def slot(self, type_: str, align: int = 16, initial: str = "") -> str:
        """Reserve memory on the stack for the length of the call, and return its address."""
        self.count += 1
        name = f"%v{self.count}"
        self.entry.append(f"  {name} = alloca {type_}, align {align}")
        if initial:
            self.entry.append(f"  store {type_} {initial}, ptr {name}")
        return name

    def offset(self, pointer: str, distance: int) -> str:
        """Return a pointer plus `distance` bytes."""
        return self.let(f"getelementptr i8, ptr {pointer}, i64 {distance}") if distance else pointer

    def load(self, type_: str, pointer: str, distance: int = 0) -> str:
        """Append a load from a pointer plus `distance` bytes, and return the name of its result."""
        return self.let(f"load {type_}, ptr {self.offset(pointer, distance)}")

    def store(self, type_: str, value: str, pointer: str) -> None:
        """Append a store."""
        self.lines.append(f"  store {type_} {value}, ptr {pointer}")
