"""What the garbage collector has missed is deleted, once its owner is gone for certain; nothing else is."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers import names
from elasticjob.controllers.counters import Counters
from elasticjob.controllers.elasticjob.controller import JobReconciler
from elasticjob.controllers.elasticjob.master import Provision
from elasticjob.controllers.elasticjob.objects import foundation
from elasticjob.controllers.jobresource.controller import NodesReconciler
from elasticjob.controllers.observe import Caches
from elasticjob.controllers.orphans import PATIENCE
from elasticjob.controllers.owners import controlled_by, unfollowed
from elasticjob.controllers.perform import Hand
from elasticjob.controllers.plan import LATER, NAME_TAKEN, SOON, Create, Plan
from elasticjob.kube.client import Client
from elasticjob.kube.errors import (
    AlreadyExists,
    ApiError,
    Conflict,
    Forbidden,
    KubeError,
    NotFound,
    ServerError,
    Unreachable,
)
from elasticjob.kube.events import Recorder
from elasticjob.kube.kinds import Key, Kind, Manifest
from elasticjob.kube.objects import CONFIG_MAP, NETWORK_POLICY, POD, ROLE, SERVICE, OwnerReference
from elasticjob.kube.watch import Removed
from elasticjob.kube.wire import Item
from elasticjob.master.cluster import owner_of, start_up_plan
from tests.controllers.build import NOW, at, job, resource, role
from tests.controllers.shelf import Nobody, caches, pod, raw

KEY = Key("ml", "digits")
FORMER, PRESENT = "res-0", "res-1"
GONE = "job-0"
REFERENCE = OwnerReference(
    api_version=ELASTICJOB.api_version, kind=ELASTICJOB.name, name="digits", uid=GONE, controller=True
)
LOCAL: Manifest = {"distributionStrategy": "Local", "optimizeMode": "manual"}


@dataclass
class Server:
    """Holds objects by kind and name, and notes what is deleted."""

    objects: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    versions_gone: frozenset[str] = frozenset()
    refuses: KubeError | None = None
    kinds_refused: frozenset[str] = frozenset({POD.name, JOBRESOURCE.name})
    tried: list[str] = field(default_factory=list)
    serves: bool = True
    unreadable: str = ""
    asked: int = 0

    async def find(self, kind: Kind[Any], name: str, namespace: str) -> Any:
        self.asked += 1
        found = self.objects.get((kind.name, name))
        return found and kind.convert(found)

    async def get(self, kind: Kind[Any], name: str, namespace: str) -> Any:
        if kind.name == self.unreadable:
            raise Forbidden(403, "Forbidden", "not by you")
        if found := await self.find(kind, name, namespace):
            return found
        raise NotFound(404, "NotFound", "no such object", {"name": name} if self.serves else None)

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
        self.tried.append(name)
        if kind not in (POD, JOBRESOURCE):
            await asyncio.sleep(0)  # who comes first must not rest on who is quicker
        if self.refuses and kind.name in self.kinds_refused:
            raise self.refuses
        self.deleted.append(f"{kind.name} {name} {uid}")
        self.objects.pop((kind.name, name), None)

    def hand(self) -> Hand:
        return Hand(cast(Client, self), cast(Recorder, Nobody()), "test")


def by_job(uid: str = GONE) -> Manifest:
    """The reference to a job of this uid."""
    return controlled_by(job(metadata={"uid": uid}))


def owned(kind: Kind[Any], name: str, uid: str = GONE, **more: Any) -> Manifest:
    """An object that the job of this uid has made."""
    about = {"name": name, "namespace": "ml", "uid": f"{name}-uid", "ownerReferences": [by_job(uid)]}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": about, **more}


def known(uid: str) -> dict[tuple[str, str], Manifest]:
    """A server's objects: the JobResource of this uid alone, or none."""
    here = {"metadata": {"name": "digits", "namespace": "ml", "uid": uid}}
    return {(JOBRESOURCE.name, "digits"): here} if uid else {}


def left(index: int, uid: str = FORMER, **metadata: Any) -> Item:
    return pod(index, owner={"uid": uid}, metadata=metadata)


