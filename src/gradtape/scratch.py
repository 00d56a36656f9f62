"""Scratch files: memory for records that fit nowhere else, in files that have no name.

A file without a name is gone when nobody has it mapped any more, also after a crash. The system writes its pages to the disk when it needs
their memory, and reads them again.
"""

from __future__ import annotations

import ctypes
import mmap
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from gradtape.config import config

__all__ = ["free_scratch", "scratch_folder", "workspace_with_file"]

ALIGNMENT: Final = 65536
"""Bytes on whose multiple the part of a workspace begins that is in a file: a page of any system."""

_SHARE: Final = 0.9
"""The part of the free disk that files may take."""

_MAP_FIXED: Final = 0x10


def scratch_folder() -> Path:
    """Return the folder of scratch files: ``gt.config.scratch_dir``, or else that of ``TMPDIR``, or else that of the disk cache.

    ``/tmp`` is not the default, since it is memory on many systems.

    Examples
    --------
    >>> with config.override(scratch_dir="somewhere"):
    ...     scratch_folder().name
    'somewhere'
    """
    chosen = config.scratch_dir or os.environ.get("TMPDIR") or config.cache_dir
    if chosen is None:
        import platformdirs

        chosen = platformdirs.user_cache_dir("gradtape", appauthor=False)
    return Path(chosen)


def free_scratch() -> int:
    """Return the bytes that scratch files may take; 0 where there can be none.

    Examples
    --------
    >>> free_scratch() >= 0
    True
    """
    if not hasattr(mmap, "MAP_ANONYMOUS"):  # Windows
        return 0
    folder = scratch_folder()
    try:
        while not folder.exists():
            folder = folder.parent
        return int(_SHARE * _free_bytes(folder)) if os.access(folder, os.W_OK) else 0
    except OSError:
        return 0


def _free_bytes(folder: Path) -> int:
    status = os.statvfs(folder)
    return status.f_bavail * status.f_frsize


@contextmanager
def workspace_with_file(size: int, file_from: int) -> Iterator[npt.NDArray[Any]]:
    """Map memory of `size` bytes, which is in a scratch file from `file_from` on.

    Parameters
    ----------
    size : int
        Bytes of the workspace.
    file_from : int
        A multiple of `ALIGNMENT`.

    Raises
    ------
    OSError
        If there is no room in memory or on the disk.

    Examples
    --------
    >>> with workspace_with_file(2**18, 2**17) as memory:
    ...     memory[:] = 7
    ...     int(memory[2**17 - 1]), int(memory[-1]), memory.nbytes
    (7, 7, 262144)
    """
    size = -(-size // ALIGNMENT) * ALIGNMENT
    map_, unmap = _functions()
    protection = mmap.PROT_READ | mmap.PROT_WRITE
    with _unnamed_file(size - file_from) as file:
        base = map_(None, size, protection, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS, -1, 0)
        if base in (None, _FAILED):
            raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
        try:
            fixed = mmap.MAP_SHARED | _MAP_FIXED
            at = base + file_from
            if map_(at, size - file_from, protection, fixed, file, 0) != at:
                raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
            yield np.ctypeslib.as_array((ctypes.c_uint8 * size).from_address(base))
        finally:
            unmap(base, size)


_FAILED: Final = 2 ** (8 * ctypes.sizeof(ctypes.c_void_p)) - 1


@contextmanager
def _unnamed_file(size: int) -> Iterator[int]:
    """Open a file of a size, with blocks of the disk where the system can: a store that found none would end the process."""
    folder = scratch_folder()
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        path = folder / f"gradtape-{os.getpid()}-{os.urandom(8).hex()}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:
        raise _explained(error, size, folder) from None
    try:
        try:
            os.unlink(path)
            os.truncate(descriptor, size)
            if hasattr(os, "posix_fallocate"):
                os.posix_fallocate(descriptor, 0, size)
        except OSError as error:
            raise _explained(error, size, folder) from None
        yield descriptor
    finally:
        os.close(descriptor)


def _explained(error: OSError, size: int, folder: Path) -> OSError:
    """Return an error with a note that says what the file is for."""
    error.add_note(
        f"gradtape: a reversed loop needs a scratch file of {size / 1e6:.1f} MB in {folder}; set gt.config.scratch_dir to a folder "
        "with room for it, or memory= to a larger limit"
    )
    return error


def _functions() -> tuple[Any, Any]:
    """Return the C library's mmap and munmap."""
    library = ctypes.CDLL(None, use_errno=True)
    map_, unmap = library.mmap, library.munmap
    map_.restype = ctypes.c_void_p
    map_.argtypes = [ctypes.c_void_p, ctypes.c_size_t, *[ctypes.c_int] * 3, ctypes.c_long]
    unmap.argtypes = [ctypes.c_void_p, ctypes.c_size_t]
    return map_, unmap
