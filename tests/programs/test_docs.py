"""Every Python block of the documentation runs and prints what stands below it; so do examples in docstrings.

The blocks of a page share one namespace. A block of ``>>>`` lines is a doctest. Any other block is a program:
a first line ``# raises ShapeError`` or ``# warns CacheWarning`` says how it ends, and a text block below it
is what it prints, error or warning included. ``--update-golden`` writes these text blocks anew. An ``llvm`` block
is the file of the package that its first line names.
"""

from __future__ import annotations

import contextlib
import doctest
import importlib
import inspect
import io
import linecache
import pkgutil
import re
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import scipy.ndimage

import gradtape as gt
from gradtape.kinds.registry import BORROWED, ROWS, UFUNCS
from gradtape.lower.llvm import writer
from gradtape.ops.scipy.linalg import solve as linalg
from gradtape.trace.dispatch.dispatch import UFUNC_RULES
from gradtape.trace.patching import scipy as scipy_patching
from tests.ops import test_matrices
from tests.registry import test_elementwise, test_structural
from tests.suite.several import several_cases
from tests.support.registry_cases import Case

ROOT = Path(__file__).resolve().parents[2]
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "CHANGELOG.md",
    *sorted((ROOT / "docs").rglob("*.md")),
]
LINKING = [
    *PAGES,
    *sorted((ROOT / "benchmarks").rglob("*.md")),
    *sorted((ROOT / "notebooks").glob("*.ipynb")),
]
MODULES = ["gradtape", *sorted(module.name for module in pkgutil.walk_packages(gt.__path__, "gradtape."))]
OPTIONAL = {
    "gradtape.api.guests.torch_function": "torch",
    "gradtape.api.guests.torch_library": "torch",
    "gradtape.api.guests.jax_primitive": "jax",
    "gradtape.api.guests.jax_library": "jax",
    "gradtape.api.guests.pytensor_op": "pytensor",
    "gradtape.api.guests.casadi_callback": "casadi",
}
"""Modules that work with packages which need not be installed."""
PUBLIC = [
    name
    for name, member in vars(gt).items()
    if getattr(member, "__module__", type(member).__module__).startswith("gradtape.") and name[0] != "_"
]

