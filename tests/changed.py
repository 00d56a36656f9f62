"""Run the tests of what has changed: an answer in about a minute.

    python -m tests.changed                 # changes since the last commit
    python -m tests.changed --since main    # changes since the branch left main
    python -m tests.changed --show          # print the commands only

Changed rows of `ops/` are tested by the cells of the tests of the registry and of `tests/ops/` that have them as arguments, all other
modules by the folder or file of tests that mirrors them, by tests that import them, and by the tests of the structure. Of parametrised
functions of the latter a sample runs. Changed pages and files of tests run themselves. The whole suite stays the gate.
"""

from __future__ import annotations

import argparse
import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final

import gradtape.ops  # noqa: F401 - the rows and functions enter themselves
from gradtape.kinds.registry import ROWS, TRIALS
from tests.support.numpy_calls import title

PROJECT: Final = Path(__file__).parents[1]
SOURCE: Final = PROJECT / "src" / "gradtape"
OF_OPS: Final = ("tests/registry", "tests/ops")
OF_STRUCTURE: Final = ("tests/test_architecture.py", "tests/test_house.py", "tests/trace/test_quarantine.py")


def git(*arguments: str) -> str:
    """Return what git prints."""
    return subprocess.run(["git", *arguments], cwd=PROJECT, capture_output=True, text=True, check=True).stdout


def changes(since: str) -> dict[Path, set[int]]:
    """Return the changed lines of each file, in the numbering of the file as it is."""
    base = git("merge-base", since, "HEAD").strip()
    lines: dict[Path, set[int]] = {}
    for line in git("diff", "--unified=0", "--no-renames", base).splitlines():
        if line.startswith("+++ "):
            file = PROJECT / line.removeprefix("+++ b/")
            lines[file] = set()
        elif hunk := re.match(r"@@ -\S+ \+(\d+)(?:,(\d+))?", line):
            first, count = int(hunk[1]), int(hunk[2] or 1)
            lines[file] |= set(range(first, first + max(count, 1)))
    for name in git("ls-files", "--others", "--exclude-standard").splitlines():
        file = PROJECT / name
        lines[file] = set(range(1, len(file.read_bytes().splitlines()) + 1))
    return {file: changed for file, changed in lines.items() if file.exists()}


def words(node: ast.AST) -> set[str]:
    """Return the names and texts of a statement."""
    return {
        str(getattr(part, "id", getattr(part, "attr", getattr(part, "value", getattr(part, "name", "")))))
        for part in ast.walk(node)
        if isinstance(part, ast.Name | ast.Attribute | ast.Constant | ast.FunctionDef)
    }


def defined(node: ast.AST) -> set[str]:
    """Return the names that a statement of a module defines."""
    if isinstance(node, ast.FunctionDef | ast.ClassDef):
        return {node.name}
    targets = node.targets if isinstance(node, ast.Assign) else [getattr(node, "target", None)]
    return {target.id for target in targets if isinstance(target, ast.Name)}


def changed_ops(file: Path, lines: set[int]) -> set[str]:
    """Return the ops and functions whose statements, or functions that these use, have changed lines."""
    short = {name.rpartition(".")[2] for name in {*ROWS, *map(title, TRIALS)}}
    statements = ast.parse(file.read_text()).body
    touched = [
        s
        for s in statements
        if not lines.isdisjoint(
            range(
                min([s.lineno, *(d.lineno for d in getattr(s, "decorator_list", ()))]),
                (s.end_lineno or s.lineno) + 1,
            )
        )
        and not isinstance(s, ast.Import | ast.ImportFrom)
    ]
    ops: set[str] = set()
    seen: set[int] = set()
    while touched:
        statement = touched.pop()
        seen.add(id(statement))
        if isinstance(statement, ast.FunctionDef):
            ops |= short & {statement.name}.union(*map(words, statement.decorator_list))
        else:
            ops |= short & words(statement)
        new = defined(statement)
        touched += [s for s in statements if id(s) not in seen and s not in touched and new & words(s)]
    return ops


def mirrors(file: Path) -> Iterator[str]:
    """Yield the tests of a module: those of its name, otherwise those of its folder; and those that import it."""
    inside = file.relative_to(SOURCE).with_suffix("")
    folder = PROJECT / "tests" / inside.parent
    own = folder / f"test_{inside.name}.py"
    while not own.exists() and folder != PROJECT / "tests":
        own, folder = folder, folder.parent
    if own.exists():
        yield own.relative_to(PROJECT).as_posix()
    module = ".".join(("gradtape", *inside.parts))
    package, _, name = module.rpartition(".")
    imports = re.compile(rf"from {re.escape(module)} import|from {re.escape(package)} import .*\b{name}\b")
    for test in sorted((PROJECT / "tests").rglob("test_*.py")):
        if imports.search(test.read_text()):
            yield test.relative_to(PROJECT).as_posix()


def commands(since: str) -> list[list[str]]:
    """Return the arguments of pytest for each of its runs."""
    ops: set[str] = set()
    paths: dict[str, None] = {}
    own: dict[str, None] = {}
    is_source = False
    for file, lines in changes(since).items():
        name = file.relative_to(PROJECT).as_posix()
        if file.suffix == ".py" and file.is_relative_to(SOURCE):
            is_source = True
            found = changed_ops(file, lines) if file.is_relative_to(SOURCE / "ops") else set()
            ops |= found
            if not found:
                paths |= dict.fromkeys(mirrors(file))
        elif file.suffix == ".py" and name.startswith("tests/") and file.name.startswith("test_"):
            own[name] = None
        elif file.suffix == ".md":
            own[f"tests/programs/test_docs.py::test_page[{name}]"] = None
    runs = []
    if ops:
        runs.append([*OF_OPS, *(f"--op={name}" for name in sorted(ops))])
    if is_source:
        runs.append([*OF_STRUCTURE, *(path for path in paths if path not in OF_STRUCTURE), "--sample"])
    if own:
        runs.append(list(own))
    return runs


def main() -> int:
    """Run the tests of what has changed; return the largest of the exit codes."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--since", default="HEAD", help="the commit or branch with which to compare")
    parser.add_argument("--show", action="store_true", help="print the commands, run nothing")
    options, rest = parser.parse_known_args()
    runs = commands(options.since)
    if not runs:
        print("nothing has changed that has tests")
    code = 0
    for run in runs:
        print("python -m pytest", *(f"'{part}'" if "[" in part else part for part in run), *rest, flush=True)
        if not options.show:
            code = max(
                code, subprocess.run([sys.executable, "-m", "pytest", *run, *rest], cwd=PROJECT).returncode
            )
    return code


if __name__ == "__main__":
    sys.exit(main())
