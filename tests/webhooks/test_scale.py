"""kubectl scale to the number that the spec has already, and what else a scale subresource is sent."""

from __future__ import annotations

from typing import Any

import pytest

from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.parts.owners import kind_of
from elasticjob.kube.errors import Unreachable
from elasticjob.kube.webhook.review import Review
from elasticjob.webhooks.scale import SCALE, Scale, Size, webhook
from lab.build import manifests
from lab.build.jobs import job, resource, role
from lab.build.manifests import ABSENT
from lab.virtual.server import Server

JOB, NODES = job(generation=3), resource({"worker": 4}, generation=7)


def holding(*there: Any) -> Server:
    server = Server()
    for thing in there:
        server.put(kind_of(thing), thing.manifest())
    return server


async def asked(cluster: Server, old: int, new: int, **more: Any) -> list[str]:
    review = Review(
        "UPDATE", SCALE, Scale(Size(old)), Scale(Size(new)), {}, name="digits", namespace="ml", **more
    )
    check: Any = webhook(cluster).validate
    return [problem.message for problem in await check(review, cluster)]


async def test_a_size_that_is_asked_for_again_becomes_a_plan() -> None:
    cluster = holding(JOB, NODES)
    assert await asked(cluster, 2, 2) == []
    (made,) = cluster.every(SCALEPLAN)
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
        (holding(JOB, NODES), 2, 3, False),  # the operator sees a change of the spec
        (holding(JOB, NODES), 4, 4, False),  # a plan for it is carried out already
        (holding(JOB, NODES), 2, 2, True),
        (holding(JOB), 2, 2, False),
        (holding(), 2, 2, False),
    ],
)
async def test_other_requests_make_none(cluster: Server, old: int, new: int, *, dry: bool) -> None:
    assert await asked(cluster, old, new, dry_run=dry) == []
    assert cluster.writes == []


@pytest.mark.parametrize(("least", "allowed"), [(None, False), (1, False), (0, True)])
async def test_none_is_allowed_where_the_job_may_have_none(least: int | None, *, allowed: bool) -> None:
    """In a spec, 0 without minReplicas: 0 would leave the number to the optimizer."""
    name = {"metadata/name": "digits", "metadata/namespace": "ml"}
    spec = {"spec/replicaSpecs/worker/minReplicas": ABSENT if least is None else least}
    cluster = holding(manifests.job(**name, **spec))
    for before in (2, 0):
        told = await asked(cluster, before, 0)
        assert bool(told) is not allowed
        assert all("suspend: true" in each for each in told)


@pytest.mark.parametrize("count", [0, 3])
async def test_a_job_without_workers_is_not_given_a_role_that_has_no_template(count: int) -> None:
    roles = {"master": role(1), "actor": role(2)}
    custom = job(roles, distributionStrategy="CustomStrategy")
    assert await asked(holding(custom), 0, count) == [
        "there is no role worker: write a ScalePlan for one of actor"
    ]


async def test_it_is_made_once_and_a_failure_is_told() -> None:
    cluster = holding(JOB, NODES)
    assert [await asked(cluster, 2, 2) for _ in range(2)] == [[], []]
    assert len(cluster.every(SCALEPLAN)) == 1
    cluster.fault = lambda verb, *_: Unreachable("no route") if verb == "create" else None
    (told,) = await asked(cluster, 2, 2)
    assert told == "no ScalePlan could ask for 2 again: no route"
