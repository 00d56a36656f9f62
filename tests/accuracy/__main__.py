"""``python -m tests.accuracy``: sweep functions and print their errors; ``--write`` writes them into the page; names restrict it."""

from __future__ import annotations

import argparse

from tests.accuracy.page import line, write
from tests.accuracy.references import REFERENCES


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.accuracy", description=__doc__)
    parser.add_argument("function", nargs="*", help="as np.tanh or scipy.special.erf")
    parser.add_argument("--density", type=int, default=8, help="how many points: about 40 times as many")
    parser.add_argument("--write", action="store_true", help="write the table of the page")
    arguments = parser.parse_args()
    if arguments.write:
        write(arguments.density)
        return
    for name in arguments.function or REFERENCES:
        print(line(name, arguments.density), flush=True)


if __name__ == "__main__":
    main()
