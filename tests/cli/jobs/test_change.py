"""`elasticjob suspend` asks before it stops a job that would begin again."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest
import typer

from elasticjob.api.v1alpha1.elasticjob import ElasticJob, ElasticJobStatus, Phase
from elasticjob.cli.commands.jobs.change import _resume, _suspend
from elasticjob.cli.errors import Failure


class Jobs:
    """A client of one job."""

    def __init__(self, **training: int) -> None:
        given = {"metadata": {"name": "line"}, "spec": {}, "status": {"training": training}}
        self.job = ElasticJob.model_validate(given)
        self.suspended = False

    async def __aenter__(self) -> Jobs:
        return self

    async def __aexit__(self, *_: object) -> None:
        pass

    async def get(self, name: str) -> ElasticJob:
        return self.job

    async def suspend(self, name: str) -> None:
        self.suspended = True

    async def resume(self, name: str) -> None:
        raise AssertionError(name)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_job_that_has_ended_is_not_suspended_or_resumed(phase: str) -> None:
    jobs: Any = Jobs()
    jobs.job = jobs.job.model_copy(update={"status": ElasticJobStatus(phase=Phase(phase))})
    with pytest.raises(Failure, match=rf"line has ended \({phase}\), and nothing was suspended"):
        asyncio.run(_suspend(jobs, ["line"], yes=True, wait=False, timeout=None))
    with pytest.raises(Failure, match=rf"line has ended \({phase}\), and nothing was resumed"):
        asyncio.run(_resume(jobs, ["line"], wait=False, timeout=None))
    assert not jobs.suspended


@pytest.mark.parametrize(
    ("training", "yes", "terminal", "answer", "suspended"),
    [
        ({"step": 142, "checkpointStep": 140}, False, True, None, True),
        ({"step": 142}, False, True, True, True),
        ({"step": 142}, False, True, False, False),
        ({"step": 142}, True, True, None, True),
        ({"step": 142}, False, False, None, True),  # a program, which is told
        ({}, False, True, None, True),  # it has not trained yet
    ],
)
def test_it_asks_where_steps_would_be_lost(
    training: dict[str, int],
    yes: bool,
    terminal: bool,
    answer: bool | None,
    suspended: bool,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    jobs: Any = Jobs(**training)
    asked: list[str] = []

    def confirm(question: str) -> bool | None:
        asked.append(question)
        return answer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: terminal)
    monkeypatch.setattr(typer, "confirm", confirm)
    if suspended:
        asyncio.run(_suspend(jobs, ["line"], yes, wait=False, timeout=None))
    else:
        with pytest.raises(Failure, match="nothing was suspended"):
            asyncio.run(_suspend(jobs, ["line"], yes, wait=False, timeout=None))
    assert (jobs.suspended, bool(asked)) == (suspended, answer is not None)
    assert ("142 steps are lost" in capsys.readouterr().err) is (training == {"step": 142})
