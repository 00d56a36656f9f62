"""The stages of compiling ahead of time, with JAX's names: a function is lowered, then compiled, for one signature."""

from __future__ import annotations

import pickle
from collections.abc import Callable
from typing import Any, Final, Generic, NoReturn

import numpy as np

from gradtape.api.export.archive import pickled_trace
from gradtape.api.export.closed import Traceable, TracedCall, argument_places, refuse_other_order, trace_call
from gradtape.api.export.specs import NUMBERS, Spec
from gradtape.api.type_variables import P, R_co
from gradtape.errors import ArgumentError, LoweringError, StructureError
from gradtape.ir.graph import Graph, Value
from gradtape.ir.printer import print_graph
from gradtape.lower.numba.module import print_program
from gradtape.lower.pipeline import lower
from gradtape.runtime.compile.engine import assembly, optimised_llvm
from gradtape.runtime.compile.program import GuardMiss
from gradtape.trace.array.handle import Handle, is_recorded
from gradtape.trace.jit.leaf_kinds import is_dynamic, is_weak
from gradtape.trace.jit.signature import CallArguments
from gradtape.trace.source.sites import user_site
from gradtape.trees import outline, unflatten

LOWERED: Final[dict[str, Callable[[Graph], str]]] = {
    "graph": print_graph,
    "loops": print_program,
    "llvm": lambda graph: lower(graph).ir_text,
}
"""The texts of a lowered function."""

COMPILED: Final[dict[str, Callable[[Graph], str]]] = {
    "llvm": lambda graph: optimised_llvm(lower(graph).ir_text),
    "asm": lambda graph: assembly(lower(graph).ir_text),
}
"""The texts of a compiled function."""


class Lowered(Generic[P, R_co]):
    """A function that was traced for one signature; made by the method ``lower`` of compiled functions.

    Attributes
    ----------
    in_specs : tuple
        The positional arguments with a `gradtape.spec` in place of each array, and a type of Python's in place of each of its numbers.
    out_specs : nested containers of Spec
        The results.
    """

    def __init__(self, traced: TracedCall) -> None:
        self._traced = traced
        leaves = list(traced.call.leaves)
        for position in traced.call.positions:
            leaves[position] = _spec_of(leaves[position])
        self.in_specs = traced.call.with_leaves(leaves)[0]
        outputs = traced.specialisation.graph.outputs
        specs = [
            _spec_of_value(outputs[output]) if isinstance(output, int) else output()
            for output in traced.specialisation.outputs
        ]
        self.out_specs = unflatten(traced.specialisation.spec, specs)

    def __repr__(self) -> str:
        return f"<gradtape lowered {self._traced.name}: {self.in_specs!r} -> {self.out_specs!r}>"

    def __reduce__(self) -> NoReturn:
        raise pickle.PicklingError(
            f"{self!r} belongs to this process: pickle what its method compile() returns, or the function that gt.jit returned"
        )

    def as_text(self, dialect: str = "graph") -> str:
        """Return the program.

        Parameters
        ----------
        dialect : {"graph", "loops", "llvm"}, default "graph"
            The graph as typed three-address Python, the loops as Python that runs, or the LLVM code before LLVM's passes.
        """
        return _text(self._traced, dialect, LOWERED)

    def compile(self) -> Compiled[P, R_co]:
        """Return the function as machine code for this signature.

        Raises
        ------
        LoweringError
            For operations that kernels do not know; `gradtape.jit` runs them on the interpreter.
        """
        kernel = self._traced.specialisation.program.kernel
        if kernel.loaded is None:
            raise LoweringError(
                f"{self._traced.name} cannot be compiled",
                why=kernel.reason,
                remedy="call the function that gt.jit returned: it runs such programs on the interpreter",
            )
        return Compiled(self._traced, self.in_specs, self.out_specs)


