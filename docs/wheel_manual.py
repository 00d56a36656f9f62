"""The build of wheels: the manual goes into the package as one text, for ``python -m gradtape manual``."""

from __future__ import annotations

import importlib.util
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface


class ManualHook(BuildHookInterface):
    """Writes the manual, and adds it to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if version == "editable":  # the pages themselves are read
            return
        root = Path(self.root)
        spec = importlib.util.spec_from_file_location("manual", root / "src" / "gradtape" / "manual.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name) / "manual.txt"
        file.write_text(module.whole_text(root), encoding="utf-8")
        build_data["force_include"][str(file)] = "gradtape/manual.txt"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        if hasattr(self, "_folder"):
            self._folder.cleanup()
