"""The hooks of the site's build: pages made of what lies outside ``docs``, links to it, and the navigation.

Notebooks are rendered with their outputs, and collected in a gallery; examples and `anatomy.py` are shown as code. Links in the pages are
those of the repository, so that they work there; here they are turned to where the pages are on the site.
"""

from __future__ import annotations

import base64
import html
import posixpath
import re
import tomllib
from pathlib import Path
from typing import Any

import nbformat
from mkdocs.structure.files import File, Files

from gradtape.manual import whole_text

ROOT = Path(__file__).resolve().parents[1]
PICTURE = re.compile(r"!\[([^\]]*)\]\(([^)\s]*pictures/[^)\s]*)\.svg\)")
LINK = re.compile(r"(!?)\[((?:[^\[\]]|\[[^\[\]]*\])*)\]\(([^)\s#]*\.\w+|[^)\s#]*/)(#[^)\s]*)?\)")
FENCE = re.compile(r"^(```.*?^```\s*?$)", re.MULTILINE | re.DOTALL)
SECTIONS = {
    "How-to guides": ("how-to/",),
    "Cookbook": ("cookbook/",),
    "Gallery": ("gallery/", "examples/"),
    "Reference": ("reference/", "coverage.md", "packages.md"),
    "Explanation": ("explanation/", "anatomy.md", "glossary.md", "CONTRIBUTING.md"),
    "Decisions": ("adr/",),
    "Benchmarks": ("benchmarks.md", "benchmarks/"),
}
"""What the sections of the navigation hold, in this order."""

TITLES = {
    "api": "API reference",
    "errors": "Errors and warnings",
    "examples": "Examples",
    "from": "From other tools",
}

GALLERY = {
    "Problems": (
        "06_pendulum",
        "07_greeks",
        "08_hmc",
        "09_stirring",
        "10_bundle_adjustment",
        "11_digits",
        "12_orbit",
        "13_brusselator",
        "14_crane",
        "05_loops_from_code",
    ),
    "gradtape itself": (
        "01_first_gradient",
        "02_the_tape",
        "03_when_gradients_go_wrong",
        "04_loops",
        "15_more_than_gradients",
    ),
}
"""The notebooks of the gallery, in this order."""


def sources() -> dict[str, str]:
    """Return the files outside the pages that have a page, by their paths in the repository, and the paths of the pages."""
    found = {
        "CHANGELOG.md": "CHANGELOG.md",
        "CONTRIBUTING.md": "CONTRIBUTING.md",
        "docs/anatomy.py": "anatomy.md",
    }
    for folder, pattern, place in (
        ("notebooks", "*.ipynb", "gallery"),
        ("examples", "*.py", "examples"),
        ("benchmarks", "*.md", "benchmarks"),
    ):
        for path in sorted((ROOT / folder).glob(pattern)):
            found[f"{folder}/{path.name}"] = f"{place}/{path.stem}.md"
    return found


def group_of(page: str, places: tuple[str, ...]) -> str:
    """Return the part of a section that a page is in, which has a title of its own in the navigation; an empty one has none."""
    if page.startswith("how-to/from-"):
        return "from"
    if page.startswith("examples/"):
        return "examples"
    return page.removeprefix(next(place for place in places if page.startswith(place))).rpartition("/")[0]


