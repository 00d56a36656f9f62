"""Variables: arrays that are assigned to, and that compiled functions read and write as their state."""

from __future__ import annotations

import itertools
import weakref
from typing import Any, Final

import numpy as np

from gradtape.config import config
from gradtape.errors import ArgumentError, DtypeError, ShapeError, kind_of
from gradtape.habits import suggests_keywords
from gradtape.interruptions import raise_interruption
from gradtape.ir.builder import here
from gradtape.ir.graph import Literal, TraceTag, Value, constant
from gradtape.ir.op import NDArray
from gradtape.ir.types import Shape, aval
from gradtape.kinds.operands import as_value, number_dtype
from gradtape.kinds.registry import UFUNCS
from gradtape.ops.core.elementwise.cast import convert
from gradtape.ops.core.indexing import fit_for_write
from gradtape.trace.array.array import Array
from gradtape.trace.array.concretize import concrete_key
from gradtape.trace.array.handle import Handle, fresh_value, unwrap
from gradtape.trace.array.indexed_slices import IndexedSlices
from gradtape.trace.array.layout import layout_of_copy, layout_of_operand
from gradtape.trace.array.views import PermutedView, ReadOnlyView, SubsetView
from gradtape.trace.jit.guards import Abstract, Trace, mapped_by, trace_of
from gradtape.trace.lazy.force import force
from gradtape.trace.source.contexts import (
    Scope,
    Watcher,
    contexts,
    replayed_content,
    running_trace,
    trace_below,
)
from gradtape.trace.source.log import note_exit
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.content import Content, VariableRead
from gradtape.trace.variables.locks import atomic
from gradtape.trace.variables.reads import (
    CallableRead,
    array_of_layout,
    detached_read,
    known_read,
    tagged_read,
)
from gradtape.trace.variables.scatter import LARGE, How, fitting, scattered, updated, written_rows
from gradtape.trace.variables.snapshot import VariableSnapshot

_serials: Final = itertools.count()


_CONTENT: Final = Handle(constant(np.zeros(0)))
"""Takes the place of the base of a variable: the value of the handle itself is never used."""


