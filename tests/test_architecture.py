"""The layers: imports go down, heavy packages are imported late and nowhere else. The pages that list them are complete."""

import ast
import re
import sys
from pathlib import Path

import pytest

import gradtape
from tests.suite.several import several_cases
from tests.support.processes import words_printed

ROOT = Path(gradtape.__file__).parent
PROJECT = Path(__file__).parents[1]
CONTRIBUTING = PROJECT / "CONTRIBUTING.md"
GLOSSARY = PROJECT / "docs" / "glossary.md"
HOW_IT_WORKS = PROJECT / "docs" / "explanation" / "how-it-works.md"
LAYERS = {
    "errors": 0,
    "collector": 0,
    "config": 0,
    "costs": 0,
    "interruptions": 0,
    "locks": 0,
    "habits": 0,
    "manual": 0,
    "lru": 0,
    "containers": 0,
    "trees": 0,
    "progress": 0,
    "records": 0,
    "reference_counts": 0,
    "scratch": 0,
    "statements": 0,
    "ir": 1,
    "loops": 1,
    "loops.passes": 4,
    "kinds": 2,
    "ops": 3,
    "procedures": 3,
    "passes": 4,
    "transforms": 4,
    "lower": 5,
    "frontend": 5,
    "runtime": 6,
    "trace": 7,
    "array_api": 7,
    "api": 8,
    "autograd": 9,
    "__init__": 9,
    "__main__": 9,
}
LATE = {"llvmlite", "numba", "scipy", "opt_einsum", "platformdirs", "filelock", "matplotlib", "tqdm"}
"""Packages that a function may import when it runs: `import gradtape` is to be quick."""

LATE_LAYERS = {
    ("runtime/compile/kernel.py", "lower"),
    ("lower/llvm/calls.py", "lower"),
    ("runtime/compile/prologue.py", "passes"),
    ("api/transforms/jit.py", "api"),
    ("api/transforms/linear.py", "api"),
    ("api/tape/tape.py", "api"),
    ("trace/array/array.py", "trace"),
    ("trace/translation/calls.py", "frontend"),
}
"""The compiler itself, which a process that finds its kernels on disk does not need, pictures, which only notebooks do, and the front end,
which only long loops and functions of Numba's do."""

FILES = sorted(ROOT.rglob("*.py"))


def layer_of(module):
    """Return the layer of a module's package, or of the part of it that has a layer of its own."""
    names = module[1:]
    parts = [".".join(names[:count]) for count in (3, 2, 1)]
    return next((LAYERS[part] for part in parts if part in LAYERS), 9)


def statements(node, late=False):
    """Yield (statement, whether it is inside a function) for all statements of a tree."""
    for child in ast.iter_child_nodes(node):
        if isinstance(child, ast.stmt):
            yield child, late
        if isinstance(child, ast.stmt | ast.excepthandler | ast.match_case):
            yield from statements(child, late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef))


