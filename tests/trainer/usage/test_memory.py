"""Which kills are for want of memory, by the files of a cgroup of either version."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from elasticjob.trainer.usage.memory import RECENT, Cgroup, Kills, cgroup, describe, is_by_kill, is_near

V1: Final = "4:memory:/kubepods/pod1/main\n0::/\n"
V2: Final = "0::/kubepods/pod1/main\n"
OOM_CONTROL: Final = "oom_kill_disable 0\nunder_oom 0\noom_kill {}\n"
EVENTS: Final = "low 0\nhigh 0\nmax 7\noom 2\noom_kill {}\noom_group_kill 0\n"
NO_LIMIT: Final = "9223372036854771712\n"

HOMES: Final = [
    ("version 1, by its path", V1, "memory/kubepods/pod1/main/memory.oom_control", OOM_CONTROL),
    ("version 1, mounted in a container", V1, "memory/memory.oom_control", OOM_CONTROL),
    ("version 2, by its path", V2, "kubepods/pod1/main/memory.events", EVENTS),
    ("version 2, mounted in a container", V2, "memory.events", EVENTS),
]


@pytest.mark.parametrize(("case", "own", "file", "text"), HOMES, ids=[case for case, *_ in HOMES])
def test_cgroup_is_found_wherever_it_is_mounted(
    tmp_path: Path, case: str, own: str, file: str, text: str
) -> None:
    events = tmp_path / file
    events.parent.mkdir(parents=True, exist_ok=True)
    events.write_text(text.format(3))
    (tmp_path / "own").write_text(own)
    found = cgroup(tmp_path, tmp_path / "own")
    assert found is not None
    assert found.kills() == 3


def test_without_a_cgroup_that_counts_nothing_is_explained(tmp_path: Path) -> None:
    (tmp_path / "own").write_text(V1)
    assert cgroup(tmp_path, tmp_path / "own") is None
    assert cgroup(tmp_path, tmp_path / "none") is None
    assert not Kills(None).recent(0.0)


@pytest.mark.parametrize(
    ("text", "limit"), [("167772160\n", 160 << 20), ("max\n", None), (NO_LIMIT, None), ("", None)]
)
def test_limit(tmp_path: Path, text: str, limit: int | None) -> None:
    (tmp_path / "max").write_text(text)
    assert Cgroup(tmp_path / "events", tmp_path / "max").limit() == limit


def test_a_kill_explains_ends_for_some_seconds(tmp_path: Path) -> None:
    here = Cgroup(tmp_path / "memory.events", tmp_path / "memory.max")

    def count(number: int) -> None:
        here.events.write_text(EVENTS.format(number))

    count(5)
    kills = Kills(here)
    kills.look(0.0)
    assert not kills.recent(1.0)
    count(6)
    assert kills.recent(1.5)
    assert kills.recent(RECENT)
    for second in range(2, 30):
        kills.look(float(second))
    assert not kills.recent(30.0)


@pytest.mark.parametrize(
    ("code", "message", "by_kill"),
    [
        (-9, "step 41", True),
        (137, "bash: line 1: 7 Killed  python train.py", True),
        (247, "", True),
        (1, "RuntimeError: DataLoader worker (pid 71) is killed by signal: Killed. ", True),
        (1, "RuntimeError: DataLoader worker (pid(s) 71, 72) exited unexpectedly", True),
        (1, "concurrent.futures.process.BrokenProcessPool: A process in the pool was terminated", True),
        (1, "ValueError: no data", False),
        (-15, "", False),
        (-11, "", False),
        (143, "", False),
    ],
)
def test_which_ends_a_kill_may_explain(code: int, message: str, by_kill: bool) -> None:
    assert is_by_kill(code, message) is by_kill


def test_what_is_used_in_words() -> None:
    assert describe((159 << 20) + 1, 160 << 20) == "160Mi of 160Mi"
    assert describe(5 << 20, None) == "5Mi"
    assert is_near(130 << 20, 160 << 20)
    assert not is_near(120 << 20, 160 << 20)
    assert not is_near(1 << 60, None)
