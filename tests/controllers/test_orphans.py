"""What the garbage collector has missed is deleted, once its owner is gone for certain; nothing else is."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import timedelta
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.controllers import names
from elasticjob.controllers.counters import Counters
from elasticjob.controllers.elasticjob.controller import JobReconciler
from elasticjob.controllers.elasticjob.master import Provision
from elasticjob.controllers.jobresource.controller import NodesReconciler
from elasticjob.controllers.orphans import PATIENCE
from elasticjob.controllers.owners import controlled_by
from elasticjob.controllers.perform import Hand
from elasticjob.controllers.plan import LATER, NAME_TAKEN, SOON, Create, Plan
from elasticjob.kube.client import Client
from elasticjob.kube.errors import AlreadyExists, Conflict, Forbidden
from elasticjob.kube.events import Recorder
from elasticjob.kube.kinds import Key, Kind, Manifest
from elasticjob.kube.objects import POD, SERVICE
from elasticjob.kube.watch import Removed, Upserted
from elasticjob.kube.wire import Item
from tests.controllers.build import NOW, at, job, resource, role
from tests.controllers.shelf import Nobody, caches, pod, raw

KEY = Key("ml", "digits")
FORMER, PRESENT = "res-0", "res-1"
LOCAL: Manifest = {"distributionStrategy": "Local", "optimizeMode": "manual"}


@dataclass
class Server:
    """Holds objects by kind and name, and notes what is deleted."""

    objects: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    versions_gone: frozenset[str] = frozenset()
    refuses: bool = False
    asked: int = 0

    async def find(self, kind: Kind[Any], name: str, namespace: str) -> Any:
        self.asked += 1
        found = self.objects.get((kind.name, name))
        return found and kind.convert(found)

    async def create(self, kind: Kind[Any], manifest: Manifest) -> None:
        place = kind.name, manifest["metadata"]["name"]
        if place in self.objects:
            raise AlreadyExists(409, "AlreadyExists", "it exists")
        self.objects[place] = manifest

    async def apply(self, kind: Kind[Any], manifest: Manifest, **options: Any) -> None:
        pass

    async def delete(self, kind: Kind[Any], name: str, namespace: str, *, uid: str, version: str) -> None:
        if version in self.versions_gone:
            raise Conflict(409, "Conflict", "the version differs")
        if self.refuses:
            raise Forbidden(403, "Forbidden", "not by you")
        self.deleted.append(f"{kind.name} {name} {uid}")

    def hand(self) -> Hand:
        return Hand(cast(Client, self), cast(Recorder, Nobody()), "test")


def known(uid: str) -> dict[tuple[str, str], Manifest]:
    """A server's objects: the JobResource of this uid alone, or none."""
    here = {"metadata": {"name": "digits", "namespace": "ml", "uid": uid}}
    return {(JOBRESOURCE.name, "digits"): here} if uid else {}


def left(index: int, uid: str = FORMER, **metadata: Any) -> Item:
    return pod(index, owner={"uid": uid}, metadata=metadata)


def nodes(server: Server, *items: Item, of: str = PRESENT) -> NodesReconciler:
    """The controller of pods, whose cache holds these, and the JobResource of this uid."""
    shown = [raw(resource({"worker": 1}).model_copy(deep=True))] if of else []
    assert not of or shown[0].meta.uid == of
    found = caches(*((POD, item) for item in items), *((JOBRESOURCE, item) for item in shown))
    return NodesReconciler(found, server.hand(), lambda: NOW)


async def test_pods_of_a_former_life_are_deleted_and_no_others() -> None:
    server = Server(known(PRESENT))
    own, going = left(0, PRESENT), left(3, deletionTimestamp=at(NOW))
    foreign = pod(4, owner={"uid": FORMER, "apiVersion": "batch/v1", "kind": "Job"})
    await nodes(server, own, left(1), left(2), going, foreign)(KEY)
    assert server.deleted == ["Pod digits-worker-1 pod-1", "Pod digits-worker-2 pod-2"]


async def test_a_pod_that_was_made_free_meanwhile_is_left_alone() -> None:
    """As by a deletion that leaves pods behind: they name no owner then, and have another version."""
    server = Server(known(PRESENT))
    freed = left(1)
    server.versions_gone = frozenset({freed.meta.resource_version})
    await nodes(server, left(0, PRESENT), freed)(KEY)
    assert server.deleted == []


