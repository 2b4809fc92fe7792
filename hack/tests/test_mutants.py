"""Mutants of a small project: what becomes of each, and that a move changes none."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from hack.mutants import mutants_of

CODE = """
def larger(one: int, other: int = 1) -> int:
    log.info("comparing %d", 2)
    if one > other:
        return one
    return max(other, 0)


def alone() -> None:
    larger(1, 2)
"""
TEST = """
from brain.sizes import larger


def test_larger():
    assert (larger(3, 2), larger(3, 4)) == (3, 4)
"""
TESTS = "tests/brain"
KILLED = f"{TESTS}/test_sizes.py::test_larger"
OUTCOMES = {
    "larger: one > other -> one >= other": "survived",
    "larger: one > other -> not one > other": KILLED,
    "larger: one -> None": KILLED,
    "larger: max(other, 0) -> min(other, 0)": KILLED,
    "larger: max(other, 0) -> None": KILLED,
    "larger: 0 -> 1": "survived",
    "alone: larger(1, 2) -> pass": "not reached",
    "alone: 1 -> 2": "not reached",
    "alone: 2 -> 3": "not reached",
}


def test_mutants_are_killed_or_told(tmp_path: Path) -> None:
    write(tmp_path / "brain" / "__init__.py", "")
    write(tmp_path / "brain" / "sizes.py", CODE.replace("    log.", "    # log."))
    write(tmp_path / "tests" / "brain" / "test_sizes.py", TEST)
    saved = tmp_path / "outcomes.json"
    script = Path(__file__).parents[2] / "hack" / "mutants.py"
    options = ["--packages", "brain", "--tree", str(tmp_path), "--save", str(saved)]
    ran = subprocess.run([sys.executable, script, *options], capture_output=True, text=True, check=False)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    assert json.loads(saved.read_text()) == {f"brain {name}": outcome for name, outcome in OUTCOMES.items()}
    assert "brain: 4 killed, 2 survived, 3 not reached" in ran.stdout
    assert "sizes.py:4 brain larger: one > other -> one >= other (survived" in ran.stdout


def test_a_move_changes_no_mutant(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for path in ("before/sizes.py", "after/rooms/numbers.py"):
        write(tmp_path / path, CODE)
    names = [[one.name.split(maxsplit=1)[1] for one in mutants_of(place)] for place in ("before", "after")]
    assert names == [[*OUTCOMES]] * 2


def write(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
