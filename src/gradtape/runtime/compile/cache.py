"""The caches of compiled programs: in memory, and on disk from earlier processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final, Generic, NamedTuple, TypeVar
from weakref import WeakValueDictionary

from gradtape.config import config
from gradtape.locks import Rank, new_lock
from gradtape.lower.resident.routine import keepers
from gradtape.lru import LRU
from gradtape.runtime.compile.disk import (
    CachedObject,
    DiskCache,
    DiskStatistics,
    cache_path,
    pack,
    remembered,
    unpack,
)
from gradtape.runtime.compile.keys import object_key

__all__ = [
    "CacheInfo",
    "CachedObject",
    "MemoryCache",
    "Shipment",
    "cache_clear",
    "cache_info",
    "cache_path",
    "cached_object",
    "disk",
    "object_key",
    "receive",
    "ship",
]

P = TypeVar("P")


class MemoryCache(Generic[P]):
    """An LRU cache of programs that is safe to use from several threads.

    If several threads need the same missing program, one of them makes it and the others wait. If it fails or is interrupted, the next
    thread tries.

    Parameters
    ----------
    limit : callable, optional
        Returns how many programs to keep; ``config.memory_cache`` by default.

    Examples
    --------
    >>> cache = MemoryCache(limit=lambda: 2)
    >>> [cache.get(key, lambda: key.upper()) for key in "aabc"]
    ['A', 'A', 'B', 'C']
    >>> "a" in cache, len(cache), cache.hits, cache.misses
    (False, 2, 1, 3)
    """

    def __init__(self, limit: Callable[[], int] = lambda: config.memory_cache) -> None:
        self.hits = 0
        self.misses = 0
        self._programs: LRU[str | bytes, tuple[P]] = LRU(limit)
        self._lock = new_lock(Rank.PROGRAMS)
        self._building: WeakValueDictionary[str | bytes, Any] = WeakValueDictionary()

    def get(self, key: str | bytes, make: Callable[[], P]) -> P:
        """Return the program of a key; `make` returns it if there is none yet."""
        with self._lock:
            entry = self._find(key)
            if entry is not None:
                return entry[0]
            building = self._building.get(key)
            if building is None:  # reentrant: building one program may need the same one
                building = self._building[key] = new_lock(Rank.PROGRAM)
        with building:
            with self._lock:
                entry = self._find(key)
                if entry is not None:
                    return entry[0]
            program = make()
            with self._lock:
                self.misses += 1
            self._programs[key] = (program,)
        return program

    def _find(self, key: str | bytes) -> tuple[P] | None:
        entry = self._programs.get(key)
        self.hits += entry is not None
        return entry

    def clear(self) -> int:
        """Drop every program and return how many there were."""
        return self._programs.clear()

    def __contains__(self, key: str | bytes) -> bool:
        return key in self._programs

    def __len__(self) -> int:
        return len(self._programs)


disk: Final = DiskCache()
"""The disk cache of this process."""

keepers.append(remembered)


def cached_object(
    fingerprint: str | bytes,
    build: Callable[[], CachedObject],
    *options: object,
    is_local: Callable[[], bool] = lambda: False,
) -> CachedObject:
    """Return a program's object code from the disk, or else build and store it.

    Parameters
    ----------
    fingerprint : str or bytes
        What the program computes, and on which shapes and dtypes.
    build : callable
        Compiles it.
    *options : object
        Whatever else the code depends on.
    is_local : callable
        Returns whether the code that was built is of use to this process only; then it is not stored.

    Examples
    --------
    >>> with config.override(disk_cache=False):
    ...     cached_object("nothing", lambda: CachedObject(b"code")).code
    b'code'
    """
    key = object_key(fingerprint, *options) if config.disk_cache or len(_arrived) else ""
    stored = (_arrived.get(key) or disk.load(key)) if key else None
    if stored is None:
        stored = build()
        if not is_local() and not disk.store(key, stored):
            _unsaved[fingerprint, options] = stored
    return stored


def is_stored(fingerprint: str | bytes, *options: object) -> bool:
    """Return whether there is object code of a program that `cached_object` need not build."""
    if not (config.disk_cache or len(_arrived)):
        return False
    key = object_key(fingerprint, *options)
    return key in _arrived or disk.has(key)


class Shipment(NamedTuple):
    """Object code on its way to another process.

    Attributes
    ----------
    environment : str
        A digest of everything outside a program that object code depends on.
    files : dict of str to bytes
        By key, the files of the disk cache.
    """

    environment: str
    files: dict[str, bytes]


_arrived: Final[LRU[str, CachedObject]] = LRU(lambda: config.memory_cache)
"""The object code that came from other processes: it is there without a disk cache, too."""

_unsaved: Final[LRU[tuple[str | bytes, tuple[object, ...]], CachedObject]] = LRU(lambda: config.memory_cache)
"""The object code that is not on the disk, by its fingerprint and options: it can be sent to other processes."""


def ship(fingerprints: Iterable[str]) -> Shipment:
    """Return the object code of programs, as far as this process or the disk cache has it."""
    files: dict[str, bytes] = {}
    for fingerprint in fingerprints:
        key = object_key(fingerprint)
        in_memory = _arrived.get(key) or _unsaved.get((fingerprint, ()))
        file = disk.packed(key) if in_memory is None else pack(key, in_memory)
        if file is not None:
            files[key] = file
    return Shipment(object_key("shipment"), files)


def receive(shipment: Shipment) -> int:
    """Keep object code of another process, and return how many programs were kept: none if it is for another processor, or for other
    versions of gradtape and the packages underneath. What does not have its own checksum and key is left out.
    """
    if shipment.environment != object_key("shipment"):
        return 0
    entries = {key: unpack(file, key) for key, file in shipment.files.items()}
    for key, entry in entries.items():
        if entry is not None:
            _arrived[key] = entry
            disk.add(key, shipment.files[key])
    return sum(entry is not None for entry in entries.values())


def _is_writable(path: str) -> bool:
    """Return whether files can be made in a folder, or it can be made."""
    folder = next(candidate for candidate in (Path(path), *Path(path).parents) if candidate.exists())
    return folder.is_dir() and os.access(folder, os.W_OK)


@dataclass(frozen=True, slots=True)
class CacheInfo:
    """The state of the disk cache; made by :func:`cache_info`."""

    path: str
    enabled: bool
    entries: int
    size: int
    limit: int
    statistics: DiskStatistics

    def __str__(self) -> str:
        state = "off" if not self.enabled else "in use" if _is_writable(self.path) else "it cannot be written"
        lines = [
            f"disk cache ({state}): {self.path}",
            f"  {self.entries} programs, {self.size / 2**20:.1f} MB of {self.limit / 2**20:.0f} MB",
        ]
        counts = [f"{count} {event}" for event, count in asdict(self.statistics).items() if count]
        if counts:
            lines.append(f"  this process: {', '.join(counts)}")
        return "\n".join(lines)


def cache_info() -> CacheInfo:
    """Describe the disk cache.

    Examples
    --------
    >>> cache_info().entries >= 0
    True
    """
    entries, size = disk.usage()
    return CacheInfo(str(cache_path()), config.disk_cache, entries, size, config.cache_size, disk.statistics)


def cache_clear() -> int:
    """Remove every program from the disk cache and return how many there were.

    Programs that this process has loaded stay usable.
    """
    return disk.clear()
