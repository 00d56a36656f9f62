"""The base class of the optimisers: in place on variables, and as pure functions on nested arrays.

Each optimiser works in two ways. With variables it keeps its state itself: `minimize` and `apply_gradients`, as TensorFlow's. With nests of
arrays the state is an argument and a result: `init` makes it, and `update` returns new parameters and a new state.
"""

from __future__ import annotations

import copy
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Sequence
from operator import attrgetter
from typing import Any, ClassVar, Final, Self
from weakref import ref

import numpy as np

from gradtape.api.tape.gradients import gradients
from gradtape.api.tape.tape import GradientTape
from gradtape.api.units import MAGNITUDES, refuse_quantities
from gradtape.errors import ArgumentError, DtypeError, GradtapeWarning, ShapeError, counted, kind_of, warn
from gradtape.habits import OPTIMIZER, Missing
from gradtape.ir.builder import here
from gradtape.ir.types import is_inexact
from gradtape.trace.array.handle import Handle
from gradtape.trace.array.indexed_slices import IndexedSlices
from gradtape.trace.source.contexts import scopes
from gradtape.trace.source.sites import user_site
from gradtape.trace.variables.variable import Variable
from gradtape.trees import flatten, flatten_up_to, unflatten

UNITS_OF_STEPS: Final = f"optimise magnitudes, {MAGNITUDES}: a gradient has another unit than its parameter"
"""What to do with parameters that are quantities."""


