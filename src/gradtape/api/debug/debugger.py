"""The gradients debugger: cotangents at intermediate values of a computation."""

from __future__ import annotations

import re
import weakref
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from types import TracebackType
from typing import Any, Final
from weakref import WeakKeyDictionary

import numpy as np

from gradtape.api.custom.complex_convention import conjugated
from gradtape.api.debug.cotangents import arrivals
from gradtape.api.debug.unrolled import compute_op_by_op
from gradtape.api.tape.naming import as_handle, checked_name, described
from gradtape.api.tape.tape import GradientTape, record_of
from gradtape.api.transforms.jit import running_recorded
from gradtape.errors import ArgumentError, ConcretizationError, DtypeError, UnknownGradientError
from gradtape.ir.body import bodies_of
from gradtape.ir.builder import at, emit, here
from gradtape.ir.graph import Node, TraceTag, Value
from gradtape.kinds.control import Custom
from gradtape.kinds.cotangent import Cotangent
from gradtape.ops.core.elementwise.cast import identity
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.guards import Mapped, Trace, abstract_of, mapped_by
from gradtape.trace.source.contexts import bodies_around, compiled_trace, contexts
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.variable import Variable
from gradtape.transforms.observers import OBSERVERS, Observer, Sweep
from gradtape.trees import flatten_with_none


class _Missing:
    """The default of an argument that may be None."""

    def __repr__(self) -> str:
        return "..."


_MISSING: Final[Any] = _Missing()


