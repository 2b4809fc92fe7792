"""What is refused of a JobResource, and how its status writes indexes."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.api.readings import indexes, ranges
from elasticjob.api.v1alpha1.checks.jobresource import problems
from elasticjob.api.v1alpha1.requests import nodes, sizes
from lab.build.manifests import job_resource

R = "spec/replicaResourceSpecs/worker"
UPDATION = "spec/resource_updation"
REQUEST = {"metadata/name": "bigger"}

REFUSED: list[tuple[dict[str, Any], str, str]] = [
    ({"spec/selector/name": "digits  // Job Name"}, "spec.selector.name", "YAML comments start"),
    ({"spec/selector/name": "Digits"}, "spec.selector.name", "is not a name"),
    ({"spec/replicaResourceSpecs": {"PS": {"replicas": 1}}}, "spec.replicaResourceSpecs[PS]", "not a role"),
    ({f"{R}/resource": {"memory": "8GiB"}}, "spec.replicaResourceSpecs[worker].resource[memory]",
     "write 8Gi"),
    ({f"{R}/resource": {"cores": 2}}, "spec.replicaResourceSpecs[worker].resource[cores]",
     "write cpu, memory, ephemeral-storage, hugepages-<size>, or one with a domain"),
    ({"spec/nodes": [{"name": "letters-worker-0"}]}, "spec.nodes[0].name", "write digits-<role>-<index>"),
    ({"spec/nodes": [{"name": "digits-worker-0", "resource": {"cpu": -1}}]}, "spec.nodes[0].resource[cpu]",
     "negative"),
    ({"spec/nodes": [{"name": "digits-worker-0"}] * 2}, "spec.nodes[1].name", "twice"),
    ({"spec/parameter_server": {"replicas": 1}}, "spec.parameter_server", "spec.replicaResourceSpecs[ps]"),
    ({UPDATION: [{"name": "digits-ps-0", "resource": {"cpu": 8}}]}, "spec.resource_updation",
     "write spec.nodes"),
    ({**REQUEST, "spec/worker": {"replicas": 1}}, "spec.worker", "[worker] is about the same"),
    ({**REQUEST, "spec/nodes": [{"name": "digits-worker-0"}],
      UPDATION: [{"name": "digits-worker-1", "resource": {"cpu": 8}}]}, "spec.resource_updation",
     "spec.nodes is about the same"),
    ({**REQUEST, UPDATION: [{"name": "digits-worker-0", "resource": {"gpu": 0.5}}]},
     "spec.resource_updation[0].resource[nvidia.com/gpu]", "0.5"),
    ({**REQUEST, UPDATION: [{"name": "letters-ps-0"}]}, "spec.resource_updation[0].name", "write digits-"),
]  # fmt: skip


@pytest.mark.parametrize(("changes", "path", "words"), REFUSED)
def test_refused_with_path_and_advice(changes: dict[str, Any], path: str, words: str) -> None:
    found = problems(job_resource(**changes))
    assert [problem.path for problem in found] == [path]
    assert words in found[0].message


def test_accepted() -> None:
    node = {"name": "digits-worker-0-2", "resource": {"cpu": "8", "nvidia.com/gpu": 1}}
    given = {f"{R}/resource": {"cpu": 4, "memory": "8Gi"}, "spec/nodes": [node]}
    assert problems(job_resource(**given)) == []


def test_a_resource_that_an_earlier_release_accepted_is_no_obstacle() -> None:
    old, new = (job_resource(**{f"{R}/resource": {"cpus": 2}, f"{R}/replicas": n}) for n in (1, 2))
    assert problems(new, old) == []


def test_a_request_may_have_the_older_form() -> None:
    older = {
        "spec/parameter_server": {"replicas": 2, "resource": {"cpu": 4, "memory": 256}},
        UPDATION: [{"name": "digits-ps-0", "resource": {"gpu": 1, "disk": 1024}}],
    }
    given = job_resource(**REQUEST, **older)
    assert problems(given) == []
    assert sizes(given.spec)["ps"] == {"replicas": 2, "resource": {"cpu": 4, "memory": "256Mi"}}
    changed = {"nvidia.com/gpu": 1, "ephemeral-storage": "1024Mi"}
    assert nodes(given.spec) == [{"name": "digits-ps-0", "resource": changed}]


def test_the_job_of_a_resource_stays() -> None:
    [problem] = problems(job_resource(**{"spec/selector/name": "letters"}), job_resource())
    assert str(problem).startswith("spec.selector.name: it cannot change from digits to letters")


def test_labels_of_what_was_always_wrong_may_change() -> None:
    wrong = {"spec/selector/name": "Digits"}
    assert problems(job_resource(**wrong, **{"metadata/labels": {"a": "b"}}), job_resource(**wrong)) == []


@pytest.mark.parametrize(
    ("numbers", "text"), [((), ""), ((4,), "4"), ((0, 1, 2, 3, 7), "0-3,7"), ((9, 1, 3, 2), "1-3,9")]
)
def test_indexes_are_written_as_a_job_writes_them(numbers: tuple[int, ...], text: str) -> None:
    assert ranges(numbers) == text
    assert indexes(text, 10) == set(numbers)


def test_a_range_of_any_length_costs_no_more_than_a_job_can_have() -> None:
    assert indexes("8-999999999,x,-3,2-1", 10) == {8, 9}