class Optimizer(ABC):
    """The base class of optimisers; see `GradientDescent`, `Momentum` and `Adam`."""

    slots: tuple[str, ...] = ()
    """The arrays that are kept for each parameter."""

    settings: ClassVar[tuple[str, ...]] = ()
    """What else it was made with; compiled steps have these numbers in them, so that they stay as they are."""

    def __init__(self, learning_rate: Any) -> None:
        self._rate = _rate(learning_rate, type(self).__name__)
        self._live = Variable(self._rate, False, "learning_rate") if type(self._rate) is float else None
        self._steps: Variable | None = None
        self._slots: dict[int, tuple[ref[Variable], tuple[Variable, ...]]] = {}

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        for name in cls.__dict__.get("settings", ()):
            setattr(cls, name, property(attrgetter(f"_{name}"), doc=f"The `{name}` that it was made with."))

    def __repr__(self) -> str:
        settings = [f"{name}={getattr(self, f'_{name}')!r}" for name in self.settings]
        settings.insert(0, f"learning_rate={self._rate!r}")
        return f"{type(self).__name__}({', '.join(settings)})"

    def _owned(self) -> list[tuple[Variable, tuple[Variable, ...]]]:
        """Return the variables that were changed and are alive, with their slots."""
        pairs = [(owner(), slots) for owner, slots in self._slots.values()]
        return [(owner, slots) for owner, slots in pairs if owner is not None]

    def __getstate__(self) -> dict[str, Any]:
        return vars(self) | {"_slots": self._owned()}

    def __setstate__(self, state: dict[str, Any]) -> None:
        for name, value in state.items():
            setattr(self, name, value)
        self._slots = {owner.serial: (ref(owner), slots) for owner, slots in state["_slots"]}

    def __deepcopy__(self, memo: dict[int, Any]) -> Self:
        """Return a copy with slots of its own, for the copies of variables that were copied before it, or else for the variables."""
        duplicate = memo[id(self)] = object.__new__(type(self))
        owned = [(memo.get(id(owner), owner), copy.deepcopy(slots, memo)) for owner, slots in self._owned()]
        settings = {
            name: copy.deepcopy(value, memo) for name, value in vars(self).items() if name != "_slots"
        }
        duplicate.__setstate__(settings | {"_slots": owned})
        return duplicate

    @abstractmethod
    def _change(self, gradient: Any, slots: Sequence[Any], step: Any, rate: Any) -> tuple[Any, Sequence[Any]]:
        """Return what is subtracted from a parameter, and its slots after this step.

        Parameters
        ----------
        gradient : array or IndexedSlices
            Of the parameter.
        slots : sequence of arrays
            What is kept for the parameter.
        step : int
            Which step this is, from 1.
        rate : number
            The learning rate.
        """

    # On variables

    @property
    def _functions_called(self) -> tuple[str, ...]:
        """The attributes that are functions of the user's: what they read from outside is looked at in each call of a jitted function."""
        return () if isinstance(self._rate, float | Variable) else ("_rate",)

    @property
    def learning_rate(self) -> Any:
        """The factor of a step. It can be set to another number, which compiled steps see."""
        return self._rate

    @learning_rate.setter
    def learning_rate(self, rate: Any) -> None:
        new = _rate(rate, type(self).__name__)
        if self._live is None or type(new) is not float:
            raise ArgumentError(
                f"{type(self).__name__}: the learning rate can only be changed from one number to another",
                where=user_site(),
                why="a compiled step calls the function, or reads the variable, that it was traced with",
                remedy="make another optimiser; to change a gt.Variable, assign to it: rate.assign(0.1)",
            )
        self._rate = new
        self._live.assign(new)

    @property
    def iterations(self) -> Variable:
        """How often gradients were applied to variables."""
        if self._steps is None:
            self._steps = Variable(np.int64(0), trainable=False, name="iterations")
        return self._steps

    @property
    def variables(self) -> list[Variable]:
        """The state: `iterations` and the slots of all variables that were changed."""
        return [self.iterations, *[slot for _, slots in self._slots.values() for slot in slots]]

    def apply_gradients(self, grads_and_vars: Iterable[tuple[Any, Variable]]) -> None:
        """Change variables by their gradients, in place.

        Parameters
        ----------
        grads_and_vars : iterable of (gradient, Variable)
            Gradients are arrays or `IndexedSlices`. Variables whose gradient is None are not changed, with a warning.

        Raises
        ------
        ArgumentError
            If there is no gradient but None, or a variable is there twice.
        DtypeError
            For entries that are not pairs of a gradient and a variable of floats.
        ShapeError
            For a gradient of another shape than its variable.

        Warns
        -----
        GradtapeWarning
            Names the variables whose gradient is None, if other variables have gradients.

        Examples
        --------
        >>> import gradtape as gt
        >>> w = gt.Variable([1.0, 2.0])
        >>> gt.optimizers.GradientDescent(0.5).apply_gradients([([2.0, 0.0], w)])
        >>> w
        Variable([0., 2.])
        """
        here.site = user_site()
        pairs = _pairs(grads_and_vars)
        step = self.iterations
        step.assign_add(1)
        now = step.read_value()
        rate = self._rate_at(now)
        for gradient, variable in pairs:
            slots = self._slots_of(variable)
            change, new_slots = self._change(gradient, slots, now, as_factor(rate, variable.dtype))
            for slot, new in zip(slots, new_slots, strict=True):
                slot.assign(new)
            variable.assign_sub(change)

    def compute_gradients(
        self, loss: Any, var_list: Any = None, *, tape: GradientTape | None = None
    ) -> list[tuple[Any, Variable]]:
        """Return the gradients of a loss with the variables that they belong to, which `apply_gradients` takes.

        Parameters
        ----------
        loss : callable or Array
            A function without arguments, which is recorded; or what was computed, with the tape that has recorded it. Inside a
            traced function no tape is needed.
        var_list : sequence of Variable, optional
            By default the variables that the tape has watched.
        tape : GradientTape, optional
            Who has recorded `loss`.

        Returns
        -------
        list of (gradient, Variable)
            The gradient is None where no path leads from the variable to the loss.
        """
        here.site = user_site()
        return self._gradients(loss, var_list, tape)[1]

    def minimize(self, loss: Any, var_list: Any = None, *, tape: GradientTape | None = None) -> Any:
        """Take one step downhill: compute the gradients of a loss, and apply them to the variables.

        Parameters
        ----------
        loss, var_list, tape
            As for `compute_gradients`.

        Returns
        -------
        Array
            The loss before the step.

        Raises
        ------
        ArgumentError
            If the loss depends on none of the variables, or it is an array and there is no tape.

        Examples
        --------
        >>> import numpy as np, gradtape as gt
        >>> w = gt.Variable([1.0, 2.0])
        >>> optimizer = gt.optimizers.Adam(0.1)
        >>> losses = [float(optimizer.minimize(lambda: np.sum(w**2), [w])) for _ in range(100)]
        >>> losses[0], bool(losses[-1] < 1e-2)
        (5.0, True)
        """
        here.site = user_site()
        value, pairs = self._gradients(loss, var_list, tape)
        self.apply_gradients(pairs)
        return value

    def _gradients(self, loss: Any, var_list: Any, tape: Any) -> tuple[Any, list[tuple[Any, Variable]]]:
        caller = f"{type(self).__name__}.minimize"
        if callable(loss) and not isinstance(loss, Handle):
            with GradientTape() as tape:
                loss = loss()
        elif not isinstance(loss, Handle):
            raise DtypeError(
                f"{caller}: loss is {kind_of(loss)}",
                where=here.site,
                remedy="pass a function without arguments: minimize(lambda: np.sum(w**2), [w])",
            )
        if tape is None and not scopes():
            raise ArgumentError(
                f"{caller} got an array as the loss, and no tape",
                where=here.site,
                why="an array outside a traced function is recorded by a tape alone",
                remedy="give the tape that has recorded it, tape=tape, or a function without arguments",
            )
        variables = _variables(var_list() if callable(var_list) else var_list, tape, caller)
        slopes = (
            gradients(loss, variables)
            if tape is None
            else tape._gradient(loss, variables, None, "none", "tensorflow")
        )
        return loss, list(zip(slopes, variables, strict=True))

    def _slots_of(self, variable: Variable) -> tuple[Variable, ...]:
        if variable.serial not in self._slots:
            for serial, (owner, _) in list(self._slots.items()):
                if owner() is None:
                    del self._slots[serial]
            stem = variable.name or "variable"
            slots = tuple(
                [
                    Variable(
                        np.zeros(variable.shape, self._slot_dtype(name, variable.dtype)),
                        False,
                        f"{stem}/{name}",
                    )
                    for name in self.slots
                ]
            )
            self._slots[variable.serial] = ref(variable), slots
        return self._slots[variable.serial][1]

    def _slot_dtype(self, name: str, dtype: np.dtype[Any]) -> np.dtype[Any]:
        return dtype

    # On nests of arrays

    def init(self, params: Any) -> dict[str, Any]:
        """Return the state before the first step.

        Parameters
        ----------
        params : array_like or nest of them
            The arrays and numbers to update.

        Returns
        -------
        dict
            The number of steps so far, and for each slot a nest of arrays like `params`.

        Examples
        --------
        >>> import gradtape as gt
        >>> gt.optimizers.Momentum(0.1).init({"w": 1.0})
        {'step': np.int64(0), 'velocity': {'w': array(0.)}}
        """
        here.site = user_site()
        refuse_quantities(params, "init: params", UNITS_OF_STEPS)
        leaves, spec = flatten(params)
        kinds = [_checked(leaf, "init: params") for leaf in leaves]
        state: dict[str, Any] = {"step": np.int64(0)}
        for name in self.slots:
            empty = [np.zeros(shape, self._slot_dtype(name, dtype)) for shape, dtype in kinds]
            state[name] = unflatten(spec, empty)
        return state

    def update(self, gradients: Any, state: dict[str, Any], params: Any) -> tuple[Any, dict[str, Any]]:
        """Return parameters and state after one step. Nothing is changed in place, so that it can be traced, mapped and differentiated.

        Parameters
        ----------
        gradients : nest of array_like, IndexedSlices or None
            With the structure of `params`; a parameter with gradient None is not changed.
        state : dict
            What `init` or the last `update` returned.
        params : array_like or nest of them
            The parameters.

        Returns
        -------
        params : nest of arrays
            Of the structure, shapes and dtypes of `params`.
        state : dict
            For the next step.

        Raises
        ------
        StructureError, ShapeError
            For gradients that do not match the parameters.
        DtypeError
            For parameters that are not floats.
        ArgumentError
            For a state of another optimiser.

        Examples
        --------
        >>> import numpy as np, gradtape as gt
        >>> optimizer = gt.optimizers.Adam(0.1)
        >>> @gt.jit
        ... def step(w, state):
        ...     return optimizer.update(gt.grad(lambda w: np.sum(w**2))(w), state, w)
        >>> w = np.array([1.0, 2.0])
        >>> state = optimizer.init(w)
        >>> for _ in range(100):
        ...     w, state = step(w, state)
        >>> bool(np.sum(w**2) < 1e-2)
        True
        """
        here.site = user_site()
        refuse_quantities((gradients, params), "update: a gradient or a parameter", UNITS_OF_STEPS)
        leaves, spec = flatten(params)
        slopes = flatten_up_to(spec, gradients, "gradients", "params", here.site)
        if not isinstance(state, dict) or set(state) != {"step", *self.slots}:
            raise ArgumentError(
                f"{type(self).__name__}.update: the state has {sorted(state) if isinstance(state, dict) else type(state).__name__}, not "
                f"{sorted(['step', *self.slots])}",
                where=here.site,
                remedy="pass what init(params) or the last update returned",
            )
        slots = [
            flatten_up_to(spec, state[name], f"state[{name!r}]", "params", here.site) for name in self.slots
        ]
        step = state["step"] + 1
        rate = self._rate_at(step)
        new: list[Any] = []
        next_slots: list[list[Any]] = [[] for _ in slots]
        leaf_slots: Sequence[Any]
        for leaf, slope, *leaf_slots in zip(leaves, slopes, *slots, strict=True):
            shape, dtype = _checked(leaf, "update: params")
            if slope is not None:
                slope = _fitting(slope, shape, "update")
                change, leaf_slots = self._change(slope, leaf_slots, step, as_factor(rate, dtype))
                leaf = leaf - change
            new.append(leaf)
            for of_slot, array in zip(next_slots, leaf_slots, strict=True):
                of_slot.append(array)
        after = {name: unflatten(spec, arrays) for name, arrays in zip(self.slots, next_slots, strict=True)}
        return unflatten(spec, new), {"step": step, **after}

    def _rate_at(self, step: Any) -> Any:
        rate = self._live if self._live is not None and scopes() else self._rate
        if isinstance(rate, Variable):
            return rate.read_value()
        return rate(step) if callable(rate) else rate


