"""What a tenant writes reaches a terminal and a log as words: kinds of escapes × commands."""

from __future__ import annotations

import ast
import logging
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from rich.console import Console

import elasticjob.cli
from elasticjob.api import logs
from elasticjob.api.escapes import as_line, as_log, as_text
from elasticjob.api.troubles.trouble import Grade, Trouble
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli import main
from elasticjob.cli.commands import doctor, explain
from elasticjob.cli.errors import Failure
from elasticjob.cli.jobs.table import table
from elasticjob.cli.output import say
from elasticjob.client.described import about_the_job
from elasticjob.client.explained import reasons_in_lines
from elasticjob.client.goals import state
from elasticjob.kube.objects.views import EVENT
from lab.build.objects import view
from tests.kit.logs import restored

NOW = datetime(2026, 11, 29, tzinfo=UTC)
KINDS = {
    "colour": "\x1b[31m",
    "cursor": "\x1b[2J\x1b[1;1H",
    "title": "\x1b]0;owned\x07",
    "link": "\x1b]8;;http://evil\x1b\\",
    "C1": "\x9b31m\x9d0;x\x9c",
    "return": "all is well\rx",
    "backspace": "\x08\x08",
    "bidi": "\u202egnp.\u2066\u200f",
    "separator": "\u2028\u2029\x85",
    "newline": "\n✓ all is well",
}
BAD = frozenset(each for each in "".join(KINDS.values()) if not each.isprintable()) - {"\n"}


def job(words: str) -> dict[str, Any]:
    condition = {"type": "Failed", "status": "True", "reason": "Bad", "message": words}
    finding = {"reason": "Bad", "message": words, "time": "2026-11-29T00:00:00Z"}
    status = {"phase": "Failed", "reason": "Bad", "workers": words, "conditions": [condition]}
    spec = {"replicaSpecs": {"worker": {"replicas": 1, "template": {"spec": {"containers": []}}}}}
    about = {"name": "digits", "namespace": "ml", "uid": "u", "creationTimestamp": "2026-11-29T00:00:00Z"}
    whole = {"metadata": about, "spec": spec, "status": {**status, "training": {"findings": [finding]}}}
    return {"apiVersion": ELASTICJOB.api_version, "kind": "ElasticJob", **whole}


def describe(words: str) -> None:
    job_ = {"kind": "ElasticJob", "name": "digits"}
    about = view(EVENT, "e", type="Warning", reason="Bad", message=words, involvedObject=job_)
    say(about_the_job(ELASTICJOB.convert(job(words)), [], [], [about]))


def explains(words: str) -> None:
    for each in reasons_in_lines(about_the_job(ELASTICJOB.convert(job(words)), [], [], [])):
        say(each)


def of_brain(words: str) -> None:
    decision = {"number": 1, "at": "", "event": "Start", "algorithm": "x", "plan": "", "outcome": ""}
    say(explain.describe({**decision, "sizes": {}, "reason": words}))


def failure(words: str) -> None:
    with pytest.raises(Exception, match="1"):
        main.fail(Failure(words))


def logged(words: str) -> None:
    logging.getLogger("elasticjob.test").warning(words, extra={"error": words})


COMMANDS: dict[str, Callable[[str], object]] = {
    "describe": describe,
    "explain": explains,
    "explain --brain": of_brain,
    "doctor": lambda words: doctor._show((Trouble("", words, Grade.WRONG, words, (words,)),), NOW),
    "wait, and every error": failure,
    "submit --follow": lambda words: say(state(job(words))),
    "list": lambda words: Console(width=500).print(table([job(words)], NOW, wide=True)),
    "log of the operator": logged,
}


@pytest.mark.parametrize("command", COMMANDS)
@pytest.mark.parametrize("kind", KINDS)
def test_no_words_of_a_tenant_command_a_terminal(
    command: str, kind: str, capsys: pytest.CaptureFixture[str]
) -> None:
    def printed(words: str) -> str:
        with restored():
            logs.configure()
            COMMANDS[command](words)
        out, err = capsys.readouterr()
        return out + err

    before, after = printed("here"), printed(f"here{KINDS[kind]}")
    assert BAD.isdisjoint(after), ascii(after)
    assert len(after.splitlines()) == len(before.splitlines())


@given(st.text())
def test_what_is_escaped_is_harmless_and_harmless_text_stays(words: str) -> None:
    assert BAD.isdisjoint(as_text(words) + as_line(words))
    assert len(as_line(words).splitlines()) <= 1
    assert as_text(as_text(words)) == as_text(words)
    if words.isprintable():
        assert words == as_line(words) == as_log(words)


@pytest.mark.parametrize(
    ("line", "shown"),
    [
        ("\x1b[1;31mred\x1b[0m", "\x1b[1;31mred\x1b[0m\x1b[0m"),
        ("\x1b[31mred", "\x1b[31mred\x1b[0m"),
        ("50%\r60%", "50%\r60%"),
        ("\x1b]52;c;cm0=\x07", "\\x1b]52;c;cm0=\\x07"),
        ("\x1b[2J", "\\x1b[2J"),
        ("naïve 日本語 👩‍👩‍👧 e\u0301", "naïve 日本語 👩‍👩‍👧 e\u0301"),
    ],
)
def test_a_log_keeps_its_own_colours_and_nothing_else(line: str, shown: str) -> None:
    assert as_log(line) == shown


def test_commands_print_by_one_door() -> None:
    """`say` and `hand_over`; or Rich, whose cells and sentences are lines already."""
    folder, found = Path(elasticjob.cli.__file__).parent, set[str]()
    for path in [folder / "main.py", *(folder / "commands").rglob("*.py"), *(folder / "jobs").rglob("*.py")]:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and ast.unparse(node.func) in ("print", "typer.echo", "click.echo"):
                found.add(f"{path.relative_to(folder)}: {ast.unparse(node)}")
    assert found == {"main.py: print(':4')", LOG}


LOG = "commands/logs.py: typer.echo(before + (as_log(words) if self._console.is_terminal else words))"
