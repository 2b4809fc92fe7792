"""The chart on a real node: an uninstall leaves the CRDs, and nothing else of what the release has made."""

from __future__ import annotations

import asyncio
from typing import Final

import pytest

from lab.clusters.installed.helm import SYSTEM, helm, program
from lab.clusters.installed.installation import READY, Installation
from lab.clusters.installed.kubectl import Kubectl

pytestmark = [
    pytest.mark.node,
    pytest.mark.timeout(1200),
    pytest.mark.skipif(program() is None, reason="no helm: hack/kube-binaries chart builds it"),
]
OURS: Final = "--selector=app.kubernetes.io/name=elasticjob"
FURNITURE: Final = {"configmap/kube-root-ca.crt", "serviceaccount/default"}
NOISE: Final = {"events", "events.events.k8s.io"}
"""What happened is told for an hour, whoever it happened to."""
REGISTERED: Final = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")


async def test_an_uninstall_leaves_the_definitions_alone(node: Installation) -> None:
    kubectl = node.kubectl
    whole, inside = await kinds(kubectl, "false"), await kinds(kubectl, "true")
    definitions = {each for each in await names(kubectl, whole, OURS) if each.startswith("customresourced")}
    assert len(definitions) == 6
    tested = await asyncio.to_thread(
        helm, "test", "elasticjob", "--namespace", SYSTEM, kubeconfig=kubectl.kubeconfig
    )
    assert "Phase:          Succeeded" in tested
    command = ("uninstall", "elasticjob", "--namespace", SYSTEM, "--wait")
    await asyncio.to_thread(helm, *command, kubeconfig=kubectl.kubeconfig)
    try:
        # what is not the release's own is deleted after it, by the garbage collector
        for kind, name in (("lease", "elasticjob-operator"), ("secret", "elasticjob-webhooks-certificate")):
            await kubectl("-n", SYSTEM, "wait", "--for=delete", READY, f"{kind}/{name}")
        await kubectl("-n", SYSTEM, "wait", "--for=delete", READY, "pods", OURS)
        for kind in REGISTERED:
            await kubectl("wait", "--for=delete", READY, f"{kind}/elasticjob")
        left = await names(kubectl, whole, OURS) | await names(kubectl, inside, OURS, "--all-namespaces")
        there = await names(kubectl, inside, "--namespace", SYSTEM)
        print(f"left of the release: {sorted(left)}; in its namespace: {sorted(there)}")
    finally:
        node.install()
        node.seen = len(node.machine.audit())  # the operators' roles went before their pods
    assert left == definitions | {f"namespace/{SYSTEM}"}  # which the release did not make
    assert there == FURNITURE


async def kinds(kubectl: Kubectl, namespaced: str) -> str:
    """Return all kinds that can be listed."""
    words = ("api-resources", "--verbs=list", f"--namespaced={namespaced}", "-o", "name")
    return ",".join(sorted({*(await kubectl(*words)).split()} - NOISE))


async def names(kubectl: Kubectl, of: str, *words: str) -> set[str]:
    """Return kind/name of objects."""
    return {*(await kubectl("get", of, *words, "-o", "name", "--ignore-not-found")).split()}