def nodes(server: Server, *items: Item) -> NodesReconciler:
    """The controller of pods, whose cache holds these, a job, and the JobResource PRESENT."""
    shown = raw(resource({"worker": 1}))
    assert shown.meta.uid == PRESENT
    mine = raw(job({"worker": role(1)}, **LOCAL))
    found = caches((ELASTICJOB, mine), (JOBRESOURCE, shown), *((POD, item) for item in items))
    return NodesReconciler(found, server.hand(), lambda: NOW)


def jobs(server: Server, found: Caches, now: Callable[[], datetime] = lambda: NOW) -> JobReconciler:
    counters = Counters(CollectorRegistry())
    return JobReconciler(found, server.hand(), Provision(image=""), counters, now, lambda: "token")


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


@pytest.mark.parametrize(
    "refusal",
    [Forbidden(403, "Forbidden", "not by you"), ServerError(500, "InternalError", "failed calling webhook")],
    ids=["by right", "in trouble"],
)
async def test_who_refuses_the_deletion_keeps_nothing_else_from_being_done(refusal: ApiError) -> None:
    server = Server(known(PRESENT), refuses=refusal)
    await nodes(server, left(2))(KEY)
    assert ("Pod", "digits-worker-0") in server.objects


@pytest.mark.parametrize("serves", [True, False])
async def test_a_kind_that_is_not_served_says_nothing_of_its_objects(serves: bool) -> None:
    """As that of a definition which is being put back: no owner is gone for that."""
    server = Server(serves=serves)
    reconcile = jobs(server, caches((POD, left(0))), lambda: NOW + next(hours) * timedelta(hours=1))
    hours = iter(range(2))
    await reconcile(KEY)
    await reconcile(KEY)
    assert server.deleted == ["Pod digits-worker-0 pod-0"] * serves


async def test_what_has_another_owner_beside_is_left_alone() -> None:
    """As by the garbage collector, which takes away the reference to the one that is gone."""
    by = [{**controlled_by(resource()), "uid": FORMER}, {**by_job(), "controller": False}]
    shared = pod(1, metadata={"ownerReferences": by})
    server = Server(known(PRESENT))
    await nodes(server, left(2), shared)(KEY)
    assert server.deleted == ["Pod digits-worker-2 pod-2"]


async def test_the_owner_of_many_is_asked_for_once() -> None:
    server = Server(known(PRESENT))
    await nodes(server, left(0, PRESENT), *(left(index) for index in range(1, 20)))(KEY)
    assert (server.asked, len(server.deleted)) == (1, 19)


async def test_nothing_is_deleted_by_a_cache_that_is_behind() -> None:
    """The pods are those of the JobResource that is; the cache shows the one that was."""
    server = Server(known("res-2"))
    await nodes(server, left(0, "res-2"), left(1, "res-2"))(KEY)
    assert server.deleted == []


async def test_what_nobody_waits_for_is_left_to_the_collector_for_a_while() -> None:
    server, now = Server(), NOW
    found = caches((POD, left(0)), (POD, left(1)))
    reconcile = jobs(server, found, lambda: now)
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


async def test_a_clock_that_is_set_back_prolongs_no_patience() -> None:
    server, now = Server(), NOW
    reconcile = jobs(server, caches((POD, left(0))), lambda: now)
    await reconcile(KEY)
    now = NOW - timedelta(hours=1)
    await reconcile(KEY)
    assert server.deleted == ["Pod digits-worker-0 pod-0"]


async def test_a_job_is_rid_at_once_of_what_it_does_not_take_the_place_of() -> None:
    """The JobResource and master of its namesake; and first what no cache shows and it never makes itself.

    A policy of the former life would keep others away from the pods of this one.
    """
    about = resource().manifest()
    about["metadata"]["ownerReferences"] = [by_job()]
    master = pod(labels=names.pod_labels("digits", "master", 0, 0), owner=by_job())
    worker = left(1, "res-1")
    mine = job({"worker": role(1)}, networkPolicy=False, **LOCAL)
    server = Server({(ELASTICJOB.name, "digits"): mine.manifest()})
    server.objects[NETWORK_POLICY.name, "digits"] = owned(NETWORK_POLICY, "digits")
    found = caches((ELASTICJOB, raw(mine)), (JOBRESOURCE, raw(about)), (POD, master), (POD, worker))
    await jobs(server, found)(KEY)
    assert server.deleted == [
        "NetworkPolicy digits digits-uid",
        "JobResource digits res-1",
        "Pod digits-worker-0 pod-0",
    ]


