"""No drift: what a user applied stays as applied, so `kubectl diff` and Argo CD have nothing to tell.

The real kubectl applies each manifest, once from the client and once on the server's side; then the job is
scaled, by `kubectl scale` and by plans of users and optimizers. Machines are cordoned: examples only wait.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
import yaml

from elasticjob.api.diengine.dijob import DIJOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, Phase
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, plan_manifest
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import NODE
from lab.clusters.installed.kubectl import Kubectl
from lab.jobs.site import Site, Stage
from lab.jobs.whole import local

KUBECTL = shutil.which("kubectl")
pytestmark = [
    pytest.mark.asyncio(loop_scope="module"),
    pytest.mark.skipif(KUBECTL is None, reason="kubectl is not on PATH"),
    pytest.mark.story,
]
OURS = {"ElasticJob", "DIJob", "AggregatorConfig", "TrainingJob"}
EXAMPLES = sorted(
    path
    for path in Path("examples").rglob("*.yaml")
    if OURS & {(each or {}).get("kind") for each in yaml.safe_load_all(path.read_text())}
)
TEMPLATE: Manifest = {"spec": {"containers": [{"name": "main", "image": "python:3.11", "command": ["true"]}]}}
MEMORY: Manifest = {
    "resources": {"requests": {"cpu": "1000m", "memory": "1024Mi"}, "limits": {"memory": "1Gi"}}
}
SIZED: Manifest = {"spec": {"containers": [TEMPLATE["spec"]["containers"][0] | MEMORY]}}


def written(kind: Kind[Any], name: str, spec: Manifest, **metadata: Any) -> Manifest:
    about = {"name": name, **metadata}
    return {"apiVersion": kind.api_version, "kind": kind.name, "metadata": about, "spec": spec}


def job(name: str, **spec: Any) -> Manifest:
    return written(ELASTICJOB, name, spec)


def cleaned(name: str, policy: str) -> Manifest:
    pod = {"containers": [{"name": "di-container", "image": "a"}]}
    return written(DIJOB, name, {"cleanPodPolicy": policy, "coordinator": {"template": {"spec": pod}}})


def roles(**given: Any) -> Manifest:
    return {role: {"template": TEMPLATE, **more} for role, more in given.items()}


OLDER: list[Manifest] = [
    job("word", distributionStrategy="allreduce", replicaSpecs=roles(worker={"replicas": 2})),
    job("servers", distributionStrategy="parameter_server", replicaSpecs=roles(ps={}, worker={})),
    job("implied", replicaSpecs=roles(ps={"replicas": 1}, worker={"replicas": 2, "maxReplicas": 4})),
    job("mode", optimizeMode="Single_Job", replicaSpecs=roles(worker={})),
    job("nought", replicaSpecs=roles(worker={"replicas": 0})),
    job("nought-of-some", replicaSpecs=roles(worker={"replicas": 0, "minReplicas": 1, "maxReplicas": 4})),
    job("none", replicaSpecs=roles(worker={"replicas": 0, "minReplicas": 0, "maxReplicas": 4})),
    job("alias", replicaSpecs=roles(master={}, worker={"replicas": 1})),
    job(
        "dlrover",
        distributionStrategy="AllreduceStrategy",
        enableElasticScheduling=True,
        enableDynamicSharding=True,
        optimizeMode="single-job",
        replicaSpecs={
            "worker": {"replicas": 1, "restartPolicy": "Always", "restartCount": 3, "template": SIZED},
            "dlrover-master": {"template": SIZED},
        },
    ),
    job(
        "easydl",
        command="python -m 'model zoo'.iris",
        image="elasticdl:iris_estimator",
        parameter_server={"image": "elasticdl:iris_estimator"},
        worker={"image": "elasticdl:iris_estimator", "command": "python work.py"},
        evaluator={"image": "elasticdl:iris_estimator"},
    ),
    written(
        JOBRESOURCE,
        "word-resource",
        {"selector": {"name": "word"}, "worker": {"replicas": 2, "resource": {"memory": 256}}},
    ),
    written(
        SCALEPLAN,
        "older-names",
        {"ownerJob": "servers", "removePods": ["servers-edljob-worker-1", {"name": "servers_ps-1"}]},
        labels={"scale-type": "manual"},
    ),
    written(
        SCALEPLAN,
        "older-field",
        {"ownerJob": "implied", "replicaResourceSpec": {"worker": {"replicas": 3}}},
    ),
    cleaned("clean-empty", ""),
    cleaned("clean-capitals", "ALL"),
]
SIDES = ("", "--server-side ")


def kubectl_in(stage: Stage, site: Site) -> Kubectl:
    """kubectl in the namespace of a test."""
    return Kubectl(Path(str(KUBECTL)), stage.place.kubeconfig, site.namespace, errors=True)  # type: ignore[attr-defined]


@pytest_asyncio.fixture(loop_scope="module")
async def kubectl(stage: Stage, site: Site) -> AsyncIterator[Kubectl]:
    """kubectl beside the operator, on machines that take no new pods."""
    nodes = [node["metadata"]["name"] for node in await stage.client.list(NODE.untyped())]
    for node in nodes:
        await stage.client.merge_patch(NODE.untyped(), node, {"spec": {"unschedulable": True}})
    made = kubectl_in(stage, site)
    yield made
    await made("delete elasticjobs,dijobs,trainingjobs --all --wait=false")
    for node in nodes:
        await stage.client.merge_patch(NODE.untyped(), node, {"spec": {"unschedulable": None}})


def examples() -> list[Manifest]:
    """The manifests of all examples, for whichever namespace they are applied to."""
    found = [each for path in EXAMPLES for each in yaml.safe_load_all(path.read_text()) if each]
    for each in found:
        each["metadata"].pop("namespace", None)
    return found


def jobs_of(text: str) -> dict[str, Manifest]:
    """The ElasticJobs among manifests, by name."""
    found = (each for each in yaml.safe_load_all(text) if each and each["kind"] == "ElasticJob")
    return {each["metadata"]["name"]: each["spec"] for each in found}


async def carried_out(site: Site, *jobs: str) -> None:
    """Wait until each job has its JobResource, and no plan is left to be begun."""
    await site.until(lambda: all(site.job(name).status.observed_generation for name in jobs))
    cache = site.operator.cache(JOBRESOURCE)
    await site.until(lambda: all(cache.get(Key(site.namespace, name)) for name in jobs))
    await site.until(lambda: all(plan.status.phase for plan in site.plans().values()))


async def plans(site: Site, name: str, spec: Manifest) -> None:
    """What a user and the job's optimizer ask for, one after the other: sizes, then memory."""
    worker = site.job(name).spec.roles["worker"].bounds
    for manual, asked in ((True, {"replicas": worker.clamp(2)}), (False, {"resource": {"memory": "96Mi"}})):
        change = {"replicaResourceSpecs": {"worker": asked}, "reason": "a test", "manualScaling": manual}
        plan = plan_manifest(
            f"{name}-{manual}".lower(), Key(site.namespace, name), change, None, manual=manual
        )
        await site.client.create(SCALEPLAN, plan)


