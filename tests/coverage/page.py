"""The page docs/coverage.md."""

from __future__ import annotations

from collections.abc import Iterable

from tests.coverage.cases import Namespace
from tests.coverage.distributions import CONTINUOUS, DISCRETE, LAST_RUN, Method, every, gaps

HEAD = """# Supported functions

Every public function of NumPy and SciPy is counted here, by typical calls: value against the function itself, gradient with
respect to each float argument against differences, second derivatives, in `gt.jit` and on a tape. A test checks each of them
(`tests/coverage/`), and `python -m tests.coverage scipy.signal` measures a namespace. This page is written by
`python -m tests.coverage --write`.

*Supported* functions have derivatives. *Constant* ones return integers, booleans or steps: they work in traced code with a derivative of
zero. *Refused* ones raise an error that names the function and what to do instead; the reasons are below. The remaining functions do not
compute with numbers (files, types, settings); in `scipy.stats` they also include tests of contingency tables, random matrices and plots.
The methods of its distributions have [a table of their own](#methods-of-the-distributions-of-scipystats).

| namespace | functions | with derivatives | supported | of these | constant | refused |
|---|---:|---:|---:|---:|---:|---:|
"""


def page(namespaces: Iterable[Namespace]) -> str:
    """Return the page."""
    namespaces = list(namespaces)
    rows, lines = [], []
    for space in namespaces:
        followed, refused = len(space.cases), len(space.refused)
        smooth = followed + refused
        share = f"{100 * followed / smooth:.0f} %" if smooth else ""
        rows.append(
            f"| `{space.name}` | {len(space.public)} | {smooth} | {followed} | {share} | {len(space.constant)} | {refused} |"
        )
        if space.refused:
            lines.append(f"## `{space.name}`\n")
            by_reason: dict[str, list[str]] = {}
            for name, reason in sorted(space.refused.items()):
                by_reason.setdefault(reason, []).append(f"`{name}`")
            lines += [f"- {', '.join(names)}: {reason}." for reason, names in by_reason.items()]
            lines.append("")
    return HEAD + "\n".join(rows) + "\n\n" + "\n".join(lines) + "\n" + _distributions()


DISTRIBUTIONS = """## Methods of the distributions of `scipy.stats`

{methods}.

They are called with traced points or levels, shape parameters, `loc` and `scale`; values are compared with
SciPy's and derivatives with respect to each float argument with differences, on a tape and in `gt.jit`.
`python -m tests.coverage.distributions gamma t` measures two distributions, with `--jit` in compiled functions; a test measures a
sample, and all of them in an exhaustive run. The table
counts the methods without a known gap at the sampled shapes; moments and entropies that are integrals can be NaN at other shapes, where
it is not known that the quadrature is as accurate as SciPy's.

All of them were measured by `python -m tests.coverage.distributions --out tapes.tsv`, and with `--jit`. Not compared are moments of
`ksone`, `kstwo`, `vonmises`, `vonmises_line` and `recipinvgauss`: differences of SciPy's integrals take minutes.

{runs}

| distributions | methods | without a known gap | of these |
|---|---:|---:|---:|
"""


def _distributions() -> str:
    """Return the section on the methods of distributions."""
    missing, methods = gaps(), list(every())

    def line(what: str, names: Iterable[str]) -> str:
        of = [method for method in methods if method.distribution in names]
        right = sum(method not in missing for method in of)
        return f"| {what} | {len(of)} | {right} | {100 * right / len(of):.1f} % |"

    ways = [f"in `{way}`" if way == "gt.jit" else f"on {way}" for way in LAST_RUN]
    head = "| " + " | ".join(["", *LAST_RUN["tapes"]]) + " |\n|---|" + "---:|" * len(LAST_RUN["tapes"])
    runs = [
        f"| {way} | " + " | ".join(str(count) for count in counts.values()) + " |"
        for way, counts in zip(ways, LAST_RUN.values(), strict=True)
    ]
    partly = sorted({method.distribution for method in missing})
    rows = [line("continuous", CONTINUOUS), line("discrete", DISCRETE)]
    rows += [line(f"`{name}`", [name]) for name in partly]
    whole = sorted(name for name in {**CONTINUOUS, **DISCRETE} if name not in partly)
    text = DISTRIBUTIONS.format(
        methods=", ".join(f"`{name}`" for name in dict.fromkeys(m.method for m in methods)),
        runs="\n".join([head, *runs]),
    )
    text += (
        "\n".join(rows) + "\n\nWithout a known gap are " + ", ".join(f"`{name}`" for name in whole) + ".\n\n"
    )
    by_reason: dict[str, list[Method]] = {}
    for method, reason in missing.items():
        by_reason.setdefault(reason, []).append(method)
    for reason, those in by_reason.items():
        named: dict[str, list[str]] = {}
        for distribution, name in those:
            named.setdefault(distribution, []).append(name)
        parts = [f"`{distribution}` ({', '.join(names)})" for distribution, names in named.items()]
        text += f"- {', '.join(parts)}: {reason}.\n"
    return text