async def test_a_wrong_version_or_a_lost_answer_is_tried_again_at_once() -> None:
    """The job waits for the place: at the next pass, not when the collector's time is over."""
    server = Server(known(PRESENT), refuses=Conflict(409, "Conflict", "another version"))
    reconcile = nodes(server, left(2))
    await reconcile(KEY)
    server.refuses = None
    await reconcile(KEY)
    assert server.deleted == ["Pod digits-worker-2 pod-2"]


async def test_one_that_cannot_be_deleted_keeps_no_others() -> None:
    server = Server(known(PRESENT))
    server.versions_gone = frozenset({left(1).meta.resource_version})
    await nodes(server, *(left(index) for index in range(1, 100)))(KEY)
    assert len(server.deleted) == 98


async def test_an_owner_that_cannot_be_asked_for_keeps_no_other_from_being_done() -> None:
    """As where the operator came before its rights; and nothing of it is deleted unasked."""
    mine = job({"worker": role(1)}, **LOCAL)
    server = Server({(ELASTICJOB.name, "digits"): mine.manifest()}, unreadable=JOBRESOURCE.name)
    master = pod(labels=names.pod_labels("digits", "master", 0, 0), owner=by_job())
    await jobs(server, caches((ELASTICJOB, raw(mine)), (POD, left(1)), (POD, master)))(KEY)
    assert server.deleted == ["Pod digits-worker-0 pod-0"]
    await NodesReconciler(
        caches((ELASTICJOB, raw(mine)), (JOBRESOURCE, raw(resource({"worker": 1}))), (POD, left(1))),
        server.hand(),
        lambda: NOW,
    )(KEY)
    assert "Pod digits-worker-1 pod-1" not in server.deleted
    assert ("Pod", "digits-worker-0") in server.objects


async def test_a_job_begins_where_its_namesakes_leavings_cannot_be_deleted() -> None:
    """As while a webhook for deletions is down: places that are free are taken."""
    master = pod(labels=names.pod_labels("digits", "master", 0, 0), owner=by_job())
    mine = job({"worker": role(1)}, **LOCAL)
    trouble = ServerError(500, "InternalError", "failed calling webhook")
    server = Server({(ELASTICJOB.name, "digits"): mine.manifest()}, refuses=trouble)
    await jobs(server, caches((ELASTICJOB, raw(mine)), (POD, master)))(KEY)
    assert (SERVICE.name, "digits") in server.objects


@pytest.mark.parametrize(
    "refusal",
    [
        ServerError(500, "InternalError", "failed calling webhook"),
        Conflict(409, "Conflict", "another version"),
        Unreachable("cut"),
    ],
    ids=["in trouble", "changed since", "lost"],
)
async def test_what_could_not_be_deleted_is_not_forgotten_with_what_told_of_it(refusal: KubeError) -> None:
    """It is tried again when the collector's time is over."""
    master = pod(labels=names.pod_labels("digits", "master", 0, 0), owner=by_job())
    mine = job({"worker": role(1)}, networkPolicy=False, **LOCAL)
    server, now = Server({(ELASTICJOB.name, "digits"): mine.manifest()}), NOW
    server.refuses, server.kinds_refused = refusal, frozenset({NETWORK_POLICY.name})
    server.objects[NETWORK_POLICY.name, "digits"] = owned(NETWORK_POLICY, "digits")
    found = caches((ELASTICJOB, raw(mine)), (POD, master))
    reconcile = jobs(server, found, lambda: now)
    await reconcile(KEY)
    found.pods.take(Removed(master))
    await reconcile(KEY)
    assert server.tried.count("digits") == 1
    server.refuses, now = None, NOW + PATIENCE
    await reconcile(KEY)
    assert "NetworkPolicy digits digits-uid" in server.deleted
    now += PATIENCE
    await reconcile(KEY)
    assert server.tried.count("digits") == 2


