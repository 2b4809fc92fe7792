"""Objects that the garbage collector has missed are deleted when their owner is gone for certain."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, cast

import pytest

from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.controllers.elasticjob.controller import JobReconciler
from elasticjob.controllers.elasticjob.objects import foundation
from elasticjob.controllers.jobresource.controller import NodesReconciler
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.owners import Ownership, controlled_by, kinds_outside_caches
from elasticjob.controllers.passes.observe import Caches
from elasticjob.controllers.passes.orphans import Orphans
from elasticjob.controllers.passes.orphans.decide import (
    PATIENCE,
    Answer,
    Leftovers,
    Memory,
    Removal,
    Step,
    due,
    remember_failures,
    removals,
)
from elasticjob.controllers.passes.plan import LATER, NAME_TAKEN, SOON, Create, Plan
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.protocol import Removed
from elasticjob.kube.cache.wire import Item
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import AlreadyExists, Conflict, Forbidden, KubeError, NotFound, Unreachable
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.kube.objects.views import NETWORK_POLICY, POD, ROLE, SERVICE, OwnerReference
from elasticjob.master.scalers.scaleplan import manifest
from lab.build.caches import caches, pod, raw
from lab.build.jobs import NOW, at, job, resource, role
from tests.kit.controllers.reconcilers import of_jobs, of_nodes, writer

KEY = Key("ml", "digits")
LOCAL: Manifest = {"distributionStrategy": "Local", "optimizeMode": "manual"}
OLD_JOB = OwnerReference(ELASTICJOB.api_version, ELASTICJOB.name, "digits", "job-0")
OLD_RESOURCE = OwnerReference(JOBRESOURCE.api_version, JOBRESOURCE.name, "digits", "res-0")
MASTER = Ownership(POD, "digits-master", "uid-1", "1", OLD_JOB)
WORKER = Ownership(POD, "digits-worker-0", "uid-2", "1", OLD_RESOURCE)
NEWER = MASTER._replace(version="2")
POLICY = Ownership(NETWORK_POLICY, "digits", "uid-3", "1", OLD_JOB)
BOTH, ONE = Leftovers((MASTER, WORKER)), Leftovers((WORKER,))
SECOND = timedelta(seconds=1)


def memory(ago: timedelta, count: int, *owners: OwnerReference) -> Memory:
    return Memory(NOW - ago, count, frozenset(owners))


BLOCKED, AGAIN = Leftovers(BOTH.orphans, (MASTER,)), memory(SECOND, 0, OLD_JOB)
START = 0 * SECOND
STILL = memory(PATIENCE, 0, OLD_JOB)
DUE = [
    ("no orphans", Leftovers(), None, Step()),
    ("the last has gone", Leftovers(), memory(SECOND, 2), Step()),
    ("new ones", BOTH, None, Step((), memory(START, 2), PATIENCE)),
    ("still patient", BOTH, memory(SECOND, 2), Step((), memory(SECOND, 2), PATIENCE - SECOND)),
    ("one has gone", ONE, memory(PATIENCE, 2), Step((), memory(START, 1), PATIENCE)),
    ("none has gone", ONE, memory(PATIENCE, 1), Step((OLD_RESOURCE,), memory(START, 1), PATIENCE)),
    ("clock set back", BOTH, memory(-100 * SECOND, 2), Step((), memory(START, 2), PATIENCE)),
    ("one in the way", BLOCKED, memory(START, 2), Step((OLD_JOB,), memory(START, 2), PATIENCE)),
    ("ask later", Leftovers(), AGAIN, Step((), AGAIN, PATIENCE - SECOND)),
    ("ask again", Leftovers(), STILL, Step((OLD_JOB,), memory(START, 0, OLD_JOB), PATIENCE)),
]


@pytest.mark.parametrize(("left", "before", "step"), [row[1:] for row in DUE], ids=[row[0] for row in DUE])
def test_owners_are_asked_about_when_it_is_time(left: Leftovers, before: Memory | None, step: Step) -> None:
    assert due(left, before, NOW) == step


@pytest.mark.parametrize(
    ("answer", "removed"),
    [
        (Answer(OLD_JOB), ()),
        (Answer(OLD_JOB, complete=False), ()),
        (Answer(OLD_JOB, True), (Removal(OLD_JOB, (), (MASTER,)),)),
        (Answer(OLD_JOB, True, (POLICY,)), (Removal(OLD_JOB, (POLICY,), (MASTER,)),)),
        (Answer(OLD_JOB, True, (NEWER,)), (Removal(OLD_JOB, (NEWER,), ()),)),
    ],
    ids=["it lives", "it could not be read", "it is gone", "uncached objects first", "each object once"],
)
def test_only_objects_of_owners_that_are_gone_are_deleted(
    answer: Answer, removed: tuple[Removal, ...]
) -> None:
    assert removals(BOTH, [answer]) == removed


def test_owners_are_remembered_until_all_of_theirs_is_deleted() -> None:
    before = memory(SECOND, 2, OLD_JOB)
    assert remember_failures(before, [OLD_JOB, OLD_RESOURCE], [OLD_RESOURCE]).unfinished == {OLD_RESOURCE}
    assert remember_failures(before, [], []) == before


@dataclass
class Server:
    """Holds objects by kind and name, and notes what is deleted."""

    objects: dict[tuple[str, str], Manifest] = field(default_factory=dict)
    deleted: list[str] = field(default_factory=list)
    fails: dict[str, KubeError] = field(default_factory=dict)  # deletions, by kind or name
    unreadable: str = ""
    serves: bool = True
    asked: int = 0

    async def find(self, kind: Kind[Any], name: str, namespace: str) -> Any:
        found = self.objects.get((kind.name, name))
        return found and kind.convert(found)

    async def get(self, kind: Kind[Any], name: str, namespace: str) -> Any:
        self.asked += 1
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
        assert version is not None
        if error := self.fails.get(kind.name) or self.fails.get(name):
            raise error
        self.deleted.append(f"{kind.name} {name} {uid}")
        self.objects.pop((kind.name, name), None)


@dataclass
class Site:
    """A collector between a fake server and caches, whose clock stands until it is set."""

    server: Server
    caches: Caches
    now: datetime = NOW

    def __post_init__(self) -> None:
        self.orphans = Orphans(cast(Client, self.server), self.caches, lambda: self.now)

    def nodes(self) -> NodesReconciler:
        return of_nodes(self.caches, self.server, lambda: self.now, self.orphans)

    def jobs(self) -> JobReconciler:
        return of_jobs(self.caches, self.server, lambda: self.now, self.orphans)


def start_plan(of: ElasticJob) -> Manifest:
    """Return the plan with which a master starts a job."""
    change = Change({"worker": Group(1)}, reason="replicas is not set")
    return manifest(KEY, "digits-start", change, owner_reference(of, ELASTICJOB, controller=False))


def owned(kind: Kind[Any], name: str, uid: str = "job-0", **more: Any) -> Manifest:
    """An object that the job of this uid has made."""
    by = [controlled_by(job(metadata={"uid": uid}))]
    about = {"name": name, "namespace": "ml", "uid": f"{name}-uid", "ownerReferences": by}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": about, **more}


def left(index: int, uid: str = "res-0", **metadata: Any) -> Item:
    return pod(index, owner={"uid": uid}, metadata=metadata)


def with_pods(server: Server, *items: Item) -> Site:
    """The caches show a job, its JobResource and these pods."""
    mine, shown = raw(job({"worker": role(1)}, **LOCAL)), raw(resource({"worker": 1}))
    server.objects[JOBRESOURCE.name, "digits"] = {"metadata": {"name": "digits", "uid": "res-1"}}
    return Site(server, caches((ELASTICJOB, mine), (JOBRESOURCE, shown), *((POD, item) for item in items)))


async def test_a_pass_over_nodes_deletes_pods_of_a_former_life_and_no_others() -> None:
    server = Server(fails={"digits-worker-6": Conflict(409, "Conflict", "it has changed")})
    going = left(3, deletionTimestamp=at(NOW))
    foreign = pod(4, owner={"uid": "res-0", "apiVersion": "batch/v1", "kind": "Job"})
    other = controlled_by(job()) | {"controller": False}
    shared = left(5, ownerReferences=[{**controlled_by(resource()), "uid": "res-0"}, other])
    mine = left(0, "res-1")
    site = with_pods(server, mine, left(1), left(2), going, foreign, shared, left(6))
    await site.nodes()(KEY)
    assert server.deleted == ["Pod digits-worker-1 pod-1", "Pod digits-worker-2 pod-2"]
    assert server.asked == 1


@pytest.mark.parametrize(
    "server",
    [
        pytest.param(Server({(JOBRESOURCE.name, "digits"): owned(JOBRESOURCE, "digits")}), id="it lives"),
        pytest.param(Server(unreadable=JOBRESOURCE.name), id="it cannot be read"),
        pytest.param(Server(serves=False), id="its kind is not served now"),
    ],
)
async def test_nothing_is_deleted_unless_the_server_says_that_its_owner_is_gone(server: Server) -> None:
    site = Site(server, caches((POD, left(0, "digits-uid"))))
    await site.orphans.collect(KEY, JOBRESOURCE)
    assert (server.asked, server.deleted) == (1, [])


async def test_a_job_is_rid_of_its_predecessor_at_once_whatever_fails() -> None:
    """Also of a policy that it does not make itself, and that would keep others away from its pods."""
    by = controlled_by(job(metadata={"uid": "job-0"}))
    former = resource().manifest()
    former["metadata"]["ownerReferences"] = [by]
    master = pod(labels=names.pod_labels("digits", "master", 0, 0), owner=by)
    mine = job({"worker": role(1)}, networkPolicy=False, **LOCAL)
    there = {
        (ELASTICJOB.name, "digits"): mine.manifest(),
        ("NetworkPolicy", "digits"): owned(NETWORK_POLICY, "digits"),
    }
    server = Server(there, fails={"NetworkPolicy": Unreachable("cut")})
    shown = ((JOBRESOURCE, raw(former)), (POD, master))
    site = Site(server, caches((ELASTICJOB, raw(mine)), *shown))
    await site.jobs()(KEY)
    assert server.deleted == ["JobResource digits res-1", "Pod digits-worker-0 pod-0"]
    site.caches.pods.take(Removed(master))
    site.caches.resources.take(Removed(raw(former)))
    server.fails = {}
    assert (await site.jobs()(KEY)).again_in == SOON
    site.now += PATIENCE
    await site.jobs()(KEY)
    assert server.deleted[2:] == ["NetworkPolicy digits digits-uid"]


async def test_all_that_a_job_has_left_goes_in_the_end() -> None:
    """Uncached objects go first: nothing else would lead to them after a restart."""
    former = job({"worker": role(None, minReplicas=1)}, metadata={"uid": "job-0"})
    plan = start_plan(former)
    plan["metadata"] |= {"name": "start", "uid": "start-uid"}
    free = {**plan, "metadata": {"name": "brain", "namespace": "ml", "uid": "brain-uid"}}
    service = owned(SERVICE, "digits-old", spec={})
    server = Server({(kind.name, name): owned(kind, name) for kind, name in kinds_outside_caches(OLD_JOB)})
    server.objects[ROLE.name, "digits-master"] = owned(ROLE, "digits-master", "job-1")
    site = Site(server, caches((SCALEPLAN, raw(plan)), (SCALEPLAN, raw(free)), (SERVICE, raw(service))))
    assert await site.orphans.collect(KEY) == PATIENCE
    assert server.asked == 0
    site.now += PATIENCE
    await site.orphans.collect(KEY)
    hidden = [
        f"{kind.name} {name} {name}-uid" for kind, name in kinds_outside_caches(OLD_JOB) if kind is not ROLE
    ]
    assert server.deleted == [*hidden, "Service digits-old digits-old-uid", "ScalePlan start start-uid"]
    for cache in (site.caches.plans, site.caches.services):
        for item in (raw(plan), raw(service)):
            cache.take(Removed(item))
    assert await site.orphans.collect(KEY) is None


@pytest.mark.parametrize(
    ("owner", "present", "again", "deleted"),
    [
        ({}, "res-1", SOON, True),
        ({}, "", SOON, True),
        ({}, "res-0", SOON, False),
        ({"controller": False}, "", SOON, True),
        ({"kind": "Website"}, "", LATER, False),
    ],
    ids=["another has its owner's name", "no owner", "its owner lives", "no controller", "not ours"],
)
async def test_an_object_in_the_way_is_deleted_if_its_owner_is_gone(
    owner: Manifest, present: str, again: timedelta, deleted: bool
) -> None:
    there = owned(SERVICE, "a")
    there["metadata"]["ownerReferences"] = [{**controlled_by(resource()), "uid": "res-0", **owner}]
    server = Server({(SERVICE.name, "a"): there})
    if present:
        server.objects[JOBRESOURCE.name, "digits"] = {"metadata": {"name": "digits", "uid": present}}
    wanted = {"metadata": {"name": "a", "namespace": "ml", "ownerReferences": [controlled_by(resource())]}}
    plan = await writer(server).attempt(job(), Plan("Made", groups=((Create(SERVICE, wanted),),)))
    assert (plan.reason, plan.again_in) == (NAME_TAKEN, again)
    await Site(server, caches()).orphans.collect(KEY, JOBRESOURCE, plan.obstacle)
    assert server.deleted == ["Service a a-uid"] * deleted


def test_every_object_of_a_job_is_cached_or_looked_for_by_name() -> None:
    made = foundation(job(networkPolicy=True), "token", (), b"key")
    cached = {cache.kind for cache in vars(caches()).values() if isinstance(cache, Cache)}
    uncached = {(make.kind, make.manifest["metadata"]["name"]) for make in made if make.kind not in cached}
    assert {*kinds_outside_caches(OLD_JOB)} >= uncached


def test_plans_of_a_former_life_are_not_the_jobs() -> None:
    """Plans without an owner, or owned by a job of another name, are."""
    written = start_plan(job({"worker": role(None, minReplicas=1)}, metadata={"uid": "job-0"}))
    spec = {"ownerJob": "digits"}
    shared, lent = owned(SCALEPLAN, "shared", spec=spec), owned(SCALEPLAN, "lent", spec=spec)
    [former] = shared["metadata"]["ownerReferences"]
    shared["metadata"]["ownerReferences"] = [former, {**former, "kind": "Brain", "controller": False}]
    lent["metadata"]["ownerReferences"] = [{**former, "name": "letters"}]
    free = {"metadata": {"name": "free", "namespace": "ml", "uid": "free"}, "spec": spec}
    own, old = owned(SCALEPLAN, "own", "job-1", spec=spec), owned(SCALEPLAN, "former", spec=spec)
    plans = (old, written, own, free, shared, lent)
    found = caches((ELASTICJOB, raw(job())), *((SCALEPLAN, raw(plan)) for plan in plans))
    assert {plan.metadata.name for plan in found.plans_of(KEY)} == {"free", "lent", "own"}
    found.jobs.take(Removed(raw(job())))
    assert len(found.plans_of(KEY)) == 6
