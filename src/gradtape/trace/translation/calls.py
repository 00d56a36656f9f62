"""Calls of translated functions: a function becomes a procedure, and its call with traced arrays one node."""

from __future__ import annotations

import contextlib
import functools
import inspect
from collections.abc import Callable, Sequence
from types import CellType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from gradtape.errors import UnsupportedCodeError, UnsupportedFunctionError
from gradtape.ir.builder import here
from gradtape.ir.graph import Value, constant
from gradtape.ir.types import Shape, aval
from gradtape.kinds.operands import as_value, conform
from gradtape.lru import LRU
from gradtape.runtime.compile.cache import CachedObject, cached_object
from gradtape.trace.array.array import Array
from gradtape.trace.array.handle import Handle, fresh_value
from gradtape.trace.array.layout import strides_of
from gradtape.trace.array.preallocated import is_traced, unwrap_preallocated
from gradtape.trace.jit.aliases import partners
from gradtape.trace.jit.guards import Trace, abstract_of
from gradtape.trace.lazy.force import force
from gradtape.trace.patching.functions import with_own_code
from gradtape.trace.source.contexts import contexts
from gradtape.trace.source.sites import user_site
from gradtape.transforms.loops.squares import with_squares
from gradtape.transforms.procedures.ops import procedure
from gradtape.transforms.procedures.reference import ProcedureReference, reference_to
from gradtape.trees import TreeSpec, exact_key, flatten, structure_key

if TYPE_CHECKING:
    from gradtape.frontend.translate import Translation

DYNAMIC: Final = (float, complex, np.ndarray, np.floating, np.complexfloating)
"""Types of arguments besides traced arrays that are parameters of a procedure; integers and truth values are parts of it."""


class Way(NamedTuple):
    """How a function entered a trace.

    Attributes
    ----------
    function : str
        Its name.
    translated : bool
        Whether it is a procedure; else it was run.
    reason : str
        Why it was to be translated; where it was run nevertheless, why it could not be translated.
    """

    function: str
    translated: bool
    reason: str

    def __str__(self) -> str:
        if self.translated:
            return f"{self.function} was compiled from its code: {self.reason}"
        return f"{self.function} was run and recorded, since its code could not be compiled: {self.reason}"


def trace_around() -> Trace | None:
    """Return the trace of the jitted function that is running on this thread."""
    return next((context for context in contexts.stack if type(context) is Trace), None)


def call_translated(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], reason: str
) -> Any:
    """Return what a function returns for arguments of which some are traced, computed by a procedure.

    Raises
    ------
    UnsupportedCodeError
        For code that the front end does not support.
    """
    here.site = user_site()
    result = TranslatedCall(function, args, kwargs).answer()
    trace = trace_around()
    if trace is not None:
        trace.ways.append(Way(getattr(function, "__name__", "a function"), True, reason))
    return result


