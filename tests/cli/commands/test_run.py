"""torchrun's flags as `elasticjob run` understands them, and where its master comes from."""

from __future__ import annotations

import json
import shlex
import signal
from dataclasses import dataclass, field
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

import pytest

from elasticjob.api.numbers import UNRANKED
from elasticjob.api.rpc import environment as names
from elasticjob.cli.commands.run import grace_of
from elasticjob.cli.main import application
from elasticjob.cli.standalone import hosting
from elasticjob.cli.standalone.hosted import HostedJob
from elasticjob.cli.standalone.hosting import new_job
from elasticjob.cli.standalone.torchrun import Conf
from elasticjob.trainer.agent.script import Script
from elasticjob.trainer.agent.settings import Settings, Start, Streams


class Run(NamedTuple):
    """The processes that a command line would start."""

    settings: Settings
    job: HostedJob


@dataclass
class Runs:
    """What was run, instead of running it."""

    made: list[Run] = field(default_factory=list)

    async def remember(self, settings: Settings, job: HostedJob) -> int:
        self.made.append(Run(settings, job))
        return 7

    def of(self, *arguments: str) -> Run:
        """Return what a command line runs."""
        assert started(*arguments) == 7
        return self.made[-1]


@pytest.fixture
def runs(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Runs:
    """In a folder with a script, and with a module of the same name."""
    made = Runs()
    monkeypatch.setattr(hosting, "host_or_join", made.remember)
    monkeypatch.chdir(tmp_path)
    for name in ("train.py", "pack/train.py"):
        Path(name).parent.mkdir(exist_ok=True)
        Path(name).touch()
    monkeypatch.delenv(names.MASTER, raising=False)
    return made


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
    runs: Runs, arguments: list[str], script: Script, nodes: tuple[int, int]
) -> None:
    settings, job = runs.of(*arguments)
    assert (settings.script, (job.low, job.high)) == (script, nodes)


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
    runs: Runs,
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
    assert not runs.made
    if (tmp_path / "words").exists():
        said = json.loads((tmp_path / "words").read_text())
        assert sentence in said["message"]
        assert said["reason"] == "CannotStart"


RENDEZVOUS = "--nnodes 1:2 --rdzv-endpoint 127.0.0.1:1 --rdzv-id X"


@pytest.mark.parametrize("flags", [f"--rdzv-backend c10d {RENDEZVOUS}", RENDEZVOUS])
def test_same_line_gives_each_node_a_name_of_its_own_and_no_rank(runs: Runs, flags: str) -> None:
    places = [runs.of(*flags.split(), "train.py").settings.place for _ in range(2)]
    assert len({place.node for place in places}) == 2
    assert {place.index for place in places} == {UNRANKED}
    assert {place.job for place in places} == {"X"}


@pytest.mark.parametrize("flag", ["--network-check", "--exclude-straggler"])
def test_slow_nodes_train_unless_they_are_excluded(runs: Runs, flag: str) -> None:
    excluded = new_job(runs.of(flag, "train.py").job).spec.exclude_stragglers
    assert excluded is (flag == "--exclude-straggler")


@pytest.mark.parametrize(
    ("given", "in_pod", "grace"),
    [
        ({}, False, 30.0),  # as torchrun
        ({"--grace": 0.0}, False, 0.0),
        ({"--grace": None, "--shutdown-timeout": 7.0}, False, 7.0),
        ({"ELASTICJOB_GRACE": "60"}, True, 59.0),
        ({"ELASTICJOB_GRACE": "1"}, True, 0.5),
        ({"--grace": 20.0, "ELASTICJOB_GRACE": "60"}, True, 20.0),
        ({"--grace": 90.0, "ELASTICJOB_GRACE": "60"}, True, 59.0),
        ({}, True, 29.0),  # of an older operator: what Kubernetes gives
    ],
)
def test_the_grace_of_a_run(given: dict[str, float | str | None], in_pod: bool, grace: float) -> None:
    assert grace_of(given, in_pod=in_pod) == grace


CONF = "join_timeout=60,last_call_timeout=5,quiet_window=4, close_timeout=7,keep_alive_interval=2,is_host=1"
CONFIGURED = Conf(join=60, last_call=5, quiet=4, close=7, interval=2, is_host=True)
AT, RANK = "job.host job.port", "settings.place.index settings.place.node"


