"""``python -m gradtape``: what this installation is, what its disk cache holds, and where a script's time goes."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import platform
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from gradtape.api.inspect.script import ORDERS, run_profiled
from gradtape.config import config
from gradtape.lower.target.host import cpu_name, vector_bytes, vector_functions
from gradtape.runtime.compile.cache import cache_clear, cache_info, cache_path

_PACKAGES: Final = ("gradtape", "numpy", "scipy", "numba", "llvmlite", "optree")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m gradtape",
        description="Look at gradtape's installation and at its cache of compiled programs, and profile scripts.",
    )
    commands = parser.add_subparsers(title="commands", metavar="{info,cache,profile}", required=True)
    commands.add_parser("info", help="versions, CPU, libraries, settings").set_defaults(run=_info)
    cache = commands.add_parser("cache", help="the compiled programs on disk")
    actions = cache.add_subparsers(title="actions", metavar="{info,clear,path}", required=True)
    actions.add_parser("info", help="how many programs there are and what they take").set_defaults(
        run=_cache_info
    )
    actions.add_parser("clear", help="remove them all").set_defaults(run=_cache_clear)
    actions.add_parser("path", help="the folder that they are in").set_defaults(run=_cache_path)
    _add_profile(
        commands.add_parser(
            "profile", help="run a script, and show where its compiled functions spend their time"
        )
    )
    given = parser.parse_args(arguments)
    run: Callable[[argparse.Namespace], int | None] = given.run
    return run(given) or 0


def _add_profile(parser: argparse.ArgumentParser) -> None:
    parser.description = (
        "Run a script as Python would, and print where its compiled functions and tapes spent their time."
    )
    parser.add_argument("-m", dest="as_module", action="store_true", help="run a module, as python -m does")
    parser.add_argument("--json", action="store_true", help="print the figures as JSON")
    parser.add_argument(
        "--sort", choices=tuple(ORDERS), default="total", help="by what functions are sorted (total)"
    )
    parser.add_argument("-o", "--output", metavar="FILE", help="write the profile to a file")
    parser.add_argument("script", help="the script, or with -m the module")
    parser.add_argument("arguments", nargs=argparse.REMAINDER, help="the script's own arguments")
    parser.set_defaults(run=_profile)


def _profile(given: argparse.Namespace) -> int:
    return run_profiled(
        given.script,
        given.arguments,
        as_module=given.as_module,
        order=given.sort,
        as_json=given.json,
        output=given.output,
    )


def _info(_: argparse.Namespace) -> None:
    cores = os.cpu_count() or 1
    width = vector_bytes()
    functions = vector_functions(width)
    rows = {
        "Python": f"{platform.python_version()} on {platform.platform()}",
        **{package: _version(package) for package in _PACKAGES},
        "CPU": f"{cpu_name()}, {cores} {'core' if cores == 1 else 'cores'}",
        "vectors": f"{8 * width} bits, {width // 8} doubles",
        "vector maths": ", ".join(functions) if functions else "none: the scalar C library is used",
        "BLAS": f"{_blas(np)} (NumPy), {_scipy_blas()} (SciPy)",
        "threads": f"{config.num_threads} per kernel",
    }
    for name, value in rows.items():
        print(f"{name + ':':<14} {value}")
    print()
    print(cache_info())
    print()
    print(config)


def _version(package: str) -> str:
    try:
        return importlib.metadata.version(package)
    except importlib.metadata.PackageNotFoundError:
        return "not installed"


def _blas(module: Any) -> str:
    built = module.show_config(mode="dicts")["Build Dependencies"]["blas"]
    return f"{built['name']} {built['version']}"


def _scipy_blas() -> str:
    import scipy

    return _blas(scipy)


def _cache_info(_: argparse.Namespace) -> None:
    print(cache_info())


def _cache_clear(_: argparse.Namespace) -> None:
    count = cache_clear()
    print(f"removed {count} {'program' if count == 1 else 'programs'} from {cache_path()}")


def _cache_path(_: argparse.Namespace) -> None:
    print(cache_path())


if __name__ == "__main__":
    raise SystemExit(main())
