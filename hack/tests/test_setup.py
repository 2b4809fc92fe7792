"""hack/setup: what pip is asked for, by a uv that only notes it."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
INDEX = "https://wheels.example/cpu"


@pytest.mark.parametrize("index", ["", INDEX])
def test_torch_alone_comes_from_the_index_that_is_named(index: str, tmp_path: Path) -> None:
    notes, programs = tmp_path / "notes", tmp_path / "bin"
    programs.mkdir()
    for program in ("pip", "uv"):
        (programs / program).write_text(f'#!/bin/sh\necho "$*" >> {notes}\n')
        (programs / program).chmod(0o755)
    command: list[str | Path] = [ROOT / "hack" / "setup", sys.executable, tmp_path, "demo"]
    for _ in range(2):  # the second time nothing is left to do
        subprocess.run(command, env={**os.environ, "TORCH_INDEX": index}, check=True, capture_output=True)
    asked = [line.partition("/python ")[2] for line in notes.read_text().splitlines()]
    assert asked == [*[f"--no-deps --index-url {INDEX} torch>=2.6"][: bool(index)], "--editable .[demo]"]
