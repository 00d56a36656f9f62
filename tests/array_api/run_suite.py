"""Runs the public test suite of the array API standard on `gradtape.array_api`, from a checkout of it with its submodule.

    python tests/array_api/run_suite.py path/to/array-api-tests [arguments of pytest]

The suite needs ``ndindex`` and ``pytest-json-report``. What is skipped is in skips.txt, with the reasons.
``ARRAY_API_TESTS_VERSION`` is the version of the standard, 2024.12 if it is not set.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

MODULES = {"2024.12": "gradtape.array_api", "2025.12": "gradtape.array_api.tuples"}
SKIPS = Path(__file__).with_name("skips.txt")


def main(arguments: list[str]) -> int:
    if not arguments or not (Path(arguments[0]) / "array_api_tests").is_dir():
        print(f"usage: {Path(__file__).name} path/to/array-api-tests [arguments of pytest]", file=sys.stderr)
        return 2
    version = os.environ.get("ARRAY_API_TESTS_VERSION", "2024.12")
    settings = {"ARRAY_API_TESTS_MODULE": MODULES[version], "ARRAY_API_TESTS_VERSION": version}
    command = [sys.executable, "-m", "pytest", "-p", "no:cacheprovider", "--disable-deadline"]
    command += [f"--skips-file={SKIPS}", "-c", "pytest.ini", "--rootdir=.", "array_api_tests", *arguments[1:]]
    return subprocess.run(command, cwd=arguments[0], env=os.environ | settings, check=False).returncode


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