Missing.teach(Optimizer, OPTIMIZER)


def as_factor(number: Any, dtype: np.dtype[Any]) -> Any:
    """Return a factor that leaves the dtype of arrays as it is."""
    if type(number) in (int, float):
        return number
    return number.astype(np.zeros(0, dtype).real.dtype)


def _fitting(gradient: Any, shape: tuple[int, ...], caller: str) -> Any:
    """Return a gradient that belongs to a parameter of this shape."""
    if not isinstance(gradient, Handle | IndexedSlices):
        gradient = np.asarray(gradient)
        if gradient.dtype.kind not in "fciub":
            raise DtypeError(
                f"{caller}: a gradient has dtype {gradient.dtype}",
                where=here.site,
                remedy="pass the gradient that a tape or gt.grad returned",
            )
    if isinstance(gradient, IndexedSlices) and gradient.dense_shape is None:
        gradient = IndexedSlices(gradient.values, gradient.indices, shape)
    if gradient.shape != shape:
        raise ShapeError(
            f"{caller}: a gradient has shape {gradient.shape}, and its parameter {shape}",
            where=here.site,
            remedy="the gradient of an array has its shape: give the pairs in the right order",
        )
    return gradient


def _checked(leaf: Any, argument: str) -> tuple[tuple[int, ...], np.dtype[Any]]:
    """Return the shape and dtype of a parameter."""
    if isinstance(leaf, Variable):
        raise DtypeError(
            f"{argument} has a Variable, which would not be updated",
            where=here.site,
            remedy="optimizer.apply_gradients(zip(gradients, variables)) changes variables in place",
        )
    array = leaf if isinstance(leaf, Handle) else np.asarray(leaf)
    if not is_inexact(array.dtype):
        raise DtypeError(
            f"{argument} has {f'an array of {array.dtype}' if array.dtype.kind in 'biu' else kind_of(leaf)}",
            where=here.site,
            why="the updated value is a float",
            remedy="convert it first: x.astype(float)",
        )
    return array.shape, array.dtype


