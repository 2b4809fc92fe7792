"""What holds for every command: its help, flags, exit codes and outputs; and what kubectl's users expect."""

from __future__ import annotations

import ast
import asyncio
import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import typer.main
from typer.testing import Result

from elasticjob.api.crds import manifests
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli import commands
from elasticjob.cli.errors import Exit
from elasticjob.cli.main import COMMANDS, Row, application
from elasticjob.cli.output import API_VERSION
from elasticjob.kube.client.client import Client
from elasticjob.kube.crd.embedded import Detail
from elasticjob.kube.crd.installing import install
from lab.clusters.served import Served
from tests.kit.commands import invoke

SEVERAL: Final = {"get", "describe", "suspend", "resume", "delete", "scale", "wait"}
CHANGES: Final = {"submit", "scale", "suspend", "resume", "delete", "crds"}
PRINTS: Final = {
    "submit",
    "list",
    "logs",
    "get",
    "top",
    "explain",
    "doctor",
    "crds",
    "version",
    "demo",
    "show",
}
PROGRAMS: Final = {"run", "agent", "devcluster", "operator", "di-server", "brain", "master", "dashboard"}
FOR_PEOPLE: Final = {"describe", "wait", "convert", "export", "import"}
"""Text, an exit code or a file is their answer: `get -o json` has the object."""


def walk() -> Iterator[tuple[Row, Any]]:
    """Yield each command with its row, also those of commands that have some."""
    for row in COMMANDS:
        group: Any = typer.main.get_group(application([row.name]))
        command = group.commands[row.name]
        yield from ((row, each) for each in getattr(command, "commands", {row.name: command}).values())


WALKED: Final = list(walk())
EACH = pytest.mark.parametrize(("row", "command"), WALKED, ids=[each.name for _, each in WALKED])


def flags(command: Any) -> set[str]:
    return {flag for each in command.params for flag in each.opts}


@EACH
def test_its_help_has_an_example_and_a_sentence_for_each_flag(row: Row, command: Any) -> None:
    words = [row.name] if row.name == command.name else [row.name, command.name]
    found = invoke(*words, "--help")
    assert found.exit_code == 0, found.stderr
    explained = found.stdout.split("Usage:", 1)[1].split("\n", 1)[1]
    assert re.search(r"elasticjob [a-z-]+ [-|.\w]", explained), found.stdout
    assert [each.name for each in command.params if not each.help] == []
    assert not re.search(r"<[a-z]|\x1b", found.stdout), found.stdout
    ports = [each for each in command.params if each.name in ("port", "webhook_port")]
    assert [each.name for each in ports if each.max != 65535] == []


@EACH
def test_a_flag_that_it_does_not_know_is_wrong_usage_by_name(row: Row, command: Any) -> None:
    words = [row.name] if row.name == command.name else [row.name, command.name]
    found = invoke(*words, "--no-such-flag")
    assert (found.exit_code, "--no-such-flag" in found.stderr) == (Exit.USAGE, True), found.stderr


def test_each_command_says_what_it_would_change_or_prints_for_programs() -> None:
    known = {command.name: flags(command) for _, command in WALKED}
    assert {name for name, found in known.items() if "--dry-run" in found} == CHANGES
    assert {name for name, found in known.items() if "--output" in found} == PRINTS
    assert {name for name, found in known.items() if "--selector" in found} == SEVERAL | {"list"}
    assert known.keys() == CHANGES | PRINTS | PROGRAMS | FOR_PEOPLE
    about_jobs = [flags(command) for row, command in WALKED if row.panel == "Jobs"]
    assert all({"--namespace", "--kubeconfig", "--context"} <= found for found in about_jobs)


