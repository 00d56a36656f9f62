"""The decorator."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import (
    TYPE_CHECKING,
    Any,
    Concatenate,
    Final,
    Generic,
    Literal,
    ParamSpec,
    Self,
    TypeAlias,
    TypeVar,
    overload,
)
from weakref import WeakSet, ref

from gradtape.api.transforms.callables import check_callable
from gradtape.api.transforms.low_level_callable import low_level_callable
from gradtape.api.transforms.numba_type import numba_type
from gradtape.api.transforms.out_arrays import has_out, written
from gradtape.api.transforms.pickling import Call, reduced, shipment_of
from gradtape.api.transforms.sharing import NOT_SHARED, program_of, share
from gradtape.config import TraceSettings, config, on_change, trace_settings
from gradtape.errors import (
    ArgumentError,
    DtypeError,
    GradtapeError,
    InternalError,
    is_internal,
    note_recursion,
)
from gradtape.habits import FUNCTION as FUNCTION_HABITS
from gradtape.habits import Missing, nearest, suggests_keywords
from gradtape.reference_counts import reference_count
from gradtape.runtime.call.callable import FastCallable, vectorcalled
from gradtape.runtime.call.capture_entry import CheckedFunction
from gradtape.runtime.compile.cache import Shipment, receive
from gradtape.runtime.compile.program import ACTIVE
from gradtape.trace.dispatch.call_errors import note_package
from gradtape.trace.jit.callsite import MISSED, MOST_NESTED, CallSite, NestedEntry
from gradtape.trace.jit.dims import Dim, shapes_of
from gradtape.trace.jit.signature import EVERYTHING_TRACED, CallArguments, StaticArguments
from gradtape.trace.jit.specialisation import Specialisation
from gradtape.trace.lazy.instruments import RECORDING
from gradtape.trace.source.sites import Site, user_site, without_internals

CHAIN_LENGTH = 6

_CALLS_BEFORE_BINDING: Final = 2
"""How many calls a shared program answers before its machine code is bound to one function: that takes longer than a call."""

_OF_THE_CLASS: Final = ("__module__", "__doc__", "__annotations__")
"""The attributes of a function that objects have from their class, if they have none of their own."""

Shape: TypeAlias = "Sequence[Dim | int] | Dim | int | None"
ShapesGiven: TypeAlias = "Literal['exact', 'symbolic', 'auto'] | Mapping[str, Shape] | Sequence[Shape] | None"

P = ParamSpec("P")
R_co = TypeVar("R_co", covariant=True)
R = TypeVar("R")

if TYPE_CHECKING:
    from gradtape.api.export.stages import Lowered
    from gradtape.api.type_variables import Q

    class _Callable(FastCallable, Generic[P, R_co]):
        def __call__(self, *args: P.args, **kwargs: P.kwargs) -> R_co: ...
        @overload
        def __get__(self, instance: None, owner: type | None = None) -> Self: ...
        @overload
        def __get__(
            self: _Callable[Concatenate[Any, Q], R_co], instance: object, owner: type | None = None
        ) -> Callable[Q, R_co]: ...
        def __get__(self, instance: Any, owner: type | None = None) -> Any: ...

else:

    class _Callable:
        """Stands for the class with parameters and a result, which type checkers see: objects of machine code are not generic."""

        def __class_getitem__(cls, _: Any) -> type:
            return FastCallable


_everyone: WeakSet[Jitted[..., Any]] = WeakSet()


@vectorcalled
class Jitted(_Callable[P, R_co]):
    """A function that is traced, compiled and called natively. Made by `jit`, `grad` and `value_and_grad`."""

    __slots__ = ("_answer", "_chain", "_make", "_site", "made_by", "shared")

    def __init__(
        self,
        function: Callable[..., Any],
        wrapped: Callable[..., Any],
        static: StaticArguments,
        kind: type[CallSite] = CallSite,
    ) -> None:
        self._make: Callable[[], Jitted[..., Any]] | None = None
        self.made_by: Call | None = None
        self.shared: Shared | None = None
        self._set_up(function, wrapped, static, kind)

    def _set_up(
        self,
        function: Callable[..., Any],
        wrapped: Callable[..., Any],
        static: StaticArguments,
        kind: type[CallSite],
    ) -> None:
        site = kind(function, getattr(wrapped, "__name__", "function"), static)

        # Neither the answer nor the call site holds the function: without a cycle, its programs go when it goes.
        self_reference: ref[Jitted[..., Any]] = ref(self)

        takes_out: bool | None = None  # not known before somebody gives one

        def answer(*args: Any, **kwargs: Any) -> Any:
            nonlocal takes_out
            this, result = self_reference(), NOT_SHARED
            if this is not None and this.shared is not None:
                result = this.shared.call(this, args, kwargs, is_kept=True)
            try:
                if result is NOT_SHARED and "out" in kwargs:
                    takes_out = has_out(wrapped) if takes_out is None else takes_out
                    if not takes_out:
                        out, function = kwargs.pop("out"), self_reference()
                        results = site.call(args, kwargs) if function is None else function(*args, **kwargs)
                        return results if out is None else written(out, results, site.name)
                if result is NOT_SHARED:
                    profiler = ACTIVE.profiler
                    if profiler is None or this is None:
                        return site.call(args, kwargs)
                    return profiler.call(this, args, kwargs)
            except Exception as error:
                note_recursion(error, f"{site.name}, while it was traced or computed")
                note_package(error, f"while {site.name} was traced")
                text, origin = _described(error)
                site.explain.note("error", text, site=origin)
                if config.full_traceback or isinstance(error, InternalError):
                    raise
                raise error.with_traceback(without_internals(error.__traceback__)) from error.__cause__
            return result

        super().__init__(answer, wrapped)
        self._answer = answer
        self._chain: list[Specialisation] = []
        site.on_new = _installer(self_reference)
        self._site = site
        _everyone.add(self)

    def of_one_code(
        self, function: Callable[..., Any], make: Callable[[], Jitted[..., Any]], made_by: Call
    ) -> Jitted[..., Any]:
        """Return what `make` makes of a function whose calls this program answers, made when it is asked for more than that.

        A transform that is made at each call costs little more than the call then.
        """
        kind = type(self)
        jitted: Jitted[..., Any] = kind.__new__(kind)
        jitted._make, jitted.made_by, jitted.shared = make, made_by, Shared(self, function)
        reference = ref(jitted)

        def answer(*args: Any, **kwargs: Any) -> Any:
            this = reference()
            if this is None or this.shared is None:
                return make()(*args, **kwargs)
            is_kept = reference_count(this) > _references_of_temporary()
            result = this.shared.call(this, args, kwargs, is_kept=is_kept)
            if result is not NOT_SHARED:
                return result
            this._complete()
            return this._answer(*args, **kwargs)

        jitted.fallback = answer
        for name in _OF_THE_CLASS:
            with suppress(AttributeError):  # partial objects have no annotations
                setattr(jitted, name, getattr(function, name))
        return jitted

    def _complete(self) -> None:
        """Set up a function that has only answered calls so far."""
        if self._make is None:
            return
        completed = self._make()
        self._set_up(completed.site.function, completed.__wrapped__, completed.site.static, CallSite)
        self._site.shapes = completed.site.shapes
        if self.shared is not None:
            self._site.lent = self.shared.lent
        self._make = None

    def __getattr__(self, name: str) -> Any:
        self._complete()
        return object.__getattribute__(self, name)

    @property
    def site(self) -> CallSite:
        """The traces and programs."""
        return self._site

    def __reduce__(self) -> tuple[Any, ...]:
        return reduced(self, self.shipment())

    def __setstate__(self, state: Shipment) -> None:
        receive(state)

    def __set_name__(self, owner: type, name: str) -> None:
        """Take the name that a class gives it, as a method has one: bound methods are pickled by it."""
        if not self.__name__.isidentifier():  # "grad(loss)"
            self.__name__, self.__qualname__ = name, f"{owner.__qualname__}.{name}"
            self.__module__ = owner.__module__

    def shipment(self) -> Shipment:
        """Return the object code of all traces."""
        return shipment_of([specialisation.program.kernel for specialisation in self.site.specialisations()])

    def __repr__(self) -> str:
        count = self.site.traces
        return f"<gradtape.jit of {self.site.name}: {count} trace{'' if count == 1 else 's'}>"

    def _repr_html_(self) -> str:
        from gradtape.api.pictures.html import (
            jitted_card,  # late: pictures are drawn in notebooks only, and cost 7 ms to import
        )

        return jitted_card(self.site)

    @property
    def _numba_type_(self) -> Any:
        """What Numba takes the function for: ``@njit`` code can call it."""
        return numba_type(self)

    def as_low_level_callable(self, count: int | None = None, *, signature: str = "quad") -> Any:
        """Return the function as a C function for SciPy's integrators and filters.

        Parameters
        ----------
        count : int, optional
            How many numbers it takes; for ``"quad"`` by default as many as it has positional parameters.
        signature : {"quad", "generic_filter", "generic_filter1d", "geometric_transform"}, default "quad"
            Which function of SciPy calls it. For the last three, of `scipy.ndimage`, it takes one array of `count` numbers: the elements
            under the filter, a line with its borders, or the coordinates of an element of the output. It returns a number, an array (the
            filtered line), or coordinates: an array, or a tuple of numbers.

        Returns
        -------
        scipy.LowLevelCallable
            For ``"quad"`` ``double (double)`` for one number and ``double (int, double *)`` for several; the others are those of SciPy's
            documentation. Where the function would raise an error, it returns NaN, or SciPy raises one.

        Raises
        ------
        ArgumentError
            Unless the result is of float64, has the right shape, and is computed from the arguments alone by machine code; for a signature
            that does not exist.

        Examples
        --------
        >>> import numpy as np, gradtape as gt
        >>> from scipy.integrate import quad
        >>> slope = gt.grad(lambda x: np.sin(x) * x)
        >>> round(quad(slope.as_low_level_callable(), 0.0, np.pi / 2)[0], 12)
        1.570796326795
        >>> from scipy.ndimage import generic_filter
        >>> spread = gt.jit(lambda x: np.max(x) - np.min(x)).as_low_level_callable(3, signature="generic_filter")
        >>> generic_filter(np.array([1.0, 2.0, 4.0, 7.0]), spread, size=3)
        array([1., 3., 5., 3.])
        """
        return low_level_callable(self, count, signature)

    def lower(self, *args: Any, **kwargs: Any) -> Lowered[P, R_co]:
        """Trace the function for one signature, ahead of time.

        Parameters
        ----------
        *args, **kwargs
            The arguments, or descriptions of them: `gradtape.spec` for arrays, ``float`` or ``int`` for Python's numbers.

        Returns
        -------
        Lowered
            Its method ``compile()`` returns the compiled function, which takes this signature alone; ``as_text()`` shows the program.

        Raises
        ------
        ArgumentError
            If the function draws random numbers; for descriptions, if it looks at values (``if x[0] > 0``).

        Examples
        --------
        >>> import numpy as np, gradtape as gt
        >>> lowered = gt.jit(lambda x: np.sum(x**2)).lower(gt.spec(3))
        >>> compiled = lowered.compile()
        >>> float(compiled(np.array([1.0, 2.0, 3.0])))
        14.0
        """
        from gradtape.api.export.stages import (
            lowered,  # late: a process that finds its kernels on disk does not need the compiler
        )

        lowered_function: Lowered[P, R_co] = lowered(self, args, kwargs)
        return lowered_function

    def _install(self, specialisation: Specialisation) -> None:
        """Let machine code answer calls like this one, where it can.

        The newest specialisations form a chain: what one cannot take (other types, a guard that fails) it hands to the next, the last to
        Python. A link costs a few nanoseconds.
        """
        program = specialisation.program
        if program.is_in_the_making:
            program.when_compiled(functools.partial(_installer(ref(self)), specialisation))
            return
        if specialisation.native is None or program.kernel.loaded is None:
            return
        if specialisation.prologue is not None and specialisation.origin is None:
            specialisation.prologue.when_ready = functools.partial(_told, ref(self), ref(specialisation))
            if specialisation.prologue.is_watching:
                return
        if specialisation.native.nested is not None:
            self._install_nested(specialisation)
            return
        others = [link for link in self._chain if link is not specialisation]
        self._chain = [specialisation, *others[: CHAIN_LENGTH - 1]]
        self._link()

    def _install_nested(self, specialisation: Specialisation) -> None:
        assert specialisation.native is not None and specialisation.native.nested is not None
        arguments, results = specialisation.native.nested
        nested = self.site.nested
        if len(nested) >= MOST_NESTED:
            nested.clear()
        bound = _bound(self.site, specialisation, _missed)
        if bound is not None:
            nested[arguments.spec] = NestedEntry.of(bound, arguments, results, specialisation.outputs)

    def _link(self) -> None:
        fallback: Any = self._answer
        chain = [link for link in self._chain if link.settings == trace_settings()]
        for link in reversed(chain[1:]):
            fallback = _bound(self._site_of(link), link, fallback) or fallback
        first = _bound(self._site_of(chain[0]), chain[0], fallback) if chain else None
        if first is not None:
            self.install(first)
        self.fallback = fallback

    def _site_of(self, specialisation: Specialisation) -> CallSite:
        """Return the call site that has made a specialisation: of this function, or of the program that it shares."""
        if specialisation.origin is None or self.shared is None:
            return self.site
        return self.shared.program.site

    def share(self, program: Jitted[..., Any], function: Any) -> None:
        """Let calls be answered by a program that takes `function`, of which this was made, before their arguments."""
        self.shared = Shared(program, function)
        self.site.lent = self.shared.lent

    def adopt(self, specialisation: Specialisation, function: Any) -> None:
        """Let machine code of a shared program answer calls like those that it has answered.

        What a prologue keeps is bound by the shared program alone, which replaces it when data change.
        """
        native, program = specialisation.native, specialisation.program
        keeps = specialisation.prologue is not None and specialisation.prologue.main is not None
        if native is not None and native.nested is None and not (program.is_in_the_making or keeps):
            self._complete()
            self._install(specialisation.with_first(function))

    def with_function(self, function: Any) -> Jitted[..., Any]:
        """Return a function of this kind that runs another function as it stands, for traces."""
        copy: Jitted[..., Any] = Jitted(function, self, self.site.static)
        copy.site.name, copy.site.inline = self.site.name, True
        copy.site.shapes = self.site.shapes
        return copy

    def suspend(self) -> None:
        """Answer every call in Python."""
        self.uninstall()
        self.fallback = self._answer

    def resume(self) -> None:
        """Let machine code answer again. While a profile is taken, it is bound when the function is called."""
        if self._chain and not self._is_left_to_profiler:
            self._link()

    @property
    def _is_left_to_profiler(self) -> bool:
        profiler = ACTIVE.profiler
        return profiler is not None and not profiler.is_linked(self)

    def release(self) -> None:
        """Let go of all bound machine code."""
        self.suspend()
        self.site.nested.clear()

    def relink(self) -> None:
        """Bind machine code anew: that of a profiler which looks on, or else the programs' own."""
        self.release()
        if self._is_left_to_profiler:
            return
        for specialisation in self.site.signatures.specialisations():
            if specialisation.is_native and specialisation.settings == trace_settings():
                native = specialisation.native
                if specialisation.is_native and native is not None and native.nested is not None:
                    self._install_nested(specialisation)
        if not RECORDING.tools:
            self.resume()