async def test_who_refuses_the_deletion_keeps_nothing_else_from_being_done() -> None:
    server = Server(known(PRESENT), refuses=True)
    reconcile = nodes(server, left(2))
    reconcile.caches.jobs.take(Upserted(raw(job({"worker": role(1)}, **LOCAL))))
    await reconcile(KEY)
    assert ("Pod", "digits-worker-0") in server.objects


async def test_the_owner_of_many_is_asked_for_once() -> None:
    server = Server(known(PRESENT))
    await nodes(server, left(0, PRESENT), *(left(index) for index in range(1, 20)))(KEY)
    assert (server.asked, len(server.deleted)) == (1, 19)


async def test_nothing_is_deleted_by_a_cache_that_is_behind() -> None:
    """The pods are those of the JobResource that is; the cache shows the one that was."""
    server = Server(known("res-2"))
    await nodes(server, left(0, "res-2"), left(1, "res-2"))(KEY)
    assert server.deleted == []


async def test_pods_whose_names_nobody_waits_for_are_left_to_the_collector_for_a_while() -> None:
    server, now = Server(), NOW
    found = caches((POD, left(0)), (POD, left(1)))
    reconcile = NodesReconciler(found, server.hand(), lambda: now)
    for passed in (timedelta(0), PATIENCE / 3):
        now = NOW + passed
        assert (await reconcile(KEY)).again_in == PATIENCE - passed
    found.pods.take(Removed(left(0)))
    now = NOW + PATIENCE  # the collector is at it
    assert (await reconcile(KEY)).again_in == PATIENCE
    assert (server.asked, server.deleted) == (0, [])
    now = NOW + 2 * PATIENCE
    assert (await reconcile(KEY)).again_in == PATIENCE
    assert server.deleted == ["Pod digits-worker-1 pod-1"]
    found.pods.take(Removed(left(1)))
    assert (await reconcile(KEY)).again_in is None
    assert len(server.deleted) == 1


async def test_a_job_is_rid_of_what_its_namesake_has_left() -> None:
    """Its master, and its JobResource, in whose place the job's own comes."""
    of_job = {
        "apiVersion": ELASTICJOB.api_version,
        "kind": "ElasticJob",
        "name": "digits",
        "controller": True,
    }
    former = {**of_job, "uid": "job-0"}
    about = resource().manifest()
    about["metadata"]["ownerReferences"] = [former]
    master = pod(labels=names.pod_labels("digits", "master", 0, 0), owner=former)
    known_job = job({"worker": role(1)}, **LOCAL)
    server = Server({(ELASTICJOB.name, "digits"): known_job.manifest()})
    found = caches((ELASTICJOB, raw(known_job)), (JOBRESOURCE, raw(about)), (POD, master))
    counters = Counters(CollectorRegistry())
    reconcile = JobReconciler(
        found, server.hand(), Provision(image=""), counters, lambda: NOW, lambda: "token"
    )
    await reconcile(KEY)
    assert server.deleted == ["JobResource digits res-1", "Pod digits-worker-0 pod-0"]


@pytest.mark.parametrize(
    ("owner", "server_has", "deleted"),
    [
        pytest.param({"uid": FORMER}, PRESENT, True, id="another life has its owner's name"),
        pytest.param({"uid": FORMER}, "", True, id="nobody has"),
        pytest.param({"uid": FORMER}, FORMER, False, id="its owner is there"),
        pytest.param({"uid": FORMER, "controller": False}, "", False, id="nobody controls it"),
        pytest.param({"uid": FORMER, "kind": "Website"}, "", False, id="its owner is none of ours"),
    ],
)
async def test_an_object_in_the_way_is_deleted_if_its_owner_is_gone(
    owner: Manifest, server_has: str, deleted: bool
) -> None:
    by = {**controlled_by(resource()), **owner}
    there: Manifest = {"metadata": {"name": "a", "namespace": "ml", "uid": "s-1", "ownerReferences": [by]}}
    server = Server({(SERVICE.name, "a"): there, **known(server_has)})
    wanted = {"metadata": {"name": "a", "namespace": "ml", "ownerReferences": [controlled_by(resource())]}}
    plan = await server.hand().attempt(job(), Plan("Made", groups=((Create(SERVICE, wanted),),)))
    stays = owner.get("kind") == "Website" or owner.get("controller") is False
    assert (plan.reason, plan.again_in) == (NAME_TAKEN, LATER if stays else SOON)
    assert server.deleted == ["Service a s-1"] * deleted
