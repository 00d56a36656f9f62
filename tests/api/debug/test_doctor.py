"""gt.doctor says what this installation is, and whether it works."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import gradtape as gt
from gradtape.__main__ import PIPE_CLOSED, main
from gradtape.api.debug import doctor
from gradtape.api.debug.doctor import CHECKS


def test_a_sound_installation(capsys: pytest.CaptureFixture[str]) -> None:
    assert gt.doctor()
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[-1] for line in lines[-len(CHECKS) :]] == ["ok"] * len(CHECKS)


def test_cores_that_are_not_used_are_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "cpu_count", lambda: 8)
    gt.doctor()
    assert "1 per kernel, of 8 cores: gt.config.num_threads = 8 divides" in capsys.readouterr().out
    with gt.config.override(num_threads=8):
        gt.doctor()
    assert "8 per kernel, of 8 cores\n" in capsys.readouterr().out


def test_what_does_not_work_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail() -> bool:
        raise OSError("no compiler")

    monkeypatch.setitem(CHECKS, "gradient", lambda: False)
    monkeypatch.setitem(CHECKS, "tape", fail)
    assert main(["info"]) == 1
    output = capsys.readouterr().out
    assert "gradient:      gives a wrong result" in output
    assert "tape:          raises OSError: no compiler" in output
    assert "batch:         ok" in output


def test_a_cache_folder_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    (tmp_path / "file").write_text("in the place of a folder")
    monkeypatch.setattr(doctor, "cache_path", lambda: tmp_path / "file" / "objects")
    assert gt.doctor()
    output = capsys.readouterr().out
    assert re.search(r"cache folder: .*, where nothing can be written \(.+\): set GRADTAPE_CACHE_DIR", output)


def test_a_package_that_cannot_be_imported(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(doctor, "PACKAGES", ("gradtape", "broken"))
    monkeypatch.setattr(doctor.importlib.metadata, "version", lambda package: "1.0")
    gt.doctor()
    assert re.search(
        r"broken: +1.0, but cannot be imported: No module named 'broken'", capsys.readouterr().out
    )


@pytest.mark.parametrize("unbuffered", ["", "1"])
@pytest.mark.parametrize("command", ["explain", "info"])
def test_a_reader_that_has_left_is_no_error(command: str, unbuffered: str) -> None:
    """As with ``python -m gradtape info | head -1``."""
    reading, writing = os.pipe()
    os.close(reading)
    environment = os.environ | {"PYTHONUNBUFFERED": unbuffered}
    arguments = [sys.executable, "-m", "gradtape", command]
    ended = subprocess.run(arguments, stdout=writing, stderr=subprocess.PIPE, text=True, env=environment)
    os.close(writing)
    assert ended.stderr == ""
    assert ended.returncode == PIPE_CLOSED