class Variable(Array):
    """An array with an identity, whose content can be assigned.

    Parameters
    ----------
    initial_value : array_like, Array, or callable that returns one
        The content, which is copied. Shape and dtype stay as they are here.
    trainable : bool, default True
        Whether tapes watch it automatically (see `GradientTape`).
    name : str, optional
        A name for people and for debugging.
    dtype : dtype_like, optional
        The dtype; by default NumPy's choice (float64 for Python floats).

    Notes
    -----
    Wherever an `Array` is taken, so is a variable: NumPy's functions, operators, methods, indexing. A read returns the content at that
    moment: ``v.value()``, ``v[:2]`` or ``v.T`` do not change when the variable is assigned to later. In-place syntax (``v += 1``,
    ``v[0] = 2``) assigns. An assignment is no step of a derivative: nothing flows back through it.

    A function under `jit` reads the content of each call, and assigns at each call. A variable that is passed to it is known by
    its identity, as one that it finds outside.

    Variables are hashed by identity. ``==`` compares elements, as it does for ndarrays; use ``is`` for identity.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> w = gt.Variable([1.0, 2.0])
    >>> with gt.GradientTape() as tape:
    ...     loss = np.sum(w**2)
    >>> w.assign_sub(0.5 * tape.gradient(loss, w))
    Variable([0., 0.])
    """

    __slots__ = ("_content", "_name", "_trainable", "serial")

    scalar_in_place = True
    __class__ = np.ndarray  # also of rank 0: its content changes in place
    __hash__ = object.__hash__

    @suggests_keywords
    def __init__(
        self, initial_value: Any, trainable: bool = True, name: str | None = None, dtype: Any = None
    ) -> None:
        here.site = user_site()
        if not isinstance(trainable, bool | np.bool_):
            raise DtypeError(
                f"Variable: trainable must be a bool, got {kind_of(trainable)}",
                where=here.site,
                remedy="gt.Variable(x, trainable=False)",
            )
        self._name = _checked_name(name)
        self._trainable = bool(trainable)
        self.serial: Final = next(_serials)
        if callable(initial_value):
            initial_value = initial_value()
        initial = _initial(initial_value, dtype)
        # The outer content is that of this call: if the function keeps the variable, later calls begin with it.
        (data,) = force([initial])
        me = weakref.ref(self)
        self._content = Content(me, known_read(data, name))
        trace, _ = running_trace()
        if trace is not None:
            inside = self._content.value if trace_of(initial) is None else detached_read(initial, name)
            trace.contents[self.serial] = Content(me, inside)
        super().__init__(self._content.value)
        self._base = _CONTENT
        self._current = Value(aval(initial.shape, initial.dtype))
        if initial.ndim > 1 and isinstance(initial_value, Handle | np.ndarray):
            self._contiguous = layout_of_copy(initial_value)

    # Identity

    @property
    def trainable(self) -> bool:
        """Whether tapes watch it automatically."""
        return self._trainable

    @property
    def name(self) -> str | None:
        """The name given by the user."""
        return self._name

    @name.setter
    def name(self, name: str | None) -> None:
        here.site = user_site()
        self._name = _checked_name(name)

    def __copy__(self) -> Variable:
        return self._copied("copy.copy(v)")

    def __deepcopy__(self, memo: dict[int, Any]) -> Variable:
        copied = memo[id(self)] = self._copied("copy.deepcopy(v)")
        return copied

    def _copied(self, operation: str) -> Variable:
        """Return another variable with the same content, of which no derivative goes back to this one."""
        value = self.value
        note_exit(value, operation, *force([value]), form="copy")
        return Variable(self._array_of(value), self._trainable, self._name)

    def __reduce__(self) -> tuple[Any, ...]:
        return Variable, (self.numpy(), self._trainable, self._name)

    def __repr__(self) -> str:
        options = "" if self._trainable else ", trainable=False"
        if self._name is not None:
            options = f", name={self._name!r}{options}"
        return f"Variable{super().__repr__()[len('Array') : -1]}{options})"

    # VariableRead

    @property
    def value(self) -> Value:
        """The content now; tapes and traces around note the read. ``v.value()`` is an `Array` of it."""
        stack = contexts.stack
        noting: list[Watcher | Scope] = []
        tags: tuple[TraceTag, ...] = ()
        for context in reversed(stack):
            if isinstance(context, Trace):
                break
            tag = context.tag_for(self) if isinstance(context, Watcher) else None
            if tag is not None and tag not in tags:
                tags = (*tags, tag)
            if tag is not None or isinstance(context, Scope):
                noting.append(context)
        content = self._content_within(len(stack))
        read = content.last_read(tags)
        if read is None:
            value = content.value
            read = content.add_read(value, tagged_read(value, tags, self._name), tags)
        for context in noting:
            context.note(self, read)
        if self._contiguous is not True and isinstance(read, CallableRead):
            read.layout = self._contiguous
        return read

    def read_value(self) -> Array:
        """Return the content as an `Array`, which later assignments do not change."""
        here.site = user_site()
        return self._array_of(fresh_value(self.value))

    def _array_of(self, value: Value) -> Array:
        """Return an array of a read, laid out as the variable."""
        return array_of_layout(value, self._contiguous)

    def read_for(self, tag: TraceTag) -> Value:
        """Return a read with the tag `tag` alone."""
        return tagged_read(self._content_within(len(contexts.stack)).value, (tag,), self._name)

    def reads(self) -> list[Value]:
        """Return the content, and the reads since the last assignment that are still in use; no tape and no trace notes it."""
        trace, _ = running_trace()
        content = self._content if trace is None else trace.contents.get(self.serial)
        return [] if content is None else content.reads()

    @property
    def is_recorded(self) -> bool:
        """Whether an enclosing tape, trace or function would record a read."""
        return any(
            not isinstance(context, Watcher) or context.tag_for(self) is not None
            for context in contexts.stack
        )

    def data_now(self) -> NDArray:
        """Return the data of the content; no tape notes it. Not for traces."""
        value = self._content_within(0).value
        data = value.data
        return force([value])[0] if data is None else data

    def _content_within(self, depth: int) -> Content:
        """Return the content as the innermost of `depth` contexts sees it: that of the innermost trace among them."""
        trace, around = trace_below(depth)
        if trace is None:
            outside = replayed_content(self._content)
            if outside.value.node is not None:
                _compute_content(outside)
            return outside
        content = trace.contents.get(self.serial)
        if content is None:
            begin = self._begin(trace, around)
            trace.inputs.append(begin)
            content = trace.contents[self.serial] = Content(weakref.ref(self), begin, begin)
        return replayed_content(content)

    def _begin(self, trace: Trace, around: int) -> VariableRead:
        """Return the value that stands for the content before `trace`, which `around` contexts are around."""
        if isinstance(trace, Abstract):
            begin = CallableRead(aval(self.shape, self.dtype), tags=(trace,))
            begin.name = self._name
            return begin
        (example,) = force([self._content_within(around).value])
        return known_read(example, self._name, (trace,))

    # A variable is no base of views: a read does not change.

    def __getitem__(self, key: Any) -> Array:
        return _without_base(self._array_of(self.value)[key])

    def rearranged(self, view: PermutedView | SubsetView | ReadOnlyView, *, contiguous: bool) -> Array:
        return _without_base(self._array_of(self.value).rearranged(view, contiguous=contiguous))

    # Assigning

    @atomic
    def __setitem__(self, key: Any, new: Any) -> None:
        if self.nbytes >= LARGE and not contexts.replays and running_trace()[0] is None:
            here.site = user_site()
            rows = written_rows(
                self.value, concrete_key(key, self.shape, masks=np.size(new) == 1), unwrap(new)
            )
            if rows is not None:
                self.change_rows(*rows, "set")
                return
        super().__setitem__(key, new)

    @atomic
    def assign(self, value: Any) -> Variable:
        """Replace the content.

        Parameters
        ----------
        value : array_like or Array
            Of the variable's shape, and of a dtype that can be cast to its own without changing kind.

        Returns
        -------
        Variable
            Itself.

        Raises
        ------
        ShapeError
            For another shape.
        DtypeError
            For another kind of dtype.
        """
        here.site = user_site()
        new = as_value(unwrap(value), "assign: value")
        if new.shape != self.shape:
            raise ShapeError(
                f"assign: value has shape {new.shape}, but the variable {self._described()}has shape {self.shape}",
                where=here.site,
                remedy="give a value of the variable's shape, v[...] = value to spread it, or make another variable",
            )
        self._check_kind(new.dtype, "assign")
        self.rebind(fit_for_write(new, self.dtype, self.shape))
        return self

    @atomic
    def assign_add(self, delta: Any) -> Variable:
        """Add to the content, with NumPy's broadcasting of `delta`; see `assign`. Of `IndexedSlices` only the rows are touched."""
        here.site = user_site()
        if isinstance(delta, IndexedSlices):
            return self._scatter(delta, "add", "assign_add")
        return self._updated("add", delta, "assign_add")

    @atomic
    def assign_sub(self, delta: Any) -> Variable:
        """Subtract from the content; see `assign_add`."""
        here.site = user_site()
        if isinstance(delta, IndexedSlices):
            return self._scatter(delta, "subtract", "assign_sub")
        return self._updated("subtract", delta, "assign_sub")

    def __iadd__(self, other: Any) -> Variable:  # type: ignore[misc] # takes IndexedSlices too
        if isinstance(other, IndexedSlices):
            return self.assign_add(other)
        return super().__iadd__(other)

    def __isub__(self, other: Any) -> Variable:  # type: ignore[misc] # takes IndexedSlices too
        if isinstance(other, IndexedSlices):
            return self.assign_sub(other)
        return super().__isub__(other)

    def scatter_add(self, slices: Any) -> Variable:
        """Add the rows of `IndexedSlices` to the content; equal indices add up.

        Only these rows are touched, in place: neither time nor memory depends on the size of the variable.

        Raises
        ------
        ShapeError, DtypeError, IndexError
            For slices that do not fit; then nothing is changed.

        Examples
        --------
        >>> import numpy as np, gradtape as gt
        >>> v = gt.Variable(np.zeros((3, 2)))
        >>> v.scatter_add(gt.IndexedSlices(np.ones((2, 2)), [0, -1]))
        Variable([[1., 1.],
               [0., 0.],
               [1., 1.]])
        """
        here.site = user_site()
        return self._scatter(slices, "add", "scatter_add")

    def scatter_sub(self, slices: Any) -> Variable:
        """Subtract the rows of `IndexedSlices` from the content; see `scatter_add`."""
        here.site = user_site()
        return self._scatter(slices, "subtract", "scatter_sub")

    def scatter_update(self, slices: Any) -> Variable:
        """Replace the rows that `IndexedSlices` name; of equal indices the last wins. See `scatter_add`."""
        here.site = user_site()
        return self._scatter(slices, "set", "scatter_update")

    @atomic
    def _scatter(self, slices: Any, how: How, caller: str) -> Variable:
        rows, positions = fitting(aval(self.shape, self.dtype), slices, caller)
        trace, _ = running_trace()
        if trace is not None or contexts.replays:
            self.rebind(scattered(self.value, rows, positions, how))
        else:
            self.change_rows(rows, positions, how)
        return self

    def _updated(self, ufunc: str, delta: Any, caller: str) -> Variable:
        number = type(delta) in (float, int)  # the rows take it as it is
        change = delta if number else as_value(unwrap(delta), f"{caller}: delta")
        if not number and not _broadcasts(change.shape, self.shape):
            raise ShapeError(
                f"{caller}: delta has shape {change.shape}, but the variable {self._described()}has shape {self.shape}",
                where=here.site,
                remedy="give a delta of the variable's shape, or one that broadcasts to it",
            )
        result = UFUNCS[ufunc](self.value, change)
        self._check_kind(result.dtype, caller)
        self.write_result(result, caller)
        return self

    def _check_kind(self, dtype: np.dtype[Any], caller: str) -> None:
        if not np.can_cast(dtype, self.dtype, "same_kind"):
            raise DtypeError(
                f"{caller}: the new value has dtype {dtype}, but the variable {self._described()}has dtype {self.dtype}",
                where=here.site,
                remedy=f"convert it first: x.astype({self.dtype})",
            )

    def _described(self) -> str:
        return "" if self._name is None else f"{self._name!r} "

    def rebind(self, value: Value) -> None:
        """Make `value` the content, without its history."""
        mapped = mapped_by(value)
        if mapped is not None:
            raise ArgumentError(
                f"the variable {self._described()}is assigned to in {mapped.described}",
                where=user_site(),
                why="the function runs once for the whole batch, so it cannot assign a different value per element",
                remedy="return the new value, and assign it outside",
            )
        trace, _ = running_trace()
        if trace is None and value.tags:
            note_exit(value, f"an assignment to the variable {self._described()}".rstrip())
        if trace is not None:
            self._content_within(len(contexts.stack)).assign(detached_read(value, self._name, trace))
        elif (data := value.data) is not None:
            replayed_content(self._content).assign(known_read(data, self._name))
        else:
            content = replayed_content(self._content)
            content.assign(detached_read(value, self._name))
            if content is self._content:
                contexts.pending[self.serial] = content
            if config.eager:
                _compute_content(content)

    def restore(self, value: Value) -> None:
        """Make an earlier read the content again."""
        trace, _ = running_trace()
        content = self._content_within(len(contexts.stack))
        data = value.data
        if trace is not None or data is None:
            content.assign(detached_read(value, self._name, trace))
        elif data is not content.value.data:
            content.assign(known_read(data, self._name))

    def change_rows(self, rows: Value, positions: Value, how: How) -> None:
        """Change rows in place; not for traces."""
        content = self._content_within(len(contexts.stack))
        for context in contexts.stack:
            if isinstance(context, VariableSnapshot):
                context.note(self, self.value)
        content.assign(
            updated(self, content.holders(), rows, positions, how, lambda data: known_read(data, self._name))
        )

    def store(self, array: NDArray) -> None:
        """Store the content that a compiled function computed."""
        replayed_content(self._content).assign(known_read(array, self._name))


