"""Kernels in LLVM IR that the tests of the runtime share."""

from __future__ import annotations

from gradtape.runtime.call.convention import ArraySpec, Signature
from gradtape.runtime.call.entry import NativeFunction, bind, load
from gradtape.runtime.call.entry_ir import add_entry
from gradtape.runtime.compile.engine import compile_object

VECTOR = ArraySpec("float64", (3,))
NUMBER = ArraySpec("float64", ())


def elementwise(length: int, body: str, *, inputs: int = 1, declarations: str = "") -> str:
    """A kernel that computes `%r` from `%x0`, `%x1`... for each of `length` doubles."""
    pointers = "\n".join(
        f"  %s{k} = getelementptr ptr, ptr %inputs, i64 {k}\n  %p{k} = load ptr, ptr %s{k}"
        for k in range(inputs)
    )
    loads = "\n".join(
        f"  %e{k} = getelementptr double, ptr %p{k}, i64 %i\n  %x{k} = load double, ptr %e{k}"
        for k in range(inputs)
    )
    return f"""{declarations}
define i32 @kernel(ptr %inputs, ptr %outputs, ptr %workspace) {{
entry:
{pointers}
  %to = load ptr, ptr %outputs
  br label %loop
loop:
  %i = phi i64 [0, %entry], [%next, %loop]
{loads}
{body}
  %target = getelementptr double, ptr %to, i64 %i
  store double %r, ptr %target
  %next = add nuw nsw i64 %i, 1
  %more = icmp ult i64 %next, {length}
  br i1 %more, label %loop, label %done
done:
  ret i32 0
}}
"""


TWICE = elementwise(3, "  %r = fadd double %x0, %x0")
SUM = elementwise(3, "  %r = fadd double %x0, %x1", inputs=2)

VALUE_AND_GRADIENT = """
define i32 @kernel(ptr %inputs, ptr %outputs, ptr %workspace) {
  %from = load ptr, ptr %inputs
  %value = load ptr, ptr %outputs
  %slot = getelementptr ptr, ptr %outputs, i64 1
  %gradient = load ptr, ptr %slot
  %x = load <3 x double>, ptr %from, align 8
  %g = fadd <3 x double> %x, %x
  store <3 x double> %g, ptr %gradient, align 8
  %squares = fmul <3 x double> %x, %x
  %sum = call double @llvm.vector.reduce.fadd.v3f64(double 0.0, <3 x double> %squares)
  store double %sum, ptr %value
  ret i32 0
}
declare double @llvm.vector.reduce.fadd.v3f64(double, <3 x double>)
"""
"""The sum of squares of three doubles, and its gradient."""

COPY_BYTES = """
declare void @llvm.memcpy.p0.p0.i64(ptr, ptr, i64, i1)
define i32 @kernel(ptr %inputs, ptr %outputs, ptr %workspace) {{
  %from = load ptr, ptr %inputs
  %to = load ptr, ptr %outputs
  call void @llvm.memcpy.p0.p0.i64(ptr %to, ptr %from, i64 {count}, i1 false)
  ret i32 0
}}
"""

REFUSES = """
define i32 @kernel(ptr %inputs, ptr %outputs, ptr %workspace) {
  ret i32 3
}
"""


def native(kernel: str, signature: Signature, fallback: object = None, **binding: object) -> NativeFunction:
    """Compile, load and bind."""
    loaded = load(compile_object(add_entry(kernel, signature), "test"), signature)
    return bind(loaded, signature, told if fallback is None else fallback, **binding)  # type: ignore[arg-type]


def told(*args: object, **kwargs: object) -> tuple[str, tuple[object, ...], dict[str, object]]:
    """A fallback that tells what it was given."""
    return "fallback", args, kwargs


def straight_gathers(array: str = "a") -> str:
    """A kernel of two positions, three numbers and an array each of 16, 4, 4 and 4 doubles, in which LLVM's SLP vectoriser makes a gather.

    It stores `%d0` into the first array, copies four elements of it, at positions that are data, into the second one, and stores
    numbers of which the first is made of `%d0` and the other one of what a call changes. The vectoriser of LLVM 22 computes both at
    once, after the call. It used to move the store there as well, past the gather of the four elements.

    Parameters
    ----------
    array : {"a", "frame"}
        The array of which elements are copied: an output, or memory of the stack.
    """
    read = "".join(
        f"""  %at{k} = getelementptr inbounds i64, ptr %at, i64 {k}
  %k{k} = load i64, ptr %at{k}
  %from{k} = getelementptr inbounds double, ptr %{array}, i64 %k{k}
  %g{k} = load double, ptr %from{k}
  %to{k} = getelementptr inbounds double, ptr %copies, i64 {k}
{"  notail call void @touch(ptr %called)" if k == 2 else ""}
  store double %g{k}, ptr %to{k}
"""
        for k in range(4)
    )
    made = "".join(
        f"""  %h{k} = fadd double %d{k}, 2.0
  %i{k} = fdiv double 3.0, %h{k}
  %j{k} = fadd double %i{k}, 1.0
  %r{k} = fdiv double 3.0, %j{k}
  %result{k} = getelementptr inbounds double, ptr %results, i64 {k}
  store double %r{k}, ptr %result{k}
"""
        for k in range(2)
    )
    names = ("a", "copies", "called", "results")
    pointers = "".join(
        f"  %{name}.at = getelementptr ptr, ptr %{table}, i64 {k}\n  %{name} = load ptr, ptr %{name}.at\n"
        for table, buffers in (("inputs", ("at", "x")), ("outputs", names))
        for k, name in enumerate(buffers)
    )
    return f"""
define internal void @touch(ptr %called) noinline optnone nounwind {{
  %number = load double, ptr %called
  store double %number, ptr %called
  ret void
}}

define internal void @fill(ptr nocapture %array) noinline optnone nounwind {{
  call void @llvm.memset.p0.i64(ptr %array, i8 0, i64 128, i1 false)
  ret void
}}

declare void @llvm.memset.p0.i64(ptr, i8, i64, i1)

define internal void @nest({", ".join(f"ptr noalias %{name}" for name in ("at", "x", *names))}) noinline nounwind {{
  %frame = alloca [16 x double], align 64
  call void @fill(ptr nocapture %frame)
  %x0 = load double, ptr %x
  %x1.at = getelementptr inbounds double, ptr %x, i64 1
  %x1 = load double, ptr %x1.at
  %x2.at = getelementptr inbounds double, ptr %x, i64 2
  %x2 = load double, ptr %x2.at
  %d0 = fdiv double %x0, %x1
  %a1 = getelementptr inbounds double, ptr %{array}, i64 1
  store double %d0, ptr %a1
{read}
  notail call void @touch(ptr %called)
  %number = load double, ptr %called
  %d1 = fdiv double %number, %x2
{made}
  call void @fill(ptr nocapture %frame)
  ret void
}}

define i32 @kernel(ptr %inputs, ptr %outputs, ptr %workspace) nounwind {{
{pointers}
  call void @nest({", ".join(f"ptr %{name}" for name in ("at", "x", *names))})
  ret i32 0
}}
"""