@pytest.mark.parametrize(
    "present",
    [
        pytest.param((), id="and has no successor"),
        pytest.param((job({"worker": role(1)}, networkPolicy=False, **LOCAL),), id="and has one"),
        pytest.param((job({"worker": role(1)}, suspend=True, **LOCAL),), id="and has one that makes nothing"),
        pytest.param((job({"worker": role(1)}, managedBy="example.com/else"),), id="and has one of others"),
    ],
)
async def test_all_that_a_job_has_left_goes_in_the_end(present: tuple[ElasticJob, ...]) -> None:
    """Also what its master wrote; and what no cache shows before the rest: nobody would look for it alone."""
    server, now = Server(), NOW
    for each in present:
        server.objects[ELASTICJOB.name, "digits"] = each.manifest()
    former = job({"worker": role(None, minReplicas=1)}, metadata={"uid": GONE})
    shadows = [(kind, name) for kind, name in unfollowed(REFERENCE) if kind is not ROLE]
    for kind, name in shadows:
        server.objects[kind.name, name] = owned(kind, name)
    server.objects[CONFIG_MAP.name, "digits-master-state"]["metadata"]["ownerReferences"] = [owner_of(former)]
    server.objects[ROLE.name, "digits-master"] = owned(ROLE, "digits-master", "job-1")
    plan = start_up_plan(former, NOW)
    assert plan is not None
    plan["metadata"] |= {"name": "start", "uid": "start-uid"}
    service = owned(SERVICE, "digits-old", spec={})
    free = {**plan, "metadata": {"name": "brain", "namespace": "ml", "uid": "brain-uid"}}
    shown: list[tuple[Kind[Any], Item]]
    shown = [(SCALEPLAN, raw(plan)), (SCALEPLAN, raw(free)), (SERVICE, raw(service))]
    reconcile = jobs(server, caches(*((ELASTICJOB, raw(each)) for each in present), *shown), lambda: now)
    again = (await reconcile(KEY)).again_in
    assert (again and again <= PATIENCE, server.deleted) == (True, [])
    now = NOW + PATIENCE
    await reconcile(KEY)
    hidden = [f"{kind.name} {name} {name}-uid" for kind, name in shadows]
    assert server.deleted == [*hidden, "Service digits-old digits-old-uid", "ScalePlan start start-uid"]


def test_nothing_that_is_made_for_a_job_is_forgotten() -> None:
    """What no cache shows is looked for by its name."""
    made = {make.kind for make in foundation(job(networkPolicy=True), "token")}
    shown = {cache.kind for cache in vars(caches()).values()}
    named = unfollowed(REFERENCE)
    assert {(kind.name, name) for kind, name in named} >= {
        (make.kind.name, make.manifest["metadata"]["name"])
        for make in foundation(job(networkPolicy=True), "token")
        if make.kind in made - shown
    }


def test_plans_of_a_former_life_are_none_of_the_job() -> None:
    """A plan that nobody owns yet, or a job of another name, is one."""
    others = {**by_job(), "name": "letters"}
    written = start_up_plan(job({"worker": role(None, minReplicas=1)}, metadata={"uid": GONE}), NOW)
    assert written is not None
    plans = [
        owned(SCALEPLAN, "former", spec={"ownerJob": "digits"}),
        written,
        owned(SCALEPLAN, "own", "job-1", spec={"ownerJob": "digits"}),
        {"metadata": {"name": "free", "namespace": "ml", "uid": "free"}, "spec": {"ownerJob": "digits"}},
    ]
    shared = owned(SCALEPLAN, "shared", spec={"ownerJob": "digits"})
    shared["metadata"]["ownerReferences"].append({**by_job(), "kind": "Brain", "controller": False})
    plans.append(shared)
    lent = owned(SCALEPLAN, "lent", spec={"ownerJob": "digits"})
    lent["metadata"]["ownerReferences"] = [others]
    found = caches((ELASTICJOB, raw(job())), *((SCALEPLAN, raw(plan)) for plan in (*plans, lent)))
    assert [plan.metadata.name for plan in found.plans_of(KEY)] == ["free", "lent", "own"]
    found.jobs.take(Removed(raw(job())))
    assert len(found.plans_of(KEY)) == 6


@pytest.mark.parametrize(
    ("owner", "server_has", "deleted"),
    [
        pytest.param({"uid": FORMER}, PRESENT, True, id="another life has its owner's name"),
        pytest.param({"uid": FORMER}, "", True, id="nobody has"),
        pytest.param({"uid": FORMER}, FORMER, False, id="its owner is there"),
        pytest.param({"uid": FORMER, "controller": False}, "", True, id="and does not control it"),
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
    stays = owner.get("kind") == "Website"
    assert (plan.reason, plan.again_in) == (NAME_TAKEN, LATER if stays else SOON)
    assert server.deleted == ["Service a s-1"] * deleted