class GradientsDebugger(Observer):
    """Fetch the gradients at intermediate values of a computation.

    Parameters
    ----------
    y_tensor : Array, optional
        Keep only gradients of this target.

    Notes
    -----
    The gradient at a value is that of the target with respect to this value: the sum over all paths from the value to the target.
    `identify_gradient` returns a copy of the value; the gradient at the copy is the sum over the paths through the copy.

    A debugger observes the gradients of tapes as long as it is alive, except while another one is entered. If it is entered
    (``with debugger:``), it observes compiled functions as well: these run op by op until the block ends. A compiled function that calls
    methods of a debugger runs op by op, unless it made the debugger itself: then the gradients are part of the compiled program. Loops with
    watched names inside run again for it, iteration by iteration. Jacobians of more than one row have no single gradient at a value, and
    are not observed. The interface is that of TensorFlow's debugger of the same name.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> def loss(x):
    ...     hidden = gt.name(np.tanh(x), "hidden")
    ...     return np.sum(hidden**2)
    >>> with gt.debug.GradientsDebugger() as debugger:
    ...     debugger = debugger.watch_gradients_by_tensor_names(None, "hid.*")
    ...     slope = gt.grad(loss)(np.array([0.0, 1.0]))
    >>> bool(np.allclose(debugger.gradient_tensor("hidden"), 2 * np.tanh([0.0, 1.0])))
    True
    """

    def __init__(self, y_tensor: Any = None) -> None:
        self._y = None if y_tensor is None else as_handle(y_tensor, "GradientsDebugger").value
        self._y_tensor = y_tensor
        self._graph: Any = None
        self._entered = 0
        self._stack = ExitStack()
        self._watched: WeakKeyDictionary[Value, str] = WeakKeyDictionary()
        self._identified: WeakKeyDictionary[Value, str] = WeakKeyDictionary()
        self._names_inside: set[str] = set()
        self._variables: dict[int, tuple[weakref.ref[Variable], str]] = {}
        self._patterns: list[re.Pattern[str]] = []
        self._gradients: dict[str, Array] = {}
        self._groups: dict[str, list[str]] = {}
        self._sweeps = 0
        self._kept_in: dict[str, int] = {}
        self._kept_as: WeakKeyDictionary[Value, tuple[str, int]] = WeakKeyDictionary()
        self._home = compiled_trace()
        self._homes = {context for context in contexts.stack if isinstance(context, Trace)}
        if self._home is not None:
            self._home.temporary.append(weakref.ref(self))
        OBSERVERS.add(self)

    @property
    def graph(self) -> Any:
        """The graph as it was given, or None."""
        return self._graph

    @property
    def y_tensor(self) -> Any:
        """The target whose gradients are kept; None for every target."""
        return self._y_tensor

    def __repr__(self) -> str:
        state = "entered" if self._entered else "listening" if self._listens() else "not listening"
        return f"<GradientsDebugger: {state}, gradients of {', '.join(self._gradients) or 'nothing yet'}>"

    def __enter__(self) -> GradientsDebugger:
        self._check_is_local("with debugger:")
        OBSERVERS.add(self)
        self._stack.enter_context(running_recorded())
        self._entered += 1
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._entered -= 1
        if not self._entered:
            self._stack.close()

    def identify_gradient(self, input_tensor: Any, name: str | None = None) -> Array:
        """Return a copy of a value; the gradient at the copy is kept.

        Parameters
        ----------
        input_tensor : Array
            A value of a recording.
        name : str, optional
            The name of the gradient; by default that of the value, or one from its op.

        Returns
        -------
        Array
            Equal to `input_tensor`. Compute with it where you want to know the gradient: paths from `input_tensor` itself do not
            count.

        Raises
        ------
        ArgumentError
            If this debugger has identified `input_tensor` already.
        DtypeError
            If `input_tensor` is no Array, or `name` no text.

        Examples
        --------
        >>> import numpy as np, gradtape as gt
        >>> debugger = gt.debug.GradientsDebugger()
        >>> with gt.GradientTape() as tape:
        ...     x = tape.watch(np.array(3.0))
        ...     y = x * x
        ...     z = 2 * debugger.identify_gradient(y, name="y") + 5 * y
        >>> gradient = tape.gradient(z, x)
        >>> debugger.gradient_tensor("y")
        Array(2.)
        """
        here.site = user_site()
        self._check_is_local("identify_gradient")
        value = as_handle(input_tensor, "identify_gradient").value
        if value in self._identified:
            raise ArgumentError(
                f"this debugger has identified the value already, as {self._identified[value]!r}",
                where=here.site,
                remedy="use what identify_gradient returned the first time",
            )
        chosen = self._default_name(value) if name is None else checked_name(name, "identify_gradient")
        copy = emit(identity, [value])
        copy.aval = value.aval
        copy.name = chosen
        self._identified[value] = chosen
        self._watched[copy] = chosen
        self._watch_copies(copy, chosen)
        return Array(copy)

    def watch_gradients_by_tensors(self, graph: Any = _MISSING, tensors: Any = _MISSING) -> GradientsDebugger:
        """Keep the gradients at these values from now on, over all paths.

        Parameters
        ----------
        graph : object, optional
            The tape or compiled function they belong to. It only serves to find mistakes: it may be None, or left out.
        tensors : Array, Variable or nest of them
            Values of a recording. The gradients at all reads of a variable add up.

        Returns
        -------
        GradientsDebugger
            Itself.
        """
        self._check_is_local("watch_gradients_by_tensors")
        graph, tensors = _graph_and(graph, tensors, "watch_gradients_by_tensors", "tensors")
        handles = [as_handle(x, "watch_gradients_by_tensors") for x in flatten_with_none(tensors)[0]]
        self._take_graph(graph)
        for handle in handles:
            if isinstance(handle, Variable):
                name = handle.name or self._free_name("variable")
                self._variables.setdefault(handle.serial, (weakref.ref(handle), name))
            elif handle.value not in self._watched:
                chosen = self._watched[handle.value] = self._default_name(handle.value)
                self._watch_copies(handle.value, chosen)
        return self

    def _watch_copies(self, value: Value, name: str) -> None:
        """Watch the copies of a value that are differentiated in its place: those of iterations, or of all mapped elements."""
        if abstract_of(value) is not None or bodies_around():
            value.name = name
            self._names_inside.add(name)

    def watch_gradients_by_tensor_names(
        self, graph: Any = _MISSING, tensor_name_regex: Any = _MISSING
    ) -> GradientsDebugger:
        """Keep the gradients at named values whose names match from the beginning (as `re.match` does).

        Parameters
        ----------
        graph : object, optional
            As for `watch_gradients_by_tensors`.
        tensor_name_regex : str or re.Pattern
            A regular expression for names given by `gradtape.name`, and for those of variables. As in TensorFlow, a name may also be
            followed by ``:0``.

        Returns
        -------
        GradientsDebugger
            Itself.

        Notes
        -----
        Several values of one name in one gradient are kept as ``name``, ``name_1``, ``name_2``, in the order of their computation. So
        are those of the iterations of a `gradtape.scan` or another loop.
        """
        self._check_is_local("watch_gradients_by_tensor_names")
        graph, tensor_name_regex = _graph_and(
            graph, tensor_name_regex, "watch_gradients_by_tensor_names", "tensor_name_regex"
        )
        if not isinstance(tensor_name_regex, str | re.Pattern):
            raise DtypeError(
                f"watch_gradients_by_tensor_names got {described(tensor_name_regex)} as a regular expression",
                where=user_site(),
                remedy='pass a string, such as "hidden.*"',
            )
        try:
            pattern = re.compile(tensor_name_regex)
        except re.error as error:
            raise ArgumentError(
                f"watch_gradients_by_tensor_names: {tensor_name_regex!r} is not a regular expression: {error}",
                where=user_site(),
                remedy="see the documentation of Python's module re",
            ) from None
        self._take_graph(graph)
        self._patterns.append(pattern)
        return self

    def gradient_tensor(self, x_tensor: Any) -> Array:
        """Return the last gradient at a value.

        Parameters
        ----------
        x_tensor : Array, Variable or str
            The value, its copy, or the name, which may be followed by ``:0`` as in TensorFlow.

        Returns
        -------
        Array
            Of the value's shape.

        Raises
        ------
        DtypeError
            If it is neither an Array nor a string.
        UnknownGradientError
            If no gradient of it is known.
        """
        return self._gradients[self._key_of(x_tensor, "gradient_tensor")]

    def _names_of(self, x_tensor: Any) -> list[str]:
        """Return the names of the gradients at values of one name: for a value in a loop, one for each iteration."""
        key = self._key_of(x_tensor, "gradient_values_from_dump")
        return self._groups.get(key, [key])

    def _key_of(self, x_tensor: Any, caller: str) -> str:
        """Return the name of the gradient at a value; raise an error where there is none."""
        self._check_is_local(caller)
        if isinstance(x_tensor, Variable):
            watched = self._variables.get(x_tensor.serial)
            names = [name for value in x_tensor.reads() if (name := self._name_of(value))]
            key = watched[1] if watched is not None else next(iter(names), x_tensor.name or "")
        elif isinstance(x_tensor, Handle):
            key = self._name_of(x_tensor.value)
        elif isinstance(x_tensor, str):
            key = next((name for name in _spellings(x_tensor) if name in self._gradients), x_tensor)
        else:
            raise DtypeError(
                f"{caller} got {described(x_tensor)}",
                where=user_site(),
                remedy="pass an Array, or the name of one",
            )
        if key not in self._gradients:
            known_names = ", ".join(map(repr, self._gradients)) or "none"
            raise UnknownGradientError(
                f"there is no gradient of {key!r}; known: {known_names}"
                if key
                else "there is no gradient of this array",
                where=user_site(),
                why="it was not watched when the gradient was computed, or the gradient does not reach it",
                remedy="watch it before taking the gradient; call compiled functions inside `with debugger:`",
            )
        return key

    def gradient_tensors(self) -> dict[str, Array]:
        """Return all gradients by name: of each name the last one."""
        self._check_is_local("gradient_tensors")
        return dict(self._gradients)

    def register_gradient_tensor(self, x_tensor_name: str, gradient_tensor: Any) -> None:
        """Keep a gradient under a name. It is ignored if other debuggers are alive and this one is not entered.

        Parameters
        ----------
        x_tensor_name : str
            The name.
        gradient_tensor : Array
            The gradient that `gradient_tensor` is to return.
        """
        if compiled_trace() is not None:  # which other debuggers are alive may differ in the next call
            raise _op_by_op("register_gradient_tensor")
        checked_name(x_tensor_name, "register_gradient_tensor")
        value = as_handle(gradient_tensor, "register_gradient_tensor").value
        if self._entered or list(debuggers()) == [self]:
            self._gradients[x_tensor_name] = Array(value)

    def see(self, sweep: Sweep) -> None:
        """Keep the gradients of a sweep at watched values."""
        if not self._listens() or (self._y is not None and self._y not in sweep.targets):
            return
        traces = {tag for _, cotangent in sweep.arrived() for tag in cotangent.value.tags if _records(tag)}
        if any(tag not in self._homes and not isinstance(tag, Mapped) for tag in traces):
            return
        self._sweeps += 1
        reads = self._reads()
        gradients: dict[str, Array] = {}
        sums: dict[str, Array] = {}
        values: dict[str, Array] = {}
        counts: dict[str, int] = {}
        inside: list[Value] = []
        groups: dict[str, list[str]] = {}
        for arrival in arrivals(sweep, self._unrolls):
            value, cotangent = arrival.value, arrival.cotangent
            if value in reads:
                name, gradient = reads[value], _kept(value, cotangent)
                sums[name] = sums[name] + gradient if name in sums else gradient
                values[name] = Array(value)
            elif (watched := self._wanted(value)) is not None:
                count = counts[watched] = counts.get(watched, -1) + 1
                name = f"{watched}_{count}" if count else watched
                gradients[name], values[name] = _kept(value, cotangent), Array(value)
                self._note_kept(value, name)
                groups.setdefault(watched, []).append(name)
                if arrival.iterations:
                    inside.append(gradients[name].value)
        compute_op_by_op(
            inside
        )  # so that unrolled iterations are not compiled with the values that are read next
        self._take({**gradients, **sums}, values, groups)

    def _take(self, found: dict[str, Array], values: dict[str, Array], groups: dict[str, list[str]]) -> None:
        """Keep gradients; those of one element of a mapped axis until those of all elements are known."""
        self._gradients.update(found)
        self._groups.update(groups)
        singles = [*found.values(), *[values[name] for name in found]]
        mapped = [tag for array in singles if (tag := mapped_by(array.value)) is not None]
        if not mapped:
            return

        def take_all(wholes: list[Value]) -> None:
            arrays = list(map(Array, wholes))
            whole_values = dict(zip(found, arrays[len(found) :], strict=True))
            gradients: dict[str, Any] = {
                name: array
                if array.ndim >= whole_values[name].ndim
                else np.broadcast_to(array, whole_values[name].shape)
                for name, array in zip(found, arrays[: len(found)], strict=True)
            }
            self._take(gradients, whole_values, groups)

        innermost = max(mapped, key=lambda tag: tag.depth)
        innermost.deferred.append(([array.value for array in singles], take_all))

    def _note_kept(self, value: Value, name: str) -> None:
        self._kept_in[name] = self._sweeps
        self._kept_as[value] = name, self._sweeps
        if value.node is not None and value.node.op is identity:
            (original,) = value.node.inputs
            if original in self._identified and original not in self._watched:
                self._kept_as[original] = name, self._sweeps

    def _unrolls(self, node: Node) -> bool:
        """Return whether a loop or branch runs again for its gradients inside; in a trace there are no numbers for that."""
        if not self._is_watched_inside(node):
            return False
        if self._home is not None and any(self._home in operand.tags for operand in node.inputs):
            raise _op_by_op("a gradient in a loop or branch")
        return True

    def _check_is_local(self, caller: str) -> None:
        """Have the jitted function that is being traced run op by op, unless this debugger is its own."""
        trace = compiled_trace()
        if trace is not None and trace is not self._home:
            raise _op_by_op(caller)

    def _name_of(self, value: Value) -> str:
        """Return the name of the gradient of a value; empty where a later gradient has replaced it."""
        name, sweep = self._kept_as.get(value, (None, 0))
        if name is None:
            return self._watched.get(value) or value.name or ""
        return name if self._kept_in[name] == sweep else ""

    def _reads(self) -> dict[Value, str]:
        """Return the values that were read of watched variables, with the names of these."""
        record = record_of(self._graph) if isinstance(self._graph, GradientTape) else None
        names_by_value = {}
        for reference, name in self._variables.values():
            variable = reference()
            if variable is not None:
                read = () if record is None else record.reads(variable)
                names_by_value.update(dict.fromkeys([*variable.reads(), *read], name))
        return names_by_value

    def _wanted(self, value: Value) -> str | None:
        """Return the name under which the gradient of a value is to be kept; None where it is not watched."""
        if value in self._watched:
            return self._watched[value]
        name = value.name
        if name in self._names_inside:
            return name
        if name is not None and any(
            pattern.match(spelling) for pattern in self._patterns for spelling in (name, f"{name}:0")
        ):
            return name
        return None

    def _is_watched_inside(self, node: Node) -> bool:
        """Return whether a loop or branch has watched values inside; a rule may have some in the code that it runs again."""
        return any(
            isinstance(inner.op, Custom)
            or any(self._wanted(out) is not None for out in inner.outs)
            or self._is_watched_inside(inner)
            for body in bodies_of(node)
            for inner in body.nodes
        ) or any(self._wanted(value) is not None for body in bodies_of(node) for value in body.inputs)

    def _listens(self) -> bool:
        if self not in OBSERVERS:
            return False
        return bool(self._entered) or not any(other._entered for other in debuggers())

    def _default_name(self, value: Value) -> str:
        if value.name is not None:
            return value.name
        return self._free_name("input" if value.node is None else value.node.op.name)

    def _free_name(self, stem: str) -> str:
        variables = [name for _, name in self._variables.values()]
        used_names = {*self._watched.values(), *self._identified.values(), *variables}
        return next(name for k in range(len(used_names) + 1) if (name := f"{stem}_{k}") not in used_names)

    def _take_graph(self, graph: Any) -> None:
        if graph is None:
            return
        if self._graph is not None and self._graph is not graph:
            raise ArgumentError(
                "this debugger belongs to another graph",
                where=user_site(3),
                remedy="make a debugger per graph, or pass None",
            )
        self._graph = graph