def test_json_that_is_no_object_of_kubernetes_has_a_version() -> None:
    """By `hand_over_json`; a List of Kubernetes, and a line of text, are dumped in place."""
    dumped = {
        (path.stem, ast.unparse(node))
        for path in Path(commands.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and ast.unparse(node.func) == "json.dumps"
    }
    assert {name for name, _ in dumped} <= {"crds", "explain"}
    told = json.loads(invoke("version", "-o", "json").stdout)
    assert (told["apiVersion"], told["kind"]) == (API_VERSION, "Version")
    assert invoke("--version").stdout == invoke("version").stdout


@pytest.mark.parametrize(
    ("line", "flag"),
    [
        ("wait a --timeout soon", "--timeout"),
        ("wait a --for x", "--for"),
        ("submit train.py --deadline x", "--deadline"),
        ("submit train.py --workers x", "--workers"),
        ("submit train.py --volume x", "--volume"),
        ("master --node-unit 0", "--node-unit"),
        ("list -n ../x", "--namespace"),
        ("delete", "--selector"),
        ("get a -A", "--all-namespaces"),
        ("suspend a -l team=b", "--selector"),
    ],
)
def test_wrong_usage_names_the_flag(
    line: str, flag: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("train.py").touch()
    Path("config").write_text(CONFIG)
    monkeypatch.setenv("KUBECONFIG", "config")
    found = invoke(*line.split())
    assert (found.exit_code, found.stderr.count("\n")) == (Exit.USAGE, 1), found.stderr
    assert flag in found.stderr


CONFIG: Final = """\
{apiVersion: v1, kind: Config, current-context: a, clusters: [{name: a, cluster: {server: "http://127.0.0.1:9"}}],
contexts: [{name: a, context: {cluster: a, user: a}}], users: [{name: a, user: {}}]}
"""
POD: Final = {"containers": [{"name": "main", "image": "i", "command": ["train"]}]}
JOB: Final = {"replicaSpecs": {"worker": {"replicas": 2, "template": {"spec": POD}}}}
LINES: Final[list[tuple[str, Exit, str]]] = [
    ("get a gone b -o name", Exit.NOT_FOUND, "/a\n.*/b\nerror: .*team/gone does not exist; .*\n2 of 3 jobs"),
    ("get a gone --ignore-not-found -o name", Exit.DONE, r"\A[^\n]*/a\n\Z"),
    ("get -l team=x -o name", Exit.DONE, r"\A[^\n]*/a\n\Z"),
    ("get a -n nowhere", Exit.NOT_FOUND, "error: namespace nowhere does not exist; create it"),
    ("describe a gone", Exit.NOT_FOUND, "Name: .*error: .*team/gone does not exist"),
    (
        "delete a gone --dry-run",
        Exit.NOT_FOUND,
        r"a is deleted \(dry run\)\nerror: .*\n1 of 2 jobs are deleted",
    ),
    ("delete a --dry-run=server", Exit.DONE, r"a is deleted \(server dry run\)"),
    ("scale a b 3 --dry-run=server", Exit.DONE, r"a is scaled to worker 3 \(server dry run\)\nb is"),
    ("suspend a --dry-run=server", Exit.DONE, r"a is suspended \(server dry run\)"),
    ("get a -o yaml", Exit.DONE, "replicas: 2\n"),
    (
        "scale a ended 3",
        Exit.REFUSED,
        "a is scaled to .*ended has Succeeded and does not start again",
    ),
    ("resume ended", Exit.REFUSED, "error: .*team/ended has Succeeded and does not start again; delete it"),
    ("wait ended gone --for phase=succeeded", Exit.NOT_FOUND, "ended: .*gone does not exist.*1 of 2 jobs"),
    ("resume ended gone", Exit.FAILED, "does not exist.*does not start again.*0 of 2 jobs are resumed"),
    ("wait -l team=none", Exit.NOT_FOUND, "no jobs with labels team=none in namespace team"),
    ("wait gone --for delete", Exit.DONE, "gone: delete"),
    ("delete gone --ignore-not-found", Exit.DONE, r"\A\Z"),
    ("delete -l team=x", Exit.DONE, "a is deleted"),
    ("delete gone b", Exit.NOT_FOUND, "b is deleted\nerror: .*\n1 of 2 jobs"),
    ("list -o name", Exit.DONE, r"\A[^\n]*/ended\n\Z"),
    *(
        (f"{name} gone{' 3' * (name == 'scale')}", Exit.NOT_FOUND, r"\A[^\n]*ElasticJob team/gone [^\n]*; ")
        for name in (*sorted(SEVERAL), "explain", "logs", "doctor")
    ),
    ("list --context nowhere", Exit.UNREACHABLE, "error: .*nowhere.*; .*give another --context"),
    ("list --kubeconfig nowhere", Exit.UNREACHABLE, "error: the kubeconfig nowhere .*; .*give --kubeconfig"),
]


async def test_lines_end_as_those_of_kubectl_and_say_what_comes_next(served: Served) -> None:
    async with Client(served.config()) as client:
        await install(client, manifests(Detail.OPAQUE), manager="test")
        await client.raw("POST", "/api/v1/namespaces", b'{"metadata": {"name": "team"}}')
        for name, team in (("a", "x"), ("b", "y"), ("ended", "y")):
            about = {"name": name, "namespace": "team", "labels": {"team": team}}
            job: dict[str, Any] = {"metadata": about, "spec": JOB}
            await client.create(ELASTICJOB.untyped(), job)
        status = {"status": {"phase": "Succeeded"}}
        await client.merge_patch(ELASTICJOB.untyped(), "ended", status, "team", subresource="status")

    def all_of_them() -> Iterator[tuple[str, Exit, str, Result]]:
        for line, code, shown in LINES:
            name, *words = line.split()
            yield line, code, shown, invoke(name, "-n", "team", "--kubeconfig", served.kubeconfig, *words)

    for line, code, shown, found in await asyncio.to_thread(lambda: list(all_of_them())):
        printed = found.stdout + found.stderr
        assert (line, found.exit_code) == (line, code), printed
        assert re.search(shown, printed, re.DOTALL), (line, printed)
