"""The command line: exports, and the disk cache; and the C program of the documentation."""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.__main__ import main
from gradtape.config import config
from tests.support.other_kernels import COMPILER, needs_c, run

PAGE = Path(__file__).parents[3] / "docs" / "how-to" / "export.md"
MODEL = "import numpy as np\n\ndef loss(w, x, rate):\n    return np.mean((x @ w) ** 2) + rate * np.sum(w)\n"
SPECS = "f8[3],f8[5,3],float"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    (tmp_path / "exported_model.py").write_text(MODEL)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    yield tmp_path
    sys.modules.pop("exported_model", None)


def test_exports(folder: Path, capsys: Any) -> None:
    arguments = ["export", "exported_model:loss", "--specs", SPECS]
    assert main([*arguments, "-o", "loss.c", "--grad", "--argnums", "0", "2"]) == 0
    assert capsys.readouterr().out.split() == ["loss.c", "loss.h"]
    assert (
        "double *value, double *grad_w, double *grad_rate, void *workspace);"
        in (folder / "loss.h").read_text()
    )
    assert main([*arguments, "-o", "loss.gradtape"]) == 0
    assert gt.load("loss.gradtape")(np.zeros(3), np.ones((5, 3)), 1.0) == 0.0


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["exported_model:lost", "--specs", SPECS], "has no function 'lost'"),
        (["no_such_module:f", "--specs", SPECS], "there is no module 'no_such_module'"),
        (["exported_model", "--specs", SPECS], "names no function"),
        (["exported_model:loss", "--specs", "f8[3"], "cannot be read at 'f8[3'"),
        (["exported_model:loss", "--specs", SPECS, "--argnums", "1"], "add --grad"),
        (["exported_model:loss", "--specs", f"{SPECS},f8[3]"], "and the specs list"),
        (["exported_model:loss", "--specs", SPECS, "--name", "a b"], "a C identifier"),
    ],
)
def test_exports_that_fail(folder: Path, capsys: Any, arguments: list[str], message: str) -> None:
    assert main(["export", *arguments, "-o", "f.c"]) == 1
    said = capsys.readouterr().err
    assert message in said and "__main__" not in said
    assert not (folder / "f.c").exists()


def test_cache_that_cannot_be_written(tmp_path: Path, capsys: Any) -> None:
    (tmp_path / "file").write_text("not a folder")
    with config.override(cache_dir=str(tmp_path / "file"), disk_cache=True):
        assert main(["cache", "info"]) == 0
        assert "it cannot be written" in capsys.readouterr().out
        assert main(["cache", "clear"]) == 0


def test_cache(tmp_path: Path, capsys: Any) -> None:
    with config.override(cache_dir=str(tmp_path), disk_cache=True):
        gt.jit(lambda x: np.sum(x) * 1.2345)(np.ones(3))
        assert main(["cache", "list"]) == 0
        listed = capsys.readouterr().out
        assert "1 program in" in listed
        assert main(["cache", "verify"]) == 0
        (file,) = tmp_path.rglob("*.gto")
        assert file.stem in listed
        file.write_bytes(file.read_bytes()[:-1] + b"?")
        assert main(["cache", "verify"]) == 1
        assert f"damaged: {file.stem}\n1 program checked, 1 damaged" in capsys.readouterr().out
        assert main(["cache", "verify", "--remove"]) == 0 and not file.exists()


@needs_c
def test_the_program_of_the_page(tmp_path: Path) -> None:
    page = PAGE.read_text()
    python = re.findall(r"^```python\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    (program,) = re.findall(r"^```c\n(.*?)^```$", page, re.MULTILINE | re.DOTALL)
    names: dict[str, Any] = {}
    exec(python[0], names)
    specs = gt.spec(3), gt.spec((5, 3)), gt.spec(5), float
    gt.export(gt.value_and_grad(names["loss"]), *specs, path=tmp_path / "loss.c", name="loss")
    (tmp_path / "main.c").write_text(program)
    made = str(tmp_path / "main")
    assert COMPILER is not None
    sources = [str(tmp_path / "main.c"), str(tmp_path / "loss.c")]
    run(
        [
            COMPILER,
            "-std=c99",
            "-Wall",
            "-Wextra",
            "-Werror",
            "-fsanitize=address",
            *sources,
            "-o",
            made,
            "-lm",
        ]
    )
    w, y, x = np.ones(3), np.array([0.1, 0.2, 0.3, 0.4, 0.5]), (np.arange(15) % 4 / 4.0).reshape(5, 3)
    for _ in range(100):
        value, slope = gt.value_and_grad(names["loss"])(w, x, y, 0.01)
        w = w - 0.5 * slope
    np.testing.assert_allclose(np.array(run([made]).split(), float), [value, *w], 2e-5)