def _op_by_op(caller: str) -> ConcretizationError:
    """Return the error by which a jitted function stops being traced and runs op by op; shown where a trace is all that is wanted."""
    error = ConcretizationError(
        f"{caller} uses a debugger in a jitted function that is being compiled",
        where=user_site(3),
        why="machine code keeps no gradients at intermediate values",
        remedy="call the function instead of compiling it ahead of time: it then runs op by op",
    )
    error.op_by_op = True
    return error


def _records(tag: TraceTag) -> bool:
    return isinstance(tag, Trace) and tag.recording


def _graph_and(graph: Any, watched: Any, caller: str, argument: str) -> tuple[Any, Any]:
    """Return the graph and the watched values of a call with one argument or two."""
    if watched is _MISSING:
        if graph is _MISSING:
            raise DtypeError(
                f"{caller} got nothing to watch",
                where=user_site(3),
                remedy=f"debugger.{caller}({argument})",
            )
        return None, graph
    return None if graph is _MISSING else graph, watched


def _spellings(name: str) -> tuple[str, str]:
    """Return a name as it was given, and with TensorFlow's ``:0`` added or left away."""
    return name, name[:-2] if name.endswith(":0") else f"{name}:0"


def _kept(value: Value, cotangent: Cotangent) -> Array:
    with at(None if value.node is None else value.node.site):
        return Array(conjugated(cotangent.applied()))


