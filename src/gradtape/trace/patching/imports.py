"""Actions after the import of a module: SciPy's functions are hooked as soon as SciPy is imported."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import TYPE_CHECKING, Any, Final

from gradtape.trace.patching.recorders import RECORDERS, before_recording

if TYPE_CHECKING:
    from importlib.abc import Loader, MetaPathFinder
else:  # the import system needs methods, and the import of these classes takes 7 ms
    Loader = MetaPathFinder = object

Work = Callable[[ModuleType], None]

_awaited: Final[dict[str, list[Work]]] = {}

_always: Final[list[Work]] = []


def when_imported(name: str, work: Work) -> None:
    """Call a function with a module: at the first recording, or when it is imported afterwards."""
    before_recording(lambda: _begin(name, work))


def at_import(name: str, work: Work) -> None:
    """Call a function with a module: now if it is imported, or when it is."""
    _begin(name, work)


def at_each_import(work: Work) -> None:
    """Call a function with each module that is imported during a recording: traced code may import it, and then call its functions."""
    _always.append(work)
    before_recording(_find)


def _find() -> None:
    """Let the finder find modules."""
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)


def _begin(name: str, work: Work) -> None:
    """Call a function with a module if it is imported, or register it for the import."""
    module = sys.modules.get(name)
    spec = getattr(module, "__spec__", None)
    if module is not None and not getattr(spec, "_initializing", False):
        work(module)
        return
    _awaited.setdefault(name, []).append(work)
    _find()


def _work(module: ModuleType) -> None:
    for work in [*_awaited.pop(module.__name__, ()), *_always]:
        work(module)


class _Finder(MetaPathFinder):
    """Finds awaited modules, and during recordings all, by the other finders, and wraps their loaders."""

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if name not in _awaited and not RECORDERS:
            return None
        for finder in sys.meta_path:
            spec = None if finder is self else finder.find_spec(name, path, target)
            if spec is not None:
                if spec.loader is not None:
                    spec.loader = _Loader(spec.loader)
                return spec
        return None


class _Loader(Loader):
    """Loads a module by its own loader, restores that loader on it, and calls the registered functions."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def create_module(self, spec: ModuleSpec) -> ModuleType | None:
        made: ModuleType | None = self._loader.create_module(spec)
        return made

    def exec_module(self, module: ModuleType) -> None:
        assert module.__spec__ is not None
        module.__loader__ = module.__spec__.loader = self._loader
        self._loader.exec_module(module)
        _work(module)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


_finder: Final = _Finder()
