"""``python -m gradtape profile``: a script, run as Python would run it, with a profile at its end."""

from __future__ import annotations

import builtins
import importlib.util
import io
import json
import os
import runpy
import sys
import threading
import traceback
import types
from collections.abc import Callable, Sequence
from pathlib import Path

from gradtape.api.inspect.profiles import ORDERS, Order, Report
from gradtape.errors import ArgumentError

__all__ = ["ORDERS", "run_profiled"]

USAGE = 2
"""The exit status of a command line that makes no sense."""


def run_profiled(
    target: str,
    arguments: Sequence[str],
    *,
    as_module: bool = False,
    order: Order = "total",
    as_json: bool = False,
    output: str | None = None,
) -> int:
    """Run a script, print the profile of what it did, and return its exit status.

    Parameters
    ----------
    target : str
        A file, or the name of a module.
    arguments : sequence of str
        What the script is to find in ``sys.argv``.
    as_module : bool, default False
        Whether `target` is a module, as for ``python -m``.
    order : str, default "total"
        By what the functions are sorted.
    as_json : bool, default False
        Print JSON in place of the table.
    output : str, optional
        A file that the profile is written to in place of the standard output.
    """
    try:
        run = runner(target, arguments, as_module, "profile")
        check_output(output, "profile")
    except ArgumentError as error:
        print(error, file=sys.stderr)
        return USAGE
    profile = Report()
    with profile:
        status = status_of(run)
        wait_for_threads()
    text = json.dumps(profile.to_dict(), indent=2) if as_json else profile.text(order)
    if output is None:
        print_text(text)
    else:
        Path(output).write_text(text + "\n", encoding="utf-8")
    return status


def print_text(text: str) -> None:
    """Print what a terminal can show of a text; nobody may be reading any more (``| head``)."""
    encoding = sys.stdout.encoding or "utf-8"
    try:
        print(text.encode(encoding, "replace").decode(encoding), flush=True)
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def check_output(output: str | None, what: str) -> None:
    """Find out before the script runs, perhaps for hours, that what it is run for could not be written."""
    folder = None if output is None else Path(output).resolve().parent
    if folder is not None and (not folder.is_dir() or Path(output or "").is_dir()):
        raise ArgumentError(
            f"the {what} cannot be written to {output}", remedy="name a file in a folder that exists"
        )


def runner(target: str, arguments: Sequence[str], as_module: bool, command: str) -> Callable[[], None]:
    """Return a function that runs a script or a module as Python would; `command` of ``python -m gradtape`` runs it."""
    return (_module if as_module else _script)(target, arguments, command)


def _script(target: str, arguments: Sequence[str], command: str) -> Callable[[], None]:
    path = Path(target)
    if not path.is_file():
        what = "is a folder" if path.is_dir() else "does not exist"
        raise ArgumentError(
            f"there is no script to {command}: {target} {what}",
            remedy=f"python -m gradtape {command} script.py [arguments]; for a module: python -m gradtape {command} -m package.module",
        )
    if path.suffix == ".ipynb":
        raise ArgumentError(
            f"{target} is a notebook, and no script",
            remedy=f"make a script of it: jupyter nbconvert --to script {target}",
        )
    with io.open_code(str(path.resolve())) as file:
        source = file.read()
    name = os.path.abspath(target)

    def run() -> None:
        module = types.ModuleType("__main__")
        module.__dict__.update(__file__=name, __builtins__=builtins, __cached__=None)
        # Not restored: what is left running at the end, and pickled objects, still need the script's names.
        sys.modules["__main__"] = module
        sys.argv[:] = [target, *arguments]
        sys.path[0] = str(path.resolve().parent)
        exec(compile(source, name, "exec", dont_inherit=True), module.__dict__)

    return run


def _module(target: str, arguments: Sequence[str], command: str) -> Callable[[], None]:
    try:
        found = importlib.util.find_spec(target)
    except (ImportError, ValueError):
        found = None
    if found is None:
        raise ArgumentError(
            f"there is no module to {command}: {target} cannot be found",
            remedy="name it as for `python -m`",
        )

    def run() -> None:
        sys.argv[:] = [target, *arguments]
        sys.path[0] = os.getcwd()
        runpy.run_module(target, run_name="__main__", alter_sys=True)

    return run


def status_of(run: Callable[[], None], failures: list[BaseException] | None = None) -> int:
    """Run a script to whatever end it comes to, and return what Python would exit with; an exception is added to `failures`."""
    try:
        run()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:
        error.__traceback__ = _from_the_script_on(error.__traceback__)
        sys.stdout.flush()
        traceback.print_exception(error)
        if failures is not None:
            failures.append(error)
        return 130 if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _from_the_script_on(trace: types.TracebackType | None) -> types.TracebackType | None:
    """Return a traceback without the frames that started the script; None for an error in its syntax, which has no others."""
    while trace is not None and trace.tb_frame.f_code.co_filename in (
        __file__,
        runpy.__file__,
        "<frozen runpy>",
    ):
        trace = trace.tb_next
    return trace


def wait_for_threads() -> None:
    """Wait for the threads that Python would wait for at the end of a script."""
    for thread in threading.enumerate():
        if thread is not threading.main_thread() and not thread.daemon:
            thread.join()