def _pairs(pairs_given: Any) -> list[tuple[Any, Variable]]:
    """Return the pairs with a gradient, checked."""
    try:
        pairs = [(gradient, variable) for gradient, variable in pairs_given]
    except (TypeError, ValueError):
        raise DtypeError(
            f"apply_gradients got {kind_of(pairs_given)} that does not hold pairs (gradient, variable)",
            where=here.site,
            remedy="optimizer.apply_gradients(zip(gradients, variables))",
        ) from None
    for _, variable in pairs:
        if not isinstance(variable, Variable):
            raise DtypeError(
                f"apply_gradients got {kind_of(variable)} as a variable",
                where=here.site,
                why="other references to this array would not see the update",
                remedy="keep it in gt.Variable(x), or use params, state = optimizer.update(gradients, state, params)",
            )
        if not is_inexact(variable.dtype):
            _checked(np.zeros(0, variable.dtype), "apply_gradients")
    if len({id(variable) for _, variable in pairs}) < len(pairs):
        raise ArgumentError(
            "apply_gradients got a variable twice",
            where=here.site,
            remedy="add up its gradients, and pass the variable once",
        )
    present = [(gradient, variable) for gradient, variable in pairs if gradient is not None]
    why = "no differentiable path leads from the variables to the loss"
    if not present:
        raise ArgumentError(
            "apply_gradients got no gradients" + (": all of them are None" if pairs else ""),
            where=here.site,
            why=why if pairs else "",
            remedy="compute the loss from the variables, inside the tape's with block",
        )
    if len(present) < len(pairs):
        missing = [
            repr(variable.name) if variable.name else f"number {position}, of shape {variable.shape}"
            for position, (gradient, variable) in enumerate(pairs)
            if gradient is None
        ]
        warn(
            GradtapeWarning,
            f"apply_gradients leaves {counted(len(missing), 'variable')} of {len(pairs)} unchanged, because their gradient is None: "
            + ", ".join(missing),
            where=here.site,
            why=why.replace("the variables", "them"),
            remedy="compute the loss from them, inside the tape's with block, or omit them",
        )
    return [
        (_fitting(gradient, variable.shape, "apply_gradients"), variable) for gradient, variable in present
    ]


