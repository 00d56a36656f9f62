"""Runs the programs of the other tools on the pages docs/how-to/from-*.md, which gradtape's programs stand beside.

    python docs/run_other_tools.py docs/how-to/from-jax.md

in an environment where the tool is installed. A ``py`` block is a program of the other tool; what it prints must be what stands below
gradtape's program, the ``python`` block that follows. (The tests of the documentation run gradtape's column.)
"""

from __future__ import annotations

import contextlib
import io
import linecache
import re
import sys
from pathlib import Path

PAIR = re.compile(r"^```py\n(.*?)^```\s+```python\n.*?^```\s+```text\n(.*?)^```", re.MULTILINE | re.DOTALL)


def main() -> None:
    for name in sys.argv[1:]:
        space: dict[str, object] = {}
        pairs = PAIR.findall(Path(name).read_text())
        for place, (program, expected) in enumerate(pairs):
            file = f"{Path(name).stem}_{place}.py"  # AutoGraph reads the code of functions
            linecache.cache[file] = (len(program), None, program.splitlines(keepends=True), file)
            printed = io.StringIO()
            with contextlib.redirect_stdout(printed):
                exec(compile(program, file, "exec"), space)
            if printed.getvalue() != expected:
                sys.exit(f"{name}:\n{program}\nprints\n{printed.getvalue()}\ninstead of\n{expected}")
        print(f"{name}: {len(pairs)} programs print what gradtape's do")


if __name__ == "__main__":
    main()
