"""How much memory a node uses: by its cgroup, else by its processes. Unknown is not 0."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Final

import pytest

from elasticjob.devcluster.node.container import supervisor
from elasticjob.trainer.usage import footprint
from elasticjob.trainer.usage.footprint import COST, IN_CLUSTER, KEEPER, PAGE, PATIENCE, Footprint
from elasticjob.trainer.usage.memory import Cgroup, cgroup

V1: Final = {
    "memory.oom_control": "oom_kill 0\n",
    "memory.limit_in_bytes": "1000000\n",
    "memory.usage_in_bytes": "900000\n",
    "memory.max_usage_in_bytes": "990000\n",
    "memory.stat": "cache 500000\ninactive_file 7\ntotal_cache 500000\ntotal_inactive_file 300000\n",
    "cgroup.procs": "1\n7\n",
}
V2: Final = {
    "memory.events": "oom 0\noom_kill 0\n",
    "memory.max": "1000000\n",
    "memory.current": "900000\n",
    "memory.peak": "990000\n",
    "memory.stat": "anon 400000\nfile 500000\ninactive_file 300000\nactive_file 200000\n",
    "cgroup.procs": "1\n7\n",
}
ME: Final = 7


def group(root: Path, files: Mapping[str, str | None]) -> Cgroup:
    """The cgroup with such files, as the agent finds it."""
    folder = root / "memory" if files.keys() & {"memory.oom_control"} else root
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text) if text is not None else (folder / name).unlink(missing_ok=True)
    (root / "own").write_text("4:memory:/kubepods/pod1\n0::/kubepods/pod1\n")
    found = cgroup(root, root / "own")
    assert found is not None
    return found


class Proc:
    """A tree like /proc: each process has its parent, and its pages: of its own, and shared with others."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def add(self, pid: int, parent: int, resident: int, proportional: int | None) -> None:
        folder = self.root / str(pid)
        (folder / "task" / str(pid)).mkdir(parents=True)
        (folder / "task" / str(pid) / "children").write_text("")
        (folder / "stat").write_text(f"{pid} (a ) b) S {parent} 1 1")
        (folder / "statm").write_text(f"9 {resident} 1 1 0 1 0")
        if proportional is not None:
            (folder / "smaps_rollup").write_text(
                f"Rss: 1 kB\nPss:  {proportional * PAGE // 1024} kB\nPss_Anon: 9 kB\n"
            )
        above = self.root / str(parent) / "task" / str(parent) / "children"
        if above.exists():
            above.write_text(above.read_text() + f"{pid} ")


@pytest.fixture
def proc(tmp_path: Path) -> Proc:
    """A shell, the agent (7), its warm process with two workers that share 100 pages, and a stranger."""
    found = Proc(tmp_path / "proc")
    for pid, parent, resident, proportional in (
        (1, 0, 5, 5),
        (3, 1, 2, 2),
        (ME, 3, 50, 50),
        (8, ME, 110, 45),
        (9, 8, 120, 55),
        (10, 8, 120, 55),
        (99, 1, 1000, 1000),
    ):
        found.add(pid, parent, resident, proportional)
    return found


class Clock:
    """Time that goes on by `cost` whenever it is read."""

    def __init__(self) -> None:
        self.now, self.cost = 0.0, 0.0

    def __call__(self) -> float:
        self.now += self.cost
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def made(proc: Proc, cgroup: Cgroup | None = None, clock: Clock | None = None) -> Footprint:
    return Footprint(cgroup, {}, proc=proc.root, clock=clock or Clock(), me=ME)


@pytest.mark.parametrize(("files", "by_kernel"), [(V1, None), (V2, 990000)], ids=["v1", "v2"])
def test_in_a_cgroup_of_its_own_it_is_the_working_set(
    tmp_path: Path, proc: Proc, files: dict[str, str], by_kernel: int | None
) -> None:
    """As the kubelet counts: what is charged, but for file pages that were not used lately."""
    found = made(proc, group(tmp_path, files))
    assert (found.read(), found.peak, found.kernel_peak) == (600000, 600000, by_kernel)
    less = {name: "400000\n" for name in ("memory.current", "memory.usage_in_bytes") if name in files}
    group(tmp_path, less | {name: files[name] for name in files.keys() & {"memory.oom_control"}})
    assert (found.read(), found.peak) == (100000, 600000)


