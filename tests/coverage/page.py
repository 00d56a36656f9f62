"""The page docs/coverage.md."""

from __future__ import annotations

from collections.abc import Iterable

from tests.coverage.cases import Namespace

HEAD = """# Which functions are followed

Every public function of NumPy and SciPy is counted here, by typical calls: value against the function itself, gradient in each float
argument against differences, second derivatives, in `gt.jit` and on a tape. A test checks each of them (`tests/coverage/`), and
`python -m tests.coverage scipy.signal` measures a namespace. This page is written by `python -m tests.coverage --write`.

*Followed* functions have derivatives. *Constant* ones return integers, booleans or steps: they work in traced code, and their derivative is
zero. *Refused* ones raise an error that names the function and what to do instead; the reasons are below. What is left does not compute
with numbers (files, types, settings); of `scipy.stats` it is also tests of tables of counts, random matrices and plots. The methods of its
distributions are tested in `tests/ops/test_distributions.py`, and `python -m tests.coverage.distributions` measures all of them.

| namespace | functions | with derivatives | followed | of these | constant | refused |
|---|---:|---:|---:|---:|---:|---:|
"""


def page(namespaces: Iterable[Namespace]) -> str:
    """Return the page."""
    namespaces = list(namespaces)
    rows, gaps = [], []
    for space in namespaces:
        followed, refused = len(space.cases), len(space.refused)
        smooth = followed + refused
        share = f"{100 * followed / smooth:.0f} %" if smooth else ""
        rows.append(
            f"| `{space.name}` | {len(space.public)} | {smooth} | {followed} | {share} | {len(space.constant)} | {refused} |"
        )
        if space.refused:
            gaps.append(f"## `{space.name}`\n")
            by_reason: dict[str, list[str]] = {}
            for name, reason in sorted(space.refused.items()):
                by_reason.setdefault(reason, []).append(f"`{name}`")
            gaps += [f"- {', '.join(names)}: {reason}." for reason, names in by_reason.items()]
            gaps.append("")
    return HEAD + "\n".join(rows) + "\n\n" + "\n".join(gaps).rstrip() + "\n"