@pytest.mark.parametrize(
    ("flags", "fields", "value"),
    [
        ("", AT, ("", 0)),
        ("--nnodes 1:4", AT, ("", 0)),
        ("--nnodes 2", AT, ("127.0.0.1", 29500)),
        ("--nnodes 2 --master-port 7", AT, ("127.0.0.1", 7)),
        ("--nnodes 2 --master-addr h", AT, ("h", 29500)),
        ("--nnodes 2 --master-addr h --master-port 7", AT, ("h", 7)),
        ("--rdzv-endpoint h", AT, ("h", 29400)),
        ("--rdzv-endpoint h:7 --master-addr i", AT, ("h", 7)),
        ("--rdzv-endpoint [::1]:7", AT, ("::1", 7)),
        ("--rdzv-endpoint ::1", AT, ("::1", 29400)),
        ("--standalone --rdzv-endpoint h:7", AT, ("", 0)),
        (f"{RENDEZVOUS} --rdzv-backend static --node-rank 1", RANK, (1, "local-worker-1")),
        (f"{RENDEZVOUS} --node-rank 1", RANK, (1, "local-worker-1")),
        (f"{RENDEZVOUS} --rdzv-backend c10d --node-rank 1", "settings.place.index", UNRANKED),
        (f"--rdzv-conf '{CONF}'", "job.conf", CONFIGURED),
        (f"--rdzv-conf '{CONF}'", "job.conf.silence", 6),
        ("", "job.conf.silence", 5),
        ("--shutdown-timeout 7", "settings.grace", 7.0),
        ("--grace 8", "settings.grace", 8.0),
        ("--network-check", "settings.check", True),
        ("--exclude-straggler", "settings.check", True),
        ("--signals-to-handle SIGTERM,SIGUSR1", "settings.signals", (signal.SIGTERM, signal.SIGUSR1)),
        ("", "settings.signals", (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT)),
        ("--local-ranks-filter 0,2", "settings.shown", frozenset({0, 2})),
        ("", "settings.shown", None),
        ("--log-line-prefix-template ${rank}:", "settings.template", "${rank}:"),
        ("--virtual-local-rank", "settings.virtual_rank", True),
        ("--log-dir d -r 1", "settings.redirects", Streams(1)),
        ("--log-dir d --redirects 0:1,1:2", "settings.redirects", Streams(by_worker=((0, 1), (1, 2)))),
        ("--log-dir d -t 3", "settings.tee", Streams(3)),
        ("--run-path", "settings.script", Script("train.py")),
        ("--run-path --no-python", "settings.script", Script("train.py")),
        ("--monitor-interval 5", "settings.workers", 1),
        ("--role trainer", "settings.name", "trainer"),
        ("--rdzv-backend c10d --start-method spawn", "settings.start", Start.COLD),
        ("", "settings.max_restarts", 3),
        ("", "settings.tries", 2),
        ("--max-restarts 5", "settings.max_restarts", 5),
        ("--max-restarts 5", "settings.tries", 0),
        ("--max_restarts 0", "settings.max_restarts", 0),
        ("--max_restarts 0", "settings.tries", 0),
        ("PET_MAX_RESTARTS=2", "settings.max_restarts", 2),
        ("PET_VIRTUAL_LOCAL_RANK=1", "settings.virtual_rank", True),
        ("TORCH_ELASTIC_SHUTDOWN_TIMEOUT=9", "settings.grace", 9.0),
        ("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE=x", "settings.template", "x"),
    ],
)
def test_flags_and_variables_mean_what_they_mean_to_torchrun(
    runs: Runs, monkeypatch: pytest.MonkeyPatch, flags: str, fields: str, value: object
) -> None:
    if flags[:1].isupper():
        monkeypatch.setenv(*flags.split("="))
        flags = ""
    assert attrgetter(*fields.split())(runs.of(*shlex.split(flags), "train.py")) == value


@pytest.mark.parametrize(
    ("flags", "sentence"),
    [
        ("-r 4", "--redirects is '4'; give 0, 1, 2, 3, or WORKER:NUMBER"),
        ("--grace -1", "--grace is -1.0; give seconds from 0 to 86400"),
        ("--grace nan", "--grace is nan"),
        ("--grace soon", "'--grace'"),
        ("--grace 86401", "--grace is 86401.0"),
        ("--shutdown-timeout -3", "--shutdown-timeout is -3.0"),
        ("--local-ranks-filter a", "--local-ranks-filter is 'a'"),
        ("--signals-to-handle SIGFOO", "there is no signal 'SIGFOO'"),
        ("--signals-to-handle SIGKILL", "SIGKILL cannot be handled"),
        ("--no-python -m", "--module and --no-python exclude each other"),
        ("--rdzv-backend etcd-v2", "--rdzv-backend is 'etcd-v2': there is no etcd"),
        ("--rdzv-endpoint h:x", "the port is not a number"),
        ("--rdzv-endpoint h:65536", "--rdzv-endpoint is 'h:65536': the port is not a number up to 65535"),
        ("--master-addr h --master-port 65536", "--master-port is '65536': the port is not a number"),
        ("--nnodes 2:1", "--nnodes is '2:1'"),
    ],
)
def test_value_that_torchrun_refuses_is_refused_by_name(
    runs: Runs, capsys: pytest.CaptureFixture[str], flags: str, sentence: str
) -> None:
    assert started(*flags.split(), "train.py") == 2
    assert sentence in capsys.readouterr().err
    assert not runs.made


def test_redirects_without_a_folder_go_to_a_new_one(runs: Runs) -> None:
    folder = runs.of("-r", "3", "train.py").settings.log_dir
    assert folder is not None
    assert list(folder.iterdir()) == []
    folder.rmdir()
