"""kubectl scale to the number that the spec has already, and what else a scale subresource is sent."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.kube.errors import AlreadyExists, Unreachable
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.webhook.review import Review
from elasticjob.webhooks.scale import SCALE, Scale, Size, webhook
from lab.build import manifests
from lab.build.jobs import job, resource, role
from lab.build.manifests import ABSENT

JOB, NODES = job(generation=3), resource({"worker": 4}, generation=7)


class Cluster:
    """Has some objects, and keeps what is created."""

    def __init__(self, *there: Any, refuses: Exception | None = None) -> None:
        self.there = {ELASTICJOB.plural: None, JOBRESOURCE.plural: None} | dict(there)
        self.made: list[Manifest] = []
        self._refuses = refuses

    async def find(self, kind: Kind[Any], name: str, namespace: str | None = None) -> Any:
        return self.there[kind.plural]

    async def create(self, kind: Kind[Any], manifest: Manifest) -> None:
        if self._refuses:
            raise self._refuses
        self.made.append(manifest)


def whole(**more: Any) -> Cluster:
    return Cluster((ELASTICJOB.plural, JOB), (JOBRESOURCE.plural, NODES), **more)


async def asked(cluster: Cluster, old: int, new: int, **more: Any) -> list[str]:
    review = Review(
        "UPDATE", SCALE, Scale(Size(old)), Scale(Size(new)), {}, name="digits", namespace="ml", **more
    )
    check: Any = webhook(cluster).validate
    return [problem.message for problem in await check(review, cluster)]


async def test_a_size_that_is_asked_for_again_becomes_a_plan() -> None:
    cluster = whole()
    assert await asked(cluster, 2, 2) == []
    (made,) = cluster.made
    assert (made["metadata"]["name"], made["metadata"]["namespace"]) == ("digits-user-3-7", "ml")
    assert made["spec"] == {
        "ownerJob": "digits",
        "replicaResourceSpecs": {"worker": {"replicas": 2}},
        "manualScaling": True,
        "reason": "the user asks for worker 2 again",
    }


@pytest.mark.parametrize(
    ("cluster", "old", "new", "dry"),
    [
        (whole(), 2, 3, False),  # the operator sees a change of the spec
        (whole(), 4, 4, False),  # a plan for it is carried out already
        (whole(), 2, 2, True),
        (Cluster((ELASTICJOB.plural, JOB)), 2, 2, False),
        (Cluster(), 2, 2, False),
    ],
)
async def test_other_requests_make_none(cluster: Cluster, old: int, new: int, *, dry: bool) -> None:
    assert await asked(cluster, old, new, dry_run=dry) == []
    assert cluster.made == []


@pytest.mark.parametrize(("least", "allowed"), [(None, False), (1, False), (0, True)])
async def test_none_is_allowed_where_the_job_may_have_none(least: int | None, *, allowed: bool) -> None:
    """In a spec, 0 without minReplicas: 0 would leave the number to the optimizer."""
    spec = {"spec/replicaSpecs/worker/minReplicas": ABSENT if least is None else least}
    cluster = Cluster((ELASTICJOB.plural, manifests.job(**spec)))
    for before in (2, 0):
        told = await asked(cluster, before, 0)
        assert bool(told) is not allowed
        assert all("suspend: true" in each for each in told)


@pytest.mark.parametrize("count", [0, 3])
async def test_a_job_without_workers_is_not_given_a_role_that_has_no_template(count: int) -> None:
    roles = {"master": role(1), "actor": role(2)}
    custom = job(roles, distributionStrategy="CustomStrategy")
    assert await asked(Cluster((ELASTICJOB.plural, custom)), 0, count) == [
        "there is no role worker: write a ScalePlan for one of actor"
    ]


async def test_it_is_made_once_and_a_failure_is_told() -> None:
    exists = AlreadyExists(409, "AlreadyExists", "it exists")
    assert await asked(whole(refuses=exists), 2, 2) == []
    (told,) = await asked(whole(refuses=Unreachable("no route")), 2, 2)
    assert told == "no ScalePlan could ask for 2 again: no route"
