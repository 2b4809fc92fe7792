"""Admission, operator, master and Brain count alike: what one allows, no other cuts, and a world forms."""

from __future__ import annotations

import os
from dataclasses import replace
from datetime import timedelta
from typing import Any

from hypothesis import assume, event, given, settings
from hypothesis import strategies as st

from elasticjob.api.resources import Resources
from elasticjob.api.sizes.change import Change, Group
from elasticjob.api.sizes.facts import Stage
from elasticjob.api.v1alpha1.checks import elasticjob as of_jobs
from elasticjob.api.v1alpha1.checks import scaleplan as of_plans
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlan
from elasticjob.api.v1alpha1.sizing import facts_of, placement_of
from elasticjob.controllers.elasticjob.objects import job_resource
from elasticjob.controllers.scaleplan.fold import Impossible, fold
from elasticjob.kube.objects.kinds import Key
from elasticjob.master.cluster.cluster import spec_of
from elasticjob.master.scalers.scaleplan import manifest
from elasticjob.master.state.job import Limits
from elasticjob.sizing.algorithm import Decider
from elasticjob.sizing.bounds import bound
from elasticjob.sizing.decide import decide
from elasticjob.sizing.facts import Event, Facts
from elasticjob.sizing.table import ALGORITHMS
from lab.build.jobs import NOW, job, plan, role
from lab.build.sizing import samples, use

DRAWS = int(os.environ.get("AGREEMENT_DRAWS", "150"))
SIDECAR = {"name": "logs", "image": "logs", "resources": {"requests": {"cpu": "500m"}}}
AMOUNTS = st.sampled_from([None, "1", "2500m", "7"])


@st.composite
def jobs(draw: st.DrawFn) -> ElasticJob:
    """Return a job of workers, maybe with a chief and servers, as a user may write it."""
    cpu = draw(AMOUNTS)
    main = {"resources": {"requests": {"cpu": cpu}}} if cpu else {}
    beside = [SIDECAR] if draw(st.booleans()) else []
    least = draw(st.sampled_from([None, 0, 1, 2, 3, 5]))
    most = draw(st.none() | st.integers(max(least or 0, 1), 12))
    count = draw(st.none() | st.integers(least or 0, 12 if most is None else most))
    named = {"minReplicas": least, "maxReplicas": most, "autoScale": draw(st.sampled_from([None, False]))}
    worker = role(count, **{name: value for name, value in named.items() if value is not None})
    worker["template"] = {"spec": {"containers": [{"name": "main", "image": "train", **main}, *beside]}}
    roles = {"worker": worker}
    strategy = draw(st.sampled_from(["AllreduceStrategy", "ParameterServerStrategy"]))
    if strategy == "ParameterServerStrategy":
        roles["ps"] = role(draw(st.none() | st.integers(1, 3)))
        roles |= {"chief": role(1)} if draw(st.booleans()) else {}
    limits = draw(st.sampled_from([{}, {}, {"cpu": "20"}, {"cpu": "60", "memory": "256Gi"}]))
    unit = draw(st.sampled_from([1, 1, 2, 3, 4]))
    return job(
        roles, nodeUnit=unit, resourceLimits=limits, optimizeMode="single-job", distributionStrategy=strategy
    )


def facts(of: ElasticJob, resource: JobResource, **more: Any) -> Facts:
    return Facts(facts_of(of), placement_of(resource), Stage.RUNNING, NOW, **more)


def carried_out(of: ElasticJob, resource: JobResource, change: ScalePlan) -> JobResource:
    """Return the JobResource after a plan. Raises Impossible."""
    spec = fold(of, resource, change).manifest()
    return JOBRESOURCE.convert({**resource.manifest(), "spec": {**resource.manifest()["spec"], **spec}})


def proposed(of: ElasticJob, change: Change) -> ScalePlan:
    return SCALEPLAN.convert(manifest(Key("ml", "digits"), "digits-auto-1", change))


def sizes(resource: JobResource) -> dict[str, int]:
    return dict(placement_of(resource).sizes)


def a_world_forms(of: ElasticJob, resource: JobResource) -> None:
    """All nodes that should train do: the master's largest world of them has them all."""
    spec, now = spec_of(of, Limits()), sizes(resource)
    count = sum(now.get(each, 0) for each in spec.roles)
    if count and set(spec.roles) <= set(now) and now.get("worker") != 0:
        assert count == spec.bounds.clamp(count) <= spec.most, f"{now} under {spec.bounds}"


@settings(max_examples=DRAWS, deadline=None)
@given(of=jobs(), asked=st.integers(0, 14), wanted=st.integers(0, 100), data=st.data())
def test_all_programs_agree(of: ElasticJob, asked: int, wanted: int, data: st.DataObject) -> None:
    if of_jobs.problems(of):
        event("refused at admission")
        assume(False)
    resource = JOBRESOURCE.convert(job_resource(of).manifest)
    a_world_forms(of, resource)
    start = decide(
        Facts(facts_of(of), placement_of(resource), Stage.CREATE, NOW),
        Event.START,
        Decider.MASTER,
        ALGORITHMS,
    ).change
    if start:
        resource = carried_out(of, resource, proposed(of, start))
        assert all(sizes(resource)[role] == group.count for role, group in start.groups.items())
        a_world_forms(of, resource)
    # a user's plan: what admission allows is carried out, as the next lower number that is allowed
    mine, range_ = plan("mine", {"worker": asked}, manual=True), of.spec.range_of("worker")
    admitted = not of_plans.problems(mine, job=of)
    assert admitted <= range_.allows(asked)
    try:
        after = carried_out(of, resource, mine)
    except Impossible:
        event("impossible")
        after = resource
    else:
        assert not admitted or sizes(after)["worker"] <= asked
        assert not admitted or sizes(after)["worker"] == range_.clamp(asked) or of.spec.resource_limits
        assert range_.clamp(sizes(after)["worker"]) == sizes(after)["worker"]
    a_world_forms(of, after)
    # an optimizer's change: what its bounds leave, the operator carries out as it is
    room = data.draw(st.sampled_from([None, {"worker": 3}, {"worker": 40}]))
    base = facts_with(facts(of, after), room)
    offer = Change({"worker": Group(wanted, Resources.parse({"cpu": "2"}))}, reason="because")
    for change in (bound(base, offer), *(decided(base, by) for by in Decider)):
        if not change:
            continue
        event(f"changes {sorted(change.groups)}")
        then = carried_out(of, after, proposed(of, change))
        assert not of_plans.problems(proposed(of, change), job=of) or of.spec.resource_limits
        for name, group in change.groups.items():
            assert group.count is None or sizes(then)[name] == group.count
        a_world_forms(of, then)


def facts_with(base: Facts, room: dict[str, int] | None) -> Facts:
    """Return the facts of a job that trains with all its workers, each busy, for an hour."""
    now = base.count("worker") + (base.count("chief") if "chief" in base.roles else 0)
    found = samples((now, 10.0), uses=(use("worker", cpu=1.9, of=2, memory=1),)) if now else ()
    return replace(base, placed=base.placed.but(room=room), samples=found, now=NOW + timedelta(hours=1))


def decided(base: Facts, by: Decider) -> Change:
    return decide(base, Event.IDLE, by, ALGORITHMS).change
