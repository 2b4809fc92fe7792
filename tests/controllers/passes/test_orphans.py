"""Objects that the garbage collector has missed are deleted when their owner is gone for certain."""

from __future__ import annotations

from datetime import timedelta
from typing import Any, cast

import msgspec
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
from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.errors import Conflict, Forbidden, KubeError, NotFound, Unreachable
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.kube.objects.views import NETWORK_POLICY, POD, ROLE, SERVICE, OwnerReference
from elasticjob.master.scalers.scaleplan import manifest
from lab.build.caches import caches, pod, raw
from lab.build.jobs import NOW, at, job, resource, role
from lab.build.objects import as_item
from lab.virtual.server import Fault, Server, follow
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


class Site:
    """A collector beside a server whose changes the caches show at once; its clock stands until it is set."""

    def __init__(self) -> None:
        self.now, self.server, self.caches = NOW, Server(VirtualClock(NOW)), caches()
        self.deleted: list[str] = []
        for cache in self.watched():
            follow(self.server, cache)
        self.server.listen(self._note)
        self.orphans = Orphans(cast(Client, self.server), self.caches, lambda: self.now)

    def _note(self, _: str, old: Manifest | None, new: Manifest | None) -> None:
        if old and not new:
            about = old["metadata"]
            self.deleted.append(f"{old['kind']} {about['name']} {about['uid']}")

    def watched(self) -> list[Cache[Any]]:
        return [each for each in vars(self.caches).values() if isinstance(each, Cache)]

    def put(self, kind: Kind[Any], *objects: Manifest, shown: bool = True) -> None:
        """Have objects on the server; unless they are `shown` the caches are behind."""
        for each in objects:
            made = self.server.put(kind, each)
            for cache in self.watched():
                if cache.kind is kind and not shown:
                    cache.take(Removed(as_item(made)))

    @property
    def asked(self) -> int:
        return sum(verb == "get" for verb, _, _ in self.server.requests)

    def nodes(self) -> NodesReconciler:
        return of_nodes(self.caches, self.server, lambda: self.now, self.orphans)

    def jobs(self) -> JobReconciler:
        return of_jobs(self.caches, self.server, lambda: self.now, self.orphans)


@pytest.fixture
def site() -> Site:
    return Site()


def failing(verb: str, which: str, error: KubeError) -> Fault:
    """Requests for objects of this kind, or of this name, fail."""
    return lambda asked, kind, name: error if asked == verb and which in (kind.name, name) else None


def start_plan(of: ElasticJob) -> Manifest:
    """Return the plan with which a master starts a job."""
    change = Change({"worker": Group(1)}, reason="replicas is not set")
    return manifest(KEY, "digits-start", change, owner_reference(of, ELASTICJOB, controller=False))


def owned(kind: Kind[Any], name: str, uid: str = "job-0", **more: Any) -> Manifest:
    """An object that the job of this uid has made."""
    by = [controlled_by(job(metadata={"uid": uid}))]
    about = {"name": name, "namespace": "ml", "uid": f"{name}-uid", "ownerReferences": by}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": about, **more}


def resource_of(uid: str) -> Manifest:
    return {"metadata": {"name": "digits", "namespace": "ml", "uid": uid}}


def left(index: int, uid: str = "res-0", owner: Manifest | None = None, **metadata: Any) -> Manifest:
    """A pod of a JobResource of this uid."""
    made = pod(index, owner={"uid": uid, **(owner or {})}, metadata=metadata)
    return msgspec.json.decode(made.raw, type=dict)


async def test_a_pass_over_nodes_deletes_pods_of_a_former_life_and_no_others(site: Site) -> None:
    site.server.fault = failing("delete", "digits-worker-6", Conflict(409, "Conflict", "it has changed"))
    going = left(3, deletionTimestamp=at(NOW))
    foreign = left(4, owner={"apiVersion": "batch/v1", "kind": "Job"})
    other = controlled_by(job()) | {"controller": False}
    shared = left(5, ownerReferences=[{**controlled_by(resource()), "uid": "res-0"}, other])
    mine = left(0, "res-1")
    site.put(ELASTICJOB, job({"worker": role(1)}, **LOCAL).manifest())
    site.put(JOBRESOURCE, resource({"worker": 1}).manifest())
    site.put(POD, mine, left(1), left(2), going, foreign, shared, left(6))
    await site.nodes()(KEY)
    assert site.deleted == ["Pod digits-worker-1 pod-1", "Pod digits-worker-2 pod-2"]
    assert site.asked == 1


