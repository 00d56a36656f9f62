"""Which arguments of a function are differentiated in: by position or by name."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

import numpy as np

from gradtape.errors import ArgumentError, DtypeError, counted
from gradtape.ir.graph import Value
from gradtape.kinds.refusals import is_table, refusal
from gradtape.trace.array.handle import Handle
from gradtape.trace.jit.aliases import check_copies
from gradtape.trace.source.sites import user_site
from gradtape.trees import flatten, leaf_of_arguments

Positions: TypeAlias = int | Sequence[int] | None
Names: TypeAlias = str | Sequence[str] | None


def integer(number: Any) -> int | None:
    """Return a Python or NumPy integer as an int; None for anything else, booleans too."""
    return int(number) if isinstance(number, int | np.integer) and not isinstance(number, bool) else None


@dataclass(frozen=True)
class Selection:
    """The arguments to differentiate with respect to.

    Attributes
    ----------
    caller : str
        The transform, for errors.
    positions : tuple of int
        Where they stand; empty where they are chosen by name.
    names : tuple of str
        What they are called.
    several : bool
        Whether a sequence was given: then results are tuples.
    function : callable
        Whose arguments they are.
    """

    caller: str
    positions: tuple[int, ...]
    names: tuple[str, ...]
    several: bool
    function: Callable[..., Any]

    def places(self, args: Sequence[Any], kwargs: dict[str, Any]) -> list[int | str]:
        """Return where the chosen arguments stand in a call: positions, and keywords.

        Raises
        ------
        ArgumentError
            If the call does not have one, or one is chosen twice.
        """
        if self.names:
            chosen_places = [self._place(name, args, kwargs) for name in self.names]
        else:
            chosen_places = [self._position(position, args) for position in self.positions]
            if len(set(chosen_places)) < len(chosen_places):
                raise ArgumentError(
                    f"{self.caller}: argnums={self.positions} names an argument twice",
                    where=user_site(),
                    remedy="name each argument once",
                )
        return chosen_places

    def chosen(
        self, args: Sequence[Any], kwargs: dict[str, Any], positions: Sequence[int | str]
    ) -> list[Any]:
        """Return the arguments at some places; of those that the call leaves out, the defaults.

        Raises
        ------
        DtypeError
            If one is None.
        """
        arguments = [
            args[position]
            if isinstance(position, int)
            else kwargs[position]
            if position in kwargs
            else self._default(position)
            for position in positions
        ]
        for argument, chosen in zip(arguments, self.names or self.positions, strict=True):
            if argument is None:
                raise DtypeError(
                    f"{self.caller}: argument {chosen!r}, to differentiate with respect to, is None",
                    where=user_site(),
                    remedy=f"pass a number or an array, or change {'argnames' if self.names else 'argnums'}",
                )
            if is_table(argument) and not flatten(argument)[0]:
                raise refusal(argument, f"{self.caller}: argument {chosen!r}")
        return arguments

    def leaf(self, positions: Sequence[int | str], chosen: Sequence[Any], position: int) -> str:
        """Return what a leaf of the chosen arguments is, for errors: ``params['layers'][2]``."""
        kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        parameters = [
            name for name, parameter in _parameters(self.function).items() if parameter.kind not in kinds
        ]
        names = [
            place
            if isinstance(place, str)
            else parameters[place]
            if place < len(parameters)
            else f"argument {place}"
            for place in positions
        ]
        return leaf_of_arguments(names, chosen, position)

    def replaced(
        self, args: Sequence[Any], kwargs: dict[str, Any], positions: Sequence[int | str], by: Sequence[Any]
    ) -> tuple[list[Any], dict[str, Any]]:
        """Return the arguments of a call with others at these places."""
        arguments, keywords = list(args), dict(kwargs)
        for position, argument in zip(positions, by, strict=True):
            if isinstance(position, int):
                arguments[position] = argument
            else:
                keywords[position] = argument
        return arguments, keywords

    def check_copies(
        self,
        args: Sequence[Any],
        kwargs: dict[str, Any],
        leaves: Sequence[Any],
        copies: Sequence[Handle],
        begins: Sequence[Value],
    ) -> None:
        """Raise an error if the function has written to an argument, of which it had a copy, that shares memory with another argument."""
        positions = self.places(args, kwargs)
        unchosen = [
            [arg for place, arg in enumerate(args) if place not in positions],
            [arg for place, arg in kwargs.items() if place not in positions],
        ]
        chosen = self.chosen(args, kwargs, positions)
        description = f"the function that {self.caller} differentiates"
        check_copies(
            description,
            copies,
            begins,
            leaves,
            lambda position: self.leaf(positions, chosen, position),
            unchosen,
        )

    def filled(self, results: Sequence[Any]) -> Any:
        """Return one result per chosen argument as the user asked for it: a tuple, or the only one."""
        return tuple(results) if self.several else results[0]

    def _position(self, position: int, args: Sequence[Any]) -> int:
        if not -len(args) <= position < len(args):
            raise ArgumentError(
                f"{self.caller}: argnums names argument {position}, but the call has {counted(len(args), 'positional argument')}",
                where=user_site(),
                remedy="pass the argument by position, or choose it by its name: argnames=...",
            )
        return position % len(args)

    def _place(self, name: str, args: Sequence[Any], kwargs: dict[str, Any]) -> int | str:
        if name in kwargs:
            return name
        parameters = _parameters(self.function)
        for position, parameter in enumerate(parameters.values()):
            if parameter.kind is parameter.VAR_POSITIONAL:
                break
            if (
                parameter.name == name
                and position < len(args)
                and parameter.kind is not parameter.KEYWORD_ONLY
            ):
                return position
        if name in parameters and self._default(name) is not inspect.Parameter.empty:
            if parameters[name].kind is inspect.Parameter.POSITIONAL_ONLY:
                return self._position(list(parameters).index(name), args)
            return name
        raise ArgumentError(
            f"{self.caller}: argnames names argument {name!r}, which the call does not have",
            where=user_site(),
            remedy=f"pass it: {name}=...",
        )

    def _default(self, name: str) -> Any:
        return _parameters(self.function)[name].default


def selection_of(function: Callable[..., Any], argnums: Positions, argnames: Names, caller: str) -> Selection:
    """Return the choice that two options make: with neither, the first argument.

    Raises
    ------
    DtypeError
        For what are no positions, or no names.
    ArgumentError
        For both, for a name that `function` does not have, or one that is there twice.
    """
    if argnames is None:
        chosen = 0 if argnums is None else argnums
        return Selection(
            caller, positions_of(chosen, caller), (), isinstance(chosen, tuple | list | range), function
        )
    if argnums is not None:
        raise ArgumentError(
            f"{caller} got argnums={argnums!r} and argnames={argnames!r}",
            where=user_site(),
            why="the results come in the order in which the arguments are named",
            remedy="name all of them one way: argnames=('x', 'w')",
        )
    several = isinstance(argnames, tuple | list)
    names = tuple(argnames) if isinstance(argnames, tuple | list) else (argnames,)
    if not names or not all(isinstance(name, str) for name in names):
        raise DtypeError(
            f"{caller}: argnames must be a str or a sequence of str, got {argnames!r}",
            where=user_site(),
            remedy="argnames=('x', 'w')",
        )
    if len(set(names)) < len(names):
        raise ArgumentError(
            f"{caller}: argnames={names} names an argument twice",
            where=user_site(),
            remedy="name each argument once",
        )
    parameters = _parameters(function)
    if parameters and not any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters.values()):
        for name in names:
            if name not in parameters:
                raise ArgumentError(
                    f"{caller}: argnames names argument {name!r}, but the arguments of the function are {', '.join(parameters)}",
                    where=user_site(),
                    remedy="choose among these, or use argnums",
                )
    return Selection(caller, (), names, several, function)


def positions_of(argnums: Any, caller: str) -> tuple[int, ...]:
    """Return positions that were given as an int or a sequence of them; raise DtypeError for anything else."""
    entries = argnums if isinstance(argnums, tuple | list | range) else (argnums,)
    positions = [integer(position) for position in entries]
    if None in positions:
        raise DtypeError(
            f"{caller}: argnums must be an int or a sequence of ints, got {argnums!r}",
            where=user_site(),
            remedy=f"argnums=(0, 1); {caller}(f) returns a function, which is called with the arguments: {caller}(f)(x)",
        )
    return tuple([position for position in positions if position is not None])


def _parameters(function: Callable[..., Any]) -> dict[str, inspect.Parameter]:
    """Return the parameters of a function by name; none where Python does not know them."""
    try:
        return dict(inspect.signature(function).parameters)
    except (TypeError, ValueError):
        return {}
