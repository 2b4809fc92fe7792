"""torchrun's flags as `elasticjob run` understands them, and where its master comes from."""

from __future__ import annotations

import json
import socket
from pathlib import Path

import pytest

from elasticjob.api.rpc import environment as names
from elasticjob.cli import run as command
from elasticjob.cli.main import application
from elasticjob.cli.run import Hosted
from elasticjob.trainer.agent.script import Script
from elasticjob.trainer.agent.settings import Settings, Start, place_from


@pytest.fixture
def called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[tuple[Settings, Hosted]]:
    """What was run, instead of running it."""
    calls: list[tuple[Settings, Hosted]] = []

    async def remember(settings: Settings, job: Hosted) -> int:
        calls.append((settings, job))
        return 7

    monkeypatch.setattr(command, "host_or_join", remember)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "train.py").touch()
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack" / "train.py").touch()
    monkeypatch.delenv(names.MASTER, raising=False)
    return calls


def started(*arguments: str) -> int:
    """Run the program; return its exit code."""
    with pytest.raises(SystemExit) as end:
        application(["run"])(["run", *arguments])
    assert isinstance(end.value.code, int)
    return end.value.code


@pytest.mark.parametrize(
    ("arguments", "script", "nodes"),
    [
        (["train.py"], Script("train.py"), (1, 1)),
        (["--nnodes", "2", "train.py", "--nnodes", "9"], Script("train.py", ("--nnodes", "9")), (2, 2)),
        (["--nnodes=1:4", "train.py", "-m", "x"], Script("train.py", ("-m", "x")), (1, 4)),
        (["-m", "pack.train", "--", "a"], Script("pack.train", ("--", "a"), module=True), (1, 1)),
        (["--", "train.py", "--help"], Script("train.py", ("--help",)), (1, 1)),
        (
            ["--nproc_per_node=2", "--no_python", "sh", "-c", "ls"],
            Script("sh", ("-c", "ls"), python=False),
            (1, 1),
        ),
    ],
)
def test_flags_end_at_the_script(
    called: list[tuple[Settings, Hosted]], arguments: list[str], script: Script, nodes: tuple[int, int]
) -> None:
    assert started(*arguments) == 7
    [(settings, job)] = called
    assert (settings.script, (job.low, job.high)) == (script, nodes)


def test_torchruns_other_words_are_understood(called: list[tuple[Settings, Hosted]]) -> None:
    flags = "--rdzv-backend c10d --rdzv-endpoint h:1 --rdzv_id j --start-method spawn -t 3 --max_restarts 0"
    assert started(*flags.split(), "train.py") == 7
    [(settings, job)] = called
    assert (job.endpoint, job.name) == ("h:1", "j")
    assert (settings.start, settings.max_restarts) == (Start.COLD, 0)


@pytest.mark.parametrize(
    ("flags", "expected"), [("", (3, 2)), ("--max-restarts 5", (5, 0)), ("--max-restarts 0", (0, 0))]
)
def test_max_restarts_that_are_given_are_kept(
    called: list[tuple[Settings, Hosted]], flags: str, expected: tuple[int, int]
) -> None:
    assert started(*flags.split(), "train.py") == 7
    [(settings, _)] = called
    assert (settings.max_restarts, settings.tries) == expected


@pytest.mark.parametrize(
    ("arguments", "code", "sentence"),
    [
        (["absent.py"], 2, "absent.py cannot be read"),
        (["bad.py"], 1, "bad.py, line 1: "),
        (["-m", "absent"], 2, "no module 'absent'"),
        (["--max-restarts", "-1", "train.py"], 2, "--max-restarts is -1"),
    ],
)
def test_run_that_cannot_start_says_so_at_once(
    called: list[tuple[Settings, Hosted]],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
    arguments: list[str],
    code: int,
    sentence: str,
) -> None:
    monkeypatch.setenv(names.TERMINATION_LOG, str(tmp_path / "words"))
    (tmp_path / "bad.py").write_text("def")
    assert started(*arguments) == code
    assert sentence in capsys.readouterr().err
    assert not called
    if (tmp_path / "words").exists():
        assert sentence in json.loads((tmp_path / "words").read_text())["message"]


async def test_node_that_finds_the_endpoint_taken_joins_the_master_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    masters: list[str] = []

    async def joined(settings: Settings) -> int:
        masters.append(settings.place.master)
        return 3

    monkeypatch.setattr(command, "join", joined)
    with socket.create_server(("127.0.0.1", 0)) as first:
        endpoint = f"127.0.0.1:{first.getsockname()[1]}"
        settings = Settings(place=place_from({}), script=Script("train.py"))
        assert await command.host_or_join(settings, Hosted(1, 2, endpoint, "job")) == 3
    assert masters == [endpoint]
