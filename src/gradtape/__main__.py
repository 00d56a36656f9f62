"""``python -m gradtape``: this installation, its disk cache, profiles and pages of what scripts compile, and functions as files."""

from __future__ import annotations

import argparse
import importlib
import importlib.metadata
import inspect
import operator
import os
import select
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Final

from gradtape import __version__
from gradtape.api.debug.doctor import doctor
from gradtape.api.export.files import export
from gradtape.api.export.specs import parse_specs
from gradtape.api.export.toolchain import TARGETS
from gradtape.api.inspect.check import run_checked
from gradtape.api.inspect.page.command import run_inspected
from gradtape.api.inspect.script import ORDERS, run_profiled
from gradtape.api.transforms.gradient import value_and_grad
from gradtape.errors import ArgumentError, GradtapeError, counted
from gradtape.habits import nearest
from gradtape.lower.c.module import function_name
from gradtape.manual import installed_text, pages, search
from gradtape.progress import progress
from gradtape.runtime.compile.cache import cache_clear, cache_info, cache_path, disk

PIPE_CLOSED: Final = 128 + 13
"""The exit status of a command whose output nobody reads any more: that of a process which SIGPIPE ended."""


SCRIPT_COMMAND_OPTIONS: Final = frozenset({"-o", "--output", "--json", "--serve", "--no-open", "--sort"})
"""Options of the commands that run a script, which scripts have as well."""


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m gradtape",
        description="Show the installation and the cache of compiled programs; check, profile and inspect scripts; "
        "export functions.",
    )
    parser.add_argument("--version", action="version", version=f"gradtape {__version__}")
    commands = parser.add_subparsers(
        title="commands", metavar="{info,explain,manual,cache,check,profile,inspect,export}", dest="command"
    )
    commands.add_parser(
        "info",
        aliases=["doctor"],
        help="versions, CPU, libraries, settings, and a test of this installation, as gt.doctor()",
    ).set_defaults(run=_info)
    explain = commands.add_parser(
        "explain", help="the page of an error or warning: a program that raises it, why, and what to do"
    )
    explain.add_argument(
        "name", nargs="?", help="the class, for example NumericsError; without it, all are listed"
    )
    explain.set_defaults(run=_explain)
    manual = commands.add_parser(
        "manual", help="the manual: its topics, one of them, or pages with these words"
    )
    manual.add_argument(
        "topic",
        nargs="*",
        help='"loops", "gt.grad", search words, or "all"; without it, topics are listed',
    )
    manual.set_defaults(run=_manual)
    cache = commands.add_parser("cache", help="the compiled programs on disk")
    actions = cache.add_subparsers(title="actions", metavar="{list,info,clear,verify,path}", required=True)
    actions.add_parser("list", help="each program: when it was used last, its size, its key").set_defaults(
        run=_cache_list
    )
    verify = actions.add_parser(
        "verify", help="check the checksum of each program; the exit status is 1 if one is damaged"
    )
    verify.add_argument("--remove", action="store_true", help="remove damaged programs")
    verify.set_defaults(run=_cache_verify)
    actions.add_parser("info", help="the number of programs and their total size").set_defaults(
        run=_cache_info
    )
    actions.add_parser("clear", help="remove them all").set_defaults(run=_cache_clear)
    actions.add_parser("path", help="the folder of the programs").set_defaults(run=_cache_path)
    _add_check(
        commands.add_parser(
            "check",
            help="run a script, and report what is not compiled, recompiled, not differentiated or inexact, with lines and remedies",
        )
    )
    _add_profile(
        commands.add_parser(
            "profile", help="run a script, and show where its compiled functions spend their time"
        )
    )
    _add_inspect(
        commands.add_parser(
            "inspect",
            help="run a script, and show in the browser what it compiled, from its lines to the assembly",
        )
    )
    _add_export(
        commands.add_parser(
            "export", help="write a function, or its value and gradient, as C, a library, or a file to load"
        )
    )
    options = parser.parse_args(arguments)
    if options.command is None:
        parser.print_help()
        return 0
    _note_late_options(options)
    run: Callable[[argparse.Namespace], int | None] = options.run
    try:
        status = run(options) or 0
        sys.stdout.flush()
    except BrokenPipeError:
        if not _reader_has_left():
            raise
        return PIPE_CLOSED
    return status


def _note_late_options(options: argparse.Namespace) -> None:
    """Tell of options that look like gradtape's, and are the script's because they come after it."""
    late = [option for option in getattr(options, "arguments", ()) if option in SCRIPT_COMMAND_OPTIONS]
    if late:
        print(
            f"gradtape: {late[0]} comes after {options.script}, so it is passed to the script; options of gradtape come before the script",
            file=sys.stderr,
        )


