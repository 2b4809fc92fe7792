"""Whole jobs: pods that are processes, through the API of devcluster or of a real control plane."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import Any

import pytest

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, Phase
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, PlanPhase
from elasticjob.controllers.elasticjob import obstacles
from elasticjob.controllers.parts import names
from elasticjob.controllers.passes import upkeep
from elasticjob.kube.errors import TooManyRequests
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import (
    CONFIG_MAP,
    NETWORK_POLICY,
    NODE,
    POD,
    POD_DISRUPTION_BUDGET,
    ROLE,
    ROLE_BINDING,
    SECRET,
    SERVICE,
    SERVICE_ACCOUNT,
)
from lab.clusters.accounts import without_right
from lab.jobs.site import Site, Stage
from lab.jobs.whole import container, local, role
from lab.waiting import until

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.story]

MASTER_THAT_SUCCEEDS = """
import json, os
words = {"verdict": "Succeeded", "reason": "Trained", "message": "97.8 % after 3 epochs"}
open(os.environ["ELASTICJOB_TERMINATION_LOG"], "w").write(json.dumps(words))
"""


AIMED = {"digits": True, "digits-master": True}
OWNED: list[tuple[Kind[Any], str]] = [
    (SERVICE, "digits-master"),
    (SERVICE, "digits"),
    (CONFIG_MAP, "digits-master-state"),
    (ROLE, "digits-master"),
    (ROLE_BINDING, "digits-master"),
    (NETWORK_POLICY, "digits"),
    (POD_DISRUPTION_BUDGET, "digits"),
    (SERVICE_ACCOUNT, "digits-master"),
    (SECRET, "digits-token"),
]


async def test_pods_that_succeed_complete_the_job(site: Site) -> None:
    await site.apply(local(program="print('done')"))
    await site.until(lambda: site.job().status.phase is Phase.SUCCEEDED)
    assert site.condition("Complete") == ("True", "PodsSucceeded", "all pods that train have succeeded")
    assert site.condition("Succeeded") == site.condition("Complete")
    assert site.condition("Running")[:2] == ("False", "JobFinished")
    assert site.job().status.completion_time is not None
    assert site.job().status.replica_statuses["worker"].succeeded == 2


async def test_the_main_container_alone_ends_a_node(site: Site) -> None:
    spec = local(replicas=1, program="print('done')")
    containers = spec["replicaSpecs"]["worker"]["template"]["spec"]["containers"]
    containers.insert(0, {**container(), "name": "proxy"})
    await site.apply(spec)
    await site.until(lambda: site.job().status.phase is Phase.SUCCEEDED)
    await site.until(lambda: not site.pods())  # the other container went on, and cleanPodPolicy is Running


async def test_metrics_show_the_phase_and_the_first_step(site: Site) -> None:
    registry = site.operator.metrics.registry
    running = {"job_namespace": site.namespace, "phase": "Running"}
    first_steps = "elasticjob_time_to_first_step_seconds_count"
    before = registry.get_sample_value(first_steps) or 0

    await site.apply(local())
    await until(lambda: registry.get_sample_value("elasticjob_jobs", running) == 1, "a running job is shown")
    step: Manifest = {"status": {"training": {"step": 1}}}
    await site.client.merge_patch(ELASTICJOB, "digits", step, site.namespace, subresource="status")
    await until(lambda: registry.get_sample_value(first_steps) == before + 1, "its first step is counted")


async def test_a_plan_and_an_autoscaler_agree_on_the_size(site: Site) -> None:
    """An autoscaler scales the JobResource: the spec of the job stays as its user wrote it."""
    await site.apply(local(replicas=2, minReplicas=1, maxReplicas=4))
    await site.until(lambda: len(site.running()) == 2)
    spec = {"ownerJob": "digits", "removePods": ["digits-worker-0"]}
    plan = {"metadata": {"name": "fewer", "namespace": site.namespace}, "spec": spec}
    await site.client.create(SCALEPLAN, plan)
    await site.until(lambda: site.plans()["fewer"].status.phase is PlanPhase.SUCCEEDED)
    await site.until(lambda: site.pods().keys() == {"digits-worker-1"})
    assert site.plans()["fewer"].status.changes == ["worker replicas 2 to 1", "digits-worker-0 removed"]
    scale = await site.scale_of_nodes()
    assert scale == (1, 1, "elasticjob.dlrover/name=digits,elasticjob.dlrover/replica-type=worker")
    await site.scale_of_nodes(3)
    await site.until(lambda: site.running() == {"digits-worker-0", "digits-worker-1", "digits-worker-2"})
    await site.until(lambda: site.job().status.workers == "3/3")

    async def tells_three() -> bool:
        return (await site.scale_of_nodes())[:2] == (3, 3)

    await until(tells_three, "the JobResource's status has followed")
    await site.scale_of_nodes(5)
    await site.until(lambda: site.job().status.workers == "4/4" and len(site.pods()) == 4)  # its maximum
    assert site.job().spec.replica_specs["worker"].replicas == 2
    for _ in range(2):
        await site.scale(2)  # which the spec says already
    await site.until(lambda: site.job().status.workers == "2/2" and len(site.pods()) == 2)
    again = {plan.spec.reason for name, plan in site.plans().items() if "-user-" in name}
    assert again == {"the user asks for worker 2 again"}  # once or twice: the second may come after the first


async def test_a_job_resource_of_another_name_is_a_request_and_says_what_became_of_it(site: Site) -> None:
    def found(which: str) -> JobResource:
        one = site.operator.cache(JOBRESOURCE).get(Key(site.namespace, which))
        assert one is not None
        return one

    await site.apply(local(replicas=1, minReplicas=1, maxReplicas=3))
    await site.until(lambda: len(site.running()) == 1)
    asked = {"selector": {"name": "digits"}, "worker": {"replicas": 2}}
    made = {"metadata": {"name": "bigger", "namespace": site.namespace}, "spec": asked}
    await site.client.create(JOBRESOURCE.untyped(), made)
    await site.until(lambda: len(site.running()) == 2)
    await site.until(lambda: found("bigger").status.observed_generation == 1)
    assert [(each.type, each.status) for each in found("bigger").status.conditions] == [("Ready", "True")]
    resized = [{"name": "digits-worker-0", "resource": {"memory": 256}}]
    patch = {"spec": {"worker": None, "resource_updation": resized}}
    await site.client.merge_patch(JOBRESOURCE.untyped(), "bigger", patch, site.namespace)
    await site.until(lambda: found("bigger").status.observed_generation == 2)
    assert [node.resource for node in found("digits").spec.nodes] == [{"memory": "256Mi"}]
    assert site.plans().keys() == {"digits-request-bigger-1", "digits-request-bigger-2"}


async def test_suspend_frees_pods_and_resume_brings_them_back(site: Site) -> None:
    await site.apply(local())
    await site.until(lambda: len(site.running()) == 2)
    await site.patch({"suspend": True})
    await site.until(lambda: site.condition("Suspended")[0] == "True" and not site.pods())
    assert site.job().status.phase is Phase.SUSPENDED
    assert site.job().status.start_time is None
    await site.patch({"suspend": False})
    await site.until(lambda: len(site.running()) == 2 and site.job().status.phase is Phase.RUNNING)
    assert site.condition("Suspended") == ("False", "JobResumed", "the job is not suspended")


async def test_a_machine_that_is_cordoned_is_made_up_for_beforehand(site: Site) -> None:
    await site.apply({"replicaSpecs": {"worker": role(1)}})
    await site.until(lambda: site.running() >= {"digits-master-0", "digits-worker-0"})
    machine = site.pods()["digits-worker-0"].spec.node_name
    await site.client.merge_patch(NODE, machine, {"spec": {"unschedulable": True}})
    try:
        await site.until(lambda: "digits-worker-1" in site.pods())
        await site.event(f"digits-worker-1 is made beforehand for digits-worker-0: {machine} is cordoned")
        assert site.pods()["digits-worker-1"].metadata.annotations[names.STANDS_IN] == "0"
        assert "digits-worker-0" in site.running()
    finally:
        await site.client.merge_patch(NODE, machine, {"spec": {"unschedulable": None}})


@pytest.mark.plane  # devcluster keeps no disruption budgets
async def test_an_eviction_is_held_until_another_node_is_ready(site: Site) -> None:
    about = {"name": "digits-worker-0", "namespace": site.namespace}
    eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": about}

    async def evicted() -> bool:
        try:
            await site.client.post(POD, "digits-worker-0", "eviction", eviction, site.namespace)
        except TooManyRequests:
            return False
        return True

    await site.apply({"replicaSpecs": {"worker": role(1)}})
    await site.until(lambda: site.running() >= {"digits-master-0", "digits-worker-0"})
    await until(lambda: counted(site, healthy=1, allowed=0), "one is counted")
    assert not await evicted()
    await site.patch({"replicaSpecs": {"worker": {"spares": 1}}})
    await until(lambda: counted(site, healthy=2, allowed=1), "a spare is counted")
    assert await evicted()


async def counted(site: Site, *, healthy: int, allowed: int) -> bool:
    """Whether the disruption controller has counted so."""
    found = await site.client.find(POD_DISRUPTION_BUDGET.untyped(), "digits", site.namespace)
    status = (found or {}).get("status", {})
    return (status.get("currentHealthy"), status.get("disruptionsAllowed")) == (healthy, allowed)


async def test_a_budget_that_a_user_has_made_stays_as_it_is(site: Site) -> None:
    spec = {"minAvailable": 2, "selector": {"matchLabels": {"app": "web"}}}
    about = {"name": "digits", "namespace": site.namespace}
    made = await site.client.create(POD_DISRUPTION_BUDGET.untyped(), {"metadata": about, "spec": spec})
    await site.apply({"replicaSpecs": {"worker": role(1)}})
    await site.event("evictions are not held: PodDisruptionBudget digits exists", "NameTaken")
    found = await site.client.get(POD_DISRUPTION_BUDGET.untyped(), "digits", site.namespace)
    names = ("uid", "generation", "ownerReferences", "labels", "annotations")  # a cluster writes its status
    of = [{name: each["metadata"].get(name) for name in names} for each in (found, made)]
    assert (found["spec"], of[0]) == (made["spec"], of[1])


async def test_a_network_policy_comes_and_goes_with_its_field(site: Site) -> None:
    await site.apply({"replicaSpecs": {"worker": role(1)}})
    await site.until(lambda: "digits-worker-0" in site.running())
    await site.patch({"networkPolicy": False})
    await site.has_only(NETWORK_POLICY)
    await site.patch({"networkPolicy": True})
    await site.has_only(NETWORK_POLICY, "digits")


async def test_a_master_that_is_killed_is_made_again(site: Site) -> None:
    crash = "import os, signal; os.kill(os.getpid(), signal.SIGKILL)"
    master = {"template": {"spec": {"containers": [container(crash)]}}}
    await site.apply({"replicaSpecs": {"worker": role(1), "dlrover-master": master}})
    await site.until(lambda: "digits-master-0-2" in site.pods())
    assert site.job().status.phase is not Phase.FAILED
    await site.event("digits-master-0-1 replaces digits-master-0: killed by SIGKILL")


async def test_the_masters_verdict_ends_the_job_and_running_pods_go(site: Site) -> None:
    master = {"template": {"spec": {"containers": [container(MASTER_THAT_SUCCEEDS)]}}}
    await site.apply({"replicaSpecs": {"worker": role(1), "dlrover-master": master}})
    await site.until(lambda: site.job().status.phase is Phase.SUCCEEDED)
    assert site.condition("Complete") == ("True", "Trained", "97.8 % after 3 epochs")
    await site.until(lambda: site.pods().keys() == {"digits-master-0"})


NO_CONFIG_MAP = {"envFrom": [{"configMapRef": {"name": "nothing"}}]}
NO_CLAIM = {"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "nothing"}}]}


STUCK: dict[str, tuple[Manifest, Manifest, str, str]] = {
    "settings": (NO_CONFIG_MAP, {}, "CreateContainerConfigError", 'configmap "nothing" not found'),
    "claim": ({}, NO_CLAIM, "VolumeMissing", 'persistentvolumeclaim "nothing" not found'),
    "machine": ({}, {"nodeSelector": {"gpu": "h200"}}, "Unschedulable", "0/"),
    "image": ({"image": "no.such/image:1"}, {}, "ImagePullBackOff", "no.such/image:1"),
}
"""Jobs whose pods cannot run: what is different in the container and in the pod, the reason and its words."""


async def test_why_pods_do_not_run_is_told_where_people_look(site: Site) -> None:
    for name, (main, pod, _, _) in STUCK.items():
        worker = {"replicas": 1, "template": {"spec": {"containers": [container() | main], **pod}}}
        await site.apply({"distributionStrategy": "Local", "replicaSpecs": {"worker": worker}}, name=name)
    for name, (_, _, reason, words) in STUCK.items():
        await site.until(partial(_has_reason, site, name, reason))
        status, _, message = site.condition("Running", name)
        assert (status, words in message) == ("False", True), message
        await site.event(words, reason, name)


async def test_a_volume_that_is_missing_is_told_when_the_start_takes_too_long(
    site: Site, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kubelet tells it in events of the pod only."""
    monkeypatch.setattr(obstacles, "SLOW", timedelta(seconds=1))
    spec = local(replicas=1)
    about = {"name": "something", "namespace": site.namespace}
    await site.client.create(CONFIG_MAP.untyped(), {"metadata": about})
    volumes = [{"name": name, "configMap": {"name": name}} for name in ("something", "nothing")]
    spec["replicaSpecs"]["worker"]["template"]["spec"]["volumes"] = volumes
    await site.apply(spec)
    await site.until(lambda: site.job().status.reason == "VolumeMissing")
    assert "has not started the pod: there is no ConfigMap nothing" in site.condition("Running")[2]
    await site.event("ConfigMap nothing", "VolumeMissing")


