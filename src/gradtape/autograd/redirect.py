"""Installed packages that import autograd get these modules, without a change of their files."""

from __future__ import annotations

import importlib
import pkgutil
import sys
from typing import Final

PACKAGE: Final = "gradtape.autograd"


def redirect_imports() -> None:
    """Let ``import autograd`` mean ``import gradtape.autograd`` in this process, in all packages that are imported from now on.

    Raises
    ------
    ImportError
        If autograd itself has been imported: functions of both would be mixed.

    Examples
    --------
    >>> from gradtape.autograd.redirect import redirect_imports
    >>> redirect_imports()
    >>> import autograd.numpy
    >>> autograd.numpy.__name__
    'gradtape.autograd.numpy'
    """
    package = importlib.import_module(PACKAGE)
    if sys.modules.get("autograd", package) is not package:
        raise ImportError(
            "autograd has been imported before redirect_imports was called: call it first, above the import of what imports autograd"
        )
    names = [PACKAGE, *(info.name for info in pkgutil.walk_packages(package.__path__, f"{PACKAGE}."))]
    for name in names:
        sys.modules[name.removeprefix("gradtape.")] = importlib.import_module(name)
