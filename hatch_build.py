"""Builds of wheel and sdist: the commit travels with them, as `elasticjob version` prints it."""

from __future__ import annotations

import os
import subprocess
import tempfile
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

NAME: Final = "commit.txt"


class Commit(BuildHookInterface):  # type: ignore[type-arg]
    """Adds a file with the commit: to the package in a wheel, at the top of an sdist."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Write the file beside the checkout, which stays as it is."""
        if version == "editable":
            return
        self._folder = tempfile.TemporaryDirectory()
        file = Path(self._folder.name, NAME)
        file.write_text(commit(Path(self.root)) + "\n")
        build_data["force_include"][str(file)] = NAME if self.target_name == "sdist" else f"elasticjob/{NAME}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Remove what initialize wrote."""
        if version != "editable":
            self._folder.cleanup()


def commit(root: Path) -> str:
    """Return the commit of an unpacked sdist or of a checkout, or "unknown"."""
    if given := os.environ.get("ELASTICJOB_COMMIT"):
        return given
    if (root / NAME).exists():
        return (root / NAME).read_text().strip()
    if not (root / ".git").exists():
        return "unknown"
    command = ["git", "-C", str(root), "rev-parse", "HEAD"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    return done.stdout.strip() or "unknown"
