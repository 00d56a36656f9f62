"""What a row of the corpus is: a package and its calls, as text, since the package is installed only where the calls are run."""

from __future__ import annotations

import textwrap
from typing import NamedTuple


class Call(NamedTuple):
    """A use of a package, as its documentation shows it."""

    program: str
    """An expression of `p`, or statements that return one, and of what the package's `setup` defines."""
    at: str
    """The argument `p` that is differentiated: an expression of `np` and `rng`, a generator with a fixed seed."""

    def source(self, name: str) -> str:
        """Return the definition of a function that makes the call."""
        try:
            compile(self.program, name, "eval")
        except SyntaxError:
            return f"def {name}(p):\n{textwrap.indent(self.program, '    ')}\n"
        return f"def {name}(p):\n    return {self.program}\n"


class Package(NamedTuple):
    """A package of the registry and its calls."""

    name: str
    version: str
    setup: str
    """Statements that run once, before the calls: imports, data, objects."""
    calls: tuple[Call, ...]
    also: tuple[str, ...] = ()
    """Requirements besides the package: what its documentation installs with it, or versions that it needs and does not ask for."""
    group: str = "main"
    """The environment that it is installed in: packages whose requirements contradict each other are in different ones."""

    @property
    def requirements(self) -> list[str]:
        """The arguments of `pip install`."""
        return [f"{self.name}=={self.version}", *self.also]

    @property
    def module(self) -> str:
        """The text of a module with the setup and a function for each call."""
        functions = [call.source(f"call_{k}") for k, call in enumerate(self.calls)]
        return "\n\n".join([f"import numpy as np\n{self.setup}", *functions])


def package(
    requirement: str,
    setup: str,
    *calls: tuple[str, str | list[float]],
    also: tuple[str, ...] = (),
    group: str = "main",
) -> Package:
    """Return a package: ``name version``, its setup, and pairs of a program and the point where it is differentiated."""
    name, version = requirement.split()
    rows = [
        Call(textwrap.dedent(program).strip(), at if isinstance(at, str) else f"np.array({at})")
        for program, at in calls
    ]
    return Package(name, version, textwrap.dedent(setup).strip(), tuple(rows), also, group)