FENCE = re.compile(r"^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.MULTILINE | re.DOTALL)
ENDING = re.compile(r"# (raises|warns) (\w+)\n")
LINK = re.compile(r"(?<!!)\[[^\]]*\]\(([^)\s]+)\)")
CODE = re.compile(r"`[^`\n]*`")
OPTIONS = doctest.ELLIPSIS | doctest.IGNORE_EXCEPTION_DETAIL


@dataclass(frozen=True)
class Block:
    """A fenced block of a page; `output` is the text block right below it, if there is one."""

    text: str
    line: int
    output: re.Match[str] | None


def blocks(page: str) -> Iterator[Block]:
    fences = list(FENCE.finditer(page))
    for number, fence in enumerate(fences):
        if fence["language"] != "python":
            continue
        below = fences[number + 1] if number + 1 < len(fences) else None
        follows = (
            below is not None
            and below["language"] == "text"
            and not page[fence.end() : below.start()].strip()
        )
        yield Block(fence["text"], page.count("\n", 0, fence.start()) + 1, below if follows else None)


def run(block: Block, namespace: dict[str, Any], name: str) -> str:
    """Run a block and return what it prints."""
    if block.text.startswith(">>>"):
        examine(doctest.DocTestParser().get_doctest(block.text, {}, name, name, block.line), namespace)
        return ""
    linecache.cache["example.py"] = (
        len(block.text),
        None,
        block.text.splitlines(keepends=True),
        "example.py",
    )
    code = compile(block.text, "example.py", "exec")
    ending = ENDING.match(block.text)
    printed = io.StringIO()
    with contextlib.redirect_stdout(printed):
        if ending is None:
            exec(code, namespace)
        elif ending[1] == "raises":
            with pytest.raises(Exception) as caught:
                exec(code, namespace)
            assert caught.typename == ending[2], f"{name}:{block.line} raises {caught.value!r}"
            print(f"{ending[2]}: {caught.value}")
        else:
            with warnings.catch_warnings(record=True) as warned:
                warnings.simplefilter("always")
                exec(code, namespace)
            assert [warning.category.__name__ for warning in warned] == [ending[2]], f"{name}:{block.line}"
            print(f"{ending[2]}: {warned[0].message}")
    return printed.getvalue()


def examine(test: doctest.DocTest, namespace: dict[str, Any]) -> None:
    """Run a doctest in a namespace."""
    test.globs = namespace
    report = io.StringIO()
    result = doctest.DocTestRunner(optionflags=OPTIONS).run(test, out=report.write, clear_globs=False)
    assert not result.failed, report.getvalue()


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Take out again what a page enters."""
    before = [(table, table.copy()) for table in (ROWS, UFUNCS, UFUNC_RULES, BORROWED)]
    monkeypatch.setattr(linalg, "_factored", linalg._factored)
    monkeypatch.setattr(scipy.ndimage.maximum, "__code__", scipy.ndimage.maximum.__code__)
    yield
    hosts = {name: row for name, row in ROWS.items() if name.startswith("host_function")}
    for table, content in before:
        table.clear()
        table.update(content)
    ROWS.update(hosts)  # which gradtape enters for functions of each number of arguments, once


def run_page(text: str, name: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[Block, str]]:
    """Run the blocks of a page one after the other; yield each with what it prints."""
    files = {
        fence["text"].partition("\n")[0].partition("gradtape/lower/llvm/")[2]: fence["text"]
        for fence in FENCE.finditer(text)
        if fence["language"] == "llvm"
    }
    packaged = writer._text
    monkeypatch.setattr(writer, "_text", lambda package, file: files.get(file) or packaged(package, file))
    namespace: dict[str, Any] = {"__name__": "example"}
    for block in blocks(text):
        known = set(BORROWED)
        yield block, run(block, namespace, name)
        for function in BORROWED.keys() - known:
            scipy_patching._hook_when_imported(function, BORROWED[function])


@pytest.mark.usefixtures("registry")
@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_page(page: Path, request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    text = page.read_text()
    updated, end = [], 0
    for block, printed in run_page(text, page.name, monkeypatch):
        if block.output is None:
            continue
        if request.config.getoption("--update-golden"):
            updated += [text[end : block.output.start("text")], printed]
            end = block.output.end("text")
        else:
            assert printed == block.output["text"], f"{page.name}:{block.line} prints something else"
    if updated:
        page.write_text("".join([*updated, text[end:]]))


@pytest.mark.usefixtures("registry")
def test_the_rows_of_the_guide_have_the_properties_of_every_row(monkeypatch: pytest.MonkeyPatch) -> None:
    text = (ROOT / "docs" / "how-to" / "add-an-op.md").read_text()
    for _ in run_page(text, "add-an-op.md", monkeypatch):
        pass
    row: Any = ROWS["dilogarithm"]
    known: dict[tuple[str, ...], list[tuple[Any, ...]]] = {
        ("case",): [(Case(row, "d", {}),)],
        ("row", "point", "slopes"): [(row, *slope) for slope in row.slopes],
    }
    properties = [member for name, member in vars(test_elementwise).items() if name.startswith("test_")]
    for prove in properties:
        for arguments in known.get(tuple(inspect.signature(prove).parameters), []):
            prove(*arguments)
    reduction: Any = ROWS["first_max"]
    for sample in reduction.samples:
        test_structural.test_reduction(reduction, sample)
    for dtype in "fd":
        test_matrices.test_the_routine_of_a_row_does_what_its_evaluation_does("cholesky_solve", dtype)
    test_matrices.test_a_row_is_differentiated_in_both_directions("cholesky_solve")


def check_links(page: Path) -> None:
    for target in LINK.findall(CODE.sub("", FENCE.sub("", page.read_text()))):
        if target.startswith(("https://", "http://")):
            continue
        path, _, heading = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        assert file.exists(), f"{page.name} links to {target}"
        if heading:
            assert heading in anchors(file), f"{page.name} links to {target}"


def test_links_lead_somewhere() -> None:
    with several_cases() as case:
        for page in LINKING:
            with case(page.relative_to(ROOT)):
                check_links(page)


def test_pages_named_in_the_source_exist() -> None:
    for module in sorted((ROOT / "src").rglob("*.py")):
        for page in re.findall(r"docs/[\w/.-]+\.md", module.read_text()):
            assert (ROOT / page).exists(), f"{module.name} names {page}"


def test_modules_named_in_a_page_exist() -> None:
    folders = (ROOT, ROOT / "src", ROOT / "src" / "gradtape")
    with several_cases() as case:
        for page in PAGES:
            for path in re.findall(r"`([\w/]+/\w+\.py)[`:]", FENCE.sub("", page.read_text())):
                with case(page.relative_to(ROOT)):
                    assert any((folder / path).exists() for folder in folders), f"{page.name} names {path}"


def anchors(page: Path) -> set[str]:
    """Return the names that a page's headings have in links."""
    titles = re.findall(r"^#+ (.+)$", FENCE.sub("", page.read_text()), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", title.lower()).replace(" ", "-") for title in titles}


@pytest.mark.parametrize("name", MODULES)
def test_docstrings(name: str) -> None:
    if name in OPTIONAL:
        pytest.importorskip(OPTIONAL[name], reason=f"pip install {OPTIONAL[name]}")
    module = importlib.import_module(name)
    for test in doctest.DocTestFinder().find(module, name):
        if test.examples:
            examine(test, dict(test.globs))


def test_public_names_have_an_example() -> None:
    with several_cases() as case:
        for name in PUBLIC:
            subject = getattr(gt, name)
            documented = (
                subject if isinstance(subject, type) or inspect.isfunction(subject) else type(subject)
            )
            with case(name):
                assert ">>>" in (inspect.getdoc(documented) or ""), "no example in the docstring"


def test_every_page_is_reached_from_the_index() -> None:
    index = ROOT / "docs" / "index.md"
    reached, waiting = {index}, [index]
    while waiting:
        page = waiting.pop()
        for target in LINK.findall(page.read_text()):
            file = (page.parent / target.partition("#")[0]).resolve()
            if file.suffix == ".md" and file.exists() and file not in reached:
                reached.add(file)
                waiting.append(file)
    assert {page for page in PAGES if page.is_relative_to(ROOT / "docs")} <= reached


def test_decisions_fit_on_one_page() -> None:
    pages = (ROOT / "docs" / "adr").glob("0*.md")
    words = {page.name: len(re.findall(r"\w[\w.`'-]*", page.read_text())) for page in pages}
    assert {name: count for name, count in words.items() if count > 675} == {}


def test_decisions_have_one_layout() -> None:
    folder = ROOT / "docs" / "adr"
    order = ["Context", "Decision", "Reasons", "Measured", "Alternatives", "Consequences"]
    index = re.findall(
        r"^\| \[\d+\]\((\S+)\) \| .* \| (\S.*) \|$", (folder / "index.md").read_text(), re.MULTILINE
    )
    rows = dict(index)
    pages = sorted(folder.glob("0*.md"))
    wrong = []
    for page in pages:
        text = page.read_text()
        opening = re.match(
            rf"# {int(page.name[:4])}\. .+\n\nStatus: ((?:accepted|superseded by \[).*)\n\n## ", text
        )
        sections = re.findall(r"^## (.+)$", text, re.MULTILINE)
        if (
            opening is None
            or "Decision" not in sections
            or sections != [title for title in order if title in sections]
            or not opening[1].startswith(rows.get(page.name, "no row"))
        ):
            wrong.append(page.name)
    assert not wrong, (
        f"title, status (which begins as in the index), sections among {order}, in this order: {wrong}"
    )
    assert [name for name, _ in index] == [page.name for page in pages]