class TranslatedCall:
    """A call of a translated function: the leaves of its arguments, and the values of those that are parameters."""

    def __init__(self, function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        self.function = function
        arguments = _arguments(function, args, kwargs)
        self.leaves, self.spec = flatten(arguments, tables=False)
        self.structure = structure_key(arguments)
        self.seen = [leaf if is_traced(leaf) else unwrap_preallocated(leaf) for leaf in self.leaves]
        self.has_integers = any(map(_is_integer, self.seen))

    def prepare(self) -> tuple[Translation, ProcedureReference, list[Value | None]]:
        """Translate the function, and return the translation with the values of the arguments that are parameters.

        Traced integers are parts of the program, and guarded, where the code cannot be translated without their numbers.
        """
        try:
            return self._prepare(static=False)
        except (UnsupportedCodeError, UnsupportedFunctionError):
            if not self.has_integers:
                raise
        prepared = self._prepare(static=True)
        for leaf in filter(_is_integer, self.seen):
            int(leaf)  # by which a trace takes note that it depends on the number
        return prepared

    def _prepare(self, *, static: bool) -> tuple[Translation, ProcedureReference, list[Value | None]]:
        leaves = [_number_of(leaf) if static and _is_integer(leaf) else leaf for leaf in self.seen]
        values = [_value_of(leaf) for leaf in leaves]
        types = [leaf if value is None else value.aval for leaf, value in zip(leaves, values, strict=True)]
        strides = [strides_of(leaf) for leaf in self.seen]
        return *translated(self.function, self.spec, types, strides, self.structure), values

    def answer(self) -> Any:
        """Return the result."""
        translation, reference, values = self.prepare()
        for position, other in partners(self.leaves, translation.mutated):
            raise UnsupportedCodeError(
                f"two of its arguments share memory, and it writes to one of them (leaves {position} and {other})",
                where=here.site,
            )
        outs = with_squares(procedure(reference, _operands(translation, reference, values)))
        self.seen.clear()  # who writes to a preallocated array has to be the only one who holds its memory
        for position, number in translation.mutated.items():
            self._write(self.leaves[position], outs[number])
        return _result(translation, outs)

    def _write(self, leaf: Any, content: Value) -> None:
        """Let an argument have the content that the function left in it."""
        if isinstance(leaf, Handle):
            leaf.write_result(content, getattr(self.function, "__name__", "a function"))
        else:
            leaf[...] = Array(content)


def _arguments(
    function: Callable[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any]
) -> tuple[tuple[Any, ...], dict[str, Any]]:
    """Return all arguments, defaults included: by position, and those that are by keyword only."""
    bound = _signature(function).bind(*args, **kwargs)
    bound.apply_defaults()
    return bound.args, bound.kwargs


@functools.lru_cache(maxsize=1024)
def _signature(function: Callable[..., Any]) -> inspect.Signature:
    return inspect.signature(function)


def _is_integer(leaf: Any) -> bool:
    return isinstance(leaf, Handle) and leaf.ndim == 0 and leaf.dtype.kind in "iub"


def _number_of(leaf: Handle) -> Any:
    """Return a traced integer as a number that is a part of the program."""
    value = leaf.value
    abstract = abstract_of(value)
    if abstract is not None:
        raise UnsupportedCodeError(
            f"an integer has no number in {abstract.described}", where=here.site, why=abstract.why
        )
    return force([value])[0].item()


def _value_of(leaf: Any) -> Value | None:
    """Return the value of an argument that is a parameter; None for one that is a part of the program."""
    if isinstance(leaf, Handle):
        return leaf.value
    if not issubclass(type(leaf), DYNAMIC):
        return None
    array = np.array(as_value(leaf, "an argument").data)
    return Value(aval(array.shape, array.dtype, type(leaf) in (float, complex)), data=array)


def _operands(
    translation: Translation, reference: ProcedureReference, values: Sequence[Value | None]
) -> list[Value]:
    """Return the values of the parameters of a procedure."""
    arguments = [values[leaf] for leaf in translation.leaves]
    arguments += [_captured_value(captured) for captured in translation.captured]
    operands = []
    for value, type_ in zip(arguments, reference.types, strict=True):
        assert value is not None
        operands.append(conform(value, type_.dtype, type_.shape))
    return operands


def _captured_value(captured: Any) -> Value:
    return captured.value if isinstance(captured, Handle) else constant(np.asarray(captured))


TRANSLATIONS: Final[LRU[Any, tuple[Translation, ProcedureReference]]] = LRU(lambda: 256)
"""Translations of functions outside traces, and of Numba's; a trace, which makes a copy of the function, has its own."""

MUTABLE: Final = (list, dict, set, bytearray)
"""What code reads from outside and takes for constant, although its contents may change: Numba does so, Python does not."""


def translated(
    function: Callable[..., Any],
    spec: TreeSpec,
    types: Sequence[Any],
    strides: Sequence[Shape | None] | None = None,
    structure: Any = None,
) -> tuple[Translation, ProcedureReference]:
    """Return the translation of a function for arguments of these types and strides, and the reference to its procedure.

    `structure` is the key of the containers of the arguments; see `structure_key`.
    """
    key = (
        function,
        spec,
        structure,
        tuple(map(exact_key, types)),
        None if strides is None else tuple(strides),
    )
    trace = trace_around()
    is_numbas = hasattr(function, "py_func")
    table: Any = TRANSLATIONS if is_numbas or trace is None else trace.translations
    earlier = _known(table, key)
    if earlier is not None:
        return earlier
    # late: most processes translate nothing, and start 20 ms sooner
    from gradtape.frontend.bytecode import keep_code_in
    from gradtape.frontend.translate import translate_leaves

    keep_code_in(_kept)

    with with_own_code():
        translation = translate_leaves(function, types, spec, strides, strides_of)
    translation_and_reference = translation, reference_to(translation.procedure)
    reads_mutable = any(isinstance(value, MUTABLE) for _, _, value in translation.notes)
    if table is not TRANSLATIONS or not (translation.captured or (reads_mutable and not is_numbas)):
        with contextlib.suppress(TypeError):  # of arguments without a hash
            table[key] = translation_and_reference
    return translation_and_reference


def _kept(key: str, make: Callable[[], bytes]) -> bytes:
    """Return what the front end has read of a code object, which is in the disk cache."""
    return cached_object(key, lambda: CachedObject(make())).code


def _known(table: Any, key: Any) -> tuple[Translation, ProcedureReference] | None:
    try:
        entry: tuple[Translation, ProcedureReference] | None = table.get(key)
    except TypeError:  # of arguments without a hash
        return None
    return entry if entry is not None and all(_holds(*note) for note in entry[0].notes) else None


def _holds(holder: Any, name: str, value: Any) -> bool:
    """Return whether what was taken for constant in a translation has not changed."""
    if holder is None:
        return True
    try:
        if isinstance(holder, dict):
            return holder[name] is value
        return bool(
            (holder.cell_contents if isinstance(holder, CellType) else getattr(holder, name)) is value
        )
    except (KeyError, ValueError, AttributeError):
        return False


def _result(translation: Translation, outs: Sequence[Value]) -> Any:
    """Return what the function returns: its containers, with arrays of the recording for results."""
    leaves, spec = flatten(translation.result)
    items = [Array(fresh_value(outs[leaf])) if type(leaf) is int else leaf for leaf in leaves]
    for leaf, array in zip(leaves, items, strict=True):
        if type(leaf) is int and leaf in translation.orders:
            array._contiguous = translation.orders[leaf] or False
    return spec.unflatten(items)