def on_config(config: Any) -> Any:
    """Make the navigation from the existing pages, in the order of the home page."""
    docs = Path(config["docs_dir"])
    home = (docs / "index.md").read_text()
    pages = [path.relative_to(docs).as_posix() for path in sorted(docs.rglob("*.md"))]
    pages += ["gallery/index.md", *sources().values()]
    nav: list[Any] = [
        {"Home": "index.md"},
        {"Install": "install.md"},
        {"Tutorial": "tutorials/getting-started.md"},
    ]
    for section, places in SECTIONS.items():
        found = [page for place in places for page in pages if page.startswith(place)]
        # Pages that the home page does not link to come last.
        found.sort(key=lambda page: home.find(f"({page})") % (len(home) + 1))
        groups: dict[str, list[str]] = {}
        for page in found:
            groups.setdefault(group_of(page, places), []).append(page)
        nav.append(
            {
                section: [
                    *groups.pop("", []),
                    *[{TITLES.get(name, name): group} for name, group in groups.items()],
                ]
            }
        )
    config["nav"] = [*nav, {"Changelog": "CHANGELOG.md"}]
    # A link in the footer: the theme's own link to a repository fetches its figures from another host.
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    config["copyright"] = (
        f'gradtape {project["version"]} · <a href="{project["urls"]["Repository"]}">repository</a>'
    )
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages that are made."""
    cards = {}
    for source, page in sources().items():
        path = ROOT / source
        if path.suffix == ".ipynb":
            text, pictures, cards[path.stem] = notebook_page(path)
            for name, content in pictures.items():
                files.append(File.generated(config, f"gallery/{name}", content=content))
        elif path.suffix == ".py":
            text = f"# {path.name}\n\n```python\n{path.read_text()}```\n"
        else:
            text = path.read_text()
            if not text.startswith("# "):
                text = f"# {path.stem.capitalize()}\n\n{text}"
        files.append(File.generated(config, page, content=text))
    for path in sorted((ROOT / "docs" / "pictures").rglob("*.svg")):
        place = path.with_name(f"{path.stem}-dark.svg").relative_to(ROOT / "docs").as_posix()
        files.append(File.generated(config, place, content=darkened(path.read_text())))
    files.append(File.generated(config, "gallery/index.md", content=gallery_page(cards)))
    files.append(File.generated(config, "llms.txt", content=outline_for_language_models()))
    files.append(File.generated(config, "llms-full.txt", content=whole_text(ROOT)))
    return files


def darkened(picture: str) -> str:
    """Return a picture for dark pages: ink that is black is light, and the ground shows through."""
    changes = {"#ffffff": "none", "#000000": "#e0e0e0", "<svg ": '<svg fill="#e0e0e0" '}
    return re.sub("|".join(changes), lambda found: changes[found[0]], picture)


def outline_for_language_models() -> str:
    """Return the list of pages that language models look for at the root of a site (https://llmstxt.org)."""
    home = (ROOT / "docs" / "index.md").read_text()
    lists = home[home.index("## Tutorials") :]
    here = re.sub(r"\]\((?:\.\./)?([^)\s]*?)\.(?:md|ipynb|py)\)", r"](\1.html)", lists).replace(
        "](notebooks/", "](gallery/"
    )
    return (
        "# gradtape\n\n> gradtape differentiates NumPy code: functions under gt.jit and gt.grad, or code under a tape, are traced, "
        "differentiated, and compiled to machine code for the CPU. `import numpy as np, gradtape as gt; gt.grad(f)(x)`.\n\n"
        "The whole manual is in [llms-full.txt](llms-full.txt), and `python -m gradtape manual` prints it.\n\n"
        + here
    )


def notebook_page(path: Path) -> tuple[str, dict[str, bytes], str]:
    """Return a notebook as a page, its pictures by their names, and its card in the gallery."""
    cells = nbformat.read(path, as_version=4).cells
    title, about = cells[0].source.split("\n\n")[:2]
    title = title.removeprefix("# ")
    parts: list[str] = []
    pictures: dict[str, bytes] = {}
    shown = ""
    for cell in cells:
        if cell.cell_type == "markdown":
            parts.append(cell.source)
            continue
        parts.append(f"```python\n{cell.source}\n```")
        for output in cell.outputs:
            data = output.get("data", {"text/plain": output.get("text", "")})
            picture = next((kind for kind in ("image/gif", "image/png") if kind in data), None)
            if picture:
                name = f"{path.stem}_{len(pictures)}.{picture.removeprefix('image/')}"
                pictures[name] = base64.b64decode(data[picture])
                parts.append(f"![{title}, picture {len(pictures)}]({name}){{ loading=lazy }}")
                if not shown or "thumbnail" in cell.metadata.get("tags", []):
                    shown = name
            elif "text/html" in data:
                parts.append(f"<div class='output'>\n{data['text/html']}\n</div>")
            else:
                text = html.escape(data["text/plain"].rstrip("\n"), quote=False)
                parts.append(f"<div class='output'><pre>{text}</pre></div>")
    sentence = re.split(r"(?<=[a-z)][.?])\s", about.replace("\n", " ").replace("`", ""))[0]
    card = (
        f'<a class="card" href="{path.stem}.html"><img src="{shown}" alt="" loading="lazy">'
        f"<strong>{html.escape(title)}</strong><span>{html.escape(sentence)}</span></a>"
    )
    return "\n\n".join(parts) + "\n", pictures, card


def gallery_page(cards: dict[str, str]) -> str:
    """Return the page of all notebooks, as cards with their pictures."""
    left = cards.keys() - {name for names in GALLERY.values() for name in names}
    if left:
        raise ValueError(f"GALLERY in docs/pages.py does not have the notebooks {sorted(left)}")
    parts = ["# Gallery", "Notebooks with their outputs, from data to picture; the tests run them."]
    for group, names in GALLERY.items():
        grid = "\n".join(cards[name] for name in names)
        parts += [f"## {group}", f'<div class="cards">\n{grid}\n</div>']
    return "\n\n".join(parts) + "\n"


SEARCH_WEIGHTS = {
    "how-to/": 3.0,
    "cookbook/": 3.0,
    "tutorials/": 3.0,
    "reference/api/": 2.0,
    "adr/": 0.1,
    "benchmarks": 0.1,
    "CHANGELOG": 0.1,
    "CONTRIBUTING": 0.3,
    "anatomy": 0.1,
    "examples/": 0.5,
}
"""Factors of search results: functions and how-to guides come before decisions and benchmarks."""

SEARCH_TERMS = {
    "reference/api/check_grads.md": ("finite differences",),
    "reference/api/checkpoint.md": ("checkpointing",),
    "reference/api/hessian.md": ("Hessian",),
    "reference/api/hvp.md": ("Hessian-vector product",),
    "reference/api/jacobian.md": ("Jacobian",),
    "reference/api/optimizers.clip_by_global_norm.md": ("gradient clipping", "clip by global norm"),
    "reference/api/scipy.minimize.md": ("minimize",),
    "reference/api/stop_gradient.md": ("stop gradient",),
    "reference/api/tree.map.md": ("pytree",),
    "reference/numpy.md": ("dtype",),
    "how-to/export.md": ("export to C",),
    "how-to/gotchas.md": ("log-sum-exp", "logsumexp"),
    "how-to/loops.md": ("Kalman filter",),
    "how-to/nonlinear-programs.md": ("constraints", "Lagrange multipliers"),
    "how-to/odes-and-integrals.md": ("ODE sensitivity", "DAE", "differential-algebraic equations"),
    "how-to/processes.md": ("pickle",),
    "how-to/questions.md": ("GPU", "batch norm"),
    "how-to/random-numbers.md": ("seed",),
    "how-to/standard-errors.md": ("standard errors",),
    "how-to/variables.md": ("minibatch", "learning rate"),
}
"""Terms for which search shows a page first, above titles; their words are in the page."""


def on_page_markdown(markdown: str, page: Any, config: Any, files: Files) -> str:
    """Turn the links of a page from places in the repository to pages of the site; what has no page is named without a link."""
    made = sources()
    here = page.file.src_uri
    if here in ("index.md", "gallery/index.md"):  # these have the width of the window
        page.meta["hide"] = ["navigation", "toc"]
    elif "side-by-side" in markdown:
        page.meta["hide"] = ["toc"]
    weights = [weight for prefix, weight in SEARCH_WEIGHTS.items() if here.startswith(prefix)]
    page.meta.setdefault("search", {"boost": weights[0] if weights else 1.0})
    if here in SEARCH_TERMS:
        page.meta["tags"] = list(SEARCH_TERMS[here])
    source = {place: source for source, place in made.items()}.get(here, f"docs/{here}")
    folder = posixpath.dirname(source)

    def turned(match: re.Match[str]) -> str:
        picture, text, target, anchor = match[1], match[2], match[3], match[4] or ""
        if ":" in target or (
            files.get_file_from_path(posixpath.join(posixpath.dirname(here), target)) and picture
        ):
            return match[0]
        goal = posixpath.normpath(posixpath.join(folder, target))
        folders = {"README.md": "index.md", "notebooks": "gallery/index.md"}
        place = folders.get(goal) or made.get(goal, goal.removeprefix("docs/"))
        if files.get_file_from_path(place) is None:
            return text
        return f"{picture}[{text}]({posixpath.relpath(place, posixpath.dirname(here) or '.')}{anchor})"

    def both(part: str) -> str:
        """Name the light and the dark form of each picture."""
        return PICTURE.sub(r"![\1](\2.svg#only-light)![\1](\2-dark.svg#only-dark)", LINK.sub(turned, part))

    return "".join(part if part.startswith("```") else both(part) for part in FENCE.split(markdown))
