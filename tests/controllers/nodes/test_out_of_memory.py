"""A pod that was killed for want of memory asks for more once; its successor waits while that is coming."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.api.resources import Bytes
from elasticjob.api.v1alpha1.jobresource import JobResource
from elasticjob.api.v1alpha1.scaleplan import ScalePlan
from elasticjob.controllers.nodes.machines import Largest
from elasticjob.controllers.nodes.out_of_memory import Growth, Sizing
from elasticjob.controllers.nodes.relaunch import Life
from lab.build.jobs import ended, job, life, oom, plan, resource, role

KILLED = oom(0)
"""At 512Mi."""
GROWN = resource(resources={"worker": {"memory": "1Gi"}})
NODE = "digits-worker-0"
MINE = f"{NODE}-memory"


def sizing(
    *plans: ScalePlan, job_: Any = None, resource_: Any = None, largest: str = "", name: str = "m3"
) -> Sizing:
    known = {"worker": Largest(name, Bytes.parse(largest))} if largest else {}
    return Sizing(job_ or job(), resource_ or resource(), plans, known)


def more(memory: str = "1Gi", name: str = "up", **about: Any) -> ScalePlan:
    return plan(name, memory={"worker": memory}, **about)


def own(memory: str = "512Mi") -> JobResource:
    return resource(nodes={NODE: {"memory": memory}})


def moved(node: str = NODE, *, name: str = "up", **about: Any) -> ScalePlan:
    gets = {"cpu": cpu} if (cpu := about.pop("cpu", "")) else {"memory": "1Gi"}
    return plan(name, migratePods=[{"name": node, "resource": gets}], **about)


CASES: dict[str, tuple[tuple[Life, Sizing], tuple[str, bool]]] = {
    "nothing is planned: it asks, and waits": ((KILLED, sizing()), ("1Gi", True)),
    "its plan is there": ((KILLED, sizing(more(name=MINE))), ("", True)),
    "its plan is being carried out": ((KILLED, sizing(more(name=MINE, phase="Scaling"))), ("", True)),
    "its plan failed": ((KILLED, sizing(more(name=MINE, phase="Failed"))), ("", False)),
    "its plan gave way to one of less": ((KILLED, sizing(more(name=MINE, phase="Superseded"))), ("", False)),
    "another pod's plan gives enough": ((KILLED, sizing(more(name="digits-worker-1-memory"))), ("", True)),
    "a plan gives less than twice, but more": ((KILLED, sizing(more("600Mi"))), ("", True)),
    "a plan gives no more": ((KILLED, sizing(more("512Mi"))), ("1Gi", True)),
    "a plan changes another role's": ((KILLED, sizing(plan(memory={"ps": "1Gi"}))), ("1Gi", True)),
    "a plan changes the number alone": ((KILLED, sizing(plan("up", {"worker": 3}))), ("1Gi", True)),
    "a plan that is finished counts no more": ((KILLED, sizing(more(phase="Succeeded"))), ("1Gi", True)),
    "a user's plan gives more": ((KILLED, sizing(more(manual=True))), ("", True)),
    "a user's plan of no more comes first": ((KILLED, sizing(more("512Mi", manual=True))), ("1Gi", False)),
    "its role has more already: it had the old limit": ((KILLED, sizing(resource_=GROWN)), ("", False)),
    "its role has a little more already": (
        (KILLED, sizing(resource_=resource(resources={"worker": {"memory": "513Mi"}}))),
        ("", False),
    ),
    "it had what its role has": ((oom(0, memory="1Gi"), sizing(resource_=GROWN)), ("2Gi", True)),
    "its own memory is told apart": ((KILLED, sizing(resource_=own())), ("1Gi", True)),
    "its role's plan does not reach its own": ((KILLED, sizing(more(), resource_=own())), ("1Gi", True)),
    "a plan gives the node more": ((KILLED, sizing(moved(), resource_=own())), ("", True)),
    "a plan names its pod": ((oom(0, 1), sizing(moved("digits-worker-0-1"), resource_=own())), ("", True)),
    "a plan gives another node more": (
        (KILLED, sizing(moved("digits-worker-1"), resource_=own())), ("1Gi", True)),
    "a user's plan moves it first": (
        (KILLED, sizing(moved(cpu="1", manual=True), resource_=own())), ("1Gi", False)),
    "its own plan failed": ((KILLED, sizing(moved(name=MINE, phase="Failed"), resource_=own())), ("", False)),
    "its own is more already": ((KILLED, sizing(resource_=own("1Gi"))), ("", False)),
    "its own is of another thing": (
        (KILLED, sizing(resource_=resource(nodes={NODE: {"cpu": "1"}}))), ("1Gi", True)),
    "the others leave its own little room": (
        (KILLED, sizing(job_=job(resourceLimits={"memory": "1200Mi"}), resource_=own())), ("688Mi", True)),
    "another's own leaves its role no room": (
        (oom(1), sizing(job_=job(resourceLimits={"memory": "1536Mi"}), resource_=own("1Gi"))), ("", False)),
    "its user sizes it: mode manual": ((KILLED, sizing(job_=job(optimizeMode="manual"))), ("", False)),
    "its user sizes it: autoScale false": (
        (KILLED, sizing(job_=job({"worker": role(2, autoScale=False)}))), ("", False)),
    "there is no room": ((KILLED, sizing(job_=job(resourceLimits={"memory": "1Gi"}))), ("", False)),
    "the largest machine has less than twice as much": ((KILLED, sizing(largest="700Mi")), ("700Mi", True)),
    "the largest machine has no more": ((KILLED, sizing(largest="512Mi")), ("", False)),
    "the largest machine has less": ((oom(0, memory="1Gi"), sizing(largest="512Mi")), ("", False)),
    "a large machine allows more than 64Gi": ((oom(0, memory="64Gi"), sizing(largest="1Ti")), ("72Gi", True)),
    "limits and machine: the lower one counts": (
        (KILLED, sizing(job_=job(resourceLimits={"memory": "2000Mi"}), largest="800Mi")), ("800Mi", True)),
    "it has 64Gi, and no machine is known": ((oom(0, memory="64Gi"), sizing()), ("", False)),
    "it had no limit": ((oom(0, memory=""), sizing()), ("", False)),
    "it was deleted as well": ((oom(0, terminating=True), sizing()), ("", False)),
    "it ended in another way": ((ended(0), sizing()), ("", False)),
    "it lives": ((life(0), sizing()), ("", False)),
}  # fmt: skip


@pytest.mark.parametrize(("given", "asks_and_waits"), CASES.values(), ids=CASES)
def test_after_an_end(given: tuple[Life, Sizing], asks_and_waits: tuple[str, bool]) -> None:
    killed, known = given
    growth = known.growth(killed)
    assert (growth.memory if growth else "", known.is_coming(killed)) == asks_and_waits


GIVES_UP: dict[str, tuple[tuple[Life, Sizing], str]] = {
    "more is possible": ((KILLED, sizing()), ""),
    "it ended in another way": ((ended(0), sizing(largest="1Mi")), ""),
    "its limits": (
        (KILLED, sizing(job_=job(resourceLimits={"memory": "1Gi"}), largest="8Gi")),
        "resourceLimits.memory 1Gi leaves 512Mi for each of worker: raise resourceLimits.memory",
    ),
    "its limits, for a node with memory of its own": (
        (KILLED, sizing(job_=job(resourceLimits={"memory": "1Gi"}), resource_=own())),
        "resourceLimits.memory 1Gi leaves 512Mi for digits-worker-0: raise resourceLimits.memory",
    ),
    "its machine": (
        (oom(0, memory="8Gi"), sizing(largest="7680Mi")),
        "the largest machine for worker, m3, has 7680Mi: add a larger one, or use less memory",
    ),
    "64Gi": (
        (oom(0, memory="64Gi"), sizing()),
        "without resourceLimits.memory a node of worker gets 64Gi at most: set resourceLimits.memory",
    ),
    "mode manual": (
        (KILLED, sizing(job_=job(optimizeMode="manual"))),
        "optimizeMode is manual, so its memory stays: raise resources.limits.memory of worker",
    ),
    "autoScale false": (
        (KILLED, sizing(job_=job({"worker": role(2, autoScale=False)}))),
        "autoScale of worker is false, so its memory stays: raise resources.limits.memory of worker",
    ),
}


@pytest.mark.parametrize(("given", "why"), GIVES_UP.values(), ids=GIVES_UP)
def test_why_there_is_no_more(given: tuple[Life, Sizing], why: str) -> None:
    killed, known = given
    assert known.why_no_more(killed) == why
    assert not (why and known.growth(killed))


@pytest.mark.parametrize(
    ("known", "told"),
    [
        (sizing(), "digits-worker-0 was OOMKilled at 512Mi: worker gets 1Gi"),
        (
            sizing(largest="700Mi"),
            "digits-worker-0 was OOMKilled at 512Mi: worker gets 700Mi, the most: the largest machine for "
            "worker, m3, has 700Mi",
        ),
    ],
)
def test_growth_is_told(known: Sizing, told: str) -> None:
    growth = known.growth(KILLED)
    assert growth is not None
    assert growth.sentence == told


def carried_out(growth: Growth) -> Sizing:
    done = plan(growth.plan, memory={growth.role: growth.memory}, phase="Succeeded")
    return sizing(done, resource_=resource(resources={growth.role: {"memory": growth.memory}}))


@given(limit=st.integers(1, 2**16), late=st.lists(st.integers(0, 1), max_size=5))
def test_pods_that_still_had_the_old_limit_never_grow_it_again(limit: int, late: list[int]) -> None:
    """However many of them die, with whatever name, before the plan, during it, or after it."""
    memory = str(Bytes(limit << 20))
    growth = sizing().growth(oom(0, memory=memory))
    if growth is None:
        assert Bytes(limit << 20) >= Bytes.parse("64Gi")
        return
    begun = sizing(plan(growth.plan, memory={growth.role: growth.memory}))
    for relaunch, index in enumerate(late, start=1):
        again = oom(index, relaunch, memory=memory)
        assert begun.growth(again) is None
        assert carried_out(growth).growth(again) is None
        assert begun.is_coming(again)
        assert not carried_out(growth).is_coming(again)
