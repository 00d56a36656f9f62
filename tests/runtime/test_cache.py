"""Programs kept in memory and on disk: hits, eviction, damage, sharing, and the command line."""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import textwrap
import threading
import time
import warnings
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from gradtape.__main__ import main
from gradtape.config import config
from gradtape.errors import CacheWarning
from gradtape.runtime.compile import disk as disk_module
from gradtape.runtime.compile import keys
from gradtape.runtime.compile.cache import (
    CachedObject,
    MemoryCache,
    cache_clear,
    cache_info,
    cache_path,
    cached_object,
    object_key,
)
from gradtape.runtime.compile.disk import DiskCache
from gradtape.runtime.compile.engine import LoadedModule, call_flat, compile_object
from tests.support.kernels import TWICE

KEY = "ab" + "0" * 62
ENTRY = CachedObject(b"machine code" * 100, ("kernel", "entry"), {"workspace": 64, "notes": ["fused"]})
posix = pytest.mark.skipif(os.name != "posix", reason="speaks of POSIX permissions")


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    with config.override(cache_dir=str(tmp_path), disk_cache=True, cache_size=2**30):
        yield tmp_path


def only_file(folder: Path) -> Path:
    (path,) = folder.rglob("*.gto")
    return path


def run_python(code: str, folder: Path, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code)],
        env={
            **os.environ,
            "PYTHONPATH": os.pathsep.join(sys.path),
            "GRADTAPE_CACHE_DIR": str(folder),
            **environment,
        },
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


# On disk


def test_what_is_stored_is_loaded(folder: Path) -> None:
    cache = DiskCache()
    assert cache.load(KEY) is None
    cache.store(KEY, ENTRY)
    assert cache.load(KEY) == ENTRY
    assert DiskCache().load(KEY) == ENTRY
    assert (cache.statistics.hits, cache.statistics.misses, cache.statistics.stores) == (1, 1, 1)


@posix
def test_only_the_user_can_read_the_cache(folder: Path) -> None:
    former = os.umask(0)
    try:
        DiskCache().store(KEY, ENTRY)
    finally:
        os.umask(former)
    path = only_file(folder)
    assert path.stat().st_mode & 0o777 == 0o600
    assert path.parent.stat().st_mode & 0o777 == 0o700
    assert cache_path().stat().st_mode & 0o777 == 0o700


def damaged(data: bytes) -> Iterator[tuple[str, bytes]]:
    yield "empty", b""
    yield "short", data[:20]
    yield "truncated", data[:-1]
    yield "without its checksum", data[:-32]
    yield "too long", data + b"x"
    yield "another magic", b"X" + data[1:]
    yield "a changed header", data.replace(b"fused", b"fuzed")
    yield "changed code", data.replace(b"machine", b"machinE", 1)
    yield "noise", os.urandom(len(data))
    for text in (b'"kex"', b'"key",'):  # another header, and no JSON, with the right checksum
        content = data[:-32].replace(b'"key"', text)
        yield "another header", content + hashlib.blake2b(content, digest_size=32).digest()


@pytest.mark.parametrize("number", range(11))
def test_damaged_files_are_compiled_anew_and_replaced(folder: Path, number: int) -> None:
    cache = DiskCache()
    cache.store(KEY, ENTRY)
    path = only_file(folder)
    _, content = list(damaged(path.read_bytes()))[number]
    path.write_bytes(content)
    assert cache.load(KEY) is None
    assert cache.statistics.corrupt == 1
    assert not path.exists()
    cache.store(KEY, ENTRY)
    assert cache.load(KEY) == ENTRY


def test_a_file_under_another_name_is_not_taken(folder: Path) -> None:
    cache = DiskCache()
    cache.store(KEY, ENTRY)
    other = "ab" + "1" * 62
    only_file(folder).rename(cache_path() / "ab" / f"{other}.gto")
    assert cache.load(other) is None


def test_programs_that_were_not_used_for_longest_make_room(folder: Path) -> None:
    cache = DiskCache()
    code = CachedObject(b"x" * 10_000)
    names = [f"{number:02x}" + "0" * 62 for number in range(10)]
    with config.override(cache_size=50_000):
        for age, name in enumerate(names):
            cache.store(name, code)
            path = cache_path() / name[:2] / f"{name}.gto"
            if path.exists():
                os.utime(path, (time.time() - 10_000 + age,) * 2)
            cache.load(names[0])
        entries, size = cache.usage()
        assert size <= 50_000
        assert entries >= 3
        assert cache.load(names[0]) is not None
        assert cache.load(names[-1]) is not None
        assert cache.load(names[1]) is None
        assert cache.statistics.evicted > 0


def test_a_program_larger_than_the_cache_is_not_stored(folder: Path) -> None:
    cache = DiskCache()
    with config.override(cache_size=100):
        cache.store(KEY, ENTRY)
    assert cache.usage() == (0, 0)


def test_half_written_files_of_dead_processes_are_removed(folder: Path) -> None:
    cache = DiskCache()
    cache.store(KEY, ENTRY)
    orphan = only_file(folder).with_name(".dead.1.1.tmp")
    orphan.write_bytes(b"half")
    cache.usage()
    assert orphan.exists()
    os.utime(orphan, (0, 0))
    assert cache.usage()[0] == 1
    assert not orphan.exists()