def _reader_has_left() -> bool:
    """Return whether what reads the standard output has ended, as `head` does, and print nothing more."""
    output = sys.stdout.fileno()
    if hasattr(select, "poll"):  # not on Windows; a script may have another broken pipe
        poll = select.poll()
        poll.register(output, 0)
        if not poll.poll(0):
            return False
    os.dup2(os.open(os.devnull, os.O_WRONLY), output)  # Python flushes it once more at its end
    return True


def _add_check(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a script as Python would, and print one page of findings about its compiled functions and tapes: missing parts of "
        "derivatives, kinks, lost digits, code that is not compiled or is recompiled, calls of Python. The exit status is that of the "
        "script, or 1 if it succeeded and there are findings, or nothing to check."
    )
    parser.add_argument("-m", dest="as_module", action="store_true", help="run a module, as python -m does")
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument("-o", "--output", metavar="FILE", help="write the page to a file")
    parser.add_argument("script", help="the script, or with -m the module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    parser.set_defaults(run=_check)


def _check(options: argparse.Namespace) -> int:
    return run_checked(
        options.script,
        options.arguments,
        as_module=options.as_module,
        as_json=options.json,
        output=options.output,
    )


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a script as Python would, and print where its compiled functions and tapes spent their time."
    )
    parser.add_argument("-m", dest="as_module", action="store_true", help="run a module, as python -m does")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--sort",
        choices=tuple(ORDERS),
        default="total",
        help="the column by which functions are sorted (total)",
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the profile to a file")
    parser.add_argument("script", help="the script, or with -m the module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    parser.set_defaults(run=_profile)


def _add_inspect(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a script as Python would, and write a page that shows its compiled functions and tapes: the cost of each line, graphs, "
        "loops, machine code, and why gradients are None or not finite."
    )
    parser.epilog = "examples: python -m gradtape inspect train.py; python -m gradtape inspect --serve train.py:loss --epochs 3"
    parser.add_argument("-m", dest="as_module", action="store_true", help="run a module, as python -m does")
    parser.add_argument(
        "-o", "--output", metavar="FILE", help="the page (script.inspect.html, in the current folder)"
    )
    parser.add_argument(
        "--serve",
        action="store_true",
        help="serve the page on this machine, and run the script again when it changes",
    )
    parser.add_argument("--no-open", dest="show", action="store_false", help="do not open a browser")
    parser.add_argument(
        "--model",
        dest="as_model",
        action="store_true",
        help="write what the page shows as JSON, without a page",
    )
    parser.add_argument(
        "script", help="the script, or with -m the module; after a colon the only function to show"
    )
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    parser.set_defaults(run=_inspect)


def _inspect(options: argparse.Namespace) -> int:
    return run_inspected(
        options.script,
        options.arguments,
        as_module=options.as_module,
        output=options.output,
        serve=options.serve,
        show=options.show,
        as_model=options.as_model,
    )


def _add_export(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Write a function of a module for arguments of fixed dtypes, and fixed or varying shapes, to a file that does not need its "
        "Python code. "
        "The exit status is 1 where that cannot be done."
    )
    parser.epilog = (
        'example: python -m gradtape export model:loss --specs "f8[100],f8[50,100],float" -o loss.c --grad'
    )
    parser.add_argument("function", help="module:function, as one would import it from the current folder")
    parser.add_argument(
        "--specs",
        required=True,
        help="the arguments, separated by commas: dtypes with extents, or Python types; an extent that varies has a name (n, n>=1)",
    )
    parser.add_argument(
        "-o",
        "--output",
        required=True,
        metavar="FILE",
        help="the file; its suffix selects the format: .c, .so, .o, .a, .py, .gradtape",
    )
    parser.add_argument("--grad", action="store_true", help="export the value and the gradient")
    parser.add_argument(
        "--argnums",
        type=int,
        nargs="+",
        metavar="N",
        help="the arguments to differentiate with respect to (the first)",
    )
    parser.add_argument("--name", help="the name of the exported function (by default that of the function)")
    parser.add_argument(
        "--blas", action="store_true", help="leave large products to BLAS, and decompositions to LAPACK"
    )
    parser.add_argument(
        "--target", choices=TARGETS, default="generic", help="the CPU of libraries and object files (generic)"
    )
    parser.set_defaults(run=_export)


def _export(options: argparse.Namespace) -> int:
    try:
        function = _imported(options.function)
        if options.argnums is not None and not options.grad:
            raise ArgumentError(
                "--argnums chooses the arguments of a gradient, but there is no --grad", remedy="add --grad"
            )
        if options.grad:
            chosen = options.argnums and (
                options.argnums[0] if len(options.argnums) == 1 else tuple(options.argnums)
            )
            function = value_and_grad(function, chosen)
        specs = parse_specs(options.specs)
        _check_count(options.function, function, specs)
        name = options.name or function_name(options.function.rpartition(":")[2])
        files = export(
            function,
            *specs,
            path=options.output,
            name=name,
            blas=options.blas,
            target=options.target,
        )
    except GradtapeError as error:
        here = str(error.where).startswith(__file__)  # no line of the user's: the command was read here
        shown = type(error)(error.what, why=error.why, remedy=error.remedy) if here else error
        print(shown, file=sys.stderr)
        return 1
    for file in files:
        print(file)
    return 0


def _check_count(path: str, function: Any, specs: Sequence[Any]) -> None:
    """Raise an error where a function does not take so many arguments."""
    try:
        signature = inspect.signature(function)
    except (TypeError, ValueError):
        return
    try:
        signature.bind(*specs)
    except TypeError as error:
        raise ArgumentError(
            f"{path} takes {signature}, and the specs list {counted(len(specs), 'argument')}",
            why=str(error),
            remedy='describe each argument: --specs "f8[3],f8[n,3],float"',
        ) from None


def _imported(path: str) -> Any:
    """Return what a path such as ``package.module:function`` names."""
    module, colon, name = path.partition(":")
    if not (module and colon and name):
        raise ArgumentError(f"{path!r} names no function", remedy="module:function")
    if "" not in sys.path and os.getcwd() not in sys.path:
        sys.path.insert(0, os.getcwd())
    try:
        found = importlib.import_module(module)
    except ModuleNotFoundError as error:
        if error.name is None or not module.startswith(error.name):
            raise
        raise ArgumentError(
            f"there is no module {module!r}", remedy="run the command in its folder"
        ) from None
    try:
        return operator.attrgetter(name)(found)
    except AttributeError:
        raise ArgumentError(f"the module {module!r} has no function {name!r}") from None


def _profile(options: argparse.Namespace) -> int:
    return run_profiled(
        options.script,
        options.arguments,
        as_module=options.as_module,
        order=options.sort,
        as_json=options.json,
        output=options.output,
    )


def _explain(options: argparse.Namespace) -> int:
    package = Path(__file__).parent
    # Wheels have the pages inside the package; a checkout has them in its documentation.
    folders = (package / "error_pages", package.parents[1] / "docs" / "reference" / "errors")
    pages = {page.stem: page for folder in folders for page in sorted(folder.glob("*.md"))}
    if not pages:
        print("the pages of errors are not installed with this package", file=sys.stderr)
        return 1
    if options.name is None:
        print("\n".join(pages))
        return 0
    name = Path(options.name).name.removesuffix(".md").rpartition(".")[2]  # also as a message prints it
    if name not in pages:
        near = nearest(name, list(pages))
        hint = f"did you mean {near}?" if near else "python -m gradtape explain lists all of them"
        print(f"there is no page of {options.name!r}: {hint}", file=sys.stderr)
        return 2
    print(pages[name].read_text(encoding="utf-8"), end="")
    return 0


def _manual(options: argparse.Namespace) -> int:
    text = installed_text()
    if not text:
        print("the manual is not installed with this package", file=sys.stderr)
        return 1
    words = " ".join(options.topic)
    if words == "all":
        print(text)
        return 0
    if not words:
        for page in pages(text):
            print(f"{page.topic:32} {page.title}")
        return 0
    matching = search(text, words)
    if not matching:
        near = nearest(words, [page.topic for page in pages(text)])
        hint = f"did you mean {near}?" if near else "python -m gradtape manual lists the topics"
        print(f"no page of the manual contains {words!r}: {hint}", file=sys.stderr)
        return 2
    print(matching[0].text, end="")
    if len(matching) > 1:
        print(f"\nMore: {', '.join(page.topic for page in matching[1:8])}")
    return 0


def _info(_: argparse.Namespace) -> int:
    return 0 if doctor() else 1


def _cache_info(_: argparse.Namespace) -> None:
    print(cache_info())


def _cache_list(_: argparse.Namespace) -> None:
    entries = disk.entries()
    for key, size, used in entries:
        print(f"{time.strftime('%Y-%m-%d %H:%M', time.localtime(used))} {size:>10} {key}")
    print(f"{counted(len(entries), 'program')} in {cache_path()}")


def _cache_verify(options: argparse.Namespace) -> int:
    entries = disk.entries()
    sizes = [size for _, size, _ in entries]
    damaged = [key for key, _, _ in progress(entries, "checking", sizes, "byte") if not disk.is_whole(key)]
    for key in damaged:
        print(f"damaged: {key}")
        if options.remove:
            disk.discard(key)
    removed = ", removed" if damaged and options.remove else ""
    print(f"{counted(len(entries), 'program')} checked, {len(damaged)} damaged{removed}")
    return 1 if damaged and not options.remove else 0


def _cache_clear(_: argparse.Namespace) -> None:
    count = cache_clear()
    print(f"removed {count} {'program' if count == 1 else 'programs'} from {cache_path()}")


def _cache_path(_: argparse.Namespace) -> None:
    print(cache_path())


if __name__ == "__main__":
    raise SystemExit(main())
