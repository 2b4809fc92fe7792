"""What the benchmark of scale computes."""

from __future__ import annotations

import json
from datetime import UTC, datetime

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.services import scale
from benchmarks.services.crowds import PEERS, SHAPES, Crowd, Peer, worker
from benchmarks.services.scale import (
    PASSES,
    PROGRAMS,
    REQUESTS,
    Taken,
    counted,
    runs,
    sheet,
    writers,
    writes_in,
)
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.objects.kinds import Manifest
from hack.cluster.audit import Audited

AT = datetime(2026, 1, 1, tzinfo=UTC)


def audited(agent: str, verb: str, resource: str, subresource: str = "") -> Audited:
    return Audited(AT, AT, "u", agent, "", verb, "", resource, subresource, "ns", "n", 200, "/")


def taken(jobs: int, seconds: float, maker: str = "elasticjob-operator") -> Taken:
    zeros = dict.fromkeys(("operator", *PROGRAMS), 1.0)
    writes = {f"{maker} create pods": 4 * jobs, "kwok patch pods/status": 4 * jobs, "x y z": 1}
    return Taken(
        jobs,
        seconds,
        seconds / 2,
        seconds,
        {"GET": 3, "POST": jobs},
        {"elasticjob": jobs},
        writes,
        zeros,
        zeros,
    )


def test_counters_are_read_by_a_label() -> None:
    metrics = Metrics(CollectorRegistry())
    for code, method in (("200", "GET"), ("404", "GET"), ("201", "POST")):
        metrics.requests.labels(code=code, method=method, host="h").inc()
    metrics.reconciles.labels(controller="c", result="success").inc(2)
    exposed = generate_latest(metrics.registry).decode()
    assert counted(exposed, *REQUESTS) == {"GET": 2, "POST": 1}
    assert counted(exposed, *PASSES) == {"c": 2}


def test_writes_are_counted_by_who_and_what() -> None:
    log = [
        audited("kwok/v0.8 (linux)", "patch", "pods", "status"),
        audited("kwok/v0.8", "patch", "pods", "status"),
    ]
    assert writes_in([*log, audited("op", "create", "pods")]) == {
        "kwok patch pods/status": 2,
        "op create pods": 1,
    }


@pytest.mark.parametrize(
    ("active", "running", "says"),
    [(3, "True", True), (2, "True", False), (0, "False", False), (3, "False", False)],
)
def test_a_job_runs_when_all_of_its_nodes_do(active: int, running: str, says: bool) -> None:
    status: Manifest = {
        "replicaStatuses": {"worker": {"desired": 3, "active": active}},
        "conditions": [{"type": "Running", "status": running, "lastTransitionTime": "2026-01-01T00:00:00Z"}],
    }
    manifest = SHAPES["master"].manifest("a")
    assert runs(ELASTICJOB.convert(manifest | {"status": status})) is says
    assert not runs(ELASTICJOB.convert(manifest))


@pytest.mark.parametrize("name", SHAPES)
def test_the_pods_of_a_shape_are_its_workers_and_its_master(name: str) -> None:
    shape = SHAPES[name]
    spec = ELASTICJOB.convert(shape.manifest("a")).spec
    assert spec.roles["worker"].replicas == shape.workers
    assert shape.pods == shape.workers + spec.needs_master


def test_the_table_says_how_figures_grow() -> None:
    found = sheet(SHAPES["local"], [taken(100, 5.0), taken(1000, 50.0)])
    rows = {row[0]: row[1:] for row in found.rows}
    assert found.heads[1:] == ["100 jobs", "1,000 jobs", "grows as jobs^"]
    assert rows["seconds until all run"] == ["5.00", "50.0", "1.00"]
    assert rows["writes of the operator, per job"] == ["4.00", "4.00", "0.00"]
    assert rows["requests of the operator, per job"][0] == "1.03"


def test_what_is_seldom_written_is_left_out() -> None:
    assert [row[0] for row in writers(taken(100, 1.0)).rows] == [
        "elasticjob-operator create pods",
        "kwok patch pods/status",
    ]


def test_a_peer_has_no_figures_of_an_operator() -> None:
    found = sheet(SHAPES["master"], [taken(10, 5.0)], {"4 bare pods": taken(10, 4.0, "bench-user")})
    rows = {row[0]: row[1:] for row in found.rows}
    assert found.heads[1:] == ["10 jobs", "10 × 4 bare pods"]
    assert rows["seconds until all run"] == ["5.00", "4.00"]
    assert rows["writes of the operator, per job"] == ["4.00", "–"]
    assert rows["CPU seconds of kube-apiserver"] == ["1.00", "1.00"]


@pytest.mark.parametrize("peer", PEERS, ids=[peer.name for peer in PEERS])
def test_a_peer_makes_the_pods_of_our_jobs(peer: Peer) -> None:
    made = [manifest for _, manifest in peer.creations(3)]
    specs = [manifest["spec"].get("template", manifest)["spec"] for manifest in made]
    pods = sum(manifest["spec"].get("parallelism", 1) for manifest in made)
    assert pods == 3 * SHAPES["master"].pods == 3 * peer.pods
    assert specs[0] == worker("job-0000", 0)["spec"]
    assert len({manifest["metadata"]["name"] for manifest in made}) == len(made)


def test_what_was_measured_before_an_error_is_shown(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    async def measured(crowd: Crowd, jobs: int, *, lost: bool = False) -> tuple[Taken, None]:
        if jobs > 100:
            raise ExceptionGroup("creating", [RuntimeError("POST: 500")])
        return taken(jobs, 7.5), None

    monkeypatch.setattr(scale, "measured", measured)
    monkeypatch.setattr("sys.argv", ["scale", "--jobs", "100,300", "--shape", "local"])
    monkeypatch.setattr(scale, "end_on_sigterm", lambda: None)
    with pytest.raises(ExceptionGroup, match="creating"):
        scale.main()
    output = capsys.readouterr().out
    assert "100 jobs" in output
    assert "7.50" in output


def test_all_figures_are_json() -> None:
    found = scale.Found({"local": [taken(10, 5.0)]}, {"local": scale.Lost(1, 2, 3)}, {"Job": taken(10, 4.0)})
    figures = json.loads(found.json())
    assert figures["local"][0]["writes"]["kwok patch pods/status"] == 40
    assert (figures["peers"]["Job"]["seconds"], figures["lost"]["local"]["made_seconds"]) == (4.0, 2)