class Compiled(Generic[P, R_co]):
    """Machine code of a function for one signature, which takes no other; made by `Lowered.compile`.

    What the function reads from outside its arguments is as it was when it was lowered, but for variables.

    Attributes
    ----------
    in_specs, out_specs
        As of `Lowered`.
    """

    def __init__(self, traced: TracedCall, in_specs: Any, out_specs: Any) -> None:
        self._traced = traced
        self.in_specs = in_specs
        self.out_specs = out_specs
        native, bound = traced.specialisation.native, None
        takes_all = native is not None and native.nested is None and len(native.passed) == native.leaves
        if native is not None and takes_all and not traced.hidden:
            bound = traced.specialisation.program.bind(self._slowly, native.statics)
        self._call: Callable[..., Any] = self._slowly if bound is None else bound

    def __repr__(self) -> str:
        return f"<gradtape compiled {self._traced.name}: {self.in_specs!r} -> {self.out_specs!r}>"

    def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co:
        result: R_co = self._call(*args, **kwargs)
        return result

    def __reduce__(self) -> tuple[Any, ...]:
        """Pickle the program, with what the function read when it was lowered: it arrives as what `gradtape.load` returns."""
        return pickled_trace(self._traced)

    def as_text(self, dialect: str = "llvm") -> str:
        """Return the program.

        Parameters
        ----------
        dialect : {"llvm", "asm"}, default "llvm"
            The LLVM code after LLVM's passes, or the assembly.
        """
        return _text(self._traced, dialect, COMPILED)

    def _slowly(self, *args: Any, **kwargs: Any) -> Any:
        """Answer a call in Python: it has nested arguments, other layouts, or a wrong signature."""
        traced = self._traced
        call = CallArguments(args, kwargs, traced.function.site.static)
        if call.key != traced.call.key or call.arrays:
            self._check(call)
        specialisation = traced.specialisation
        if specialisation.state.is_recorded():
            self._refuse_recorded("a variable that it reads")
        try:
            return specialisation.run([*call.dynamic(), *traced.hidden])
        except GuardMiss as miss:
            raise ArgumentError(
                f"{traced.name} was compiled for values that take other branches than these",
                where=specialisation.guards[miss.guard].site,
                why=f"the value there is {miss.actual}, and it was {specialisation.guards[miss.guard].expected} when it was lowered",
                remedy="call the function that gt.jit returned, which supports every branch; or write np.where or gt.cond",
            ) from None

    def _check(self, call: CallArguments) -> None:
        """Raise an error that names the argument, unless a call has the signature."""
        made_for = self._traced.call
        if call.spec != made_for.spec:
            raise StructureError(
                f"{self._traced.name} was compiled for the arguments {outline(made_for.spec)}; got {outline(call.spec)}",
                where=user_site(),
                remedy="pass the same containers, or lower it for these",
            )
        refuse_other_order(self._traced.name, call, made_for)
        paths = argument_places(self._traced)
        for path, argument, expected in zip(paths, call.objects, made_for.objects, strict=True):
            if isinstance(argument, Handle) and is_recorded(argument):
                self._refuse_recorded(path)
            if _form(argument) != _form(expected):
                self._refuse(path, _spec_of(argument), _spec_of(expected))

    def _refuse_recorded(self, path: str) -> NoReturn:
        raise ArgumentError(
            f"{self._traced.name}: {path} is recorded by a tape or a trace, and compiled code cannot be recorded",
            where=user_site(),
            remedy="call what gt.jit returned, or compile the gradient: gt.grad(f).lower(...).compile()",
        )

    def _refuse(self, path: str, actual: Any, expected: Any) -> NoReturn:
        raise ArgumentError(
            f"{self._traced.name}: {path} is {_shown(actual)}, and the function was compiled for {_shown(expected)}",
            where=user_site(),
            why="a compiled function takes one signature",
            remedy="pass such an argument, lower the function for this one, or call what gt.jit returned",
        )


def lowered(function: Traceable, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    """Return a function as traced for arguments, or for descriptions of arguments."""
    return Lowered(trace_call(function, args, kwargs))


def _text(traced: TracedCall, dialect: str, printers: dict[str, Callable[[Graph], str]]) -> str:
    if dialect not in printers:
        raise ArgumentError(
            f"as_text: dialect must be one of {', '.join(printers)}; got {dialect!r}", where=user_site()
        )
    return printers[dialect](traced.specialisation.graph)


def _form(leaf: Any) -> tuple[Any, ...]:
    """Return what must be equal for a leaf to take the place of another one."""
    if not is_dynamic(leaf):
        return type(leaf), leaf
    return type(leaf) if is_weak(leaf) else None, np.dtype(getattr(leaf, "dtype", type(leaf))), np.shape(leaf)


def _spec_of(leaf: Any) -> Any:
    """Return the description of an argument; the argument itself where it is no array or number."""
    if type(leaf) in NUMBERS:
        return type(leaf)
    if is_dynamic(leaf):
        return Spec(tuple(leaf.shape), np.dtype(leaf.dtype))
    return leaf


def _spec_of_value(value: Value) -> Spec:
    return Spec(value.shape, value.dtype)


def _shown(spec: Any) -> str:
    if isinstance(spec, Spec):
        return f"{spec.dtype.name}{list(spec.shape)}" if spec.shape else f"a {spec.dtype.name}"
    return f"a Python {spec.__name__}" if isinstance(spec, type) else repr(spec)