async def test_a_failing_init_container_is_named_with_its_code(site: Site) -> None:
    init = {"name": "fetch", "image": "python:3", "command": ["python", "-c", "exit(3)"]}
    worker = role(1, restartCount=0)
    worker["template"]["spec"]["initContainers"] = [init]
    await site.apply({"distributionStrategy": "Local", "replicaSpecs": {"worker": worker}})
    await site.until(lambda: site.job().status.phase is Phase.FAILED)
    assert site.job().status.reason == "InitContainerFailed"
    assert "init container fetch: exit code 3" in site.condition("Failed")[2]


async def test_a_foreign_pod_in_the_way_is_told(site: Site) -> None:
    spec = {"containers": [container()], "nodeSelector": {"no": "where"}}
    foreign = {"metadata": {"name": "digits-worker-0", "namespace": site.namespace}, "spec": spec}
    await site.client.create(POD, {"apiVersion": "v1", "kind": "Pod", **foreign})
    await site.apply(local(replicas=1))
    await site.until(lambda: site.job().status.reason == "NameTaken")
    assert "Pod digits-worker-0 exists" in site.condition("Running")[2]
    await site.event("Pod digits-worker-0 exists", "NameTaken")
    await site.client.delete(POD, "digits-worker-0", site.namespace, grace=0)