def imported(path):
    """Yield (module inside gradtape or top-level package, whether it is imported inside a function)."""
    package = ("gradtape", *path.relative_to(ROOT).parent.parts)
    for node, late in statements(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            for alias in node.names:
                yield tuple(alias.name.split(".")), late
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else ()
            module = (*base, *(node.module.split(".") if node.module else ()))
            if module == ("gradtape",) or not node.module:
                for alias in node.names:
                    yield (*module, alias.name), late
            else:
                yield module, late


def check_imports(path):
    mine = layer_of(("gradtape", *path.relative_to(ROOT).with_suffix("").parts))
    for module, late in imported(path):
        if module[0] == "gradtape":
            named = (path.relative_to(ROOT).as_posix(), module[1] if len(module) > 1 else "") in LATE_LAYERS
            assert not late or named, f"{path.name} imports {'.'.join(module)} inside a function"
            if len(module) > 1:
                theirs = layer_of(module)
                assert theirs <= mine, (
                    f"{path.name} (layer {mine}) imports {'.'.join(module)} (layer {theirs})"
                )
        elif late:
            standard = module[0] in sys.stdlib_module_names
            assert not standard, f"{path.name} imports the standard {module[0]} inside a function"
            assert module[0] in LATE, f"{path.name} imports {module[0]} inside a function"
        else:
            assert module[0] not in LATE - {"platformdirs", "filelock"}, (
                f"{path.name} imports {module[0]} at its top"
            )


def test_each_module_beside_the_folders_and_each_folder_has_a_layer():
    names = {path.relative_to(ROOT).with_suffix("").parts[0] for path in FILES}
    assert names == {name for name in LAYERS if "." not in name}
    for name in LAYERS:
        assert source_path(name), f"LAYERS names {name}"


def source_path(name):
    """Return the path of a module or of a folder in the source, with a slash behind that of a folder; an empty one if there is none."""
    path = name.replace(".", "/")
    if (ROOT / path).is_dir():
        return f"{path}/"
    return f"{path}.py" if (ROOT / f"{path}.py").exists() else ""


def layer_table():
    """Return the rows of the table of layers in CONTRIBUTING.md, the highest layer first."""
    rows = ["| layer | modules |\n|---|---|\n"]
    for layer in sorted(set(LAYERS.values()), reverse=True):
        names = [f"`{source_path(name)}`" for name in LAYERS if LAYERS[name] == layer]
        rows.append(f"| {layer} | {', '.join(names)} |\n")
    return "".join(rows)


def test_contributing_lists_the_layers(request):
    text = CONTRIBUTING.read_text()
    written = re.search(r"^\| layer \|.*\n(?:\|.*\n)+", text, re.MULTILINE)
    assert written is not None
    if request.config.getoption("--update-golden"):
        CONTRIBUTING.write_text(text.replace(written[0], layer_table()))
    else:
        assert written[0] == layer_table(), "CONTRIBUTING.md lists other layers: run pytest --update-golden"


def test_how_it_works_lists_the_folders():
    """Each folder with modules, and each folder inside one, is in the table of the page; all that the table names exist."""
    listed = set()
    for row in re.findall(r"^\| `([a-z_]+)/` \| (.*) \|$", HOW_IT_WORKS.read_text(), re.MULTILINE):
        folder, content = row
        listed |= {folder, *[f"{folder}/{inner}" for inner in re.findall(r"`([a-z_]+)/`", content)]}
    folders = {path.relative_to(ROOT).parent.parts[:2] for path in FILES} - {()}
    expected = {"/".join(parts[:count]) for parts in folders for count in range(1, len(parts) + 1)}
    assert not expected - listed, f"docs/explanation/how-it-works.md lacks {sorted(expected - listed)}"
    assert not [name for name in listed if not (ROOT / name).is_dir()]


def test_imports_go_down():
    with several_cases() as case:
        for path in FILES:
            with case(path.relative_to(ROOT)):
                check_imports(path)


def test_import_is_light():
    code = "import sys, gradtape; print(*sorted({m.partition('.')[0] for m in sys.modules}))"
    loaded = words_printed(code)
    assert "gradtape" in loaded
    assert not LATE & set(loaded)


def test_no_path_or_registry_in_the_project():
    words = ["/wo" + "rk/", "/ro" + "ot/", "py" + "pi.org"]
    for path in [*PROJECT.rglob("*.py"), *PROJECT.rglob("*.md"), *PROJECT.rglob("*.ipynb")]:
        if ".git" in path.parts or "venv" in str(path.relative_to(PROJECT)):
            continue
        text = path.read_text(errors="ignore")
        for word in words:
            assert word not in text, f"{path} names {word}"


def test_a_misspelt_name_is_corrected():
    with pytest.raises(AttributeError) as caught:
        gradtape.jacobain  # noqa: B018 - asking is what is tested
    assert caught.value.name == "jacobain" and str(caught.value).endswith("did you mean gt.jacobian?")


def test_solvers_need_no_tools_for_finding_mistakes():
    code = "import sys, gradtape; gradtape.nlp, gradtape.callback, gradtape.print; print(*sys.modules)"
    assert not {"gradtape.api.debug", "gradtape.api.pictures", "scipy", "subprocess"} & set(
        words_printed(code)
    )


def test_importing_leaves_the_cycle_collector_on():
    code = "import gc, gradtape; print(gc.isenabled())"
    assert words_printed(code) == ["True"]


PLAIN = """
and attribute by check class config containers content context convention copy core cost counter create creation custom debug debugger
decision determinants disk edit equal error evaluate event explain explanation finding habit init inside inspect iterator key leaves
list loader lock lookup losses main method minimize mixed more name namespace naming nested number object operator order origin out part per
picture plan quantity
problem product progress read reader reason recording report result robust routine script select set sign solution solver special split
search statement switch step table text thread tracing tuple type undo unit unsupported use user walk write writer
clipping guest manual torch jax casadi pytensor constants flat foreign library

api argument building callable caller compile function functional html import interpret interruption log logic memory module
line optimise standalone svg

airy arithmetic array asarray axes axis bessel bivariate bottleneck calculus central comparison complex convolution design distance
distribution elliptic entropy equation estimate expectation exponential extension extrema fft filter flip float fourier gamma grad grid
hierarchy histogram hypergeometric incomplete indexing integer inverse label legendre linalg logistic math moment morphology nan
multivariate ndimage noncentral nonsmooth norm normal numeric numpy orthogonal pad piecewise polynomial power precision quantile registry
root rotation rank scipy sequence shape signal softmax solve sort sorting spline stat statistic stochastic trig uncertainty wave window

access accumulate accumulation affine aliases allocation annotations archive argnums asking background
backward bands basis before bits blocking blocks body bounds budget builder c cache call callsite capi cast
cells chunks closure clusters collapse collector command conversion correlation cumulative dask dataflow
deferred differences dims discrete dispatcher doctor document draft draws eigen element emit emitter
encoding endpoints engine entry exits expand expansion export expressions factor files fits fmin force
formulas forwarding geometry growing handle host independence ins instructions instruments interpose
interpreter interrupts invariance ipopt join lengths level limits live locations low masked masses matmul
matrices matrix merged missing model monoids numba numexpr observation observer opaque opening operand outcomes
outlined page parallelise parameters partitions paths pending periods pipeline placement plot poll pool
preallocated prediction prefix primitive printer printing privatisation probe profiled proofs propagation
random recipes recorders refusals region reroll resident rewrite roll rotate runtime samplers samples
scalars server shadows shared sharing shift sinking site smoothing snapshot spectral stable stacks state
storage store structure structured sums sweep symbols symmetric tags tasks templates tiling toolchain
traversal trim trust varying vecmath while workspace compiled
astropy pandas pint subclasses instances
"""
"""Words of module names that need no line in the glossary: plain English, Python's, families of functions by NumPy's names,
and, in the last block, words that the first line of the module explains."""


def glossary():
    """Return the rows of the glossary: term, meaning, origin."""
    lines = [line for line in GLOSSARY.read_text().splitlines() if line.startswith("| ")][1:]
    return [tuple(cell.strip() for cell in line.strip("|").split(" | ")) for line in lines]


def forms(word):
    """Return a word and its singular, if it is a regular plural."""
    if word.endswith("ies"):
        return {word, word[:-3] + "y"}
    if word.endswith(("sses", "ches", "shes")):
        return {word, word[:-2]}
    return {word, word.removesuffix("s")}


def test_the_glossary_is_an_alphabetical_table():
    rows = glossary()
    assert all(len(row) == 3 and all(row) for row in rows)
    assert len(rows) <= 150, (
        "docs/glossary.md has standard terms only; what one module means, its first line says"
    )
    terms = [re.sub(r"[^a-z0-9 ]", "", term.lower().replace("-", " ")) for term, _, _ in rows]
    assert terms == sorted(set(terms)), "docs/glossary.md has one line per term, in alphabetical order"


def test_module_names_are_terms_of_the_glossary():
    terms = [term.lower() for term, _, _ in glossary()]
    known = {form for word in [*re.findall(r"\w+", " ".join(terms)), *PLAIN.split()] for form in forms(word)}
    unknown = {
        f"{path.relative_to(ROOT)}: {word}"
        for path in FILES
        if path.relative_to(ROOT).parts[0] != "autograd"  # its modules have the names of autograd's own
        for name in path.relative_to(ROOT).with_suffix("").parts
        for word in name.split("_")
        if word and not forms(word) & known
    }
    assert not unknown, (
        f"Words of module names that docs/glossary.md does not explain: {sorted(unknown)}.\n"
        "Name the module by a word of NumPy's, of JAX's, TensorFlow's or PyTorch's, or of a compiler text book. If the\n"
        "word is a standard term of the field, add a line `| term | meaning | origin |` to docs/glossary.md, in alphabetical\n"
        "order. If it is plain English, the name of a family of NumPy functions, or a word that the first line of the module\n"
        "explains, add it to PLAIN in this file."
    )
