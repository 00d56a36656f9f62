"""Random kernels of straight-line code, optimised and not.

The kernels are like those of unrolled loops: lanes that do the same with neighbouring elements, some of them later than others, with loads
at positions that are data, scattered stores, and calls between them. LLVM's SLP vectoriser makes vectors of the lanes. No operation may
be reassociated or fused, so the results are equal to the last bit.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from gradtape.runtime.compile.engine import LoadedModule, call_flat, compile_object

GATHERED = ("b0",)
"""Arrays of float64 with scattered stores, and loads at positions that are data, among others."""

CALLED = ("b1",)
"""Arrays that calls change."""

SINKS = ("b2", "b3", "b4", "b5")
"""Arrays that lanes fill."""

BUFFERS = GATHERED + CALLED + SINKS
"""What the kernel reads and writes."""

INPUTS = ("x", "at")
"""Numbers, and positions: arrays that the kernel only reads."""

OPS = ("fadd", "fsub", "fmul", "fdiv", "fdiv")

SIZE = 16
"""Elements of each array."""

HEAD = """
declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)
declare void @llvm.masked.store.v4f64.p0(<4 x double>, ptr, i32, <4 x i1>)

define internal void @touch(ptr %z) noinline optnone nounwind {
  %1 = load double, ptr %z
  %2 = fadd double %1, 1.0
  store double %2, ptr %z
  ret void
}
"""


@dataclass
class Writer:
    """The lines of a nest, and the numbers in it.

    Attributes
    ----------
    values : list of str
        Operands that later statements may use.
    """

    rng: random.Random
    lines: list[str] = field(default_factory=list)
    values: list[str] = field(default_factory=lambda: ["1.5"])

    def let(self, instruction: str) -> str:
        name = f"%v{len(self.lines)}"
        self.lines.append(f"  {name} = {instruction}")
        return name

    def at(self, buffer: str, index: int | str) -> str:
        return self.let(f"getelementptr inbounds double, ptr %{buffer}, i64 {index}")

    def load(self, buffer: str, index: int | str) -> str:
        return self.let(f"load double, ptr {self.at(buffer, index)}")

    def position(self, index: int) -> str:
        address = self.let(f"getelementptr inbounds i64, ptr %at, i64 {index}")
        return self.let(f"load i64, ptr {address}")

    def store(self, value: str, buffer: str, index: int | str) -> None:
        self.lines.append(f"  store double {value}, ptr {self.at(buffer, index)}")


Statements = Callable[[Writer], None]


def lanes(rng: random.Random) -> tuple[list[Statements], list[Statements]]:
    """Return statements of lanes that do the same, in two runs; the second one may come later.

    Where there is a second run, it has the first operations of some lanes, which begin with elements of another array, and the last
    operations of all.
    """
    count = rng.choice((2, 2, 4, 4, 8))
    start = rng.randrange(SIZE - count + 1)
    leaf = rng.choice(("neighbours", "data", "data", "value", "spread"))
    cut = rng.randrange(1, count) if leaf != "data" and rng.random() < 0.7 else count
    sources = [rng.choice((*BUFFERS, "x", "x")), rng.choice((*BUFFERS, *CALLED * 10))]
    if leaf == "data":
        sources[0] = rng.choice((*GATHERED * 14, *BUFFERS))
    sink, kept = rng.choice(SINKS), rng.choice((*GATHERED * 14, *BUFFERS))
    ops = (
        [rng.choice(OPS) for _ in range(rng.choice((1, 1, 2)))],
        [rng.choice(OPS) for _ in range(rng.choice((0, 1, 4)))],
    )
    second = rng.choice(("constant", "x", "value"))
    scattered = rng.sample(range(SIZE), count)
    keeps = rng.choice((0, 1, 1, count))
    ends = rng.choice(("neighbours", "neighbours", "neighbours", "scattered", "kept"))
    values: dict[int, str] = {}

    def computed(write: Writer, number: int, ops: list[str], value: str) -> str:
        for op in ops:
            other = {"constant": "2.5", "value": rng.choice(write.values)}.get(second)
            value = write.let(f"{op} double {value}, {other or write.load('x', start + number)}")
        return value

    def first(write: Writer, number: int) -> None:
        source = sources[number >= cut]
        if leaf == "value":
            value = rng.choice(write.values)
        elif leaf == "data":
            value = write.load(source, write.position(start + number))
        else:
            value = write.load(source, start + number if leaf == "neighbours" else scattered[number])
        values[number] = computed(write, number, ops[0], value)
        if number < keeps:
            write.store(values[number], kept, scattered[number])

    def last(write: Writer, number: int) -> None:
        value = computed(write, number, ops[1], values[number])
        if ends == "kept":
            write.values.append(value)
        else:
            write.store(value, sink, start + number if ends == "neighbours" else scattered[number])

    def whole(write: Writer, number: int) -> None:
        first(write, number)
        last(write, number)

    if cut == count:
        return [partial(whole, number=number) for number in range(count)], []
    rest = [partial(first, number=number) for number in range(cut, count)]
    return [partial(first, number=number) for number in range(cut)], [
        *rest,
        *[partial(last, number=number) for number in range(count)],
    ]


def single(rng: random.Random) -> Statements:
    """Return a statement that no vectoriser moves."""
    buffer, what = rng.choice((*CALLED * 14, *BUFFERS)), rng.choice(("touch",) * 6 + ("memset", "masked"))

    def statement(write: Writer) -> None:
        if what == "touch":
            write.lines.append(f"  call void @touch(ptr %{buffer})")
        elif what == "memset":
            write.lines.append(f"  call void @llvm.memset.p0.i64(ptr %{buffer}, i8 0, i64 32, i1 false)")
        else:
            address, mask = write.at(buffer, 5), "<4 x i1> <i1 true, i1 true, i1 true, i1 false>"
            ones = f"<4 x double> <{', '.join(['double 1.0'] * 4)}>"
            write.lines.append(
                f"  call void @llvm.masked.store.v4f64.p0({ones}, ptr {address}, i32 8, {mask})"
            )

    return statement


def kernel(seed: int) -> str:
    """Return the module of a random kernel."""
    rng = random.Random(seed)
    write = Writer(rng)
    runs: list[list[Statements]] = []
    for _ in range(rng.randint(2, 4)):
        first, rest = lanes(rng)
        position = rng.randint(0, len(runs))
        runs.insert(position, first)
        runs.insert(rng.randint(position + 1, len(runs)), rest)
    statements = [statement for run in runs for statement in run]
    for _ in range(rng.randint(2, 7)):
        statements.insert(rng.randint(0, len(statements)), single(rng))
    for statement in statements:
        statement(write)
    parameters = ", ".join(f"ptr noalias nocapture align 8 dereferenceable(128) %{name}" for name in BUFFERS)
    read = ", ".join(
        f"ptr noalias nocapture readonly align 8 dereferenceable(128) %{name}" for name in INPUTS
    )
    table = [
        f"  %{name}.at = getelementptr ptr, ptr %{table}, i64 {k}\n  %{name} = load ptr, ptr %{name}.at"
        for table, names in (("inputs", INPUTS), ("outputs", BUFFERS))
        for k, name in enumerate(names)
    ]
    call = ", ".join(f"ptr %{name}" for name in (*BUFFERS, *INPUTS))
    return "\n".join(
        (
            HEAD,
            f"define internal void @nest({parameters}, {read}) noinline nounwind {{",
            *write.lines,
            "  ret void\n}",
            "define i32 @kernel(ptr %inputs, ptr %outputs, ptr %workspace) nounwind {",
            *table,
            f"  call void @nest({call})",
            "  ret i32 0\n}",
        )
    )


def results(text: str, seed: int, opt: int) -> list[np.ndarray]:
    """Return what a kernel leaves in its buffers."""
    rng = np.random.default_rng(seed)
    inputs = [rng.uniform(0.5, 2.0, SIZE), rng.integers(0, SIZE, SIZE)]
    outputs = [rng.uniform(0.5, 2.0, SIZE) for _ in BUFFERS]
    call_flat(LoadedModule(compile_object(text, "random", opt=opt)), inputs, outputs)
    return outputs


def is_wrong(seed: int) -> bool:
    """Return whether the optimised kernel leaves other numbers than the one that is not optimised."""
    text = kernel(seed)
    pairs = zip(results(text, seed, 3), results(text, seed, 0), strict=True)
    return not all(np.array_equal(one, other, equal_nan=True) for one, other in pairs)
