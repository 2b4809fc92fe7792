"""The published workloads in virtual time: what is read, the models, and one small run."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from benchmarks.cluster.pollux import PUBLISHED, TRACES
from benchmarks.cluster.traces import BadTrace, read_application, read_applications, read_jobs
from benchmarks.cluster.workload import Rules, run
from elasticjob.brain.fulfilment.efficiency import Batches, Measurement, Noise, configure, fit

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


def written(folder: Path, **changed: str) -> Path:
    """Return a folder with the files, some of them changed."""
    for name, text in FILES.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(changed.get(path.stem.replace("-", "_"), text))
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


def test_jobs_come_by_time(tmp_path: Path) -> None:
    folder = written(tmp_path)
    jobs = read_jobs(folder / "jobs.csv", read_applications(folder / "models"))
    assert [(each.name, each.time) for each in jobs] == [("early", 10), ("late", 90)]


def test_bad_files_are_refused_in_a_sentence(tmp_path: Path) -> None:
    folder = written(tmp_path, placements=PLACEMENTS.replace("0.12,", "0,"))
    with pytest.raises(BadTrace, match="line 4: a step of 0 s is not longer than its synchronisation"):
        read_applications(folder / "models")


def test_the_model_of_a_step_finds_what_made_the_times() -> None:
    def times(machines: int, count: int, local: int) -> Measurement:
        compute = 0.02 + 0.01 * local
        sync = 0.0 if count == 1 else (0.01 if machines == 1 else 0.1) + 0.005 * (count - 2)
        return Measurement(machines, count, local, compute + sync, compute)

    seen = [(1, 1, 8), (1, 1, 16), (1, 2, 8), (1, 4, 8), (2, 8, 8), (3, 12, 8)]
    model = fit([times(*each) for each in seen])
    for each in (*seen, (1, 3, 32), (4, 16, 4)):
        assert float(model.seconds(*each)) == pytest.approx(times(*each).step, rel=0.02)
    assert fit([times(1, 1, 8)]).seconds(1, 4, 8) == pytest.approx(0.1)


def test_the_batch_grows_with_the_noise() -> None:
    model = fit([Measurement(1, 1, 8, 0.1, 0.1), Measurement(1, 1, 64, 0.2, 0.2)])
    batches = Batches(8, 1024, 4, 64)
    small = configure(model, Noise(1, 0.01, 8), batches, [1, 1], [1, 2])
    large = configure(model, Noise(1, 100, 8), batches, [1, 1], [1, 2])
    assert list(small.local * (small.extra + 1)) == [8, 4]
    assert list(large.local) == [64, 64]
    assert list(large.extra) == [1, 0]
    assert all(large.goodput > small.goodput)
    assert Noise(1, 3, 8).gain(8) == 1
    assert Noise(1, 3, 8).gain(16) == pytest.approx(1.6)


def test_a_workload_runs_to_its_end(tmp_path: Path) -> None:
    folder = written(tmp_path)
    applications = read_applications(folder / "models")
    jobs = read_jobs(folder / "jobs.csv", applications)
    slow, fast = run(jobs, applications, Rules(30, 30)), run(jobs, applications, Rules(0.1, 0.1))
    assert set(slow.hours) == {"early", "late"}
    assert all(80 / 3600 < fast.hours[name] < slow.hours[name] < 600 / 3600 for name in slow.hours)
    assert all(rho > 0 for rho in slow.rho.values())
    assert run(jobs, applications, Rules(30, 30)).hours == slow.hours


def test_the_published_workloads_are_there() -> None:
    applications = read_applications(TRACES / "models")
    for load in PUBLISHED:
        for number in range(1, 7):
            assert len(read_jobs(TRACES / "jobs" / load / f"{number}.csv", applications)) > 60
