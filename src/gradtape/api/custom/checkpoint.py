"""Rematerialisation of whole functions: `checkpoint` and `recompute_grad`."""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from gradtape.api.custom.call import Operands, name_of
from gradtape.api.operands import traceable_operand
from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.pickling import Wrapper, pickled_as_call
from gradtape.api.transforms.recording import recordable_body
from gradtape.errors import TapeError
from gradtape.ir.builder import emit, here, keep_names
from gradtape.ir.graph import Node, TraceTag, Value, extract, merge_tags
from gradtape.ir.types import Shape
from gradtape.kinds.control import Rule, barrier, custom_call, visible_inputs
from gradtape.kinds.cotangent import Cotangent
from gradtape.ops.core.elementwise.arithmetic import multiply
from gradtape.ops.core.elementwise.cast import identity
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import trace_of
from gradtape.trace.lazy.force import force
from gradtape.trace.patching.copies import WriteWatch
from gradtape.trace.random.observation import Record
from gradtape.trace.source.contexts import write_watch
from gradtape.trace.source.sites import user_site
from gradtape.transforms.jvp import jvp
from gradtape.transforms.loops.draft import placeholder, substitute
from gradtape.transforms.loops.squares import Kinks
from gradtape.transforms.vjp import vjp_with_observers
from gradtape.trees import flatten, tree_map, unflatten

if TYPE_CHECKING:
    from gradtape.api.type_variables import Q, V


@pickled_as_call
def recompute_grad(function: Callable[Q, V]) -> Wrapper[Q, V]:
    """Checkpoint a function: recompute its intermediate values for the gradient instead of storing them.

    Parameters
    ----------
    function : callable
        NumPy code that returns the same results each time it is called with the same arguments.

    Returns
    -------
    callable
        Takes the arguments of `function` and returns its results. It has derivatives of every order, also with respect to captured
        arrays. `function` is called a second time when a gradient is taken.

    Raises
    ------
    TapeError
        When a gradient is taken, if the second call captures other arrays than the first.

    Notes
    -----
    On a tape, the call computes the results and keeps no intermediate values. In a compiled function, the kernel computes the body
    once for the results and once for the gradient. This is checkpointing (rematerialisation): A. Griewank and A. Walther,
    "Evaluating Derivatives", 2nd ed., SIAM 2008, chapter 12.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> layer = gt.recompute_grad(lambda x, w: np.tanh(x @ w))
    >>> gradient = gt.grad(lambda w: np.sum(layer(np.ones(2), w)))(np.zeros((2, 2)))
    >>> gradient.tolist()
    [[1.0, 1.0], [1.0, 1.0]]
    """
    check_callable(function, "recompute_grad")
    body, name = recordable_body(function), name_of(function)

    def recomputed(*args: Any, **kwargs: Any) -> Any:
        here.site = user_site()
        operands, watch = Operands(tree_map(_own, args), variables=False), write_watch()
        draws = Record()
        with draws.written():
            result = operands.run(body, kwargs, args)
        leaves, spec = flatten(result)
        if not operands.values and not any(isinstance(leaf, Handle) for leaf in leaves):
            return result
        values = [traceable_operand(leaf, f"a result of {name}") for leaf in leaves]
        read = operands.read_by(values)
        # Which of these are recorded is decided now: a tape may have ended when the gradient is taken.
        captured = [position for position, value in enumerate(read) if any(m.recording for m in value.tags)]
        inputs = (*operands.values, *[read[position] for position in captured])
        outside = Kinks(())
        kinked = [position for position, value in enumerate(inputs) if outside.kinked(value)]
        squared = list(_with_squares(values, inputs, kinked)[2]) if kinked else []
        results = [position for position, value in enumerate(values) if outside.kinked(value)]
        if not any(trace_of(value) for value in (*inputs, *values)):
            # What is known needs no history: the body's intermediate values are let go.
            values = [Value(value.aval, data=data) for value, data in zip(values, force(values), strict=True)]
        rule = _Again(name, operands, body, kwargs, captured, len(read), draws, squared, results, watch)
        outs = custom_call(
            values, (*inputs, *[multiply(inputs[position], inputs[position]) for position in squared]), rule
        )
        return unflatten(spec, [Array(out) for out in outs])

    return Wrapper(recomputed, function)