@pytest.mark.parametrize(
    "error",
    [None, Forbidden(403, "Forbidden", "not by you"), NotFound(404, "NotFound", "no such page")],
    ids=["it lives", "it cannot be read", "its kind is not served now"],
)
async def test_nothing_is_deleted_unless_the_server_says_that_its_owner_is_gone(
    site: Site, error: KubeError | None
) -> None:
    site.put(POD, left(0, "digits-uid"))
    if error:
        site.server.fault = failing("get", JOBRESOURCE.name, error)
    else:
        site.put(JOBRESOURCE, resource_of("digits-uid"), shown=False)
    await site.orphans.collect(KEY, JOBRESOURCE)
    assert (site.asked, site.deleted) == (1, [])


async def test_a_job_is_rid_of_its_predecessor_at_once_whatever_fails(site: Site) -> None:
    """Also of a policy that it does not make itself, and that would keep others away from its pods."""
    by = controlled_by(job(metadata={"uid": "job-0"}))
    former = resource().manifest()
    former["metadata"]["ownerReferences"] = [by]
    site.put(ELASTICJOB, job({"worker": role(1)}, networkPolicy=False, **LOCAL).manifest())
    site.put(NETWORK_POLICY, owned(NETWORK_POLICY, "digits"))
    site.put(JOBRESOURCE, former)
    site.put(POD, left(0, labels=names.pod_labels("digits", "master", 0, 0), ownerReferences=[by]))
    site.server.fault = failing("delete", NETWORK_POLICY.name, Unreachable("cut"))
    await site.jobs()(KEY)
    assert site.deleted == ["JobResource digits res-1", "Pod digits-worker-0 pod-0"]
    site.server.fault = lambda *_: None
    assert (await site.jobs()(KEY)).again_in == SOON
    site.now += PATIENCE
    await site.jobs()(KEY)
    assert site.deleted[2:] == ["NetworkPolicy digits digits-uid"]


async def test_all_that_a_job_has_left_goes_in_the_end(site: Site) -> None:
    """Uncached objects go first: nothing else would lead to them after a restart."""
    plan = start_plan(job({"worker": role(None, minReplicas=1)}, metadata={"uid": "job-0"}))
    plan["metadata"] |= {"name": "start", "uid": "start-uid"}
    hidden = [(kind, name) for kind, name in kinds_outside_caches(OLD_JOB) if kind is not ROLE]
    for kind, name in hidden:
        site.put(kind, owned(kind, name))
    site.put(ROLE, owned(ROLE, "digits-master", "job-1"))
    site.put(SCALEPLAN, plan, {**plan, "metadata": {"name": "brain", "namespace": "ml", "uid": "brain-uid"}})
    site.put(SERVICE, owned(SERVICE, "digits-old", spec={}))
    assert await site.orphans.collect(KEY) == PATIENCE
    assert site.asked == 0
    site.now += PATIENCE
    await site.orphans.collect(KEY)
    first = [f"{kind.name} {name} {name}-uid" for kind, name in hidden]
    assert site.deleted == [*first, "Service digits-old digits-old-uid", "ScalePlan start start-uid"]
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
    site: Site, owner: Manifest, present: str, again: timedelta, deleted: bool
) -> None:
    there = owned(SERVICE, "a")
    there["metadata"]["ownerReferences"] = [{**controlled_by(resource()), "uid": "res-0", **owner}]
    site.put(SERVICE, there, shown=False)
    if present:
        site.put(JOBRESOURCE, resource_of(present), shown=False)
    wanted = {"metadata": {"name": "a", "namespace": "ml", "ownerReferences": [controlled_by(resource())]}}
    plan = await writer(site.server).attempt(job(), Plan("Made", groups=((Create(SERVICE, wanted),),)))
    assert (plan.reason, plan.again_in) == (NAME_TAKEN, again)
    await site.orphans.collect(KEY, JOBRESOURCE, plan.obstacle)
    assert site.deleted == ["Service a a-uid"] * deleted


def test_every_object_of_a_job_is_cached_or_looked_for_by_name() -> None:
    made = foundation(job(networkPolicy=True), "token", (), b"key")
    cached = {cache.kind for cache in Site().watched()}
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