async def test_services_select_pods_once_there_are_addresses(site: Site) -> None:
    """Before, each change of a pod would have the control plane write lists with no address in them."""
    waiting = {"template": {"spec": {"containers": [container()], "nodeSelector": {"no": "where"}}}}
    await site.apply({"replicaSpecs": {"worker": role(1), "dlrover-master": waiting}})
    await site.until(lambda: site.services() == {"digits": True, "digits-master": False})
    await site.patch({"suspend": True})
    somewhere = {"dlrover-master": {"template": {"spec": {"nodeSelector": None}}}}
    await site.patch({"replicaSpecs": somewhere, "suspend": False})
    await site.until(lambda: site.services() == {"digits": True, "digits-master": True})


async def test_a_foreign_service_in_the_way_keeps_the_job_from_beginning(site: Site) -> None:
    foreign = {"metadata": {"name": "digits", "namespace": site.namespace}, "spec": {"clusterIP": "None"}}
    await site.client.create(SERVICE, {"apiVersion": "v1", "kind": "Service", **foreign})
    await site.apply(local(replicas=1))
    await site.until(lambda: site.job().status.reason == "NameTaken")
    assert not site.pods()
    await site.client.delete(SERVICE, "digits", site.namespace)
    await site.until(lambda: len(site.running()) == 1)


