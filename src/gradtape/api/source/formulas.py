"""Scalar formulas in LaTeX."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from itertools import chain, count
from typing import Any, Final, NamedTuple

from gradtape.api.source.names import Origins, counts_of_uses
from gradtape.errors import LoweringError
from gradtape.ir.expressions import AND, COMPARISON, COMPARISONS, PRODUCT, SUM, UNARY
from gradtape.ir.graph import Graph, Literal, Node, Value, number_of
from gradtape.ir.op import Op
from gradtape.kinds.elementwise import Elementwise
from gradtape.ops.core.elementwise.arithmetic import add, divide, multiply, negative, subtract
from gradtape.ops.core.elementwise.cast import convert_row
from gradtape.ops.core.elementwise.exponential import sech_squared
from gradtape.ops.core.elementwise.logic import invert, logical_not
from gradtape.ops.core.elementwise.power import power
from gradtape.ops.core.elementwise.select import where
from gradtape.ops.core.shape import expand_row, reshape_row

ATOM: Final = 13
LONGEST: Final = 120
"""The length of a formula up to which it is written inside another one."""

GREEK: Final = frozenset(
    (
        *(
            "alpha",
            "beta",
            "gamma",
            "delta",
            "epsilon",
            "zeta",
            "eta",
            "theta",
            "iota",
            "kappa",
            "lambda",
            "mu",
        ),
        *("nu", "xi", "pi", "rho", "sigma", "tau", "upsilon", "phi", "chi", "psi", "omega", "Gamma"),
        *("Delta", "Theta", "Lambda", "Xi", "Pi", "Sigma", "Upsilon", "Phi", "Psi", "Omega"),
    )
)
RELATIONS: Final = {"<=": r"\le", ">=": r"\ge", "==": "=", "!=": r"\ne"}
COPIES: Final = (expand_row, reshape_row, convert_row)
"""The rows whose result is the operand, where that is a number."""

LOGIC: Final = {
    **dict.fromkeys(("bitwise_or", "logical_or"), r"\lor"),
    **dict.fromkeys(("bitwise_and", "logical_and"), r"\land"),
}
"""Operators between conditions."""

SPELLED: Final = frozenset(
    ["sin", "cos", "tan", "sinh", "cosh", "tanh", "exp", "log", "arcsin", "arccos", "arctan"]
)
"""Functions that LaTeX has a command for, of NumPy's name."""


class Formula(NamedTuple):
    """A formula, and how tightly its outermost operator binds."""

    text: str
    level: int = ATOM

    def within(self, level: int) -> str:
        """Return the text as an operand that binds at least as tightly as `level`."""
        return self.text if self.level >= level else rf"\left({self.text}\right)"


Read = Callable[[Value], Formula]


def derivative(function: str, name: str) -> str:
    """Return the symbol of the derivative of a function with respect to a name.

    Examples
    --------
    >>> print(derivative("f", "x"))
    \\frac{\\partial f}{\\partial x}
    """
    return rf"\frac{{\partial {symbol(function)}}}{{\partial {symbol(name)}}}"


def symbol(name: str) -> str:
    """Return a name as a symbol.

    Examples
    --------
    >>> symbol("x"), symbol("theta"), symbol("speed"), symbol("x_2")
    ('x', '\\\\theta', '\\\\mathit{speed}', 'x_{2}')
    """
    head, _, index = name.rpartition("_")
    if head and index.isdigit():
        return f"{symbol(head)}_{{{index}}}"
    if len(name) == 1:
        return name
    if name in GREEK:
        return f"\\{name}"
    return rf"\mathit{{{name.replace('_', chr(92) + '_')}}}"