def _variables(var_list: Any, tape: GradientTape | None, caller: str) -> list[Variable]:
    """Return the variables that are to be changed."""
    if var_list is None and tape is not None:
        return list(tape.watched_variables())
    variables = (
        [var_list]
        if isinstance(var_list, Variable)
        else list(var_list)
        if isinstance(var_list, list | tuple)
        else []
    )
    if not variables or not all(isinstance(variable, Variable) for variable in variables):
        raise DtypeError(
            f"{caller}: var_list must be a list of gt.Variable, got {'none' if var_list is None else kind_of(var_list)}",
            where=here.site,
            remedy="minimize(loss, [w, b]); arrays are changed by params, state = optimizer.update(gradients, state, params)",
        )
    return variables


def number(value: Any, argument: str, caller: str) -> float:
    if isinstance(value, bool) or not issubclass(type(value), int | float | np.floating | np.integer):
        raise DtypeError(
            f"{caller}: {argument} must be a number, got {kind_of(value)}",
            where=user_site(),
            remedy=f"{caller}({argument}=0.9)",
        )
    if not 0 <= value < np.inf:
        raise ArgumentError(
            f"{caller}: {argument} is {value!r}", where=user_site(), remedy="a positive number"
        )
    return float(value)


def fraction(value: Any, argument: str, caller: str) -> float:
    share = number(value, argument, caller)
    if share >= 1:
        raise ArgumentError(
            f"{caller}: {argument} is {value!r}", where=user_site(), remedy="a number from 0 to below 1"
        )
    return share


def _rate(rate: Any, caller: str) -> float | Variable | Callable[[Any], Any]:
    if isinstance(rate, Variable) or (callable(rate) and not isinstance(rate, Handle | type)):
        return rate
    return number(rate, "learning_rate", caller)
