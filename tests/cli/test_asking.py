"""What `elasticjob explain` and `elasticjob top` make of Brain's answers, and of none."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from io import StringIO

import pytest
from rich.console import Console

from elasticjob.cli.asking import sizes
from elasticjob.cli.commands import explain, top
from elasticjob.cli.jobs.table import age
from tests.kit.commands import invoke

NOW = datetime(2026, 11, 23, 12, tzinfo=UTC)
DECISION = {
    "number": 2,
    "at": "2026-11-23T11:00:00Z",
    "event": "Idle",
    "algorithm": "worker-growth",
    "plan": "digits-brain-ab123-2",
    "outcome": "Written",
    "reason": "2 workers train, and there is room for more",
    "sizes": {
        "groups": {"worker": {"count": 4, "resource": {"cpu": "2"}}},
        "nodes": {"x-ps-0": {"cpu": "8"}},
    },
}


def test_a_decision_is_told() -> None:
    assert explain.describe(DECISION).splitlines() == [
        "  2  2026-11-23 11:00:00  Idle: worker-growth, as ScalePlan digits-brain-ab123-2 (Written)",
        "     worker ×4 cpu 2; x-ps-0 cpu 8",
        "     2 workers train, and there is room for more",
    ]
    assert "as an answer to the master" in explain.describe({**DECISION, "plan": ""})
    assert sizes({}) == ""


@pytest.mark.parametrize(
    ("seconds", "said"), [(5, "5s"), (119, "119s"), (120, "2m"), (7200, "2h"), (86400 * 3, "3d"), (-5, "0s")]
)
def test_age(seconds: int, said: str) -> None:
    assert age(NOW - timedelta(seconds=seconds), NOW) == said


JOB = {
    "namespace": "research-team",
    "name": "language-model-17b-pretraining",
    "owner": "research-team",
    "phase": "Succeeded",
    "mode": "single-job",
    "began": "2026-11-23T11:00:00+00:00",
    "status": {"worldSize": 16, "stepsPerSecond": 12.5, "goodput": 0.97},
}


@pytest.mark.parametrize("width", [80, 100, 200])
def test_a_table_of_jobs_fits_the_terminal(width: int) -> None:
    out = StringIO()
    console = Console(width=width, file=out)
    console.print(top.fitting([JOB], NOW, console))
    head, row = (line.split() for line in out.getvalue().splitlines())
    assert row[head.index("NAME")] == "language-model-17b-pretraining"
    assert row[head.index("PHASE")] == "Succeeded"
    assert row[head.index("AGE")] == "60m"
    assert {"WORLD", "STEPS/S", "GOODPUT"} <= set(head)
    assert ("MODE" in head) is (width > 100)


def test_a_pipe_gets_the_jobs_once_and_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(top, "ask_brain", lambda *_: {"jobs": [JOB]})
    result = invoke("top", "--brain", "http://127.0.0.1:9")
    assert result.exit_code == 0
    assert len(result.stdout.splitlines()) == 2
    assert "language-model-17b-pretraining" in result.stdout
    assert "single-job" in result.stdout


@pytest.mark.parametrize("words", [["top", "--once"], ["explain", "digits"]])
def test_a_brain_that_is_away_is_named(words: list[str]) -> None:
    result = invoke(*words, "--brain", "http://127.0.0.1:9")
    assert result.exit_code == 4
    assert "Brain at http://127.0.0.1:9/v1/jobs" in result.stderr
    assert "port-forward" in result.stderr


def test_a_token_that_cannot_be_read_is_said_in_one_line() -> None:
    found = invoke("top", "--brain", "http://127.0.0.1:1", "--token-file", "/nowhere", "--once")
    assert found.exit_code == 2
    assert found.stderr == "error: /nowhere cannot be read: no such file or directory; correct --token-file\n"