def formulas(
    graph: Graph, names: Sequence[str], origins: Origins, function: str, results: Sequence[str]
) -> str:
    """Return a graph of numbers as an aligned block of formulas.

    Parameters
    ----------
    graph : Graph
    names : sequence of str
        Of its inputs.
    origins : Origins
    function : str
        The name of the function that is differentiated.
    results : sequence of str
        The left sides of the last formulas, in LaTeX.

    Raises
    ------
    LoweringError
        For arrays, loops, and functions that have no formula here.
    """
    formulas: dict[Value, Formula] = {
        value: Formula(symbol(name)) for value, name in zip(graph.inputs, names, strict=True)
    }
    names_of, own = origins.named(graph, is_outermost=True, spread=False)
    uses = counts_of_uses(graph, [value for value, _ in graph.guards])
    lines: list[str] = []
    taken = {*results, *(formula.text for formula in formulas.values())}

    def read(value: Value) -> Formula:
        if isinstance(value, Literal):
            return _number(number_of(value))
        return formulas[value]

    for node in graph.nodes:
        is_scalar = not any(value.shape for value in (*node.inputs, *node.outs))
        if is_scalar and node.op in COPIES:
            formulas[node.out] = read(node.inputs[0])
            continue
        if not is_scalar or not isinstance(node.op, Elementwise):
            raise _refusal(node, "it computes with arrays or repeats steps, and formulas are of numbers")
        out = node.out
        formula = _formula(node, read)
        name = names_of.get(out, "")
        is_part = out not in graph.outputs
        if is_part and (name or (uses[out] > 1 and len(formula.text) > 12) or len(formula.text) > LONGEST):
            is_derivative = name.startswith("d_") and out not in own
            own_symbols = [derivative(function, name[2:]) if is_derivative else symbol(name)] if name else []
            base, first = (name, 2) if name and not is_derivative else ("t", 1)
            numbered = (symbol(f"{base}_{number}") for number in count(first))
            shown = next(text for text in chain(own_symbols, numbered) if text not in taken)
            taken.add(shown)
            lines.append(f"{shown} &= {formula.text}")
            formula = Formula(shown)
        formulas[out] = formula
    lines += [f"{left} &= {read(value).text}" for left, value in zip(results, graph.outputs, strict=True)]
    if graph.guards:
        branch = r" \land ".join(_taken(read(value), value, expected) for value, expected in graph.guards)
        lines.append(rf"& \text{{if }} {branch}")
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}\n"


def _refusal(node: Node, why: str) -> LoweringError:
    return LoweringError(
        f"gt.source has no formula for {node.op.name}",
        where=node.site,
        why=why,
        remedy="print what gt.source returned: it is NumPy code",
    )


def _taken(condition: Formula, value: Value, expected: int) -> str:
    """Return the condition under which Python takes the branch that was traced."""
    if value.dtype.kind != "b":
        return f"{condition.text} = {expected}"
    return condition.within(COMPARISON) if expected else _not(condition).text


def _number(number: Any) -> Formula:
    """Return a number.

    Examples
    --------
    >>> print(*(_number(number).text for number in (2.0, -0.5, 1e-5, -2.5e20, float("inf"), 1 - 2j)))
    2 -0.5 10^{-5} -2.5 \\cdot 10^{20} \\infty 1 - 2 \\, \\mathrm{i}
    """
    if isinstance(number, complex):
        return _sum(_number(number.real), _product(_number(number.imag), Formula(r"\mathrm{i}")))
    if number < 0:
        return Formula(f"-{_number(-number).text}", UNARY)
    if isinstance(number, float):
        if not math.isfinite(number):
            return Formula(r"\infty" if number > 0 else r"\mathrm{nan}")
        if number.is_integer() and number < 1e15:
            number = int(number)
    digits, _, exponent = repr(number).partition("e")
    if not exponent:
        return Formula(digits)
    power = f"10^{{{int(exponent)}}}"
    return Formula(power) if digits == "1" else Formula(rf"{digits} \cdot {power}", PRODUCT)


def _formula(node: Node, read: Read) -> Formula:
    op = node.op
    operands = [read(value) for value in node.inputs]
    special = SPECIAL.get(op)
    if special is not None:
        return special(*operands)
    if op.name in COMPARISONS:
        sign = COMPARISONS[op.name]
        return Formula(
            f"{operands[0].within(SUM)} {RELATIONS.get(sign, sign)} {operands[1].within(SUM)}", COMPARISON
        )
    if op.name in LOGIC:
        return Formula(f" {LOGIC[op.name]} ".join(x.within(COMPARISON) for x in operands), AND)
    if op.name == "sqrt":
        return Formula(rf"\sqrt{{{operands[0].text}}}")
    if op.name == "absolute":
        return Formula(rf"\left|{operands[0].text}\right|")
    if len(operands) == 1 and not node.params:
        head = f"\\{op.name}" if op.name in SPELLED else rf"\operatorname{{{op.name.replace('_', ' ')}}}"
        return Formula(rf"{head}\left({operands[0].text}\right)")
    raise _refusal(node, "no notation is known for it")


