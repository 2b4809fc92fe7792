"""The published workloads in virtual time: step times as they are read, and one small run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.cluster.traces import read_application, read_applications, read_jobs
from benchmarks.cluster.workload import Rules, run

JOBS = "name,time,application,num_replicas,batch_size\nlate,90,net,4,64\nearly,10,net,1,32\n"
PLACEMENTS = """placement,local_bsz,step_time,sync_time
1,8,0.1,0
1,16,0.2,0
2,8,0.12,0.02
2,16,0.22,0.02
4,8,0.12,0.02
4,16,0.22,0.02
12,8,0.2,0.1
"""
SCALABILITY = """num_nodes,num_replicas,local_bsz,step_time,sync_time
2,8,8,0.3,0.2
2,8,16,0.4,0.2
3,12,8,0.3,0.2
"""
VALIDATION = "progress,iteration,metric,grad_sqr,grad_var\n1000,1000,0.5,1,4\n2000,2000,0.6,1,8\n"
FILES: Mapping[str, str] = {
    "jobs.csv": JOBS,
    "models/net/placements.csv": PLACEMENTS,
    "models/net/scalability.csv": SCALABILITY,
    "models/net/validation-16.csv": VALIDATION,
    "models/net/validation-128.csv": VALIDATION,
}


def written(folder: Path) -> Path:
    """Return a folder with the files."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return folder


def test_step_times_are_those_of_the_file_and_between_them(tmp_path: Path) -> None:
    net = read_application(written(tmp_path) / "models" / "net")
    assert net.step_time((1,), 8) == (0.1, 0.0)
    assert net.step_time((1,), 12) == pytest.approx((0.15, 0.0))
    assert net.step_time((2, 1), 8) == (0.2, 0.1)
    assert net.step_time((4, 4), 12) == pytest.approx((0.35, 0.2))
    assert (net.first_batch, net.most_batch, net.least_local, net.most_local) == (16, 128, 8, 16)
    assert list(net.ends) == [1000, 2000]
    assert net.gradient(16, 0) == (1, 4)
    assert net.gradient(72, 1) == (1, 8)


def test_a_workload_runs_to_its_end(tmp_path: Path) -> None:
    folder = written(tmp_path)
    applications = read_applications(folder / "models")
    jobs = read_jobs(folder / "jobs.csv", applications)
    slow, fast = run(jobs, applications, Rules(30, 30)), run(jobs, applications, Rules(0.1, 0.1))
    assert set(slow.hours) == {"early", "late"}
    assert all(80 / 3600 < fast.hours[name] < slow.hours[name] < 600 / 3600 for name in slow.hours)
    assert all(rho > 0 for rho in slow.rho.values())
    assert run(jobs, applications, Rules(30, 30)).hours == slow.hours
