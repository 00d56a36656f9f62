"""The writer of LLVM IR, and the routines in files."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import llvmlite.binding as llvm
import pytest

import gradtape
from gradtape.lower.llvm.writer import FunctionWriter, ModuleWriter, read_ll

ROOT = Path(gradtape.__file__).parent
RESIDENT = "gradtape.lower.resident"


def verify(text: str) -> None:
    with llvm.create_context() as context, llvm.parse_assembly(text, context) as module:
        module.verify()


def test_places_are_filled() -> None:
    text = read_ll(RESIDENT, "clock_posix.ll", clock=7)
    assert "@clock_gettime(i32 7, ptr %time)" in text and "$" not in text
    with pytest.raises(KeyError, match="clock"):
        read_ll(RESIDENT, "clock_posix.ll", something_else=1)


def test_a_routine_is_added_once_with_what_it_declares() -> None:
    module = ModuleWriter()
    places = {"dtype": "float32", "T": "float", "letter": "s", "itemsize": 4}
    assert [module.add_routine("cholesky", **places) for _ in range(2)] == ["cholesky.float32"] * 2
    assert list(module.helpers) == ["cholesky.float32"]
    assert list(module.symbols) == ["scipy.linalg.cython_lapack.spotrf"]
    assert module.text().count("define ") == 1
    verify(module.text())


def test_functions_declare_what_they_call() -> None:
    module = ModuleWriter()
    function = FunctionWriter(module)
    vector = function.call("<2 x double>", "llvm.fabs.v2f64", "<2 x double> %x")
    same = function.call("<2 x double>", "llvm.fabs.v2f64", f"<2 x double> {vector}")
    slot = function.slot("i32", initial="0")
    function.return_unless_zero(function.load("i32", slot), "call")
    function.store("<2 x double>", same, "%at")
    module.functions.append(function.text("define i32 @f(<2 x double> %x, ptr %at)", "  ret i32 0"))
    assert list(module.declarations) == ["declare <2 x double> @llvm.fabs.v2f64(<2 x double>)"]
    verify(module.text())


@pytest.mark.parametrize(
    "files",
    [
        ("run_serially.ll", "threads.ll"),
        ("run_serially.ll", "no_threads.ll"),
        ("clock_posix.ll", "thread_posix.ll", "poll.ll"),
        ("clock_windows.ll", "thread_windows.ll", "poll.ll"),
        ("no_openblas.ll",),
    ],
)
def test_routines_of_other_systems_are_valid(files: tuple[str, ...]) -> None:
    places = {
        "clock": 1,
        "period": 10,
        "interrupted": -2,
        "set_mask": 2,
        "patience": 9,
        "pause": 8,
        "most": 7,
        "show": 6,
    }
    verify("".join([read_ll(RESIDENT, file, **places) for file in files]))


def test_each_file_is_part_of_the_package_and_used() -> None:
    """Files that git tracks are in the wheel; a routine's name stands in the code, or its row has it."""
    source = "".join([path.read_text() for path in ROOT.rglob("*.py")])
    files = list(ROOT.rglob("*.ll"))
    assert len(files) > 30
    listed = subprocess.run(
        ["git", "ls-files", "*.ll"], cwd=ROOT, capture_output=True, text=True, check=False
    )
    for path in files:
        named = path.name if path.parent.name != "routines" else path.stem
        assert re.search(rf'["/]{re.escape(named)}"', source), path.name
        assert listed.returncode or path.relative_to(ROOT).as_posix() in listed.stdout.split(), path.name