async def test_what_the_client_applied_stays_through_defaults_scaling_and_plans(
    kubectl: Kubectl, site: Site
) -> None:
    await stays(kubectl, site, "")


async def test_what_the_server_applied_stays_through_defaults_scaling_and_plans(
    kubectl: Kubectl, site: Site
) -> None:
    await stays(kubectl, site, "--server-side ")


async def stays(kubectl: Kubectl, site: Site, side: str) -> None:
    """Apply all manifests, and let kubectl tell no difference after each thing that happens to them."""
    whole = yaml.safe_dump_all([*examples(), *OLDER])
    await kubectl(f"apply {side}-f -", given=whole)
    assert await kubectl(f"diff {side}-f -", given=whole) == ""
    jobs = jobs_of(whole)
    await carried_out(site, *jobs)
    assert await kubectl(f"diff {side}-f -", given=whole) == "", "defaults, and the operator's first pass"
    free = [
        name
        for name, spec in jobs.items()
        if "replicas" not in spec.get("replicaSpecs", {}).get("worker", {})
    ]
    assert free
    for name in free:
        await kubectl(f"scale elasticjob {name} --replicas=3")
    await carried_out(site, *jobs)
    assert await kubectl(f"diff {side}-f -", given=whole) == "", f"{free} were scaled by kubectl scale"
    for name, spec in jobs.items():
        await plans(site, name, spec)
    await carried_out(site, *jobs)
    assert {plan.spec.owner_job for plan in site.plans().values() if plan.status.changes} > set()
    assert await kubectl(f"diff {side}-f -", given=whole) == "", "plans of users and of optimizers"
    if path := os.environ.get("LIVES"):
        keep(path, await lives(kubectl, [*examples(), *OLDER]))


def keep(path: str, pairs: list[Manifest]) -> None:
    """Write them for hack/argocd-gate: LIVES=tests/argocd/lives.yaml."""
    Path(path).write_text(yaml.safe_dump(json.loads(json.dumps(pairs)), width=110))


async def lives(kubectl: Kubectl, manifests: list[Manifest]) -> list[Manifest]:
    """What was applied, and what became of it."""
    pairs = []
    for given in (each for each in manifests if "." in each["apiVersion"]):
        live = json.loads(await kubectl(f"get {given['kind']} {given['metadata']['name']} -o json"))
        namespace = live["metadata"]["namespace"]
        config = {**given, "metadata": {**given["metadata"], "namespace": namespace}}
        pairs.append({"config": config, "live": live})
    return pairs


async def test_the_end_of_a_training_leaves_no_drift(stage: Stage, site: Site) -> None:
    kubectl = kubectl_in(stage, site)
    for side in SIDES:
        ends = {
            "short": (Phase.SUCCEEDED, local(program="print('done')", replicas=1)),
            "failing": (Phase.FAILED, local(program="exit(3)", replicas=1, restartCount=0)),
        }
        for word, (phase, spec) in ends.items():
            name = f"{word}{side.strip()}"
            await kubectl(f"apply {side}-f -", given=json.dumps(job(name, **spec)))
            await site.until(lambda name=name, phase=phase: site.job(name).status.phase is phase)  # type: ignore[misc]
            assert await kubectl(f"diff {side}-f -", given=json.dumps(job(name, **spec))) == ""


async def test_a_number_as_text_is_refused(kubectl: Kubectl) -> None:
    text = json.dumps(job("text", replicaSpecs=roles(worker={"replicas": "2"})))
    assert "worker.replicas" in await kubectl("apply -f -", given=text, code=1)
