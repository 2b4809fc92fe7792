"""What goes wrong in users' hands, one story each: the job says what happened, budgets hold, training lives.

Everything is real: the cluster, the operator as a process, masters, agents.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, Phase
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, PlanPhase
from elasticjob.kube.errors import Invalid
from elasticjob.kube.objects.kinds import Manifest
from lab.clusters.webhooks import heeded
from lab.jobs.job import Stage, role, submitted
from lab.jobs.site import Site
from lab.jobs.whole import WAITS, local

pytestmark = [pytest.mark.story, pytest.mark.asyncio(loop_scope="module")]

FAILS = "raise ValueError('no data')"
EATS = "import os, signal; food = b'x' * (60 << 20); "
HUNGRY = EATS + "signal.pause()"
"""Needs more than 60Mi, until it is noticed."""
HUNGRY_ONCE = EATS + "os.environ['POD_NAME'].endswith('worker-0') and signal.pause()"
"""In its second life it ends by itself."""


# pods that cannot run


async def test_an_image_that_cannot_start_is_named_and_the_corrected_job_runs(site: Site) -> None:
    job = await submitted(site, local(role(["train"], image="registry.example/trianer:1")))
    await site.until(lambda: "ImagePullBackOff: registry.example/trianer:1" in job.condition("Running")[2])
    assert job.condition("Running")[:2] == ("False", "Pending")
    assert (job.status.phase, job.status.restarts, job.status.workers) == (Phase.PENDING, 0, "0/1")
    assert job.born.keys() == {"worker-0"}
    await site.client.delete(ELASTICJOB, "digits", site.namespace)
    await site.until(lambda: not site.pods() and not site.operator.cache(ELASTICJOB).list(site.namespace))
    await site.apply(local(replicas=1, program="print('hello')"))
    await site.until(job.has_ended("Complete"))


async def test_a_command_that_does_not_exist_fails_the_job_by_its_name(site: Site) -> None:
    job = await submitted(site, local(role(["trian.py"], restartCount=3)))
    await site.until(job.has_ended("Failed"))
    _, reason, message = job.condition("Failed")
    assert reason == "CannotStart"
    assert message.startswith("digits-worker-0-1 failed with exit code 128: ")
    assert 'exec: "trian.py": executable file not found in $PATH' in message
    assert message.endswith("; another start would fail in the same way")
    assert job.status.restarts == 1


# programs that fail


async def test_a_program_that_fails_at_once_is_restarted_as_often_as_allowed(site: Site) -> None:
    job = await submitted(site, local(replicas=1, program=FAILS, restartCount=2))
    await site.until(job.has_ended("Failed"))
    _, reason, message = job.condition("Failed")
    assert reason == "RestartsSpent"
    assert (
        message == "digits-worker-0-2 failed with exit code 1: ValueError: no data; restartCount 2 is spent"
    )
    assert (job.status.phase, job.status.restarts) == (Phase.FAILED, 2)
    lives = ("worker-0", "worker-0-1", "worker-0-2")
    assert {name: len(uids) for name, uids in job.born.items()} == dict.fromkeys(lives, 1)


@pytest.mark.parametrize("error", ["ValueError: no data", "RuntimeError: mat1 and mat2 do not fit"])
async def test_a_script_under_the_agent_fails_with_its_last_error(site: Site, error: str) -> None:
    kind, words = error.split(": ")
    command = ["elasticjob", "run", "--no-python", "python", "-c", f"raise {kind}({words!r})"]
    job = await submitted(site, {"replicaSpecs": {"worker": role(command, restartCount=3)}})
    await site.until(job.has_ended("Failed"))
    _, reason, message = job.condition("Failed")
    assert reason == "CannotStart"  # a script that fails twice without any progress would do so anywhere
    assert error in message
    two = {"master-0", "worker-0"}
    assert two <= job.born.keys() <= {*two, "worker-0-1"}  # made before the verdict is seen
    await site.event(f"digits-worker-0: worker 0 ended with exit code 1: {error} (<string>:1 in <module>)")
    await site.until(lambda: job.status.restarts == len(job.born) - 1)


async def test_a_failed_job_leaves_ended_pods_for_their_logs(site: Site) -> None:
    kept = {"worker-0", "worker-0-1"}
    program = f"import os; os.environ['ELASTICJOB_INDEX'] == '0' and exit('no data'); {WAITS}"
    policy = {"runPolicy": {"cleanPodPolicy": "Running"}}
    job = await submitted(site, local(program=program, restartCount=1) | policy)
    await site.until(job.has_ended("Failed"))
    await site.until(lambda: job.pods().keys() == kept and not job.running())


# memory


async def test_out_of_memory_is_told_with_the_limit_and_spends_the_budget(site: Site) -> None:
    greedy = local(replicas=1, program=HUNGRY, memory="48Mi", restartCount=1)
    job = await submitted(site, greedy | {"optimizeMode": "manual"})
    await site.until(job.has_ended("Failed"))
    await site.event("digits-worker-0-1 replaces digits-worker-0: OOMKilled at 48Mi")
    sentence = (
        "digits-worker-0-1 failed with OOMKilled at 48Mi; restartCount 1 is spent; "
        "optimizeMode is manual, so its memory stays: raise resources.limits.memory of worker"
    )
    assert job.condition("Failed") == ("True", "OutOfMemory", sentence)
    assert job.born.keys() == {"worker-0", "worker-0-1"}
    assert site.plans() == {}


async def test_out_of_memory_gets_twice_as_much_unless_the_user_decides(site: Site) -> None:
    job = await submitted(site, local(replicas=1, program=HUNGRY_ONCE, memory="48Mi", restartCount=1))
    await site.until(job.has_ended("Complete"))
    await site.until(lambda: site.plans()["digits-worker-0-memory"].status.phase is PlanPhase.SUCCEEDED)
    plan = site.plans()["digits-worker-0-memory"]
    assert plan.spec.reason == "digits-worker-0 was OOMKilled at 48Mi: worker gets 96Mi"
    assert job.born.keys() == {"worker-0", "worker-0-1"}
    limits = job.pods()["worker-0-1"].spec.containers[0].resources.limits
    assert limits == {"memory": "96Mi"}
    assert job.status.restarts == 1


# the control plane


@pytest.mark.parametrize("moment", ["asked", "planned", "made"])
async def test_an_operator_killed_while_it_scales_up_finishes_when_it_is_back(
    site: Site, stage: Stage, moment: str
) -> None:
    job = await submitted(site, local(replicas=1, minReplicas=1, maxReplicas=6))
    reached: dict[str, Callable[[], object]] = {
        "asked": lambda: True,
        "planned": site.plans,
        "made": lambda: len(job.pods()) > 1,
    }
    await site.until(lambda: job.running() == {"worker-0"})
    await site.scale(6)
    await site.until(reached[moment])
    await stage.operator.kill()
    await stage.operator.start()
    await stage.operator.ready()
    await heeded(site.client)
    await site.until(lambda: job.status.workers == "6/6" and job.status.phase is Phase.RUNNING)
    await site.until(lambda: job.running() == {f"worker-{index}" for index in range(6)})
    await site.until(lambda: [plan.status.phase for plan in site.plans().values()] == [PlanPhase.SUCCEEDED])
    assert {name: len(uids) for name, uids in job.born.items()} == dict.fromkeys(job.running(), 1)
    assert job.status.restarts == 0


async def test_a_line_to_the_api_server_that_breaks_again_and_again_loses_nothing(
    site: Site, stage: Stage
) -> None:
    assert stage.line.cut() > 0
    job = await submitted(site, local(replicas=1, minReplicas=1, maxReplicas=6))
    stage.line.cut()
    await site.until(lambda: job.running() == {"worker-0"})
    stage.line.cut()
    await site.scale(6)
    stage.line.cut()
    await site.until(lambda: len(job.pods()) > 1)
    stage.line.cut()
    await site.until(lambda: len(job.running()) == 6)
    await site.scale(2)
    stage.line.cut()
    await site.until(lambda: job.pods().keys() == {"worker-0", "worker-1"} and job.status.workers == "2/2")
    assert all(len(uids) == 1 for uids in job.born.values())
    assert job.status.restarts == 0


# what is refused; docs/walkthrough.md has jobs that are

Refused = tuple[Manifest, str, str]
PLANS: list[Refused] = [  # above the most, and with a malformed quantity
    ({"replicas": 7}, "spec.replicaResourceSpecs[worker].replicas", "1 to 3"),
    (
        {"resource": {"memory": "4 GB"}},
        "spec.replicaResourceSpecs[worker].resource[memory]",
        "write 8Gi or 512Mi",
    ),
]
CHANGES: list[Refused] = [
    ({"distributionStrategy": "CustomStrategy"}, "distributionStrategy", "create it again"),
    ({"envs": {"A": {"value": "1"}}}, "spec.envs", "set suspend: true first"),
    ({"replicaSpecs": {"worker": {"replicas": 9}}}, "replicas", "maxReplicas"),
]


async def test_plans_and_changes_that_cannot_be_are_refused_and_change_nothing(site: Site) -> None:
    job = await submitted(site, local(replicas=1, minReplicas=1, maxReplicas=3))
    await site.until(lambda: job.status.workers == "1/1")
    before = site.job().spec
    for asked, field, advice in PLANS:
        spec = {"ownerJob": "digits", "replicaResourceSpecs": {"worker": asked}}
        with pytest.raises(Invalid) as refusal:
            await site.client.create(SCALEPLAN, {"metadata": {"name": "plan"}, "spec": spec}, site.namespace)
        check(refusal.value, field, advice)
    for patch, field, advice in CHANGES:
        with pytest.raises(Invalid) as refusal:
            await site.patch(patch)
        check(refusal.value, field, advice)
    with pytest.raises(Invalid) as refusal:
        await site.scale(9)
    check(refusal.value, "replicas", "maxReplicas")
    assert (await site.client.get(ELASTICJOB, "digits", site.namespace)).spec == before
    assert site.plans() == {}
    assert job.born.keys() == {"worker-0"}


def check(refusal: Invalid, field: str, advice: str) -> None:
    """Check that a refusal names the field, in its causes as well, and what would be right."""
    assert field in refusal.message
    assert advice in refusal.message
    assert any(field in cause["field"] for cause in refusal.details["causes"])
