"""Opening the inspector for a function."""

from __future__ import annotations

import os
import sys
import tempfile
import webbrowser
from pathlib import Path
from types import MethodType
from typing import Any

from gradtape.api.inspect.page.document import write_page
from gradtape.api.inspect.page.model import watch_call
from gradtape.api.inspect.page.server import PageServer
from gradtape.api.transforms.jit import Jitted
from gradtape.errors import ArgumentError, kind_of
from gradtape.trace.source.sites import user_site


class Inspector:
    """A page about a compiled function; made by `gradtape.inspect.open`.

    Attributes
    ----------
    path : Path or None
        The HTML file; None for a live page.
    url : str
        What to open in a browser.
    result : object
        What the function has returned.
    model : dict
        What the page shows, of dicts, lists, strings and numbers.
    """

    def __init__(self, function: Jitted[..., Any], path: Path | None, server: PageServer | None) -> None:
        self._function = function
        self._server = server
        self.path = path
        self.url = "" if path is None else path.as_uri()
        self.result: Any = None
        self.model: dict[str, Any] = {}

    def refresh(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function again, let the page show that, and return the result. An open live page changes by itself."""
        watched = watch_call(self._function, args, kwargs)
        self.result = watched.result
        self.model = watched.model(self._function.site.name)
        if self.path is not None:
            self.path.write_text(write_page(self.model), encoding="utf-8")
        elif self._server is not None:
            self._server.publish(self.model)
        else:
            self._server = PageServer(self.model)
            self.url = self._server.url
        return self.result

    def close(self) -> None:
        """End a live page. A file stays."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def __enter__(self) -> Inspector:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<inspector of {self._function.site.name}: {self.url}>"


def open(  # it stands in gradtape.inspect
    function: Jitted[..., Any],
    /,
    *args: Any,
    path: str | os.PathLike[str] | None = None,
    serve: bool = False,
    show: bool = True,
    **kwargs: Any,
) -> Inspector:
    """Call a compiled function, and show its source, graph, loops and machine code with their times in the browser.

    The page has the lines of the function with the cost of each, the graph, the loop nests with what was fused into each and why not
    more, the LLVM IR and the assembly, and what was traced and compiled when. A selection in one of them is highlighted in all.

    Parameters
    ----------
    function : Jitted
        Made by `gradtape.jit`, `gradtape.grad` or another function that compiles.
    *args, **kwargs
        Its arguments. A function without side effects is called several times, so that the times are not those of a first run.
    path : str or path, optional
        The path of the page, a single self-contained file. By default a file in a temporary folder.
    serve : bool, default False
        Serve the page on this machine, where it changes with each `Inspector.refresh`, and write no file.
    show : bool, default True
        Open it in a browser.

    Returns
    -------
    Inspector
        Has the address of the page, and can refresh it.

    Raises
    ------
    ArgumentError
        If `function` is not a compiled function, or `path` cannot be written to.

    Examples
    --------
    >>> import numpy as np, gradtape as gt
    >>> slope = gt.grad(lambda x: np.sum(np.tanh(x) ** 2))
    >>> page = gt.inspect.open(slope, np.ones(3), show=False)
    >>> page.path.name
    'grad_lambda.html'
    >>> page.result.shape, [nest["kind"] for nest in page.model["programs"][0]["nests"]]
    ((3,), ['loop', 'between'])
    """
    if isinstance(function, MethodType):
        args = (function.__self__, *args)
        function = function.__func__
    if not isinstance(function, Jitted):
        raise ArgumentError(
            f"inspect.open got {kind_of(function)}, which is not a compiled function",
            where=user_site(),
            remedy="pass the function that gt.jit or gt.grad returned, and its arguments after it: gt.inspect.open(gt.jit(f), x)",
        )
    if serve and path is not None:
        raise ArgumentError(
            "inspect.open got serve=True and a path",
            where=user_site(),
            why="a live page is not a file",
            remedy="omit one of them",
        )
    page = Inspector(function, None if serve else _checked(path, function.site.name), None)
    page.refresh(*args, **kwargs)
    if show:
        show_in_browser(page.url)
    return page


def _checked(path: str | os.PathLike[str] | None, name: str) -> Path:
    """Return where a page is written to; find out before the function runs that it cannot be."""
    if path is None:
        return Path(tempfile.mkdtemp(prefix="gradtape-")) / f"{file_name(name)}.html"
    found = Path(path).resolve()
    if not found.parent.is_dir() or found.is_dir():
        raise ArgumentError(
            f"the page cannot be written to {os.fspath(path)}",
            where=user_site(),
            remedy="name a file in a folder that exists",
        )
    return found


def file_name(name: str) -> str:
    """Return the name of a function as one of a file."""
    words = "".join(letter if letter.isalnum() else " " for letter in name).split()
    return "_".join(words) or "page"


def show_in_browser(url: str) -> bool:
    """Open an address in a browser with windows, if there is one; one in the terminal would stand in the way."""
    if sys.platform.startswith("linux") and not (
        os.environ.get("DISPLAY") or os.environ.get("WAYLAND_DISPLAY")
    ):
        return False
    return webbrowser.open(url)