def test_a_store_that_is_interrupted_leaves_no_file(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(disk_module.os, "replace", interrupt)
    with pytest.raises(KeyboardInterrupt):
        DiskCache().store(KEY, ENTRY)
    assert [path for path in folder.rglob("*") if path.is_file()] == []


def test_a_folder_that_cannot_be_written_costs_one_warning(folder: Path) -> None:
    (folder / "objects-1").write_text("not a folder", "utf-8")
    cache = DiskCache()
    with pytest.warns(CacheWarning, match="GRADTAPE_CACHE_DIR") as caught:
        cache.store(KEY, ENTRY)
        cache.store(KEY, ENTRY)
    assert len(caught) == 1
    assert cache.statistics.failures == 2


def test_a_full_disk_costs_one_warning(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    cache = DiskCache()
    monkeypatch.setattr(disk_module.os, "replace", full)
    with pytest.warns(CacheWarning, match="No space left"):
        cache.store(KEY, ENTRY)
    monkeypatch.undo()
    assert [path for path in folder.rglob("*") if path.is_file()] == []
    cache.store(KEY, ENTRY)
    assert cache.load(KEY) == ENTRY


@posix
def test_a_folder_that_others_can_write_is_not_trusted(folder: Path) -> None:
    DiskCache().store(KEY, ENTRY)
    cache_path().chmod(0o777)
    cache = DiskCache()
    with pytest.warns(CacheWarning, match="written by others"):
        assert cache.load(KEY) is None
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert cache.load(KEY) is None
        cache.store("cd" + "0" * 62, ENTRY)
    assert len(list(folder.rglob("*.gto"))) == 1


def test_the_disk_cache_can_be_turned_off(folder: Path) -> None:
    with config.override(disk_cache=False):
        cache = DiskCache()
        cache.store(KEY, ENTRY)
        assert cache.load(KEY) is None
        assert cached_object("nothing", lambda: ENTRY) is ENTRY
    assert list(folder.iterdir()) == []


def test_a_program_is_built_once(folder: Path) -> None:
    built = []

    def build() -> CachedObject:
        built.append(1)
        return ENTRY

    assert cached_object("one", build, "fast") == ENTRY
    assert cached_object("one", build, "fast") == ENTRY
    assert len(built) == 1
    cached_object("one", build, "precise")
    cached_object("two", build, "fast")
    assert len(built) == 3


def test_clearing(folder: Path) -> None:
    for number in range(3):
        cached_object(f"{number}", lambda: ENTRY)
    assert cache_info().entries == 3
    assert cache_info().size > 3 * len(ENTRY.code)
    assert cache_clear() == 3
    assert cache_info().entries == 0
    assert str(folder) in str(cache_info())


# Keys


def test_keys_depend_on_all_that_code_depends_on(monkeypatch: pytest.MonkeyPatch) -> None:
    key = object_key("f", 1)
    assert object_key("f", 1) == object_key(b"f", 1) == key
    assert len({key, object_key("f", 2), object_key("g", 1), object_key("f"), object_key("f", 1, 1)}) == 5
    identity = keys.environment_identity()
    for word in ("python", "numpy", "llvmlite", "gradtape", "abi"):
        assert f"{word} " in identity
    monkeypatch.setattr(keys, "environment_identity", lambda: identity + "another machine")
    assert keys.object_key("f", 1) != key


# In memory


def test_the_memory_cache_keeps_what_was_used_last() -> None:
    cache: MemoryCache[int] = MemoryCache(limit=lambda: 2)
    for key, value in (("a", 1), ("b", 2), ("a", 3), ("c", 4)):
        cache.get(key, lambda value=value: value)
    assert "a" in cache
    assert "b" not in cache
    assert (len(cache), cache.hits, cache.misses) == (2, 1, 3)
    assert cache.clear() == 2
    assert "a" not in cache


def test_the_setting_bounds_the_memory_cache() -> None:
    cache: MemoryCache[int] = MemoryCache()
    with config.override(memory_cache=3):
        for number in range(10):
            cache.get(str(number), lambda: 1)
    assert len(cache) == 3


def test_several_threads_make_one_program() -> None:
    cache: MemoryCache[object] = MemoryCache()
    made, results = [], []
    barrier = threading.Barrier(8)

    def make() -> object:
        made.append(1)
        time.sleep(0.02)
        return object()

    def work() -> None:
        barrier.wait()
        results.append(cache.get("key", make))

    threads = [threading.Thread(target=work) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(made) == 1
    assert len(set(map(id, results))) == 1


def test_when_making_fails_or_is_interrupted_the_next_thread_tries() -> None:
    cache: MemoryCache[str] = MemoryCache()
    outcomes = [KeyboardInterrupt(), ValueError("once"), "made"]
    barrier, seen = threading.Barrier(3), []

    def make() -> str:
        time.sleep(0.01)
        outcome = outcomes.pop(0)
        if isinstance(outcome, BaseException):
            raise outcome
        return outcome

    def work() -> None:
        barrier.wait()
        try:
            seen.append(cache.get("key", make))
        except BaseException as error:
            seen.append(type(error).__name__)

    threads = [threading.Thread(target=work) for _ in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(seen) == ["KeyboardInterrupt", "ValueError", "made"]
    assert cache.get("key", make) == "made"


def test_making_a_program_may_need_another_and_even_itself() -> None:
    cache: MemoryCache[int] = MemoryCache()
    assert cache.get("a", lambda: cache.get("b", lambda: cache.get("a", lambda: 1) + 1) + 1) == 3


@pytest.mark.skipif(not hasattr(os, "fork"), reason="forks")
def test_a_fork_while_another_thread_makes_a_program(tmp_path: Path) -> None:
    process = run_python(
        """
        import os, threading
        from gradtape.runtime.compile.cache import MemoryCache
        cache, inside, leave = MemoryCache(), threading.Event(), threading.Event()
        def make():
            inside.set()
            leave.wait(30)
            return "parent"
        thread = threading.Thread(target=cache.get, args=("key", make))
        thread.start()
        inside.wait(30)
        child = os.fork()
        if child == 0:
            os._exit(0 if cache.get("key", lambda: "child") == "child" else 1)
        status = os.waitpid(child, 0)[1]
        leave.set()
        thread.join()
        assert status == 0
        """,
        tmp_path,
    )
    _, errors = process.communicate(timeout=60)
    assert process.returncode == 0, errors


# Between processes

COMPILES = """
import sys
import numpy as np
from gradtape.runtime.compile.cache import CachedObject, cached_object, disk
from gradtape.runtime.compile.engine import compile_object
from gradtape.runtime.call.entry import bind, load
from gradtape.runtime.call.entry_ir import add_entry
from gradtape.runtime.call.convention import ArraySpec, Signature
from tests.support.kernels import TWICE
vector = ArraySpec("float64", (3,))
signature = Signature((vector,), (vector,), 0)
def build():
    return CachedObject(compile_object(add_entry(TWICE, signature), "twice"), ("kernel", "entry"))
found = cached_object("twice", build)
function = bind(load(found.code, signature), signature, print)
assert function(np.array([1.0, 2.0, 3.0])).tolist() == [2.0, 4.0, 6.0]
print("hits", disk.statistics.hits, "numba" in sys.modules, "scipy" in sys.modules)
"""


def test_neither_compiling_nor_loading_imports_numba_or_scipy(tmp_path: Path) -> None:
    outputs = []
    for _ in range(2):
        process = run_python(COMPILES, tmp_path)
        output, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
        outputs.append(output.split())
    assert [words[1:] for words in outputs] == [["0", "False", "False"], ["1", "False", "False"]]


def test_processes_may_fill_one_entry_at_once(tmp_path: Path) -> None:
    processes = [run_python(COMPILES, tmp_path) for _ in range(3)]
    for process in processes:
        _, errors = process.communicate(timeout=120)
        assert process.returncode == 0, errors
    files = sorted(path.name for path in tmp_path.rglob("*") if path.is_file())
    assert len(files) == 2 and files[0].endswith(".gto") and files[1].startswith("sources-"), files


def test_the_environment_turns_the_disk_cache_off(tmp_path: Path) -> None:
    process = run_python(COMPILES, tmp_path, GRADTAPE_DISABLE_DISK_CACHE="1")
    _, errors = process.communicate(timeout=120)
    assert process.returncode == 0, errors
    assert list(tmp_path.iterdir()) == []


def test_the_cache_folder_is_the_users_own_by_default() -> None:
    with config.override(cache_dir=None):
        assert "gradtape" in str(cache_path())


def test_object_code_survives_the_disk(folder: Path) -> None:
    code = compile_object(TWICE, "twice")
    DiskCache().store(KEY, CachedObject(code))
    found = DiskCache().load(KEY)
    assert found is not None
    y = np.empty(3)
    call_flat(LoadedModule(found.code), [np.ones(3)], [y])
    np.testing.assert_array_equal(y, 2.0)


# The command line


def test_the_command_line_speaks_of_the_cache(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    cached_object("one", lambda: ENTRY)
    assert main(["cache", "info"]) == 0
    assert "1 programs" in capsys.readouterr().out
    assert main(["cache", "path"]) == 0
    assert capsys.readouterr().out.strip() == str(cache_path())
    assert main(["cache", "clear"]) == 0
    assert "removed 1 program " in capsys.readouterr().out
    assert main(["cache", "clear"]) == 0
    assert "removed 0 programs" in capsys.readouterr().out


def test_the_command_line_describes_the_installation(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["info"]) == 0
    output = capsys.readouterr().out
    for word in ("Python", "numpy", "numba", "CPU", "vectors", "BLAS", "threads", "trace_limit", str(folder)):
        assert word in output


@pytest.mark.parametrize("arguments", [["bogus"], ["cache"], ["cache", "bogus"]], ids=str)
def test_wrong_commands_show_the_usage(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as caught:
        main(arguments)
    assert caught.value.code == 2
    assert "usage: python -m gradtape" in capsys.readouterr().err