@pytest.mark.parametrize("files", [V1, V2], ids=["v1", "v2"])
@pytest.mark.parametrize(
    "change",
    [
        {"memory.stat": None},
        {"memory.stat": "anon 5\n"},
        {"memory.current": None, "memory.usage_in_bytes": None},
        {"memory.current": "", "memory.usage_in_bytes": "many"},
    ],
)
def test_a_cgroup_that_does_not_say_is_unknown(
    tmp_path: Path, proc: Proc, files: dict[str, str], change: dict[str, str | None]
) -> None:
    found = made(proc, group(tmp_path, {**files, **change}))
    assert found.read() is None
    assert found.peak is None


def test_a_kernel_without_a_peak_has_none(tmp_path: Path, proc: Proc) -> None:
    found = made(proc, group(tmp_path, {**V2, "memory.peak": None}))
    assert found.kernel_peak is None
    assert found.read() == 600000


PROCESSES: Final = (50 + 45 + 55 + 55) * PAGE


POD: Final = {IN_CLUSTER: "10.0.0.1"}


@pytest.mark.parametrize(
    ("procs", "environment", "is_own"),
    [
        ("1\n3\n7\n8\n", {}, True),  # a container: with its first process
        ("1\n3\n7\n99\n", {}, True),  # and somebody else's program in it
        ("3\n7\n8\n9\n10\n", POD, True),  # in the PID namespace of its pod, or of its machine
        ("3\n7\n8\n9\n10\n", {}, False),  # a terminal's
        ("7\n99\n", POD, False),  # others are in it
        ("0\n7\n", POD, False),  # and of another PID namespace
        ("", POD, False),
        ("1\n3\n7\n8\n", {KEEPER: "3"}, False),  # devcluster in a container
    ],
)
def test_which_cgroup_is_a_container_s_own(
    tmp_path: Path, proc: Proc, clock: Clock, procs: str, environment: dict[str, str], is_own: bool
) -> None:
    here = group(tmp_path, {**V2, "cgroup.procs": procs})
    found = Footprint(here, environment, proc=proc.root, clock=clock, me=ME)
    clock.now = PATIENCE
    assert found.read() == (600000 if is_own else PROCESSES)


def test_shared_pages_count_once_and_are_an_upper_bound_before(proc: Proc, clock: Clock) -> None:
    found = made(proc, clock=clock)
    assert (found.read(), found.peak) == ((50 + 110 + 120 + 120) * PAGE, None)
    clock.now = PATIENCE
    assert (found.read(), found.peak) == (PROCESSES, PROCESSES)
    assert found.kernel_peak is None


def test_to_tell_shared_pages_apart_may_cost_a_hundredth_of_the_time(proc: Proc, clock: Clock) -> None:
    found = made(proc, clock=clock)
    clock.now, clock.cost = PATIENCE, 0.05
    assert found.read() == PROCESSES
    cheap = clock.now + 0.05 / COST - 1
    clock.cost = 0.0
    proc.add(11, 8, 400, 400)
    clock.now = cheap
    assert found.read() == round(800 * PAGE * PROCESSES / (400 * PAGE))  # by the share of before
    assert found.peak == PROCESSES
    clock.now = cheap + 2
    assert found.read() == PROCESSES + 400 * PAGE


def test_below_a_keeper_all_but_itself_counts(proc: Proc, clock: Clock) -> None:
    """As devcluster's kubelet counts for the limit."""
    found = Footprint(None, {KEEPER: "1"}, proc=proc.root, clock=clock, me=ME)
    clock.now = PATIENCE
    assert found.read() == PROCESSES + (2 + 1000) * PAGE
    assert supervisor.KEEPER == KEEPER