async def test_a_plan_gives_running_pods_more_memory_in_place(site: Site) -> None:
    await site.apply(local(memory="128Mi"))
    await site.until(lambda: len(site.running()) == 2)
    before = {name: pod.metadata.uid for name, pod in site.pods().items()}
    spec = {"ownerJob": "digits", "replicaResourceSpecs": {"worker": {"resource": {"memory": "192Mi"}}}}
    plan = {"metadata": {"name": "more", "namespace": site.namespace}, "spec": spec}
    await site.client.create(SCALEPLAN, plan)
    await site.until(lambda: site.plans()["more"].status.phase is PlanPhase.SUCCEEDED)
    assert {name: pod.metadata.uid for name, pod in site.pods().items()} == before
    limits = [pod.spec.containers[0].resources.limits for pod in site.pods().values()]
    assert limits == [{"memory": "192Mi"}] * 2
    assert [owner.name for owner in site.plans()["more"].metadata.owner_references] == ["digits"]


async def test_a_finished_job_is_deleted_after_its_time(site: Site) -> None:
    await site.apply(local(replicas=1, program="print('done')"))
    await site.until(lambda: site.job().status.phase is Phase.SUCCEEDED)
    await site.patch({"runPolicy": {"ttlSecondsAfterFinished": 1}})
    await site.until(lambda: not site.operator.cache(ELASTICJOB).list(site.namespace) and not site.pods())