class _Again(Rule):
    """The derivative of a function by way of another call of it."""

    def __init__(
        self,
        name: str,
        operands: Operands,
        body: Callable[..., Any],
        kwargs: dict[str, Any],
        captured: Sequence[int],
        read: int,
        draws: Record,
        squared: Sequence[int],
        kinked: Sequence[int],
        watch: WriteWatch,
    ) -> None:
        super().__init__(name)
        self.kinked = kinked
        self._squared_results: tuple[int, ...] = ()
        self._draws, self._squared = draws, squared
        self._operands, self._body, self._kwargs = operands, body, kwargs
        self._captured, self._read, self._watch = captured, read, watch

    def with_square_of(self, result: int) -> Rule:
        """Return a rule that squares a result where it calls the function again, and sees its kink."""
        changed = copy.copy(self)
        changed._squared_results = (*self._squared_results, result)
        return changed

    def push(self, node: Node, tangents: Sequence[Value | None]) -> Sequence[Value | None]:
        tag = TraceTag()
        starts = [_tagged(emit(identity, [value]), value, tag) for value in visible_inputs(node)]
        outs = self._outputs(node, starts, tag)
        tag.recording = False
        moving = [
            (start, tangent) for start, tangent in zip(starts, tangents, strict=True) if tangent is not None
        ]
        pushed = jvp(
            outs, [s for s, _ in moving], [t for _, t in moving], lambda value: tag not in value.tags
        )
        tag.end()
        return pushed

    def pull(
        self, node: Node, cotangents: Sequence[Value | None], is_needed: Sequence[bool]
    ) -> Sequence[Value | None]:
        arrived = [None if cotangent is None else Cotangent(cotangent) for cotangent in cotangents]
        return [None if part is None else part.applied() for part in self.pull_back(node, arrived, is_needed)]

    def pull_back(
        self, node: Node, cotangents: Sequence[Cotangent | None], is_needed: Sequence[bool]
    ) -> Sequence[Cotangent | None]:
        tag = TraceTag()
        values = visible_inputs(node)
        arrived = [cotangent for cotangent in cotangents if cotangent is not None]
        barred = barrier(values, [cotangent.value for cotangent in arrived])
        starts = [_tagged(start, value, tag) for start, value in zip(barred, values, strict=True)]
        outs = self._outputs(node, starts, tag)
        tag.recording = False
        sweep = vjp_with_observers(
            [out for out, cotangent in zip(outs, cotangents, strict=True) if cotangent is not None],
            [start for start, flag in zip(starts, is_needed, strict=True) if flag],
            [cotangent.value for cotangent in arrived],
            lambda value: tag not in value.tags,
            masks=[cotangent.mask for cotangent in arrived],
        )
        pulled = dict(sweep.arrived())
        tag.end()
        return [pulled.get(start) if flag else None for start, flag in zip(starts, is_needed, strict=True)]

    def _outputs(self, node: Node, starts: Sequence[Value], tag: TraceTag) -> list[Value]:
        """Call the function again, on other values, also instead of those that it captures."""
        operands = self._operands
        count = len(operands.values)
        end = len(starts) - len(self._squared)
        starts, squares = starts[:end], starts[end:]
        with operands.snapshot.restored(), self._draws.read(), self._watch.rewound():
            result = self._body(*operands.filled(starts[:count]), **self._kwargs)
        outs = [traceable_operand(leaf, f"a result of {self.name}") for leaf in flatten(result)[0]]
        outs += [multiply(outs[position], outs[position]) for position in self._squared_results]
        nodes, read = extract(outs, starts, lambda value: tag not in value.tags, visible_inputs)
        captured = [read[position] for position in self._captured] if len(read) == self._read else None
        if captured is None or _types([*outs, *captured]) != _types([*node.outs, *starts[count:]]):
            raise TapeError(
                f"{self.name} computed something else when it was called again for its gradient",
                where=node.site,
                why="recompute_grad needs a function that computes the same in each call",
                remedy="pass what changes as an argument",
            )
        outs = _substituted(outs, nodes, dict(zip(captured, starts[count:], strict=True)))
        if not squares:
            return outs
        outs, stand_ins, square_inputs = _with_squares(outs, starts, self._squared)
        becomes = dict(zip(stand_ins, starts, strict=True))
        becomes |= {
            square_inputs[position]: square for position, square in zip(self._squared, squares, strict=True)
        }
        return _substituted(outs, extract(outs, becomes)[0], becomes)


def _with_squares(
    outs: Sequence[Value], inputs: Sequence[Value], kinked: Sequence[int]
) -> tuple[list[Value], list[Value], dict[int, Value]]:
    """Return results whose products know the squares of inputs that have a kink, and what stands for the inputs and for these squares.

    The body does not see the kinks: its derivatives end at its inputs (see `gradtape.transforms.loops.squares`).
    """
    stand_ins = list(map(placeholder, inputs))
    inside = Kinks([stand_ins[position] for position in kinked])
    rewritten, _ = inside.rewritten(substitute(outs, dict(zip(inputs, stand_ins, strict=True))), stand_ins)
    squares = {position: stand_ins[position] for position in kinked if stand_ins[position] in inside.squares}
    return (
        rewritten,
        stand_ins,
        {position: inside.squares[stand_in] for position, stand_in in squares.items()},
    )


def _own(leaf: Any) -> Any:
    """Return an argument as it is now: the second call must not see what the caller writes into it."""
    return leaf.copy() if issubclass(type(leaf), np.ndarray) else leaf


def _tagged(start: Value, value: Value, tag: TraceTag) -> Value:
    start.aval = value.aval
    start.tags = (*start.tags, tag)
    return start


def _substituted(outs: Sequence[Value], nodes: Sequence[Node], becomes: dict[Value, Value]) -> list[Value]:
    """Return what `outs` become when nodes are applied to other values."""
    for node in nodes if becomes else ():
        inputs = tuple([becomes.get(value, value) for value in node.inputs])
        node_copy = Node(node.op, inputs, node.params, node.site)
        tags = merge_tags(inputs)
        node_copy.outs = copied_outs = tuple(
            Value(out.aval, node_copy, out.index, None, tags) for out in node.outs
        )
        keep_names(node.outs, copied_outs)
        becomes.update(zip(node.outs, copied_outs, strict=True))
    return [becomes.get(out, out) for out in outs]


def _types(values: Sequence[Value]) -> list[tuple[Shape, np.dtype[Any]]]:
    return [(value.shape, value.dtype) for value in values]


checkpoint = recompute_grad
"""The same, by the name that it has in JAX and PyTorch."""
