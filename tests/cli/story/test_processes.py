"""Who is who among the processes of a pod."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from elasticjob.cli.story.processes import Process, as_their_pods, main_of, of_pod, workers_of

KUBELET = 1


def process(pid: int, parent: int, group: int | None = None) -> Process:
    return Process(pid, parent, pid if group is None else group, {"POD_NAME": "digits-worker-0"}, "")


COLD = (process(10, KUBELET), process(20, 10), process(21, 10))
WARM = (process(10, KUBELET), process(11, 10), process(20, 11), process(21, 11))
LOADER = (process(10, KUBELET), process(20, 10), process(30, 20, group=20))


@pytest.mark.parametrize(
    ("tree", "workers"), [(COLD, {20, 21}), (WARM, {20, 21}), (LOADER, {20}), ((), set())]
)
def test_workers_lead_groups_below_the_agent(tree: tuple[Process, ...], workers: set[int]) -> None:
    assert {found.pid for found in workers_of(tree)} == workers


def test_warm_process_without_forks_comes_after_every_worker() -> None:
    tree = (process(10, KUBELET), process(11, 10), process(12, 10), process(20, 12))
    assert [found.pid for found in workers_of(tree)] == [20, 11]


def test_main_process_of_a_pod_is_the_one_that_the_kubelet_started() -> None:
    main = main_of(WARM)
    assert main is not None
    assert main.pid == 10
    assert main_of(()) is None


def test_processes_are_found_by_the_environment_of_their_pod() -> None:
    with subprocess.Popen(
        [sys.executable, "-c", "input()"],
        env={**os.environ, "POD_NAME": "test-processes-0", "ELASTICJOB_UID": "test-processes"},
        stdin=subprocess.PIPE,
    ) as child:
        found = of_pod("test-processes-0", "test-processes")
        child.communicate(b"\n")
    assert [(one.pid, one.parent, one.job) for one in found] == [(child.pid, os.getpid(), "test-processes")]


def test_a_fork_that_shows_an_older_environment_belongs_to_the_pod_above_it() -> None:
    supervisor = Process(5, KUBELET, 5, {"HOME": "/root"}, "")
    agent, other = process(10, 5), Process(11, KUBELET, 11, {}, "")
    fork, worker = Process(20, 10, 20, supervisor.environment, ""), Process(21, 20, 21, {}, "")
    found = as_their_pods((supervisor, agent, other, fork, worker))
    assert [one.pid for one in found if one.pod == "digits-worker-0"] == [10, 20, 21]
