"""The disk cache: object code for later processes.

One file per program: a magic number, a JSON header, the object code, a checksum over all of it. Files
appear whole or not at all (`os.replace`), so any number of processes may share a folder without locks;
only the one that makes room takes one. Whatever goes wrong costs a compilation, never a wrong result: a
file that does not check is thrown away, and a folder that cannot be used is left alone after one warning.
"""

from __future__ import annotations

import hashlib
import json
import os
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, NamedTuple

from gradtape.config import config
from gradtape.errors import CacheWarning, warn
from gradtape.interruptions import raise_interruption

__all__ = ["CachedObject", "DiskCache", "DiskStatistics", "cache_path", "pack", "remembered", "unpack"]

_MAGIC: Final = b"gradtape object\x01"
_SUFFIX: Final = ".gto"
_DIGEST_BYTES: Final = 32
_TOUCH_AFTER_SECONDS: Final = 60.0
_FILL_AFTER_EVICTION: Final = 0.8
_ORPHAN_SECONDS: Final = 3600.0


@dataclass(frozen=True, slots=True)
class CachedObject:
    """Object code and its metadata.

    Attributes
    ----------
    code : bytes
        Object code.
    symbols : tuple of str
        Exported names.
    metadata : mapping
        Anything that JSON can represent.
    """

    code: bytes
    symbols: tuple[str, ...] = ()
    metadata: Mapping[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class DiskStatistics:
    """Counts of what the disk cache did in this process."""

    hits: int = 0
    misses: int = 0
    stores: int = 0
    corrupt: int = 0
    evicted: int = 0
    failures: int = 0


class _File(NamedTuple):
    used: float
    size: int
    path: str


def cache_path() -> Path:
    """Return the folder of the disk cache.

    ``GRADTAPE_CACHE_DIR`` or ``gt.config.cache_dir`` choose another one.

    Examples
    --------
    >>> from gradtape.config import config
    >>> with config.override(cache_dir="somewhere"):
    ...     cache_path().parts
    ('somewhere', 'objects-1')
    """
    root = config.cache_dir
    if root is None:
        import platformdirs

        root = platformdirs.user_cache_dir("gradtape", appauthor=False)
    return Path(root) / "objects-1"


class DiskCache:
    """Object code by key, in the folder that the settings name.

    Examples
    --------
    >>> import tempfile
    >>> from gradtape.config import config
    >>> cache = DiskCache()
    >>> with tempfile.TemporaryDirectory() as folder, config.override(cache_dir=folder, disk_cache=True):
    ...     stored = cache.store("a1b2", CachedObject(b"code", ("f",), {"nests": 2}))
    ...     cache.load("a1b2"), cache.load("c3d4")
    (CachedObject(code=b'code', symbols=('f',), metadata={'nests': 2}), None)
    """

    def __init__(self) -> None:
        self.statistics = DiskStatistics()
        self._warned: set[Path] = set()
        self._measured: tuple[Path, int] | None = None
        self._usable: dict[Path, bool] = {}

    def load(self, key: str) -> CachedObject | None:
        """Return the entry of a key, if there is one and its checksum is right."""
        if not config.disk_cache:
            return None
        path = _file_of(key)
        try:
            if not self._is_usable(path.parent.parent):
                return None
            with open(path, "rb") as file:
                used = os.fstat(file.fileno()).st_mtime
                data = file.read()
        except FileNotFoundError:
            self.statistics.misses += 1
            return None
        except OSError as error:
            raise_interruption(error)
            self._warn(f"cannot be read: {error}")
            return None
        found = unpack(data, key)
        if found is None:
            self.statistics.corrupt += 1
            self.statistics.misses += 1
            self.discard(key)
            return None
        self.statistics.hits += 1
        if time.time() - used > _TOUCH_AFTER_SECONDS:
            _quietly(os.utime, path)
        return found

    def has(self, key: str) -> bool:
        """Return whether there is an entry of a key."""
        return config.disk_cache and _file_of(key).exists()

    def store(self, key: str, entry: CachedObject) -> bool:
        """Store an entry, and evict others if the folder grows beyond ``config.cache_size``; return whether it is stored."""
        return config.disk_cache and self._write(key, pack(key, entry))

    def packed(self, key: str) -> bytes | None:
        """Return the file of an entry, None if there is none."""
        try:
            return _file_of(key).read_bytes() if config.disk_cache else None
        except OSError as error:
            raise_interruption(error)
            return None

    def add(self, key: str, data: bytes) -> None:
        """Store the file of an entry, of which it is known that it is right, unless there is one."""
        if config.disk_cache and not _file_of(key).exists():
            self._write(key, data)

    def _write(self, key: str, data: bytes) -> bool:
        path = _file_of(key)
        if len(data) > config.cache_size:
            return False
        temporary = path.with_name(f".{key}.{os.getpid()}.{threading.get_ident()}.tmp")
        try:
            path.parent.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if not self._is_usable(path.parent.parent):
                return False
            path.parent.mkdir(mode=0o700, exist_ok=True)
            descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            with open(descriptor, "wb") as file:
                file.write(data)
            os.replace(temporary, path)
        except OSError as error:
            raise_interruption(error)
            _quietly(os.unlink, temporary)
            self._warn(f"cannot be written: {error}")
            return False
        except BaseException:
            _quietly(os.unlink, temporary)
            raise
        self.statistics.stores += 1
        self._make_room(path.parent.parent, len(data))
        return True

    def discard(self, key: str) -> None:
        """Remove the entry of a key."""
        _quietly(os.unlink, _file_of(key))

    def clear(self) -> int:
        """Remove every entry of the folder and return how many there were."""
        count = 0
        for file in _files(cache_path()):
            count += _quietly(os.unlink, file.path)
        for kept in (*cache_path().glob("sources-*"), *cache_path().glob("routines-*")):
            _quietly(os.unlink, kept)
        self._measured = None
        return count

    def usage(self) -> tuple[int, int]:
        """Return the number of entries in the folder and their bytes."""
        files = list(_files(cache_path()))
        return len(files), sum(file.size for file in files)

    def entries(self) -> list[tuple[str, int, float]]:
        """Return the key, the bytes and the time of the last use of each entry of the folder, the latest first."""
        files = sorted(_files(cache_path()), reverse=True)
        return [(os.path.basename(file.path).removesuffix(_SUFFIX), file.size, file.used) for file in files]

    def is_whole(self, key: str) -> bool:
        """Return whether the file of an entry has its own checksum and key; one that was removed meanwhile has."""
        try:
            return unpack(_file_of(key).read_bytes(), key) is not None
        except FileNotFoundError:
            return True
        except OSError as error:
            raise_interruption(error)
            return False

    def _make_room(self, folder: Path, added: int) -> None:
        """Evict the least recently used entries if the folder is too large."""
        if self._measured is None or self._measured[0] != folder:
            self._measured = (folder, sum(file.size for file in _files(folder)))
        else:
            self._measured = (folder, self._measured[1] + added)
        if self._measured[1] <= config.cache_size:
            return
        import filelock

        try:
            with filelock.FileLock(folder / ".evicting.lock", timeout=0, mode=0o600):
                self._measured = (folder, self._evict(folder))
        except (OSError, filelock.Timeout):
            return

    def _evict(self, folder: Path) -> int:
        files = sorted(_files(folder))
        total = sum(file.size for file in files)
        goal = int(config.cache_size * _FILL_AFTER_EVICTION)
        for file in files:
            if total <= goal:
                break
            total -= file.size
            self.statistics.evicted += _quietly(os.unlink, file.path)
        return total

    def _is_usable(self, folder: Path) -> bool:
        """Return whether machine code in the folder can be trusted: no other user can write to it."""
        known = self._usable.get(folder)
        if known is not None:
            return known
        if os.name != "posix" or not folder.exists():
            return True
        safe = self._usable[folder] = _is_private(folder)
        if not safe:
            self._warn("belongs to another user or can be written by others")
        return safe

    def _warn(self, what: str) -> None:
        self.statistics.failures += 1
        folder = cache_path()
        if folder not in self._warned:
            self._warned.add(folder)
            warn(
                CacheWarning,
                f"gradtape's disk cache {folder} {what}",
                why="programs are compiled again in each process",
                remedy="set GRADTAPE_CACHE_DIR to a folder of your own, or GRADTAPE_DISABLE_DISK_CACHE=1",
            )


def _is_private(folder: Path) -> bool:
    """Return whether no other user can write to a folder, or it is yet to be made."""
    if os.name != "posix":
        return True
    try:
        status = folder.stat()
    except OSError as error:
        raise_interruption(error)
        return True
    return status.st_uid == os.geteuid() and not status.st_mode & 0o022


def remembered(name: str, compute: Callable[[], bytes]) -> bytes:
    """Return what an earlier process has computed, or compute it and keep it beside the entries.

    Examples
    --------
    >>> import tempfile
    >>> from gradtape.config import config
    >>> with tempfile.TemporaryDirectory() as folder, config.override(cache_dir=folder, disk_cache=True):
    ...     remembered("sources-1", lambda: b"first"), remembered("sources-1", lambda: b"second")
    (b'first', b'first')
    """
    path = cache_path() / name
    if not config.disk_cache or not _is_private(path.parent):
        return compute()
    try:
        with open(path, "rb") as file:
            data = file.read()
        if _checksum(data[:-_DIGEST_BYTES]) == data[-_DIGEST_BYTES:]:
            return data[:-_DIGEST_BYTES]
    except OSError as error:
        raise_interruption(error)
    found = compute()
    data = found + _checksum(found)
    temporary = path.with_name(f".{name}.{os.getpid()}.{threading.get_ident()}.tmp")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        temporary.write_bytes(data)
        os.replace(temporary, path)
    except OSError as error:  # the entries of the folder will say so
        raise_interruption(error)
        _quietly(os.unlink, temporary)
    return found


def _file_of(key: str) -> Path:
    return cache_path() / key[:2] / f"{key}{_SUFFIX}"


def pack(key: str, entry: CachedObject) -> bytes:
    """Return the file of an entry."""
    header = {"key": key, "size": len(entry.code), "symbols": entry.symbols, "metadata": dict(entry.metadata)}
    text = json.dumps(header).encode()
    content = b"".join((_MAGIC, len(text).to_bytes(4, "little"), text, entry.code))
    return content + _checksum(content)


def unpack(data: bytes, key: str) -> CachedObject | None:
    """Return the entry of a file, None if it is not whole or belongs to another key."""
    start = len(_MAGIC) + 4
    content, checksum = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if len(data) < start + _DIGEST_BYTES or not content.startswith(_MAGIC) or _checksum(content) != checksum:
        return None
    end = start + int.from_bytes(content[len(_MAGIC) : start], "little")
    try:
        header = json.loads(content[start:end])
        if header["key"] != key:
            return None
        return CachedObject(content[end:], tuple(header["symbols"]), header["metadata"])
    except (ValueError, LookupError, TypeError):  # of a version with another header
        return None


def _checksum(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=_DIGEST_BYTES).digest()


def _files(folder: Path) -> Iterator[_File]:
    """Yield the entries of a folder; temporary files of processes that died are removed."""
    now = time.time()
    for entry in (entry for part in _scan(folder) if part.is_dir() for entry in _scan(part.path)):
        try:
            status = entry.stat()
        except OSError as error:
            raise_interruption(error)
            continue
        if entry.name.endswith(_SUFFIX):
            yield _File(status.st_mtime, status.st_size, entry.path)
        elif entry.name.endswith(".tmp") and now - status.st_mtime > _ORPHAN_SECONDS:
            _quietly(os.unlink, entry.path)


def _scan(folder: str | Path) -> list[os.DirEntry[str]]:
    try:
        with os.scandir(folder) as entries:
            return list(entries)
    except OSError as error:
        raise_interruption(error)
        return []


def _quietly(action: Any, path: str | Path) -> bool:
    """Apply a function to a file that another process may have removed; return whether that succeeded."""
    try:
        action(path)
    except OSError as error:
        raise_interruption(error)
        return False
    return True
