"""`elasticjob suspend` asks before it stops a job that would begin again."""

from __future__ import annotations

import sys
from typing import Any

import pytest
import typer

from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.cli.commands.jobs.change import names_and_sizes, suspend
from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.jobs import options


class Jobs:
    """A client of one job."""

    def __init__(self, training: dict[str, int]) -> None:
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
    jobs: Any = Jobs(training)
    asked: list[str] = []

    def confirm(question: str) -> bool | None:
        asked.append(question)
        return answer

    monkeypatch.setattr(sys.stdin, "isatty", lambda: terminal)
    monkeypatch.setattr(typer, "confirm", confirm)
    monkeypatch.setattr(options, "client", lambda *_: jobs)
    if suspended:
        assert suspend(["line"], yes=yes) is Exit.DONE
    else:
        with pytest.raises(Failure, match="nothing was suspended"):
            suspend(["line"], yes=yes)
    assert (jobs.suspended, bool(asked)) == (suspended, answer is not None)
    assert ("142 steps are lost" in capsys.readouterr().err) is (training == {"step": 142})


@pytest.mark.parametrize(
    ("words", "names", "sizes"),
    [
        ("a 3", ["a"], {"worker": 3}),
        ("a b 3", ["a", "b"], {"worker": 3}),
        ("ads worker=4 ps=2", ["ads"], {"worker": 4, "ps": 2}),
        ("3 4", ["3"], {"worker": 4}),  # a name may be a number
    ],
)
def test_sizes_stand_behind_names_of_jobs(words: str, names: list[str], sizes: dict[str, int]) -> None:
    assert names_and_sizes(words.split()) == (names, sizes)
    assert names_and_sizes(words.split()[len(names) :], selected=True) == ([], sizes)


@pytest.mark.parametrize("words", ["a many", "a ps=", "a -1", "a ps=-1", "a 3 b", "3"])
def test_what_is_no_size_is_named(words: str) -> None:
    with pytest.raises(Failure, match="is no size; write NAME 3, or NAME ps=2") as raised:
        names_and_sizes(words.split())
    assert raised.value.code is Exit.USAGE
