"""Files that hold a function as data: read back, called, differentiated, damaged, newer and foreign."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import gradtape as gt
from gradtape.api.export import archive
from gradtape.errors import ArgumentError, LoweringError, StructureError
from gradtape.trees import flatten
from tests.lower.c.test_module import PROGRAMS
from tests.support.processes import words_printed


def loss(params: Any, x: Any, order: int = 2) -> Any:
    return np.mean(np.tanh(x @ params["w"] + SCALE) ** order)


SCALE = np.array([0.5, 0.25])
PARAMS = {"w": np.arange(6.0).reshape(3, 2) / 6}
X = np.linspace(-1.0, 1.0, 12).reshape(4, 3)


@pytest.mark.parametrize("number", range(0, len(PROGRAMS), 3))
def test_programs(number: int, tmp_path: Path) -> None:
    function, arguments = PROGRAMS[number]
    (path,) = gt.export(function, *arguments, path=tmp_path / "f.gradtape")
    wanted, found = function(*arguments), gt.load(path)(*arguments)
    for a, b in zip(flatten(found)[0], flatten(wanted)[0], strict=True):
        np.testing.assert_allclose(a, b, 1e-12, 1e-12)


def test_another_process_needs_no_code(tmp_path: Path) -> None:
    path = tmp_path / "loss.gradtape"
    gt.export(gt.value_and_grad(loss), {"w": gt.spec((3, 2))}, gt.spec((4, 3)), path=path)
    code = (
        f"import gradtape as gt, numpy as np; f = gt.load({str(path)!r});"
        "v, g = f({'w': np.arange(6.).reshape(3, 2) / 6}, np.linspace(-1., 1., 12).reshape(4, 3));"
        "print(repr(float(v)), *map(repr, g['w'].ravel().tolist()))"
    )
    value, gradient = gt.value_and_grad(loss)(PARAMS, X)
    np.testing.assert_allclose(
        [float(word) for word in words_printed(code)], [value, *gradient["w"].ravel()], 1e-13
    )


def test_derivatives_go_through_it(tmp_path: Path) -> None:
    path = tmp_path / "loss.gradtape"
    gt.export(loss, PARAMS, X, path=path)
    again = gt.load(path)
    np.testing.assert_allclose(gt.grad(again)(PARAMS, X)["w"], gt.grad(loss)(PARAMS, X)["w"], 1e-13)
    np.testing.assert_allclose(gt.jit(lambda p, x: again(p, x) * 2)(PARAMS, X), 2 * loss(PARAMS, X))
    np.testing.assert_allclose(
        gt.hessian(lambda x: again(PARAMS, x))(X), gt.hessian(lambda x: loss(PARAMS, x))(X), 1e-10
    )
    sent = pickle.loads(pickle.dumps(again))
    np.testing.assert_array_equal(sent(PARAMS, X), again(PARAMS, X))
    assert (
        repr(again)
        == repr(sent)
        == "<gradtape function loss(params['w']: f64[3,2], x: f64[4,3]) from a file>"
    )


def test_arguments_that_do_not_fit(tmp_path: Path) -> None:
    path = tmp_path / "loss.gradtape"
    gt.export(loss, PARAMS, X, 4, path=path)
    again = gt.load(path)
    with pytest.raises(
        ArgumentError, match=r"loss: x is float64\[5, 3\], and the function was exported for float64\[4, 3\]"
    ):
        again(PARAMS, np.ones((5, 3)), 4)
    with pytest.raises(ArgumentError, match=r"params\['w'\] is str"):
        again({"w": "a"}, X, 4)
    with pytest.raises(StructureError, match="takes the arguments"):
        again(PARAMS["w"], X, 4)

    def branch(x: Any) -> Any:
        return x if x[0] > 0 else -x

    gt.export(branch, np.ones(2), path=path)
    assert gt.load(path)(np.ones(2)).tolist() == [1.0, 1.0]
    with pytest.raises(ArgumentError, match="other branches than these"):
        gt.load(path)(-np.ones(2))


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    path, other = tmp_path / "loss.gradtape", tmp_path / "other.gradtape"
    gt.export(loss, PARAMS, X, path=path)
    data = path.read_bytes()
    with pytest.raises(ArgumentError, match=r"none.gradtape' cannot be read: No such file"):
        gt.load(tmp_path / "none.gradtape")
    for content in (b"", b"PK\x03\x04 something else", data[:20]):
        other.write_bytes(content)
        with pytest.raises(ArgumentError, match="is not a file of"):
            gt.load(other)
    for place in range(30, len(data), 97):
        other.write_bytes(data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :])
        with pytest.raises(ArgumentError, match="is damaged"):
            gt.load(other)
    other.write_bytes(data[:-50])
    with pytest.raises(ArgumentError, match="is damaged"):
        gt.load(other)
    head = len(archive.MAGIC)
    other.write_bytes(data[:head] + b"\x07\x00" + data[head + 2 :])
    with pytest.raises(ArgumentError, match=r"has the format 7, and this gradtape reads up to 3"):
        gt.load(other)
    content = data[: -archive.DIGEST].replace(b'"tanh"', b'"tanj"')
    other.write_bytes(content + archive.hashlib.blake2b(content, digest_size=archive.DIGEST).digest())
    with pytest.raises(ArgumentError, match="cannot be read by this version of gradtape"):
        gt.load(other)


def test_what_is_no_data_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "f.gradtape"

    def steps(x: Any) -> Any:
        total = 0.0
        for i in range(3000):
            total = total + np.sin(x[i % 3]) if x[i % 3] > total else total - 0.1
        return total

    with pytest.raises(
        LoweringError, match=r"(?s)procedure cannot be written to a .gradtape file.*compiled from its source"
    ):
        gt.export(steps, np.ones(3), path=path)
    assert not path.exists()


def test_named_results(tmp_path: Path) -> None:
    (path,) = gt.export(lambda a: np.linalg.qr(a), gt.spec((3, 2)), path=tmp_path / "f.gradtape")
    a = np.arange(6.0).reshape(3, 2) ** 2
    made = gt.load(path)(a)
    np.testing.assert_allclose(made.Q @ made.R, a, atol=1e-12)