Missing.teach(Jitted, FUNCTION_HABITS)


class Shared:
    """A program that functions of one code share, as one of them uses it.

    Parameters
    ----------
    program : Jitted
        Takes the function before the arguments, and returns `NOT_SHARED` for calls that it leaves alone.
    function : callable
        The function.
    """

    __slots__ = ("_bound", "_calls", "_function", "_traces", "lent", "program")

    def __init__(self, program: Jitted[..., Any], function: Any) -> None:
        self.program = program
        self.lent: list[Specialisation] = []
        self._function = function
        self._calls = self._traces = 0
        self._bound: Specialisation | None = None

    def call(
        self, jitted: Jitted[..., Any], args: tuple[Any, ...], kwargs: dict[str, Any], *, is_kept: bool
    ) -> Any:
        """Answer a call of the function `jitted`, or return `NOT_SHARED`; `is_kept` says whether `jitted` may be called again."""
        if "out" in kwargs:
            return NOT_SHARED
        result = self.program(self._function, *args, **kwargs)
        if result is not NOT_SHARED:
            self._calls += 1
            if is_kept:
                self._note_answer(args, kwargs)
            chain = self.program._chain
            if self._calls >= _CALLS_BEFORE_BINDING and chain and chain[0] is not self._bound:
                self._bound = chain[0]
                jitted.adopt(chain[0], self._function)
        return result

    def _note_answer(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        """Let the function have the traces that answer its calls among its own, when it is called first, or the program was traced."""
        site = self.program.site
        if self._traces != site.traces:
            self._traces = site.traces
            call = CallArguments((self._function, *args), kwargs, site.static)
            lent_traces = [*self.lent, *site.specialisations_for(call)]
            self.lent[:] = {id(each): each for each in lent_traces}.values()


@functools.cache
def _references_of_temporary() -> int:
    """Return how many references its answer sees to a function that is called where it is made: ``gt.grad(f)(x)``."""
    count = 0

    def made() -> FastCallable:
        def answer() -> None:
            nonlocal count
            this = reference()
            count = reference_count(this)

        function = FastCallable(answer)
        reference = ref(function)
        return function

    made()()
    return count


def _described(error: Exception) -> tuple[str, Site | None]:
    """Return an error in one line, and the line, of whatever package, at which it was raised."""
    # The text of other objects is code of the user, or needs the numbers of traced arrays.
    is_plain = isinstance(error, GradtapeError) or all(type(each) in (str, int, float) for each in error.args)
    lines = str(error).splitlines() if is_plain else []
    site, trace = None, error.__traceback__
    while trace is not None:
        if not is_internal(trace.tb_frame):
            site = Site(trace.tb_frame.f_code, trace.tb_lasti)
        trace = trace.tb_next
    return ": ".join([type(error).__name__, *lines[:1]]), site


def _installer(reference: ref[Jitted[..., Any]]) -> Callable[[Specialisation], None]:
    """Return what hands new specialisations to a function while it is alive."""

    def install(specialisation: Specialisation) -> None:
        jitted = reference()
        if jitted is not None:
            jitted._install(specialisation)

    return install


def _told(reference: ref[Jitted[..., Any]], about: ref[Specialisation], text: str) -> None:
    """Note what becomes of the prologue of a specialisation, and bind it anew."""
    jitted, specialisation = reference(), about()
    if jitted is not None and specialisation is not None:
        jitted.site.explain.note("prologue", text)
        jitted._install(specialisation)


def _missed(*leaves: Any) -> object:
    return MISSED


def _bound(
    site: CallSite, specialisation: Specialisation, fallback: Callable[..., Any]
) -> CheckedFunction | None:
    native_call, program, profiler = specialisation.native, specialisation.program, ACTIVE.profiler
    assert native_call is not None
    nested = native_call.nested is not None
    code = None if profiler is None else profiler.machine_code(site, program, nested=nested)
    bound = specialisation.bound(fallback, code)
    site.note_bound(specialisation, bound)
    return bound


def every_jitted() -> list[Jitted[..., Any]]:
    """Return all functions that are alive."""
    return list(_everyone)


def _relink_all(_: Any) -> None:
    """Let machine code answer only where it was traced under the setting that holds now."""
    for function in list(_everyone):
        function.relink()


for _setting in TraceSettings._fields:
    on_change(_setting, _relink_all)


@contextmanager
def running_recorded() -> Iterator[None]:
    """Run jitted functions as they stand, op by op, while a debugging tool looks on."""
    tool = object()
    try:
        RECORDING.tools.add(tool)
        for function in list(_everyone):
            function.suspend()
        yield
    finally:
        try:
            _resume_without(tool)
        except BaseException:  # Ctrl-C
            _resume_without(tool)
            raise


def _resume_without(tool: object) -> None:
    """Let machine code answer again if no other tool looks on; to do so twice does no harm."""
    RECORDING.tools.discard(tool)
    if not RECORDING.tools:
        for function in list(_everyone):
            function.resume()


@overload
def jit(
    function: Callable[P, R],
    /,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    shapes: ShapesGiven = None,
) -> Jitted[P, R]: ...
@overload
def jit(
    function: None = None,
    /,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    shapes: ShapesGiven = None,
) -> Callable[[Callable[P, R]], Jitted[P, R]]: ...


@suggests_keywords
def jit(
    function: Callable[..., Any] | None = None,
    /,
    *,
    static_argnums: int | Sequence[int] = (),
    static_argnames: str | Sequence[str] = (),
    shapes: ShapesGiven = None,
) -> Any:
    """Compile a NumPy function.

    The function is traced once for each new combination of argument types (dtypes, shapes, Python types, nesting, static values). Later
    calls run machine code. Branches on values are supported: each path through the function is traced when it is first taken.

    Parameters
    ----------
    function : callable
        Ordinary NumPy code that takes and returns ndarrays, numbers and nested containers of them. Captured values (globals, closure
        variables, attributes, entries of containers, elements of arrays) are read again at each call: arrays and floats are passed to
        the program, and a change of a value that determines Python's control flow causes a new trace. Writes to attributes, globals,
        closure variables and containers outside the function take place at each call, after its results have been computed.
    static_argnums : int or sequence of int, optional
        Positions of arguments that are part of the program: each new value needs a new trace. Strings, None, booleans and other objects
        that are not numbers are always static.
    static_argnames : str or sequence of str, optional
        The same by name, whether an argument is passed by keyword or by position.
    shapes : {"exact", "symbolic", "auto"}, mapping or sequence, optional
        Whether the function is compiled again for each array length (``"exact"``), or all lengths share one kernel that reads the
        lengths at run time (``"symbolic"``): a new length is then traced, but not compiled. With ``"auto"`` the first three lengths
        have exact kernels, and later ones share one. The shapes of arguments, by name or by position, with `Dim` for lengths that vary,
        imply ``"symbolic"`` and are checked at each call. The default is that of ``gt.config.shapes``, ``"auto"``.

    Returns
    -------
    Jitted
        A callable with the name, docstring and signature of `function`. A call with `Array`s is recorded, so tapes and other transforms
        differentiate through it. ``f(x, out=array)`` writes the result into an ndarray of its shape (a nest of them where there are
        several results) and returns that, unless `function` itself has a parameter `out`.

    Raises
    ------
    ArgumentError
        If `function` is not callable, has no parameter of a name in `static_argnames`, or `shapes` is none of these.
    ShapeError
        At a call, if an argument does not have the shape given by `shapes`.
    StaticArgumentError
        At a call, if a static argument is not hashable.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> @gt.jit
    ... def energy(x):
    ...     return np.sum(x**2) / 2
    >>> float(energy(np.array([3.0, 4.0])))
    12.5
    >>> mean = gt.jit(lambda x: np.mean(x**2), shapes="symbolic")
    >>> [float(mean(np.full(n, 2.0))) for n in range(100, 104)]  # two kernels are compiled
    [4.0, 4.0, 4.0, 4.0]
    """
    positions = tuple(static_argnums) if isinstance(static_argnums, tuple | list) else (static_argnums,)
    names = tuple(static_argnames) if isinstance(static_argnames, tuple | list) else (static_argnames,)
    for argument, entries, kind in (("static_argnums", positions, int), ("static_argnames", names, str)):
        for item in entries:
            if type(item) is not kind:
                raise DtypeError(
                    f"jit: {argument} must be of type {kind.__name__}, or a sequence of them; got {item!r}",
                    where=user_site(),
                    remedy="static_argnums=1, static_argnames=('order',)",
                )
    if function is None:
        return functools.partial(
            jit, static_argnums=static_argnums, static_argnames=static_argnames, shapes=shapes
        )
    positions += _positions_of(names, function)
    static = StaticArguments(positions, names) if positions or names else EVERYTHING_TRACED
    options = {"static_argnums": static_argnums, "static_argnames": static_argnames, "shapes": shapes}
    made_by = Call(jit, (function,), options)
    sharing = jit, positions, names
    program = program_of(sharing, function) if shapes is None else None
    if program is not None:
        return program.of_one_code(function, functools.partial(jit_of, function, function, static), made_by)
    jitted = jit_of(function, function, static)
    jitted.site.shapes = shapes_of(shapes, function)
    jitted.made_by = made_by
    if shapes is None:
        share(jitted, sharing, function, lambda shared: shared)
    return jitted


def _positions_of(names: tuple[str, ...], function: Callable[..., Any]) -> tuple[int, ...]:
    """Return the positions of the parameters with these names; those that are passed by keyword only have none."""
    if not names or not callable(function):
        return ()
    try:
        parameters = inspect.signature(function).parameters
    except (TypeError, ValueError):  # a function of an extension module
        return ()
    kinds = {parameter.kind for parameter in parameters.values()}
    for name in names:
        if name not in parameters and inspect.Parameter.VAR_KEYWORD not in kinds:
            near = nearest(name, [*parameters])
            raise ArgumentError(
                f"jit: static_argnames has {name!r}, and the function has no such parameter",
                where=user_site(),
                remedy=f"static_argnames={near!r}" if near else f"its parameters are {', '.join(parameters)}",
            )
    return tuple(
        position
        for position, (name, parameter) in enumerate(parameters.items())
        if name in names and parameter.kind == parameter.POSITIONAL_OR_KEYWORD
    )


def jit_of(
    function: Callable[..., Any], wrapped: Callable[..., Any], static: StaticArguments
) -> Jitted[..., Any]:
    """Return the jitted form of `function`, which shows itself as `wrapped`."""
    check_callable(function, "jit")
    return Jitted(function, wrapped, static)