def test_processes_that_end_are_left_out_and_files_that_may_not_be_read_are_unknown(
    proc: Proc, clock: Clock
) -> None:
    found = made(proc, clock=clock)
    clock.now = PATIENCE
    (proc.root / "9" / "statm").unlink()
    assert found.read() == PROCESSES - 55 * PAGE
    (proc.root / "10" / "smaps_rollup").unlink()  # not to be read: its resident set is an upper bound
    clock.now = 2 * PATIENCE
    assert found.read() == PROCESSES - 55 * PAGE + (120 - 55) * PAGE
    (proc.root / "10" / "statm").unlink()
    (proc.root / "10" / "statm").mkdir()
    assert found.read() is None
    assert found.peak == PROCESSES - 55 * PAGE + (120 - 55) * PAGE


def test_nothing_to_be_seen_is_unknown(tmp_path: Path) -> None:
    assert made(Proc(tmp_path / "empty")).read() is None


FORKS: Final = """
import os, sys, time
kept = bytearray(64 << 20)
for at in range(0, len(kept), 4096): kept[at] = 1
for _ in range(3):
    if os.fork() == 0: time.sleep(600)
print(flush=True)
time.sleep(600)
"""


@contextmanager
def forks() -> Iterator[int]:
    with subprocess.Popen(
        [sys.executable, "-c", FORKS], stdout=subprocess.PIPE, start_new_session=True
    ) as process:
        assert process.stdout
        process.stdout.readline()
        yield process.pid
        os.killpg(process.pid, signal.SIGKILL)


def test_real_processes_are_counted_as_devcluster_s_kubelet_counts_them(clock: Clock) -> None:
    """Four processes that share 64 MiB use 64, not 256; this one is neither above nor below them."""
    with forks() as pid:
        found = Footprint(None, {}, clock=clock, me=pid)
        assert (found.read() or 0) > 4 * 64 << 20
        clock.now = PATIENCE
        used = found.read()
        assert used is not None
        assert 64 << 20 < used < 100 << 20
        theirs = sum(supervisor.proportional(each) for each in (pid, *supervisor.tree(pid)))
        assert abs(used - theirs) < 2 << 20
        assert len(list(footprint.tree(pid))) == 4
        assert os.getpid() in footprint.above(pid)


IN_CONTAINER: Final = """
import os, time
from elasticjob.trainer.usage.footprint import Footprint
from elasticjob.trainer.usage.memory import cgroup
kept = bytearray(b"x") * (100 << 20)
if os.fork() == 0: time.sleep(600)
print(Footprint(cgroup(), {}).read(), flush=True)
"""
MEMORY: Final = Path("/sys/fs/cgroup/memory")


@pytest.mark.skipif(
    (here := cgroup()) is None or here.most.parent == MEMORY or not os.access(MEMORY, os.W_OK),
    reason="needs root, cgroups of version 1, and all of their tree",
)
def test_a_real_cgroup_with_the_first_process_of_its_pid_namespace(tmp_path: Path) -> None:
    """Two processes share 100 MiB, the shell that made room for them is in it, too."""
    folder = MEMORY / f"elasticjob-test-{os.getpid()}"
    folder.mkdir()
    script = f'echo $$ > {folder}/cgroup.procs; exec unshare --pid --fork --kill-child --mount-proc "$@"'
    command = ["sh", "-c", script, "sh", sys.executable, "-c", IN_CONTAINER]
    try:
        with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
            assert process.stdout
            told = process.stdout.readline()
            found = Cgroup(folder / "memory.oom_control", folder / "memory.limit_in_bytes").working_set()
            process.kill()
        assert found is not None
        assert abs(int(told) - found) < 8 << 20
        assert 100 << 20 < int(told) < 150 << 20
    finally:
        while (folder / "cgroup.procs").read_text():
            os.sched_yield()
        folder.rmdir()
