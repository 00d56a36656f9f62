"""Small tools of autograd that packages import."""

from typing import Any

from gradtape.autograd.wrap_util import subvals as subvals


def subval(values: Any, position: int, value: Any) -> tuple[Any, ...]:
    """Return the values as a tuple, with another one at a position."""
    return subvals(values, [(position, value)])


def func(function: Any) -> Any:
    """Return the function."""
    return function
