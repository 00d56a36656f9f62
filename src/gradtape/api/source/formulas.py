"""Scalar formulas in LaTeX."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Final, NamedTuple

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


def symbol(name: str, function: str = "f") -> str:
    """Return a name as a symbol; a derivative is that of `function`.

    Examples
    --------
    >>> symbol("x"), symbol("theta"), symbol("speed"), symbol("d_speed"), symbol("x_2")
    ('x', '\\\\theta', '\\\\mathit{speed}', '\\\\frac{\\\\partial f}{\\\\partial \\\\mathit{speed}}', 'x_{2}')
    """
    if name.startswith("d_"):
        return rf"\frac{{\partial {symbol(function)}}}{{\partial {symbol(name[2:])}}}"
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
    known, _ = origins.named(graph, is_outermost=True, spread=False)
    uses = counts_of_uses(graph)
    lines: list[str] = []
    taken: dict[str, int] = {}

    def read(value: Value) -> Formula:
        if isinstance(value, Literal):
            number = number_of(value)
            text = repr(int(number)) if isinstance(number, float) and number.is_integer() else repr(number)
            return Formula(text, UNARY if text.startswith("-") else ATOM)
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
        name = known.get(out, "")
        is_part = out not in graph.outputs
        if is_part and (name or (uses[out] > 1 and len(formula.text) > 12) or len(formula.text) > LONGEST):
            name = name or "t"
            taken[name] = taken.get(name, 0) + 1
            shown = symbol(name if taken[name] == 1 and name != "t" else f"{name}_{taken[name]}", function)
            lines.append(f"{shown} &= {formula.text}")
            formula = Formula(shown)
        formulas[out] = formula
    lines += [f"{left} &= {read(value).text}" for left, value in zip(results, graph.outputs, strict=True)]
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}\n"


def _refusal(node: Node, why: str) -> LoweringError:
    return LoweringError(
        f"gt.source has no formula for {node.op.name}",
        where=node.site,
        why=why,
        remedy='leave out format="latex", which gives NumPy code',
    )


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


def _sum(x: Formula, y: Formula) -> Formula:
    if "0" in (x.text, y.text):
        return y if x.text == "0" else x
    if y.text.startswith("-"):
        return Formula(f"{x.within(SUM)} - {y.text[1:]}", SUM)
    if x.text.startswith("-") and x.level != SUM:
        return Formula(f"{y.within(SUM)} - {x.text[1:]}", SUM)
    return Formula(f"{x.within(SUM)} + {y.within(SUM)}", SUM)


def _difference(x: Formula, y: Formula) -> Formula:
    if y.text.startswith("-") and y.level != SUM:
        return _sum(x, Formula(y.text[1:], PRODUCT))
    return x if y.text == "0" else Formula(f"{x.within(SUM)} - {y.within(PRODUCT)}", SUM)


def _product(x: Formula, y: Formula) -> Formula:
    if "1" in (x.text, y.text):
        return y if x.text == "1" else x
    if y.text.startswith("-"):
        return _minus(_product(x, Formula(y.text[1:], PRODUCT)))
    if x.text.startswith("-"):
        return _minus(_product(Formula(x.text[1:], PRODUCT), y))
    first, one = _split(x)
    second, other = _split(y)
    number = f"{first * second:.16g}" if first * second != 1 or not (one or other) else ""
    return Formula(r" \, ".join(part for part in (number, one, other) if part), PRODUCT)


def _split(x: Formula) -> tuple[float, str]:
    """Return the number in front of a product, and the rest."""
    text = x.within(PRODUCT)
    match = re.fullmatch(r"(\d+(?:\.\d+)?)(?: \\, (.*))?", text)
    return (1.0, text) if match is None else (float(match[1]), match[2] or "")


def _minus(x: Formula) -> Formula:
    return (
        Formula(x.text[1:], PRODUCT)
        if x.text.startswith("-") and x.level != SUM
        else Formula(f"-{x.within(PRODUCT)}", PRODUCT)
    )


def _quotient(x: Formula, y: Formula) -> Formula:
    if y.text == "1":
        return x
    if x.text.startswith("-") and x.level != SUM:
        return _minus(_quotient(Formula(x.text[1:], PRODUCT), y))
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
        rf"\begin{{cases}}{x.text} & \text{{if }} {condition.text} \\ {y.text} & \text{{otherwise}}\end{{cases}}"
    )


SPECIAL: Final[dict[Op, Callable[..., Formula]]] = {
    add: _sum,
    subtract: _difference,
    multiply: _product,
    divide: _quotient,
    negative: _minus,
    power: _power,
    where: _choice,
    **dict.fromkeys((logical_not, invert), lambda x: Formula(rf"\lnot {x.within(UNARY)}", UNARY)),
    sech_squared: lambda x: Formula(rf"\frac{{1}}{{\cosh^2\left({x.text}\right)}}"),
}
"""The rows that are not written as a function of one argument."""