async def test_a_job_that_runs_too_long_fails(site: Site) -> None:
    await site.apply(local(replicas=1) | {"runPolicy": {"activeDeadlineSeconds": 1}})
    await site.until(lambda: site.job().status.phase is Phase.FAILED)
    assert site.condition("Failed")[1] == "DeadlineExceeded"
    await site.until(lambda: not site.running())


async def test_a_job_that_no_machine_fits_fails_when_its_patience_ends(site: Site) -> None:
    spec = local(replicas=1)
    spec["replicaSpecs"]["worker"]["template"]["spec"]["nodeSelector"] = {"gpu": "h200"}
    await site.apply(spec)
    cause = "digits-worker-0 is pending: Unschedulable: 0/"
    await site.until(lambda: cause in site.condition("Running")[2])  # a busy scheduler says so late
    await site.patch({"runPolicy": {"pendingTimeoutSeconds": 1}})
    await site.until(lambda: site.job().status.phase is Phase.FAILED)
    assert site.job().status.reason == "PendingTimeout"
    assert cause in site.condition("Failed")[2]


async def test_a_namesake_waits_until_the_old_job_is_gone(site: Site) -> None:
    await site.apply(local())
    await site.until(lambda: len(site.running()) == 2)
    old = {pod.metadata.uid for pod in site.pods().values()}
    await site.client.delete(ELASTICJOB, "digits", site.namespace)
    await site.until(lambda: not site.operator.cache(ELASTICJOB).list(site.namespace))
    await site.apply(local())
    await site.until(
        lambda: len(site.running()) == 2 and not old & {p.metadata.uid for p in site.pods().values()}
    )
    await site.until(lambda: site.job().status.phase is Phase.RUNNING)


async def test_somebody_elses_job_is_not_touched(site: Site) -> None:
    await site.apply(local() | {"managedBy": "kueue.x-k8s.io/multikueue"}, name="theirs")
    await site.apply(local())
    await site.until(lambda: len(site.running()) == 2)
    assert site.job("theirs").status.manifest() == site.job("theirs").status.model_validate({}).manifest()
    assert not any(name.startswith("theirs") for name in site.pods())


async def test_a_world_has_nodes_of_one_template(site: Site) -> None:
    """A job that was suspended, changed and resumed while no operator looked kept its old pods."""
    await site.apply(local())
    await site.until(lambda: len(site.running()) == 2)
    old, worlds = {pod.metadata.uid for pod in site.pods().values()}, set[frozenset[bool]]()

    def look(_: object) -> None:
        alive = [pod for pod in site.pods().values() if pod.status.phase in ("Pending", "Running")]
        worlds.add(frozenset(pod.metadata.uid in old for pod in alive))

    site.operator.cache(POD).subscribe(look)
    made = {"metadata": {"annotations": {names.MADE_FROM: "another template"}}}
    await site.client.merge_patch(JOBRESOURCE, "digits", made, site.namespace)
    await site.client.delete(POD, "digits-worker-1", site.namespace)
    await site.until(lambda: len(site.running()) == 2 and frozenset({False}) in worlds)
    assert frozenset({True, False}) not in worlds
    assert site.job().status.restarts == 0


