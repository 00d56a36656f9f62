"""``python -m tests.packages.worker PACKAGE FROM``: measure the calls of a package, as JSON, from one on; a line of JSON for each stage."""

from __future__ import annotations

import importlib.util
import json
import os
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np

import gradtape as gt
from tests.packages.measure import said_by, stages
from tests.packages.table import Call, Package


def main() -> None:
    """Measure, and say each result as soon as it is there. What packages print goes elsewhere."""
    channel = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)

    def say(call: int, stage: str, outcome: dict[str, Any]) -> None:
        channel.write(json.dumps({"call": call, "stage": stage, **outcome}) + "\n")
        channel.flush()

    gt.config.full_traceback = True
    package, start = Package(*json.loads(sys.argv[1])), int(sys.argv[2])
    calls = [Call(*call) for call in package.calls]
    package = package._replace(calls=tuple(calls))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "calls.py"
        path.write_text(package.module)
        spec = importlib.util.spec_from_file_location("calls", path)
        assert spec and spec.loader
        module = importlib.util.module_from_spec(spec)
        sys.modules["calls"] = module
        try:
            spec.loader.exec_module(module)
        except Exception as error:
            outcome = {"status": "fails", **said_by(error)}
            for k in range(start, len(package.calls)):
                say(k, "plain", outcome)
                say(k, "end", {})
            return
        for k in range(start, len(package.calls)):
            p = np.asarray(eval(package.calls[k].at, {"np": np, "rng": np.random.default_rng(7)}), float)
            for stage, outcome in stages(getattr(module, f"call_{k}"), p):
                say(k, stage, outcome)
            say(k, "end", {})


if __name__ == "__main__":
    main()
