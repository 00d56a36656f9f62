"""What methods of installed packages read of their objects: they are not copied as the user's are, but name the attributes that count."""

from __future__ import annotations

from collections.abc import Iterator
from types import FunctionType, ModuleType
from typing import Any, Final

from gradtape.trace.jit.captures.walk import CodeFacts
from gradtape.trace.patching.copies import closure_of, is_filled
from gradtape.trace.patching.name_reads import Reads, reads_of
from gradtape.trace.source.sites import is_program_file, is_user_file


def is_package_file(filename: str) -> bool:
    """Return whether a file is of an installed package whose code is traced."""
    return is_program_file(filename) and not is_user_file(filename)


def read_code(facts: CodeFacts, function: FunctionType) -> None:
    """Add what a function of a package reads, and what the functions do that it names."""
    open_ = [function]
    while open_:
        function = open_.pop()
        code = function.__code__
        if code in facts.of_packages or not is_package_file(code.co_filename):
            continue
        reads = reads_of(code)
        facts.of_packages.add(code)
        facts.add(reads)
        for content in _named(function, reads):
            if isinstance(content, type):
                facts.classes.add(content)
            content = getattr(content, "__wrapped__", None) or getattr(content, "__func__", content)
            if type(content) is FunctionType:
                open_.append(content)


def name_method(facts: CodeFacts, function: FunctionType) -> None:
    """Add the name of a package's method that is called of an object: the object is more than passed on."""
    if is_package_file(function.__code__.co_filename):
        facts.attributes.add(function.__name__)


AT_CONSTRUCTION: Final = frozenset(
    {"__init__", "__new__", "__post_init__", "__init_subclass__", "__class_getitem__", "__repr__", "__del__"}
)
"""Methods that code does not call of objects that exist."""


def read_methods(facts: CodeFacts, cls: type, *, whole: bool) -> bool:
    """Add what the methods of a class read that code names, or operators call; return whether code names one.

    If it is `whole`, the class itself is used; else only its instances, which exist.
    """
    names_one = False
    for owner in cls.__mro__:
        for name, item in vars(owner).items():
            is_named = name in facts.attributes
            if is_named or (name.startswith("__") and (whole or name not in AT_CONSTRUCTION)):
                for function in functions_of(item):
                    names_one = names_one or is_named
                    read_code(facts, function)
    return names_one


def _named(function: FunctionType, reads: Reads) -> Iterator[Any]:
    """Yield what a function encloses, and what it names: globals, and what it reads of modules."""
    for _, cell in closure_of(function):
        if is_filled(cell):
            yield cell.cell_contents
    for name in reads.names:
        content = function.__globals__.get(name)
        yield content
        if isinstance(content, ModuleType):
            yield from (vars(content).get(attribute) for attribute in reads.attributes)


def functions_of(item: Any) -> list[FunctionType]:
    """Return the functions behind an attribute of a class."""
    if isinstance(item, staticmethod | classmethod):
        item = item.__func__
    parts = (item.fget, item.fset) if isinstance(item, property) else (getattr(item, "func", item),)
    return [part for part in parts if type(part) is FunctionType]