async def test_what_a_job_is_made_of_comes_back(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its master goes on under its address, and a node that is lost afterwards is replaced."""
    monkeypatch.setattr(upkeep, "EVERY", timedelta(seconds=1))
    await site.apply({"replicaSpecs": {"worker": role(2)}})
    await site.until(lambda: len(site.running()) == 3 and site.services() == AIMED)
    address = (await site.client.get(SERVICE, "digits-master", site.namespace)).spec.cluster_ip
    for kind, name in OWNED:
        found: dict[str, Any] = {}

        async def is_back(kind: Any = kind, name: str = name, found: dict[str, Any] = found) -> bool:
            there = await site.client.find(kind, name, site.namespace)
            return there is not None and there.metadata.uid != found.setdefault("uid", there.metadata.uid)

        await until(partial(_is_there, site, kind, name), f"there is a {kind.name}")
        await is_back()
        await site.client.delete(kind, name, site.namespace)
        touch = {"metadata": {"annotations": {"deleted": f"{kind.name}-{name}"}}}
        await site.client.merge_patch(ELASTICJOB, "digits", touch, site.namespace)
        await until(is_back, f"{kind.name} {name} is back")
        await site.until(lambda: len(site.running()) == 3)
    await site.until(lambda: site.services() == AIMED)
    assert (await site.client.get(SERVICE, "digits-master", site.namespace)).spec.cluster_ip == address
    lost = site.pods()["digits-worker-1"]
    await site.client.delete(POD, "digits-worker-1", site.namespace)
    await site.until(lambda: len(site.running()) == 3 and lost not in site.pods().values())
    (other,) = site.pods().keys() - {"digits-master-0", "digits-worker-0"}
    assert other in ("digits-worker-1", "digits-worker-1-1")  # whether the old one's end was seen


async def test_restarts_of_the_operator_change_nothing(site: Site, stage: Stage) -> None:
    await site.apply(local())
    await site.until(lambda: len(site.running()) == 2 and site.job().status.workers == "2/2")
    await site.until(lambda: _ready(site))
    before = await _versions(site)
    await stage.stop()
    await stage.start()
    site.operator = stage.operator
    await site.apply(local(replicas=1), name="other")
    await site.until(lambda: site.job("other").status.phase is Phase.RUNNING)
    assert {key: version for key, version in (await _versions(site)).items() if "other" not in key} == before


async def test_a_right_that_the_operator_lacks_is_told_and_waited_for(site: Site) -> None:
    async with without_right(site.client, "services", "create", site.namespace):
        await site.apply({"replicaSpecs": {"worker": role(1)}})
        await site.until(lambda: 'cannot create resource "services"' in site.condition("Running")[2])
    touch = {"metadata": {"annotations": {"looked-at": "again"}}}  # it would look again by itself, later
    await site.client.merge_patch(ELASTICJOB, "digits", touch, site.namespace)
    await site.until(lambda: site.running() >= {"digits-master-0", "digits-worker-0"})


async def _is_there(site: Site, kind: Any, name: str) -> bool:
    return await site.client.find(kind, name, site.namespace) is not None


def _has_reason(site: Site, name: str, reason: str) -> bool:
    return site.job(name).status.reason == reason


def _ready(site: Site) -> bool:
    (resource,) = site.operator.cache(JOBRESOURCE).list(site.namespace)
    return any(c.type == "Ready" and c.status == "True" for c in resource.status.conditions)


async def _versions(site: Site) -> dict[str, str]:
    kinds: tuple[Any, ...] = (ELASTICJOB, JOBRESOURCE, POD, SERVICE)
    return {
        f"{kind.name}/{found.metadata.name}": found.metadata.resource_version
        for kind in kinds
        for found in await site.client.list(kind, site.namespace)
    }
