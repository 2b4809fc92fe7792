"""The rows of `.ci/weekly`: each suite has a target, and programs that know the flags that it is given."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest
from typer.testing import CliRunner

from lab.__main__ import app
from lab.paths import ROOT

WEEKLY: Final = (ROOT / ".ci/weekly").read_text()
ROWS: Final = [
    [cell.strip().replace("$week", "7") for cell in row.split("|")]
    for row in re.findall(r"^[a-z-]+ +\| \d.*", WEEKLY, re.MULTILINE)
]
LONG: Final = re.compile(r"^([a-z-]+):(?!.*##).*\n(?:\t.*\n)*?\t\$\(TIMED\)", re.MULTILINE)
"""Targets that print their minutes, and are not in the list of `make help`."""

ENDS: Final = re.compile(
    r"end_on_sigterm\(\)|chosen\(__doc__|signal\(signal.SIGTERM|benchmarks.commands import"
)


def test_each_long_suite_has_a_row() -> None:
    targets = {target.partition(" ")[0] for _, _, target, _ in ROWS}
    assert {*LONG.findall((ROOT / "Makefile").read_text())} <= targets


@pytest.mark.parametrize("short", [False, True])
@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0])
def test_a_suite_is_there_and_knows_its_flags(row: list[str], short: bool) -> None:
    played = programs(*shlex.split(row[2]), *(shlex.split(row[3]) if short else ()))
    assert played
    for program, words in played:
        given = shlex.split(words.partition("||")[0])
        assert [each for each in given if each.startswith("tests/") and not (ROOT / each).exists()] == []
        if program == "-m lab":
            asked = CliRunner().invoke(app, [*given, "--help"])
            assert asked.exit_code == 0, asked.output
        elif program != "/pytest":
            text = source(program)
            flags = [each for each in given if each.startswith("--")]
            assert [each for each in flags if not knows(text, each)] == []


@pytest.mark.parametrize("target", [*(row[2] for row in ROWS), "conformance"])
def test_a_suite_ends_what_it_started_on_sigterm(target: str) -> None:
    for program, _ in programs(*shlex.split(target)):
        if program.startswith("-m "):
            assert ENDS.search(source(program))


@pytest.mark.parametrize(
    "command",
    [
        "lab.dropin --only zzz",
        "lab.dropin --only end,zzz",
        "lab.dropin --at-once 0",
        "lab.incumbents --quick",
        "lab.incumbents --again {}",
        "lab.recipes nope",
        "tests.conformance --only zzz",
        "hack.mutants --packages nope",
    ],
)
def test_what_plays_nothing_is_an_error_that_names_what_is_known(command: str, tmp_path: Path) -> None:
    (tmp_path / "{}").write_text("{}")
    words = [str(tmp_path / word) if word == "{}" else word for word in command.split()]
    told = subprocess.run([sys.executable, "-m", *words], cwd=ROOT, capture_output=True, text=True)
    assert (told.returncode, told.stdout) == (2, "")
    assert "error: " in told.stderr


@pytest.mark.parametrize(
    ("words", "length", "says"),
    [
        ("FOLDER bench-training", "", "--results 'FOLDER/samples.json'"),
        ("FOLDER bench-training", "short", "--results 'FOLDER/samples.json' --only"),
        ("--help", "", "Usage: .ci/weekly"),
        ("--hlep", "", "error: --hlep"),
        ("FOLDER life lief", "", "error: no suite is called lief: give some of mutants"),
        ("FOLDER life", "shrot", "error: LENGTH=shrot"),
        ("FILE life", "", "FILE"),
    ],
)
def test_the_week_plays_what_it_is_asked_or_nothing(
    words: str, length: str, says: str, tmp_path: Path
) -> None:
    (tmp_path / "make").write_text('#!/bin/sh\necho make "$@"')
    (tmp_path / "make").chmod(0o755)
    (tmp_path / "FILE").touch()
    given = [str(tmp_path / word) if word.isupper() else word for word in words.split()]
    environ = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "LENGTH": length}
    ran = subprocess.run([ROOT / ".ci/weekly", *given], env=environ, capture_output=True, text=True)
    shown = (ran.stdout + ran.stderr).replace(f"{tmp_path}/", "")
    assert says in shown
    fails = "error" in says or words.startswith("FILE")
    assert (ran.returncode, "make" in ran.stdout) == ((2, False) if fails else (0, "=== " in shown))


def programs(*words: str) -> list[tuple[str, str]]:
    """Return the programs that a target runs, each with what it is given."""
    alone = {name: value for name, value in os.environ.items() if name not in ("MAKEFLAGS", "MFLAGS")}
    make = ["make", "--dry-run", *words]
    shown = subprocess.run(make, cwd=ROOT, env=alone, capture_output=True, text=True, check=True).stdout
    return re.findall(r"/python ((?:-m )?[a-z./_]+)(.*)", shown) + re.findall(r"(/pytest) (.*)", shown)


def knows(text: str, flag: str) -> bool:
    """Whether a program declares a flag by its name, or as the parameter of a function that is a command."""
    return f'"{flag}"' in text or f"{flag[2:].replace('-', '_')}: " in text


def source(program: str) -> str:
    """Return the text of a script, or of what `-m` runs, with the module that reads its command line."""
    if not program.startswith("-m "):
        return (ROOT / program).read_text()
    spec = find_spec(program[3:])
    if spec and spec.submodule_search_locations:
        spec = find_spec(f"{program[3:]}.__main__")
    assert spec
    assert spec.origin
    text = Path(spec.origin).read_text()
    return text + "".join(
        source(f"-m {name}") for name in re.findall(r"^from (\S+\.command) import", text, re.M)
    )