for _name in (
    *("__iadd__", "__isub__", "__imul__", "__itruediv__", "__ifloordiv__", "__imod__", "__ipow__"),
    *("__imatmul__", "__iand__", "__ior__", "__ixor__", "__ilshift__", "__irshift__"),
):
    setattr(Variable, _name, atomic(getattr(Variable, _name)))


def _checked_name(name: Any) -> str | None:
    if name is not None and not isinstance(name, str):
        raise DtypeError(
            f"Variable: name must be a str, got {kind_of(name)}",
            where=here.site,
            remedy='gt.Variable(x, name="weights")',
        )
    return name


def _initial(initial: Any, dtype: Any) -> Value:
    """Return the value that a variable begins with, as an array."""
    if initial is None:
        raise ArgumentError(
            "Variable: initial_value is None",
            where=here.site,
            remedy="pass an array, a number, or a nested list",
        )
    target_dtype = None if dtype is None else number_dtype(dtype)
    value = as_value(unwrap(initial), "initial_value")
    if value.aval.weak:
        value = convert(value, value.dtype)
    if target_dtype is not None:
        value = convert(value, target_dtype)
    if isinstance(value, Literal):
        assert value.data is not None
        value = known_read(np.asarray(value.data), None)
    return value


def _broadcasts(part: Shape, target: Shape) -> bool:
    """Return whether an array of shape `part` broadcasts to shape `target`."""
    pairs = zip(part[::-1], target[::-1], strict=False)
    return len(part) <= len(target) and all(extent in (1, of) for extent, of in pairs)


def _without_base(array: Array) -> Array:
    """Return an array that was read as one that is no view: writes to it change nothing else."""
    value = array.value
    if not isinstance(value, VariableRead):
        if array._base is None:
            return array
    else:
        value = fresh_value(value)
    return array_of_layout(value, layout_of_operand(array))


def _compute_content(content: Content) -> None:
    """Compute a pending content, and with it all other pending contents: they share many nodes."""
    pending = contexts.pending
    others = [
        pending_content
        for pending_content in pending.values()
        if pending_content is not content and pending_content.variable() is not None
    ]
    contents = [content, *others]
    values = [pending_content.value for pending_content in contents]
    try:
        arrays = force(values)
    except Exception as error:  # of another variable, perhaps: a read of that one raises it again
        raise_interruption(error)
        contents, values = contents[:1], values[:1]
        arrays = force(values)
    for pending_content, value, data in zip(contents, values, arrays, strict=True):
        pending_content.replace(value, known_read(data, value.name))
    contexts.pending = {
        serial: pending_content
        for serial, pending_content in pending.items()
        if pending_content.value.node is not None
    }