def _without_sign(x: Formula) -> Formula | None:
    """Return a formula without the minus in front of it; None if it has none, or if that belongs to its first term."""
    return Formula(x.text[1:], PRODUCT) if x.text.startswith("-") and x.level != SUM else None


def _sum(x: Formula, y: Formula) -> Formula:
    if "0" in (x.text, y.text):
        return y if x.text == "0" else x
    if y.text.startswith("-"):
        return Formula(f"{x.within(SUM)} - {y.text[1:]}", SUM)
    if (first := _without_sign(x)) is not None:
        return Formula(f"{y.within(SUM)} - {first.text}", SUM)
    return Formula(f"{x.within(SUM)} + {y.within(SUM)}", SUM)


def _difference(x: Formula, y: Formula) -> Formula:
    if (second := _without_sign(y)) is not None:
        return _sum(x, second)
    return x if y.text == "0" else Formula(f"{x.within(SUM)} - {y.within(PRODUCT)}", SUM)


def _product(x: Formula, y: Formula) -> Formula:
    if "1" in (x.text, y.text):
        return y if x.text == "1" else x
    if (second := _without_sign(y)) is not None:
        return _minus(_product(x, second))
    if (first := _without_sign(x)) is not None:
        return _minus(_product(first, y))
    one, head = _split(x)
    other, tail = _split(y)
    number = float(f"{one * other:.16g}")
    factors = [_number(number).text] if number != 1 or not (head or tail) else []
    factors += [part for part in (head, tail) if part]
    text = factors[0]
    for part in factors[1:]:
        text += rf" \cdot {part}" if part[0].isdigit() else rf" \, {part}"
    return Formula(text, PRODUCT)


def _split(x: Formula) -> tuple[float, str]:
    """Return the number in front of a product, and the rest."""
    text = x.within(PRODUCT)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?: \\, (.*))?", text)
    return (1.0, text) if match is None else (float(match[1]), match[2] or "")


def _minus(x: Formula) -> Formula:
    return _without_sign(x) or Formula(f"-{x.within(PRODUCT)}", PRODUCT)


def _quotient(x: Formula, y: Formula) -> Formula:
    if y.text == "1":
        return x
    if (first := _without_sign(x)) is not None:
        return _minus(_quotient(first, y))
    return Formula(rf"\frac{{{x.text}}}{{{y.text}}}")


def _power(x: Formula, y: Formula) -> Formula:
    is_symbol = (
        x.level == ATOM
        and not x.text.startswith((r"\frac", r"\sqrt"))
        and "^" not in x.text
        and r"\left" not in x.text
    )
    base = x.text if is_symbol else rf"\left({x.text}\right)"
    return x if y.text == "1" else Formula(f"{base}^{{{y.text}}}")


def _choice(condition: Formula, x: Formula, y: Formula) -> Formula:
    return Formula(
        rf"\begin{{cases}}{x.text} & \text{{if }} {condition.text} \\ {y.text} & \text{{otherwise}}\end{{cases}}",
        COMPARISON,
    )


def _not(x: Formula) -> Formula:
    return Formula(rf"\lnot {x.within(UNARY)}", UNARY)


SPECIAL: Final[dict[Op, Callable[..., Formula]]] = {
    add: _sum,
    subtract: _difference,
    multiply: _product,
    divide: _quotient,
    negative: _minus,
    power: _power,
    where: _choice,
    **dict.fromkeys((logical_not, invert), _not),
    sech_squared: lambda x: Formula(rf"\frac{{1}}{{\cosh^2\left({x.text}\right)}}"),
}
"""The rows that are not written as a function of one argument."""
