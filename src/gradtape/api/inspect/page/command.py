"""``python -m gradtape inspect``: a script, run as Python would run it, and the page of what it compiled."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Final

from gradtape.api.inspect.page.document import write_page
from gradtape.api.inspect.page.model import WatchedRun
from gradtape.api.inspect.page.opening import file_name, show_in_browser
from gradtape.api.inspect.page.server import PageServer
from gradtape.api.inspect.script import USAGE, check_output, runner, status_of, wait_for_threads
from gradtape.api.transforms.jit import Jitted
from gradtape.errors import ArgumentError
from gradtape.habits import nearest
from gradtape.locks import Rank, new_lock

NOTHING: Final = 1
"""The exit status where there is nothing to show."""

PAUSE: Final = 0.4
"""Seconds between two looks at the files of a live script."""


def run_inspected(
    target: str,
    arguments: Sequence[str],
    *,
    as_module: bool = False,
    output: str | None = None,
    serve: bool = False,
    show: bool = True,
    as_model: bool = False,
) -> int:
    """Run a script, write or serve the page of what it compiled, and return its exit status.

    Parameters
    ----------
    target : str
        A file, or the name of a module; after a colon the function that is shown alone.
    arguments : sequence of str
        What the script is to find in ``sys.argv``.
    as_module : bool, default False
        Whether `target` is a module, as for ``python -m``.
    output : str, optional
        The file that is written; in the current folder, with the script's name, by default.
    serve : bool, default False
        Serve the page until Ctrl-C, and run the script again when it changes.
    show : bool, default True
        Open the page in a browser.
    as_model : bool, default False
        Write the model as JSON in place of the page.
    """
    target, function = _split(target, as_module)
    try:
        run = runner(target, arguments, as_module, "inspect")
        path = Path(output or f"{file_name(Path(target).stem)}.inspect.html")
        if not serve:
            check_output(str(path), "page")
    except ArgumentError as error:
        print(error, file=sys.stderr)
        return USAGE
    if serve:
        described = f"{target}:{function}" if function else target
        return _Live(described, arguments, as_module).serve(show)
    watched = WatchedRun()
    failures: list[BaseException] = []
    with watched:
        status = status_of(run, failures)
        wait_for_threads()
    failure = "".join(f"{type(error).__name__}: {error}" for error in failures)
    model = watched.model(Path(target).name, failure=failure)
    if failures and not model["functions"]:
        return status  # the traceback says why there is nothing to show
    try:
        model = only(model, function, target) if function else model
        if not model["functions"]:
            raise ArgumentError(
                f"there is nothing to show of {target}",
                why="it called no compiled function, and no tape computed anything",
                remedy="call what gt.jit, gt.grad or another function that compiles returned, with its arguments",
            )
    except ArgumentError as error:
        print(error, file=sys.stderr)
        return status or NOTHING
    if as_model:
        path.write_text(json.dumps(model), encoding="utf-8")
        return status
    path.write_text(write_page(model), encoding="utf-8")
    print(f"wrote {path}", flush=True)
    if show:
        show_in_browser(path.resolve().as_uri())
    return status


def _split(target: str, as_module: bool) -> tuple[str, str]:
    """Return the script and the function; a drive's letter ends with a colon as well."""
    before, colon, name = target.rpartition(":")
    if colon and name.isidentifier() and (as_module or before.endswith(".py") or Path(before).is_file()):
        return before, name
    return target, ""


def only(model: dict[str, Any], name: str, target: str) -> dict[str, Any]:
    """Return a model of the functions that are called by a name, or were made of a function of that name.

    Raises
    ------
    ArgumentError
        If there is none.
    """
    functions = model["functions"]
    content = vars(sys.modules["__main__"]).get(name)
    names = {name, content.site.name} if isinstance(content, Jitted) else {name}
    kept_positions = [
        k
        for k, function in enumerate(functions)
        if _names_in(function["name"]) & names or function["name"] in names
    ]
    if not kept_positions:
        raise _nothing_of(name, target, content, [function["name"] for function in functions])
    numbers = {old: new for new, old in enumerate(kept_positions)}
    shown = {old: new for new, old in enumerate(p for k in kept_positions for p in functions[k]["programs"])}
    chosen = [
        {**functions[k], "programs": [shown[p] for p in functions[k]["programs"]]} for k in kept_positions
    ]
    problems = [
        {
            **problem,
            "function": numbers.get(problem["function"], -1),
            "nodes": [(shown[p], stage, node) for p, stage, node in problem["nodes"] if p in shown],
        }
        for problem in model["problems"]
        if problem["function"] in numbers or any(p in shown for p, *_ in problem["nodes"])
    ]
    return {
        **model,
        "title": f"{name} in {model['title']}",
        "functions": chosen,
        "programs": [
            {**model["programs"][old], "function": numbers[model["programs"][old]["function"]]}
            for old in shown
        ],
        "events": [
            {**event, "function": numbers[event["function"]]}
            for event in model["events"]
            if event["function"] in numbers
        ],
        "problems": problems,
    }


