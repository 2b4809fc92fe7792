"""What the benchmark of scale computes."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

from prometheus_client import CollectorRegistry, generate_latest

from benchmarks.services.crowds import SHAPES
from benchmarks.services.scale import PROGRAMS, Cost, Found, Taken, compared, counted, sheet, writes_in
from elasticjob.kube.metrics import Metrics
from lab.clusters.plane.audit import Audited

AT = datetime(2026, 1, 1, tzinfo=UTC)


def audited(agent: str, verb: str, resource: str, subresource: str = "") -> Audited:
    return Audited(AT, AT, "u", agent, "", verb, "", resource, subresource, "ns", "n", 200, "/")


def taken(jobs: int, seconds: float, maker: str = "elasticjob-operator") -> Taken:
    used = dict.fromkeys(("operator", *PROGRAMS), 1.0)
    writes = {f"{maker} create pods": 4 * jobs, "kwok patch pods/status": 4 * jobs, "x y z": 1}
    requests, passes = Counter({"GET": 3, "POST": jobs}), Counter({"elasticjob": jobs})
    return Taken(jobs, seconds, seconds / 2, seconds, writes, Cost(requests, passes, used, used))


def test_counters_and_writes_are_counted_by_who_and_what() -> None:
    metrics = Metrics(CollectorRegistry())
    for code, method in (("200", "GET"), ("404", "GET"), ("201", "POST")):
        metrics.requests.labels(code=code, method=method, host="h").inc()
    metrics.reconciles.labels(controller="c", result="success").inc(2)
    exposed = generate_latest(metrics.registry).decode()
    assert counted(exposed, "rest_client_requests_total", "method") == {"GET": 2, "POST": 1}
    assert counted(exposed, "controller_runtime_reconcile_total", "controller") == {"c": 2}
    log = [audited(agent, "patch", "pods", "status") for agent in ("kwok/v0.8 (linux)", "kwok/v0.8")]
    found = writes_in([*log, audited("op", "create", "pods")])
    assert found == {"kwok patch pods/status": 2, "op create pods": 1}


def test_the_table_says_how_figures_grow_and_a_peer_has_none_of_an_operator() -> None:
    found = sheet(SHAPES["local"], [taken(100, 5.0), taken(1000, 50.0)])
    rows = {row[0]: row[1:] for row in found.rows}
    assert found.heads[1:] == ["100 jobs", "1,000 jobs", "grows as jobs^"]
    assert rows["seconds until all run"] == ["5.00", "50.0", "1.00"]
    assert rows["writes of the operator, per job"] == ["4.00", "4.00", "0.00"]
    assert rows["requests of the operator, per job"][0] == "1.03"
    found = sheet(SHAPES["master"], [taken(10, 5.0)], {"4 bare pods": taken(10, 4.0, "bench-user")})
    rows = {row[0]: row[1:] for row in found.rows}
    assert rows["seconds until all run"] == ["5.00", "4.00"]
    assert rows["writes of the operator, per job"] == ["4.00", "–"]


def test_the_time_until_all_pods_run_is_told_as_a_multiple_of_a_peer() -> None:
    assert compared(taken(10, 12.0), "4 bare pods", taken(10, 6.0)) == "12.0 s, 2.0 × 6.0 s of 4 bare pods"


def test_the_file_has_all_figures() -> None:
    found = Found({"local": [taken(10, 5.0)]}, {"4 bare pods": taken(10, 4.0)})
    kept = json.loads(found.json())
    assert kept["local"][0]["cost"]["requests"] == {"GET": 3, "POST": 10}
    assert kept["peers"]["4 bare pods"]["writes"]["elasticjob-operator create pods"] == 40
