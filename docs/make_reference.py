"""Writes docs/reference/api/: one page per public name, from its docstring. Run it after changing a docstring."""

from __future__ import annotations

import functools
import inspect
import re
import textwrap
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import gradtape as gt

FOLDER = Path(__file__).parent / "reference" / "api"
SECTION = re.compile(r"^(\w[\w ]*)\n-{3,}$", re.MULTILINE)
NAMESPACES = ("dask", "debug", "inspect", "optimizers", "plot", "scipy", "tree")
"""Public modules, whose functions get pages of their own."""
GROUPS = {
    "Derivatives of functions": "grad value_and_grad jacobian jacfwd jacrev hessian hvp vjp jvp linearize linear_transpose "
    "sparse_jacobian sparse_hessian taylor laplacian hessian_diagonal check_grads",
    "Compiling and batching": "jit Jitted vmap vectorized_map Dim spec export load config",
    "Tapes": "GradientTape ForwardAccumulator gradients hessians Variable Array asarray constant stop_gradient name IndexedSlices "
    "UnconnectedGradients AggregationMethod",
    "Loops and branches": "scan fori_loop while_loop map cond switch associative_scan",
    "Custom derivatives and memory": "custom_vjp custom_jvp custom_gradient custom_root custom_fixed_point callback checkpoint "
    "recompute_grad grad_pass_through score_function expectation",
    "Solvers and uncertainty": "nlp solve_sde propagate",
    "With other frameworks": "jax torch pytensor casadi from_jax from_torch",
    "Rows of tables": "gather scatter_add scatter_sub scatter_update",
    "Tools": "doctor print source",
}
"""The groups of the index, with their names in order."""
TITLES_OF_NAMESPACES = {
    "SciPy's optimisers with nested unknowns": "scipy",
    "Optimisers, schedules and clipping": "optimizers",
    "Nested containers (pytrees)": "tree",
    "Debugging gradients": "debug",
    "Looking inside compiled functions": "inspect",
    "Plots": "plot",
    "Distributed data": "dask",
}
"""The groups of the public modules."""
ERRORS = Path(__file__).parent / "reference" / "errors"
WIDTH = 80
"""Characters of code that a page shows without scrolling."""

CODE = re.compile(r"(?<!`)`((?:gradtape\.|gt\.)?)([A-Za-z_][\w.]*)`(?!`)")
INTERNAL = frozenset(
    [
        "change_rows",
        "data_now",
        "is_recorded",
        "is_scalar",
        "mark",
        "part_view",
        "parts",
        "read_for",
        "read_only",
        "reads",
        "rearranged",
        "rebind",
        "restore",
        "store",
        "to_value",
        "uncertain_view",
        "unknown_layout_result",
        "with_layout",
        "write_result",
    ]
)
"""Members of public classes that only gradtape's modules call."""
OF_TYPES = ("Returns", "Yields", "Raises", "Warns")
"""Sections whose entries begin with a type."""


def public_names() -> Iterator[tuple[str, Any]]:
    """Yield every public name, without the package's, and what it is."""
    for name in sorted(dir(gt), key=str.lower):
        thing = getattr(gt, name)
        if name.startswith("_") or isinstance(thing, types.ModuleType):
            continue
        yield name, thing
    for namespace in NAMESPACES:
        module = getattr(gt, namespace, None)
        if module is None:
            continue
        for name in sorted(module.__dict__, key=str.lower):
            thing = getattr(module, name)
            home = str(getattr(thing, "__module__", ""))
            if name in getattr(module, "__all__", ()) or (
                not name.startswith("_") and home.startswith(module.__name__)
            ):
                yield f"{namespace}.{name}", thing


def page(name: str, thing: Any) -> str:
    """Return the page of one name."""
    lines = [f"# gt.{name}", ""]
    documented = thing if callable(thing) else type(thing)
    if callable(thing):
        lines += ["```text", signature(f"gt.{name}", thing), "```", ""]
    lines.append(markdown(inspect.getdoc(documented) or ""))
    if inspect.isclass(documented):
        for member, what in members(documented):
            head = signature(member, what) if callable(what) else member
            lines += [
                "",
                f"## {member}",
                "",
                "```text",
                head,
                "```",
                "",
                markdown(inspect.getdoc(what) or "", level=3),
            ]
    return "\n".join(lines).rstrip() + "\n"


def members(cls: type) -> Iterator[tuple[str, Any]]:
    """Yield the public methods and properties of a class that it or a base in gradtape documents."""
    for name in sorted(dir(cls)):
        what = inspect.getattr_static(cls, name)
        if name.startswith("_") or name in INTERNAL or not inspect.getdoc(what):
            continue
        if isinstance(what, property) or inspect.isfunction(what):
            yield name, what