def _names_in(title: str) -> set[str]:
    """Return the names in one such as ``value_and_grad(loss)``, but for that of the transform."""
    *_, inner = title.split("(")
    return {inner.rstrip(")")} if "(" in title else {title}


def _nothing_of(name: str, target: str, content: Any, called: Sequence[str]) -> ArgumentError:
    """Return the error for a function of which there is nothing to show."""
    names = sorted({inner for title in called for inner in _names_in(title) if inner.isidentifier()})
    there = (
        f"compiled functions that were called: {', '.join(called)}"
        if called
        else "no compiled function was called"
    )
    if content is None:
        near = nearest(
            name, [*names, *[key for key, value in vars(sys.modules["__main__"]).items() if callable(value)]]
        )
        return ArgumentError(
            f"{target} has no function {name!r}",
            why=there,
            remedy=f"did you mean {near}?" if near else "name one of these, or none for all of them",
        )
    if not callable(content):
        return ArgumentError(f"{name} in {target} is no function", why=there)
    return ArgumentError(
        f"there is nothing to show of {name}: {target} did not call it as a compiled function",
        why=there,
        remedy=f"call it in the script with its arguments: gt.jit({name})(...), or gt.value_and_grad({name})(...)",
    )


class _Live:
    """A script whose page is served, and that is run again when one of its files changes, each time in a process of its own."""

    def __init__(self, target: str, arguments: Sequence[str], as_module: bool) -> None:
        options = ["-m"] if as_module else []
        self._command = [sys.executable, "-m", "gradtape", "inspect", *options, "--model", "--output"]
        self._script = [target, *arguments]
        self._running = new_lock(Rank.LEAF)
        self._server: PageServer | None = None
        self._files: dict[str, float] = {}

    def serve(self, show: bool) -> int:
        """Run the script, serve its page until Ctrl-C, and return the exit status."""
        status, model = self._run()
        if model is None:
            return status
        self._server = server = PageServer(model, self.run_again)
        print(f"serving {server.url} until Ctrl-C", flush=True)
        if show:
            show_in_browser(server.url)
        try:
            while True:
                time.sleep(PAUSE)
                if self._files != _changed_at(self._files):
                    self.run_again()
        except KeyboardInterrupt:
            return 0
        finally:
            server.close()

    def run_again(self) -> None:
        """Run the script, and show what it did; do nothing if it is running."""
        server = self._server
        if server is None or not self._running.acquire(blocking=False):
            return
        try:
            server.say("running")
            status, model = self._run()
            if model is None:
                server.say(f"the script ended with status {status}, and there is nothing to show")
            else:
                server.publish(model)
        finally:
            self._running.release()

    def _run(self) -> tuple[int, dict[str, Any] | None]:
        with tempfile.TemporaryDirectory(prefix="gradtape-") as folder:
            path = Path(folder) / "model.json"
            # The files as they are before: what changes while the script runs is seen after it.
            self._files = _changed_at(self._files)
            done = subprocess.run([*self._command, str(path), *self._script])
            model = json.loads(path.read_text(encoding="utf-8")) if path.is_file() else None
        if model is not None:
            known_files = self._files
            self._files = {**_changed_at(file["path"] for file in model["files"]), **known_files}
        return done.returncode, model


def _changed_at(files: Iterable[str]) -> dict[str, float]:
    """Return when files were written last."""
    return {file: os.stat(file).st_mtime for file in files if os.path.isfile(file)}
