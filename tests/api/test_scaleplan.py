"""What is refused of a ScalePlan, alone and beside its job."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.api.v1alpha1.checks.scaleplan import problems
from lab.build.manifests import ABSENT, ROLE, job, plan

R = "spec/replicaResourceSpecs"
C = "spec/replicaSpecs/worker/template/spec/containers/0"
CREATE, REMOVE, MIGRATE = "spec/createPods", "spec/removePods", "spec/migratePods"

REFUSED: list[tuple[dict[str, Any], dict[str, Any], str, str]] = [
    ({f"{R}/worker/replicas": 5}, {}, f"{R}[worker].replicas", "5 is outside what job digits allows, 1 to 4"),
    ({f"{R}/worker/replicas": 0}, {}, f"{R}[worker].replicas", "0 is outside"),
    ({f"{R}/side": {"replicas": 3}}, {"spec/replicaSpecs/side": ROLE}, f"{R}[side].replicas", "exactly 2"),
    ({f"{R}/ps": {"replicas": 1}}, {}, f"{R}[ps]", "no such role: write one of worker"),
    ({f"{R}/master": {"replicas": 1}}, {"spec/replicaSpecs/master": {}}, f"{R}[master]", "one master"),
    ({f"{R}/worker/replicas": 1}, {"spec/nodeUnit": 2}, f"{R}[worker].replicas", "write 2 or more"),
    ({f"{R}/worker/resource": {"memory": "8Gi"}}, {"spec/resourceLimits": {"memory": "16Gi"}}, R, "24Gi"),
    ({}, {"spec/resourceLimits": {"cpu": 5}, f"{C}/resources": {"requests": {"cpu": 2}}}, R, "cpu 6"),
    ({R: ABSENT}, {}, "spec", "the plan changes nothing"),
    ({"spec/replicaResourceSpec": {"worker": {"replicas": 2}}}, {}, "spec/replicaResourceSpec", "leave"),
    ({f"{R}/worker/resource": {"cpu": "x"}}, {}, f"{R}[worker].resource[cpu]", "'x' is not a quantity"),
    ({f"{R}/worker/resource": {"cpus": "2"}}, {}, f"{R}[worker].resource[cpus]", "write cpu"),
    (
        {MIGRATE: [{"name": "digits-worker-0", "resource": {"gpu": 2}}]},
        {},
        f"{MIGRATE}[0].resource[gpu]",
        "nvidia",
    ),
    ({REMOVE: ["letters-worker-0"]}, {}, f"{REMOVE}[0].name", "digits-worker-<index>"),
    ({CREATE: [{"name": "digits-worker"}]}, {}, f"{CREATE}[0].name", "is not a node"),
    ({CREATE: [{"name": "digits-worker-3", "type": "ps"}]}, {}, f"{CREATE}[0].type", "write worker"),
    (
        {REMOVE: ["digits-worker-1"], MIGRATE: [{"name": "digits-worker-1"}]},
        {},
        f"{REMOVE}[0]",
        "created or migrated too",
    ),
    ({REMOVE: ["digits-worker-1", {"name": "digits-worker-1"}]}, {}, f"{REMOVE}[1].name", "twice"),
]


@pytest.mark.parametrize(("changes", "of_job", "path", "words"), REFUSED)
def test_refused_with_path_and_advice(
    changes: dict[str, Any], of_job: dict[str, Any], path: str, words: str
) -> None:
    found = problems(plan(**changes), job=job(**of_job))
    assert [problem.path for problem in found] == [path.replace("/", ".")]
    assert words in found[0].message


def test_accepted() -> None:
    changes = {
        f"{R}/worker": {"replicas": 4, "resource": {"cpu": "0.5", "memory": "256Mi"}},
        CREATE: [{"name": "digits-worker-3", "type": "worker", "id": 3, "rankIndex": 3}],
        REMOVE: ["digits-worker-1", {"name": "digits-worker-2-4"}],
        MIGRATE: [{"name": "digits-worker-0", "resource": {"cpu": 4, "memory": "1024Mi"}}],
        "spec/psHosts": ["10.0.0.1:2222"],
        "spec/manualScaling": True,
    }
    assert problems(plan(**changes), job=job()) == []


def test_a_job_that_does_not_exist() -> None:
    [problem] = problems(plan(), job=None)
    assert str(problem) == (
        "spec.ownerJob: there is no ElasticJob 'digits' in lab: create it first, or correct the name"
    )


def test_the_spec_is_immutable() -> None:
    [problem] = problems(plan(**{f"{R}/worker/replicas": 2}), plan(), job=job())
    assert problem.path == "spec"
    assert "create another plan" in problem.message


def test_labels_may_change_when_the_job_is_gone() -> None:
    assert problems(plan(**{"metadata/labels": {"a": "b"}}), plan(), job=None) == []


@pytest.mark.parametrize(
    ("changes", "manual"),
    [
        ({}, False),
        ({"spec/manualScaling": True}, True),
        ({"metadata/labels": {"elasticjob.dlrover/scale-type": "manual"}}, True),
        ({"metadata/labels": {"elasticjob.dlrover/scale-type": "auto"}}, False),
        ({"metadata/labels": {"scale-type": "manual"}}, True),
        ({"metadata/labels": {"scale-type": "auto"}}, False),
    ],
)
def test_manual(changes: dict[str, Any], manual: bool) -> None:
    assert plan(**changes).manual is manual