def signature(name: str, thing: Any) -> str:
    """Return a call with the parameters as Python shows them, in lines that fit the width of a page."""
    try:
        parameters = [
            parameter.replace(annotation=inspect.Parameter.empty)
            for parameter in inspect.signature(thing).parameters.values()
        ]
    except (TypeError, ValueError):
        return f"{name}(...)"
    texts = str(inspect.Signature(parameters))[1:-1]
    texts = re.sub(r"<(\w+\.\w+): [^>]*>", r"\1", texts)
    if len(name) + len(texts) + 2 <= WIDTH:
        return f"{name}({texts})"
    return textwrap.fill(
        f"{name}({texts})",
        WIDTH,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def markdown(text: str, level: int = 2) -> str:
    """Return a NumPy-style docstring as Markdown."""
    parts = SECTION.split(text)
    lines = [with_links(parts[0].strip())]
    for title, body in zip(parts[1::2], parts[2::2], strict=True):
        lines += [
            "",
            f"{'#' * level} {title}",
            "",
            fenced(body.strip("\n")) if title == "Examples" else entries(title, body),
        ]
    return "\n".join(lines)


@functools.cache
def targets() -> dict[str, str]:
    """Return the page of each public name, and of each error and warning."""
    made = {page.stem: f"../errors/{page.name}" for page in sorted(ERRORS.glob("*.md"))}
    return {**made, **{name: f"{name}.md" for name, _ in public_names()}}


def with_links(text: str) -> str:
    """Return text in which names of this package, and of its classes, are links."""

    def link(match: re.Match[str]) -> str:
        prefix, name = match.groups()
        known = targets().get(name) if prefix or name[0].isupper() else None
        return f"[`{'gt.' if prefix else ''}{name}`]({known})" if known else match[0]

    return CODE.sub(link, text)


def type_with_links(text: str) -> str:
    """Return a type in which classes of this package are links."""
    return re.sub(
        r"\b[A-Z]\w+\b",
        lambda match: f"[{match[0]}]({to})" if (to := targets().get(match[0])) else match[0],
        text,
    )


def names_with_links(text: str) -> str:
    """Return names, with commas between, as links."""
    names = [name.strip() for name in text.split(",")]
    return ", ".join([f"[gt.{name}]({targets()[name]})" if name in targets() else name for name in names])


def entries(title: str, body: str) -> str:
    """Return the entries of a section as a list."""
    lines: list[str] = []
    for line in body.strip("\n").splitlines():
        if line.startswith("    "):
            lines.append(f"  {with_links(line.strip())}")
        elif not line or title in ("Notes", "References"):
            lines.append(with_links(line))
        elif title == "See Also":
            names, _, what = line.partition(" : ")
            lines.append(f"- {names_with_links(names)}{f': {with_links(what)}' if what else ''}")
        elif title in OF_TYPES:
            name, colon, kind = line.partition(" : ")
            lines.append(
                f"- **{name}** (*{type_with_links(kind)}*)" if colon else f"- *{type_with_links(line)}*"
            )
        else:
            name, colon, kind = line.partition(" : ")
            lines.append(f"- **{name}** (*{type_with_links(kind)}*)" if colon else with_links(line))
    return "\n".join(lines)


def fenced(body: str) -> str:
    return f"```pycon\n{body.strip()}\n```"


def pages() -> dict[Path, str]:
    """Return every page by its file."""
    names = dict(public_names())
    made = {FOLDER / f"{name}.md": page(name, thing) for name, thing in names.items()}
    lines = [
        "# API reference",
        "",
        "One page per public name, made from the docstrings by `docs/make_reference.py`.",
    ]
    for title, members_of in groups(names).items():
        lines += ["", f"## {title}", "", "| name | description |", "| --- | --- |"]
        lines += [f"| [gt.{name}]({name}.md) | {summary(names[name])} |" for name in members_of]
    made[FOLDER / "index.md"] = "\n".join([*lines, ""])
    return made


def groups(names: dict[str, Any]) -> dict[str, list[str]]:
    """Return the names by the groups of the index; what no group names is under "More"."""
    listed = {title: text.split() for title, text in GROUPS.items()}
    made = {title: [name for name in group if name in names] for title, group in listed.items()}
    rest = [name for name in names if not any(name in group for group in listed.values())]
    for title, namespace in TITLES_OF_NAMESPACES.items():
        made[title] = [name for name in rest if name.startswith(f"{namespace}.")]
    made["More"] = [name for name in rest if "." not in name]
    return {title: group for title, group in made.items() if group}


def summary(thing: Any) -> str:
    """Return the first line of a docstring."""
    text = inspect.getdoc(thing if callable(thing) else type(thing)) or ""
    return markdown(text.partition("\n")[0]).strip().replace("|", "\\|")


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    made = pages()
    for path in FOLDER.glob("*.md"):
        if path not in made:
            path.unlink()
    for path, text in made.items():
        path.write_text(text)


if __name__ == "__main__":
    main()
