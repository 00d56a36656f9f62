"""The types of the public names: a checker in strict mode on a user's program, and stubs that say what the classes have."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import gradtape
from gradtape.trace.array.methods import Methods
from gradtape.trace.array.operators import Operators

HERE = Path(__file__).parent
PACKAGE = Path(gradtape.__file__).parent


def test_a_typed_program_is_accepted_in_strict_mode(tmp_path):
    """Pyright finds the types that the program asserts, and that an argument which is wrong on purpose is wrong."""
    settings = {
        "typeCheckingMode": "strict",
        "reportUnnecessaryTypeIgnoreComment": "error",
        "include": [str(HERE / "typing")],
        "extraPaths": [str(PACKAGE.parent)],
    }
    (tmp_path / "pyrightconfig.json").write_text(json.dumps(settings))
    command = [sys.executable, "-m", "pyright", "--project", str(tmp_path), "--pythonpath", sys.executable]
    environment = os.environ | {"PYRIGHT_PYTHON_IGNORE_WARNINGS": "1"}
    ran = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert "0 errors" in ran.stdout


def test_a_typed_program_runs():
    """What is asserted of types is asserted of a program that works, up to the call that is wrong on purpose."""
    text = (HERE / "typing" / "program.py").read_text()
    right = "\n".join(line for line in text.splitlines() if "type: ignore" not in line)
    ran = subprocess.run(
        [sys.executable, "-W", "error", "-c", right], capture_output=True, text=True, check=False
    )
    assert ran.returncode == 0, ran.stderr


@pytest.mark.parametrize("owner", [Operators, Methods])
def test_stubs_name_what_the_classes_have(owner):
    """Operators and methods are made from NumPy's functions; the stub beside the module names each of them."""
    path = PACKAGE.joinpath(*owner.__module__.split(".")[1:]).with_suffix(".pyi")
    (body,) = [node.body for node in ast.parse(path.read_text()).body if isinstance(node, ast.ClassDef)]
    named = {node.name for node in body if isinstance(node, ast.FunctionDef)}
    named |= {node.target.id for node in body if isinstance(node, ast.AnnAssign)}
    special = {"__module__", "__doc__", "__slots__", "__hash__", "__static_attributes__", "__firstlineno__"}
    assert named == vars(owner).keys() - special


def test_the_package_is_marked_as_typed():
    """Type checkers read the annotations of installed packages that have this file only."""
    assert (PACKAGE / "py.typed").is_file()


def test_dir_has_public_names_alone():
    """Completion shows what users call: each name is there, and no folder of the package is."""
    names = set(dir(gradtape))
    assert {"grad", "jit", "vmap", "Variable", "debug", "errors", "config", "__version__"} <= names
    assert names.isdisjoint({"trace", "lower", "runtime", "kinds", "api", "habits", "_LATER"})
    assert all(getattr(gradtape, name) is not None for name in names)
