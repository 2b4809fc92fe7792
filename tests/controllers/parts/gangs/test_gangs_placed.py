"""Gangs that real schedulers place: that of Kubernetes, and that of scheduler-plugins where it is built.

No pod of a gang is bound while there is room for one of two; with room for both, both are. Each has a control
plane of its own, and nodes that kwok plays. The scheduler of scheduler-plugins is not built by this project:

    go build -o kube-scheduler ./cmd/scheduler          # in sigs.k8s.io/scheduler-plugins v0.33.5
    GANG_SCHEDULER=…/kube-scheduler pytest --kube real tests/controllers/parts/gangs/test_gangs_placed.py
"""

from __future__ import annotations

import os
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Final

import pytest
import yaml

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.controllers.install import install
from elasticjob.controllers.parts.gangs.apis import APIS
from elasticjob.kube.client.client import Client
from elasticjob.kube.crd import installing
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NODE
from lab.clusters.binaries import catalog
from lab.clusters.namespaces import new_namespace
from lab.clusters.plane import pretended
from lab.clusters.plane.controlplane import ControlPlane
from lab.jobs.site import Site, at_work
from lab.processes import Process
from tests.controllers.parts.gangs.test_gangs import CRDS, local

KNOWN: Final = catalog()
BUILT: Final = os.environ.get("GANG_SCHEDULER", "")
OF_SERVER: Final = {
    "1.35": ("scheduling.k8s.io/v1alpha1", "GenericWorkload=true,GangScheduling=true"),
    "1.37": ("scheduling.k8s.io/v1beta1", "GenericWorkload=true"),
}
"""The API and the feature gates of each server that is tested."""
ASKED: Final[dict[str, Manifest]] = {
    "1.35": {"podGroups": [{"name": "nodes", "policy": {"gang": {"minCount": 2}}}]},
    "1.37": {"schedulingPolicy": {"gang": {"minCount": 2}}, "disruptionMode": {"single": {}}},
}


@pytest.mark.plane
async def test_kubernetes_places_all_that_are_needed_or_none(tmp_path: Path) -> None:
    minor = KNOWN.server.rpartition(".")[0]
    name, gates = OF_SERVER[minor]
    kind = next(api.kinds[-1] for api in APIS if api.name == name)
    gate = f"--feature-gates={gates}"
    flags: dict[str, Sequence[str]] = {
        "apiserver_flags": (gate, f"--runtime-config={name}=true"),
        "scheduler_flags": (gate,),
    }
    with ControlPlane(tmp_path, scheduler=True, kwok=True, **flags) as plane:  # type: ignore[arg-type]
        async with running(plane) as site:
            await placed_together(site)
            made = await site.client.get(kind.untyped(), "digits", site.namespace)
            assert made["spec"].items() >= ASKED[minor].items()


@pytest.mark.plane
@pytest.mark.skipif(not BUILT, reason="GANG_SCHEDULER names no scheduler of scheduler-plugins")
async def test_scheduler_plugins_place_all_that_are_needed_or_none(tmp_path: Path) -> None:
    with ControlPlane(tmp_path / "plane", scheduler=True, kwok=True) as plane:
        plane.stop("kube-scheduler")
        async with Client(plane.config()) as client:
            await installing.install(client, [CRDS["coscheduling"]], "test")
        config = tmp_path / "scheduler.yaml"
        config.write_text(yaml.safe_dump(profile(plane.kubeconfig)))
        command = [BUILT, f"--config={config}", "--secure-port=0"]
        async with Process("gang-scheduler", command, tmp_path), running(plane) as site:
            await placed_together(site)


async def placed_together(site: Site) -> None:
    """A job of two nodes, of which one fits: without a gang, with one, and when there is room for both."""
    await room(site, "small")
    await site.apply(spec("none"), "alone")
    await site.until(lambda: (len(bound(site)), len(refused(site))) == (1, 1))
    await site.client.delete(ELASTICJOB, "alone", site.namespace)
    await site.until(lambda: not site.pods())
    await site.apply(spec("required"))
    await site.until(lambda: refused(site))
    assert (len(site.pods()), bound(site)) == (2, {})
    await room(site, "large")
    await site.until(lambda: site.running() == {"digits-worker-0", "digits-worker-1"})
    assert set(bound(site).values()) == {"small", "large"}


def spec(gang: str) -> Manifest:
    """Each node takes a whole machine."""
    made = local(gang)
    container = made["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    container["resources"] = {"requests": {"cpu": "1"}}
    return made


async def room(site: Site, name: str) -> None:
    """A machine with one processor."""
    amounts = {"cpu": "1", "memory": "1Gi", "pods": "10"}
    await site.client.create(NODE.untyped(), pretended.machine(name, amounts))


def bound(site: Site) -> dict[str, str]:
    return {name: pod.spec.node_name for name, pod in site.pods().items() if pod.spec.node_name}


def refused(site: Site) -> set[str]:
    """Pods for which there is no machine; of those that fit and wait, the scheduler says nothing."""
    return {
        name
        for name, pod in site.pods().items()
        for condition in pod.status.conditions
        if condition.type == "PodScheduled" and condition.status == "False"
    }


def profile(kubeconfig: Path) -> Manifest:
    """The configuration by which Coscheduling is part of the default scheduler."""
    plugin = {"enabled": [{"name": "Coscheduling"}]}
    only = {**plugin, "disabled": [{"name": "*"}]}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": {"leaderElect": False},
        "clientConnection": {"kubeconfig": str(kubeconfig)},
        "profiles": [
            {"schedulerName": "default-scheduler", "plugins": {"multiPoint": plugin, "queueSort": only}}
        ],
    }


@asynccontextmanager
async def running(plane: ControlPlane) -> AsyncIterator[Site]:
    """A namespace of a cluster with the operator at work."""
    async with Client(plane.config()) as client:
        await install(client)
        async with at_work(plane, client) as stage:
            yield Site(client, stage.operator, await new_namespace(client, "gangs"))
