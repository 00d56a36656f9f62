"""Source texts with varying lengths: functions of C or Python in which numbers are formulas of the lengths."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

from gradtape.api.export.fits import Fitter, Formula, Language

_NUMBER: Final = re.compile(
    r"(?<![\w.])(?:(?P<macro>U?INT64_C)\((?P<wide>\d+)\)|(?P<number>\d+(?:\.\d+)?(?:e[+-]?\d+)?)(?P<suffix>[fu]?))(?![\w.])"
)
_HOLE: Final = re.compile("\x00")
_DECLARED: Final = re.compile(r"^\s*(?:static )?(?:const )?\w+ \w+\[[^\]]*\x00", re.MULTILINE)
"""An array whose size would vary."""


class Parsed(NamedTuple):
    """A text without its numbers, and these as they are written."""

    form: str
    numbers: tuple[str, ...]


def parsed(text: str) -> Parsed:
    """Take the numbers out of a text.

    Examples
    --------
    >>> parsed("t1 = x0[3 * i_2 + 4] * 0.5;").numbers
    ('3', '4', '0.5')
    """
    numbers: list[str] = []

    def hole(match: re.Match[str]) -> str:
        numbers.append(match[0])
        return "\x00"

    return Parsed(_NUMBER.sub(hole, text), tuple(numbers))


def value_of(number: str) -> int | float:
    """Return what a number of a text is: a float where it is written as one.

    Examples
    --------
    >>> value_of("3"), value_of("0.5f"), value_of("INT64_C(5000000000)")
    (3, 0.5, 5000000000)
    """
    match = _NUMBER.fullmatch(number)
    assert match is not None
    text = match["wide"] or match["number"]
    return float(text) if match["suffix"] == "f" or "." in text or "e" in text else int(text)


def filled(
    form: str, columns: Sequence[tuple[str, ...]], fitter: Fitter, names: Sequence[str], language: Language
) -> str | None:
    """Return a text whose numbers are formulas; None where a number is none.

    Parameters
    ----------
    form : str
        The text.
    columns : sequence of tuple of str
        Each number, as it is written in each sample.
    fitter : Fitter
        Fits them to the lengths.
    names : sequence of str
        Of these.
    language : {"c", "python"}
    """
    texts: list[str] = []
    varying: list[bool] = []
    for column in columns:
        varying.append(len(set(column)) > 1)
        if not varying[-1]:
            texts.append(column[0])
            continue
        values = [value_of(number) for number in column]
        if len({type(value) for value in values}) > 1:
            return None
        formula = fitter.fit(values)
        if formula is None:
            return None
        texts.append(_written(formula, column[0], names, language, isinstance(values[0], float)))
    marks = iter(varying)
    marked = _HOLE.sub(lambda _: "\x00" if next(marks) else "0", form)
    if language == "c" and _DECLARED.search(marked):
        return None
    rest = iter(texts)
    return _HOLE.sub(lambda _: next(rest), form)


def _written(formula: Formula, pattern: str, names: Sequence[str], language: Language, real: bool) -> str:
    """Return a formula in place of a number that is written like a pattern."""
    text = formula.text(names, language, real)
    if real:
        return f"(float)({text})" if pattern.endswith("f") else f"({text})"
    if language == "c" and (pattern.startswith("U") or pattern.endswith("u")):
        return f"({'uint64_t' if pattern.startswith('U') else 'uint32_t'})({text})"
    return f"({text})"


_HEAD: Final = {"c": r"^static int {}\(", "python": r"^def {}\("}


def with_lengths(
    parts: Mapping[str, str], needing: set[str], names: Sequence[str], language: Language
) -> dict[str, str]:
    """Return functions of which those that need the lengths have them as their first parameters, and pass them on.

    Parameters
    ----------
    parts : dict of str to str
        The text of each function.
    needing : set of str
        Those whose own text has them; the names of those that call these are added.
    names : sequence of str
        Of the lengths.
    """
    while True:
        calls = {
            one for one, text in parts.items() if any(re.search(rf"\b{other}\(", text) for other in needing)
        }
        if calls <= needing:
            break
        needing |= calls
    given = ", ".join(names)
    heads = ", ".join([f"const int64_t {name}" for name in names]) if language == "c" else given
    found = {}
    for one, text in parts.items():
        for other in needing:
            text = re.sub(rf"\b{other}\(", f"{other}({heads if other == one else given}, ", text)
        found[one] = text
    return found
