"""The decisions of di-server: seen and asked → what is made, deleted, replaced, or why it is refused."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from elasticjob.api.diengine import names, pods
from elasticjob.api.diengine.aggregatorconfig import AGGREGATORCONFIG
from elasticjob.api.diengine.gpus import Machine
from elasticjob.api.diengine.names import Role
from elasticjob.api.diengine.pods import Place, Server
from elasticjob.controllers.diserver.asked import Amounts, Ask, Limits, Refusal, Report
from elasticjob.controllers.diserver.decide import (
    Call,
    Creations,
    Deletions,
    EarlierCall,
    Replacements,
    Seen,
    Way,
    creations,
    deletions,
    replacements,
    splits,
)
from elasticjob.controllers.diserver.orders import machines_for
from elasticjob.controllers.diserver.seen import Pods
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NODE, POD, Pod
from lab.build import manifests
from lab.build.dijobs import dijob
from lab.build.manifests import TEMPLATE, changed

JOB = dijob()
CONFIG = AGGREGATORCONFIG.convert(manifests.AGGREGATORCONFIG)
CALL = Call("c" * 29, "d" * 32)
EIGHT = (Machine(8, 8),) * 4
SMALL = Limits(per_request=8, per_job=12)


def one(role: Role, suffix: str, place: Place | None = None, **changes: Any) -> Pod:
    """A pod of the job; members have an owner beside it, named in `of`."""
    of = changes.pop("of", None)
    name = names.coordinator("cartpole") if role is Role.COORDINATOR else f"cartpole-{role}-{suffix}"
    made = pods.pod(JOB, role, name, Server(), TEMPLATE, {}, place=place, aggregator=of)
    made["metadata"]["uid"] = f"uid-{suffix}"
    return POD.convert(changed(made, changes))


COORDINATOR = one(Role.COORDINATOR, "")
AGGREGATOR = one(Role.AGGREGATOR, "agg")
FIRST = one(Role.DDP_LEARNER, "d1", Place(4, 2, 0), of=AGGREGATOR)
SECOND = one(Role.DDP_LEARNER, "d2", Place(4, 2, 2, "cartpole-ddp-learner-d1"), of=AGGREGATOR)
LEARNER = (AGGREGATOR, FIRST, SECOND)


def seen(*others: Pod, caller: Pod = COORDINATOR, **changes: Any) -> Seen:
    numbers = (f"{number:05}" for number in itertools.count())
    job = changes.pop("job", JOB)
    given: dict[str, Any] = {"config": CONFIG, "machines": EIGHT, "call": CALL} | changes
    return Seen(Pods.of(job, (COORDINATOR, *others)), caller, random_suffix=numbers.__next__, **given)


def ask(collectors: int = 0, learners: int = 0, gpus: int = 0) -> Ask:
    return Ask("lab", "cartpole-coordinator", Amounts(collectors), Amounts(learners, gpus))


def collectors(count: int, **changes: Any) -> list[Pod]:
    return [one(Role.COLLECTOR, f"c{index}", **changes) for index in range(count)]


@pytest.mark.parametrize(
    ("collectors_", "learners", "gpus", "pods_"),
    [(2, 1, 0, 3), (0, 1, 2, 2), (0, 1, 8, 2), (0, 1, 9, 3), (0, 2, 16, 6), (8, 0, 0, 8), (0, 8, 1, 8)],
)
def test_what_is_asked_for_is_ordered(collectors_: int, learners: int, gpus: int, pods_: int) -> None:
    decided = creations(seen(), ask(collectors_, learners, gpus), Limits())
    assert isinstance(decided, Creations)
    assert decided.size == pods_


@pytest.mark.parametrize(
    ("there", "asked", "changes", "status", "said"),
    [
        (0, ask(0, 5, 2), {}, 400, "5 learners of 2 GPUs are 10 pods or more: one call may ask for 8"),
        (0, ask(0, 1, 57), {}, 400, "1 learners of 57 GPUs are 9 pods or more: one call may ask for 8"),
        (0, ask(0, 1, 1024), {"machines": (Machine(1, 1),)}, 400, "are 1025 pods or more"),
        (11, ask(2), {}, 400, "a job has at most 12 pods beside its coordinator: it has 11, and asks for 2"),
        (11, ask(0, 1, 2), {}, 400, "it has 11, and asks for 2"),  # an aggregator and a ddp pod
        (0, ask(0, 1, 2), {"config": None}, 404, "there is no AggregatorConfig in the namespace"),
        (0, ask(1), {"caller": LEARNER[1]}, 400, "is not a pod of role coordinator"),
        (0, ask(1), {"job": dijob(status={"phase": "Succeeded"})}, 400, "has ended: Succeeded"),
        (
            0,
            ask(1),
            {"job": dijob(**{"spec/collector/template/spec/containers/0/image": ""})},
            400,
            ".image: there is no image: write one",
        ),
    ],
)
def test_more_than_the_bounds_is_refused(
    there: int, asked: Ask, changes: dict[str, Any], status: int, said: str
) -> None:
    decided = creations(seen(*collectors(there), **changes), asked, SMALL)
    assert isinstance(decided, Refusal)
    assert decided.status == status
    assert said in decided.message


def test_ddp_pods_that_are_there_count() -> None:
    decided = creations(seen(*LEARNER, *collectors(8)), ask(2), SMALL)
    assert isinstance(decided, Refusal)
    assert "it has 11, and asks for 2" in decided.message


def marked(suffix: str, size: str, *, first: bool = False, body: str = CALL.digest) -> Pod:
    """A collector of an equal call before."""
    manifest: Manifest = pods.pod(JOB, Role.COLLECTOR, f"cartpole-collector-{suffix}", Server(), TEMPLATE, {})
    notes = {names.REQUEST_PODS: size, names.REQUEST_BODY: body}
    notes |= {names.UNANSWERED: CALL.digest} if first else {}
    manifest["metadata"] |= {"uid": suffix, "annotations": notes}
    manifest["metadata"]["labels"][names.LABEL_REQUEST] = CALL.id
    return POD.convert(manifest)


KEYED = Call(CALL.id, CALL.digest, keyed=True)


@pytest.mark.parametrize(
    ("there", "call", "expected"),
    [
        ((marked("a", "2", first=True), marked("b", "2")), CALL, "made"),
        ((marked("a", "2", first=True),), CALL, "undone"),
        ((marked("a", "2"), marked("b", "2")), CALL, "new"),  # its response has arrived
        ((marked("a", "2"), marked("b", "2")), KEYED, "made"),
        ((marked("a", "2", body="other"),), KEYED, "refused"),
        ((marked("a", "1e9", first=True),), CALL, "made"),  # a tenant can write there, too
        ((marked("a", "", first=True),), CALL, "made"),
        ((marked("a", "9" * 5000, first=True),), CALL, "made"),
    ],
)
def test_an_equal_call_before(there: tuple[Pod, ...], call: Call, expected: str) -> None:
    match creations(seen(*there, call=call), ask(2), Limits()):
        case EarlierCall(before):
            assert (expected, before) == ("made", there)
        case Creations() as decided:
            assert (expected, decided.undo) == (("undone", there) if decided.undo else ("new", ()))
        case Refusal() as refused:
            assert (expected, refused.status) == ("refused", 409)


def test_as_many_are_deleted_as_there_are() -> None:
    some = collectors(2, status={"phase": "Running"})
    pending = one(Role.COLLECTOR, "p", status={"phase": "Pending"})
    decided = deletions(seen(*some, pending, *LEARNER), ask(1, 10**9), Limits())
    assert isinstance(decided, Deletions)
    assert decided.collectors == (pending,)
    assert decided.learners == (AGGREGATOR,)
    assert decided.members == (FIRST, SECOND)
    assert isinstance(deletions(seen(*some, caller=some[0]), ask(1), Limits()), Refusal)


def replaced(*reported: str, **changes: Any) -> Replacements | Refusal:
    given = [*collectors(1), *LEARNER, *changes.pop("more", ())]
    named = [f"cartpole-{name}" for name in reported]
    chosen = [[each for each in named if ("collector" in each) is is_one] for is_one in (True, False)]
    report = Report("lab", "cartpole-coordinator", tuple(chosen[0]), tuple(chosen[1]))
    assert splits(Pods.of(JOB, given), report) is ("aggregator-agg" in reported)
    return replacements(seen(*given, **changes), report, Limits())


def heir_of(suffix: str) -> dict[str, Any]:
    return {"metadata/annotations": {names.REPLACES: f"cartpole-collector-{suffix}"}}


HEIR = one(Role.COLLECTOR, "new", **heir_of("c0"))
OLDER = one(Role.COLLECTOR, "old", **heir_of("gone"))


@pytest.mark.parametrize(
    ("reported", "changes", "way"),
    [
        ("collector-c0", {}, Way.UNDER_A_NEW_NAME),
        ("collector-c0", {"starting": frozenset({"uid-c0"})}, Way.KEPT),
        ("collector-c0", {"more": (HEIR,)}, Way.BY_ANOTHER),
        ("collector-gone", {"more": (OLDER,)}, Way.KEPT),
        ("aggregator-agg", {}, Way.WITH_ITS_MEMBERS),
        ("ddp-learner-d2", {"caller": AGGREGATOR}, Way.UNDER_ITS_NAME),
    ],
)
def test_a_reported_pod_is_replaced(reported: str, changes: dict[str, Any], way: Way) -> None:
    decided = replaced(reported, **changes)
    assert isinstance(decided, Replacements)
    assert [each.way for each in (*decided.collectors, *decided.learners)] == [way]


@pytest.mark.parametrize(
    ("reported", "changes", "status"),
    [
        (["collector-c0", "collector-zzzzz"], {}, 404),
        (["coordinator"], {}, 400),
        (["ddp-learner-d1"], {}, 404),
        (["collector-c0"], {"caller": AGGREGATOR}, 404),
        (["collector-c0"], {"caller": FIRST}, 400),
        (["aggregator-agg"], {"config": None}, 404),  # before its members are deleted
    ],
)
def test_nothing_is_replaced_if_one_cannot_be(
    reported: list[str], changes: dict[str, Any], status: int
) -> None:
    decided = replaced(*reported, **changes)
    assert isinstance(decided, Refusal)
    assert decided.status == status


@pytest.mark.parametrize("text", ["1000000000", "9" * 5000, "x", "", "-4", "1e9", "٣", "\x00"])
def test_what_a_tenant_writes_into_his_pods_is_bounded(text: str) -> None:
    """WORLD_SIZE is read when an aggregator is replaced."""
    env = [{"name": "WORLD_SIZE", "value": text}, {"name": "START_RANK", "value": text}]
    changes: dict[str, Any] = {"spec/containers/0/env": env}
    odd = one(Role.DDP_LEARNER, "odd", Place(4, 4, 0), of=AGGREGATOR, **changes)
    report = Report("lab", "cartpole-coordinator", (), ("cartpole-aggregator-agg",))
    decided = replacements(seen(AGGREGATOR, odd, machines=(Machine(8, 8),)), report, Limits())
    if isinstance(decided, Replacements):
        (only,) = decided.learners
        assert only.order is not None
        assert only.order.size <= Limits().per_request
    else:
        assert decided.status == 400


def test_machines_and_pods_of_others_that_cannot_be_read_are_left_out() -> None:
    def node(name: str, gpus: str) -> Any:
        return NODE.convert({"metadata": {"name": name}, "status": {"allocatable": {"nvidia.com/gpu": gpus}}})

    def bound(gpus: str) -> Pod:
        resources = {"limits": {"nvidia.com/gpu": gpus}}
        changes: dict[str, Any] = {"spec/nodeName": "a", "spec/containers/0/resources": resources}
        return one(Role.COLLECTOR, gpus, **changes)

    found = machines_for({}, [node("a", "8"), node("b", "1k"), node("c", "many")], [bound("2"), bound("x")])
    assert found == [Machine(8, 6), Machine(1000, 1000)]
