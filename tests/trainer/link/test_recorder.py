"""Torch's flight recorder: read, and asked of a worker that is blocked in a collective."""

from __future__ import annotations

import os
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import msgspec
import pytest
import torch

from elasticjob.api.rpc.nodes import Collective
from elasticjob.trainer.agent.seeing.collectives import Questions, collective_of, in_world
from elasticjob.trainer.link import recorder, stacks
from elasticjob.trainer.link.recorder import Digest, Entry, Memory, digest
from lab.waiting import until

WORLD, PART = "default_pg 0 of ranks 0, 1, 2, 3 (gloo)", "mesh_tp 3 of ranks 0, 1 (gloo)"
GROUPS = {"0": ("default_pg", [0, 1, 2, 3]), "3": ("mesh_tp", [0, 1])}


def entry(seq: int, *, ended: bool = True, group: str = "0", at: float = 90.0, **more: Any) -> Entry:
    given = {"pg_id": int(group or 0), "profiling_name": "gloo:all_gather", "state": "scheduled", **more}
    names = (group, GROUPS[group][0] if group in GROUPS else "")
    return Entry(
        process_group=names, collective_seq_id=seq, retired=ended, time_created_ns=int(at * 1e9), **given
    )


def waits(group: str, seq: int, **more: Any) -> Collective:
    return Collective(**{"group": group, "name": "all_gather", "seq": seq, "since": 10.0, **more})


@pytest.mark.parametrize(
    ("entries", "open_", "begun"),
    [
        ([], None, ()),
        ([entry(1), entry(2)], None, ((WORLD, 2),)),
        ([entry(1), entry(2, ended=False)], waits(WORLD, 2), ((WORLD, 2),)),
        (
            [
                entry(7),
                entry(4, group="3", ended=False),
                entry(8, ended=False, at=91.0),
            ],  # one is beside another
            waits(PART, 4),
            ((PART, 4), (WORLD, 8)),
        ),
        (
            [entry(1, ended=False, profiling_name="gloo:all_reduce", input_sizes=((3, 4), (2,)))],
            waits(WORLD, 1, name="all_reduce", size=14),
            ((WORLD, 1),),
        ),
        ([entry(9, ended=False), entry(2, pg_id=5)], None, ((WORLD, 2),)),  # of the world before
        ([entry(9, ended=False, group="8")], None, ()),  # of a group that is no more
        ([entry(9, ended=False, group="")], waits("a group (gloo)", 0), ()),
        (
            [entry(3, state="completed", ended=False, profiling_name="nccl:all_gather"), entry(5, pg_id=0)],
            None,
            (("default_pg 0 of ranks 0, 1, 2, 3 (nccl)", 3), (WORLD, 5)),
        ),
        (
            [entry(3, ended=False, is_p2p=True, profiling_name="nccl:recv 0<-1")],
            waits("default_pg 0 of ranks 0, 1, 2, 3 (nccl)", 0, name="recv 0<-1"),
            (),
        ),
    ],
)
def test_recorder_says_where_a_worker_waits(
    entries: list[Entry], open_: Collective | None, begun: tuple[tuple[str, int], ...]
) -> None:
    assert digest(entries, GROUPS, 4, 100.0) == Digest(4, open_, begun)


def test_names_of_groups_are_short_and_differ() -> None:
    for size in (2, 9, 4096):
        names = {
            recorder.name_for_people(entry(1), {"0": ("d" * 99, [*range(at, at + size)])}) for at in (0, size)
        }
        assert len(names) == 2
        assert max(map(len, names)) <= 100


def test_collective_of_a_world_before_is_no_wait_and_groups_of_a_node_are_its_own() -> None:
    known = Digest(2, waits("g", 3), (("g", 3),))
    assert collective_of(known, 1.5, 12.0) == waits("g", 3, since=11.5)
    assert collective_of(known, 1.5, 11.0) is None
    assert collective_of(Digest(2), 0.0, 9.0) is None
    assert in_world(known, 2, "n") is known
    assert in_world(known, 4, "n") == Digest(2, waits("n: g", 3), (("n: g", 3),))
    assert in_world(Digest(2), 4, "n") == Digest(2)


def test_recorder_is_read_once_while_nothing_changes() -> None:
    trace, calls = {"entries": [entry(1)]}, []

    def dump(nccl: bool, collectives: bool, active: bool) -> bytes:
        calls.append((nccl, collectives, active))
        return msgspec.json.encode(trace if collectives else len(trace["entries"]))

    memory, dumps = Memory(), (partial(dump, False), partial(dump, True))
    assert [memory.read(*dumps) for _ in range(3)] == [[entry(1), entry(1)]] * 3
    assert calls[2:4] == [(False, True, False), (True, True, False)]
    assert len(calls) == 2 * 3 + 2
    trace["entries"].append(entry(2))
    assert memory.read(None, dumps[1]) == [entry(1), entry(2)]


BLOCKED = """
import os, sys, threading
import torch, torch.distributed as dist
from elasticjob.trainer.link import recorder
recorder.serve(os.environ)
recorder.serve(os.environ)
rank, file = int(sys.argv[1]), sys.argv[2]
dist.init_process_group("gloo", store=dist.FileStore(file, 2), rank=rank, world_size=2)
dist.all_reduce(torch.ones(3))
print(recorder.lacks() or "here", flush=True)
if rank:
    threading.Event().wait()
dist.all_reduce(torch.ones(5))
"""


async def test_worker_that_is_blocked_in_a_collective_says_so(tmp_path: Path) -> None:
    folder = tmp_path / ("deep" * 30)  # longer than the name of a socket may be
    folder.mkdir()
    files = [folder / f"stacks-{rank}.txt" for rank in (0, 1, 2)]
    workers = [
        subprocess.Popen(  # noqa: ASYNC220 (nothing else is to run meanwhile)
            [sys.executable, "-W", "ignore", "-c", BLOCKED, str(rank), str(tmp_path / "store")],
            env={**os.environ, stacks.FILE: str(file)},
            stdout=subprocess.PIPE,
        )
        for rank, file in enumerate(files[:2])
    ]
    questions, heard = Questions(lambda slot: recorder.file_of(files[slot])), dict[int, Digest]()

    async def both() -> bool:
        for slot in {0, 1} - heard.keys() - questions.asked.keys():
            questions.ask(slot)
        heard.update({slot: each for slot, each in questions.answers().items() if each.begun})
        return len(heard) == 2 and heard.pop(0).open is not None

    group = "default_pg 0 of ranks 0, 1 (gloo)"
    try:
        assert [worker.stdout and worker.stdout.readline() for worker in workers] == [b"here\n"] * 2
        questions.ask(2)  # it does not listen
        await until(both, "both have answered, and rank 0 waits")
        assert heard == {1: Digest(2, None, ((group, 1),))}
    finally:
        for worker in workers:
            worker.kill()
            worker.communicate()


def test_torch_without_a_recorder_is_named_and_nobody_is_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    for name in (recorder.GLOO, recorder.NCCL):
        monkeypatch.delattr(torch._C._distributed_c10d, name)
    recorder.serve({stacks.FILE: str(tmp_path / "stacks-0.txt")})
    [said] = caplog.messages
    assert said.startswith(f"torch {torch.__version__} has no flight recorder")
    assert list(tmp_path.iterdir()) == []
    monkeypatch.undo()
    assert recorder.lacks() == ""
    monkeypatch.setattr(torch.distributed.distributed_c10d, "_world", object())
    assert recorder.lacks().endswith("has no table of process groups")
