"""Flags of commands about jobs: durations, pairs, sizes, completion; and how jobs are printed."""

from __future__ import annotations

import json
from datetime import UTC, datetime
from typing import Any

import pytest
import typer

from elasticjob.cli import errors
from elasticjob.cli.errors import Exit, Failure, code_of
from elasticjob.cli.jobs import completion, options, table
from elasticjob.cli.jobs.following import LastReport, report_end
from elasticjob.cli.jobs.options import Format
from elasticjob.cli.main import complete
from elasticjob.client import errors as ours
from elasticjob.kube import errors as kube
from tests.kit.commands import click_command, invoke

NOW = datetime(2026, 11, 27, 12, tzinfo=UTC)
JOB: dict[str, Any] = {
    "apiVersion": "elastic.iml.github.io/v1alpha1",
    "kind": "ElasticJob",
    "metadata": {
        "name": "digits",
        "namespace": "team",
        "creationTimestamp": "2026-11-27T11:00:00Z",
        "uid": "u",
    },
    "spec": {"optimizeMode": "single-job"},
    "status": {
        "phase": "Running",
        "workers": "2/2",
        "restarts": 0,
        "training": {"step": 40, "stepsPerSecond": 12.345, "progress": 0.5, "worldSize": 2},
    },
}


@pytest.mark.parametrize(
    ("text", "seconds"), [("", None), ("90", 90), ("1.5s", 1.5), ("5m", 300), ("2h", 7200), ("1d", 86400)]
)
def test_a_duration_is_read_in_its_unit(text: str, seconds: float | None) -> None:
    assert options.seconds(text) == seconds


@pytest.mark.parametrize("text", ["soon", "-1s", "5 m", "m"])
def test_what_is_no_duration_is_wrong_usage(text: str) -> None:
    with pytest.raises(Failure, match="write 90s, 5m or 2h") as raised:
        options.seconds(text)
    assert raised.value.code is Exit.USAGE


def test_pairs_have_names_and_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HERE", "found")
    assert options.pairs("--env", ["A=b=c", "HERE", "E="], from_here=True) == {
        "A": "b=c",
        "HERE": "found",
        "E": "",
    }
    for words in (["HERE"], ["=b"], [""]):
        with pytest.raises(Failure, match="write --label NAME=VALUE"):
            options.pairs("--label", words)


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (ours.NotFound(""), Exit.NOT_FOUND),
        (ours.Unreachable(""), Exit.UNREACHABLE),
        (ours.TimedOut(""), Exit.TIMED_OUT),
        (ours.JobFailed(""), Exit.FAILED),
        (ours.Refused(""), Exit.REFUSED),
        (ours.Denied(""), Exit.REFUSED),
        (ours.AlreadyThere(""), Exit.REFUSED),
        (ours.Unusable(""), Exit.USAGE),
        (kube.NotFound(404, "NotFound", ""), Exit.NOT_FOUND),
        (kube.ConfigError(""), Exit.UNREACHABLE),
        (kube.Conflict(409, "Conflict", ""), Exit.FAILED),
        (Failure("", code=Exit.USAGE), Exit.USAGE),
    ],
)
def test_each_error_has_its_exit_code(error: Exception, code: Exit) -> None:
    assert code_of(error) is code


def test_each_exit_code_has_a_meaning_and_each_named_class_is_there() -> None:
    assert [code.meaning for code in Exit if not code.meaning] == []
    assert [name for name in errors.CODES if not (hasattr(ours, name) or hasattr(kube, name))] == []


def printed(format: Format, capsys: pytest.CaptureFixture[str], **more: bool) -> str:
    table.print_jobs([JOB], format, **more)
    return capsys.readouterr().out


def test_a_job_is_printed_in_each_format(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(Format.NAME, capsys) == "elasticjob.elastic.iml.github.io/digits\n"
    assert json.loads(printed(Format.JSON, capsys, single=True)) == JOB
    assert json.loads(printed(Format.JSON, capsys))["items"] == [JOB]
    assert "phase: Running\n" in printed(Format.YAML, capsys, single=True)
    head, row = printed(Format.WIDE, capsys, everywhere=True).splitlines()
    assert head.split()[:4] == ["NAMESPACE", "NAME", "PHASE", "WORKERS"]
    assert row.split()[:4] == ["team", "digits", "Running", "2/2"]
    assert "\x1b" not in row  # no colours in a pipe
    assert "single-job" in row


def test_a_cell_is_what_kubectl_shows() -> None:
    columns = table.chosen(wide=False)
    assert table.row(JOB, columns, NOW, everywhere=False) == [
        "digits",
        "Running",
        "2/2",
        "0",
        "12.3",
        "",
        "60m",
    ]


def test_a_script_stays_readable_in_yaml() -> None:
    assert (
        table.dump({"data": {"train.py": "a\n  b\n"}}, Format.YAML)
        == "data:\n  train.py: |\n    a\n      b\n"
    )


def test_a_state_is_told_once_and_progress_now_and_then() -> None:
    told = LastReport()
    assert [*told.lines(JOB, 10.0)] == ["Running, 2/2 nodes", "step 40, 50% done, 12.3 steps/s, world 2"]
    later = {**JOB, "status": {**JOB["status"], "training": {"step": 41}}}
    assert [*told.lines(later, 11.0)] == []
    assert [*told.lines(later, 16.0)] == ["step 41"]


@pytest.mark.parametrize(
    ("phase", "code"), [("Succeeded", Exit.DONE), ("Failed", Exit.FAILED), ("Running", Exit.NOT_FOUND)]
)
def test_the_end_of_a_job_is_the_exit_code_of_following_it(phase: str, code: Exit) -> None:
    assert report_end("digits", {"status": {"phase": phase}}) == code


@pytest.mark.parametrize(
    ("words", "offered"),
    [(["sub"], ["submit"]), (["wait", "x", "--for", "r"], ["running"]), (["list", "-o", "w"], ["wide"])],
)
def test_kubectl_is_offered_what_may_follow(
    words: list[str], offered: list[str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("_ELASTICJOB_COMPLETE", "_TYPER_COMPLETE_FISH_ACTION", "_TYPER_COMPLETE_ARGS"):
        monkeypatch.setenv(name, "")
    monkeypatch.setattr("sys.argv", ["kubectl_complete-ej", *words])
    complete()
    *lines, directive = capsys.readouterr().out.splitlines()
    assert ([line.partition("\t")[0] for line in lines], directive) == (offered, ":4")


def test_completion_without_a_cluster_offers_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    context = typer.Context(click_command("get"))
    assert completion.jobs(context, "") == []


def test_a_cluster_that_is_not_there_has_an_exit_code_of_its_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KUBECONFIG", "/nowhere")
    found = invoke("list")
    assert found.exit_code == Exit.UNREACHABLE
    assert "give --kubeconfig, or set KUBECONFIG" in found.stderr
