"""Several cases in one test: all run, and all failures are reported."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager


@contextmanager
def several_cases() -> Iterator[Callable[[object], AbstractContextManager[None]]]:
    """Collect the failures of cases, and raise them together at the end, each with the name of its case.

    Examples
    --------
    >>> with several_cases() as case:
    ...     for number in (1, 2, 3):
    ...         with case(number):
    ...             assert number < 4
    """
    failures: list[Exception] = []

    @contextmanager
    def case(name: object) -> Iterator[None]:
        try:
            yield
        except Exception as error:
            error.add_note(f"in the case {name}")
            failures.append(error)

    yield case
    if failures:
        raise ExceptionGroup("cases of this test", failures)