def debuggers() -> Iterator[GradientsDebugger]:
    """Yield the debuggers that are alive and have not been cleared."""
    for observer in tuple(OBSERVERS):
        if isinstance(observer, GradientsDebugger):
            yield observer


def gradient_values_from_dump(grad_debugger: GradientsDebugger, x_tensor: Any, dump: Any = None) -> list[Any]:
    """Return the numbers of the gradients at a value.

    Parameters
    ----------
    grad_debugger : GradientsDebugger
        The debugger that has watched it.
    x_tensor : Array, Variable or str
        The value, its copy, or the name.
    dump : dict, optional
        Gradients by name, such as `GradientsDebugger.gradient_tensors` returned earlier. By default those that the debugger has now.

    Returns
    -------
    list of ndarray
        One entry for each value of this name in the last gradient: those of the iterations of a loop in their order.

    Raises
    ------
    DtypeError
        If an argument has another type.
    UnknownGradientError
        If no gradient of the value is known, or the dump does not have it.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> debugger = gt.debug.GradientsDebugger().watch_gradients_by_tensor_names("h:0")
    >>> with gt.GradientTape() as tape:
    ...     x = tape.watch(3.0)
    ...     y = gt.name(x * x, "h") ** 2
    >>> slope = tape.gradient(y, x)
    >>> gt.debug.gradient_values_from_dump(debugger, "h:0")
    [array(18.)]
    """
    if not isinstance(grad_debugger, GradientsDebugger):
        raise DtypeError(
            f"gradient_values_from_dump got {described(grad_debugger)} as grad_debugger",
            where=user_site(),
            remedy="pass a gt.debug.GradientsDebugger",
        )
    if compiled_trace() is not None:  # there are no numbers
        raise _op_by_op("gradient_values_from_dump")
    if dump is None:
        dump = grad_debugger.gradient_tensors()
    if not isinstance(dump, Mapping):
        raise DtypeError(
            f"gradient_values_from_dump got {described(dump)} as dump",
            where=user_site(),
            why="nothing is written to files: a dump is a dict of gradients by name",
            remedy="dump = debugger.gradient_tensors(), or omit it",
        )
    names = grad_debugger._names_of(x_tensor)
    present = [name for name in names if name in dump]
    if not present:
        raise UnknownGradientError(
            f"the dump has no gradient of {names[0]!r}; it has {', '.join(map(repr, dump)) or 'none'}",
            where=user_site(),
            remedy="take the dump after the gradient was computed: dump = debugger.gradient_tensors()",
        )
    return [np.array(dump[name]) for name in present]


def clear_gradient_debuggers() -> None:
    """Deactivate all debuggers; one that is entered afterwards is active again.

    Examples
    --------
    >>> import gradtape as gt
    >>> debugger = gt.debug.GradientsDebugger()
    >>> gt.debug.clear_gradient_debuggers()
    >>> debugger
    <GradientsDebugger: not listening, gradients of nothing yet>
    """
    for debugger in tuple(debuggers()):
        OBSERVERS.discard(debugger)
