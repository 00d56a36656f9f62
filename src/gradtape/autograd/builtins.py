"""The containers and type tests of autograd: those of Python, with the one difference that a traced array is what it stands for."""

import builtins
from typing import Any

import numpy

from gradtape.trace.array.handle import Handle
from gradtape.trees import flatten_arguments

tuple: Any = builtins.tuple
list: Any = builtins.list
dict: Any = builtins.dict


def type(value: Any) -> Any:
    """Return the type of a value; of a traced array, the type of the array or number that it stands for."""
    if builtins.isinstance(value, Handle):
        return value.dtype.type if value.ndim == 0 else numpy.ndarray
    return builtins.type(value)


def isinstance(value: Any, kinds: Any) -> bool:
    """Return whether a value, or the array or number that a traced array stands for, is an instance of a type."""
    if builtins.isinstance(value, kinds):
        return True
    return builtins.isinstance(value, Handle) and issubclass(type(value), kinds)


class _Containers(builtins.type):
    kind: Any

    def __instancecheck__(cls, instance: object) -> bool:
        return builtins.isinstance(instance, cls.kind) and any(
            builtins.isinstance(leaf, Handle) for leaf in flatten_arguments(instance)[0]
        )


class SequenceBox(metaclass=_Containers):
    """The class of lists and tuples that hold traced arrays, for instance checks and annotations."""

    kind = (builtins.list, builtins.tuple)


class DictBox(metaclass=_Containers):
    """The class of dicts that hold traced arrays, for instance checks and annotations."""

    kind = builtins.dict
