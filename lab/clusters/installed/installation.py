"""The node with the operator in it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass, field
from typing import Final

from elasticjob import __version__
from lab.clusters.cluster import Machine
from lab.clusters.images import images
from lab.clusters.images.oci import Image, Store
from lab.clusters.installed import timeline
from lab.clusters.installed.helm import CHART, helm, program
from lab.clusters.installed.kubectl import Kubectl
from lab.paths import ROOT
from lab.waiting import PATIENCE

SYSTEM: Final = "elasticjob-system"
OPERATOR: Final = "deployment/elasticjob-operator"
READY: Final = f"--timeout={2 * PATIENCE:.0f}s"


@dataclass
class Installation:
    """The machine with the operator in it, and what happened there."""

    machine: Machine
    kubectl: Kubectl
    store: Store
    rows: list[timeline.Row] = field(default_factory=list)
    seen: int = 0
    """How many requests of the audit log were looked at."""
    loaded: dict[tuple[str, str], Image] = field(default_factory=dict)
    """The images of ours that the node has, by name and tag."""
    unused: list[str] = field(default_factory=list)
    """Rights of the operator that it did not use."""

    def load(self, name: str, tag: str = __version__) -> Image:
        """Have an image of ours on the node."""
        image = images.build(name, self.store, tag)
        self.machine.load(image, self.store)
        self.loaded[name, tag] = image
        return image

    @contextmanager
    def timed(self, event: str, did: str) -> Iterator[None]:
        """Note how long the block took."""
        began = time.time()
        yield
        self.rows.append(timeline.Row(0.0, event, did, time.time() - began))

    @asynccontextmanager
    async def beside(self, program: str, *values: str, env: tuple[str, ...] = ()) -> AsyncIterator[str]:
        """Have another program of the chart beside the operator, with variables; yields its host."""
        kubectl, deployment = self.kubectl, f"deployment/elasticjob-{program}"
        old = await kubectl.names("pods", SYSTEM)
        upgrade = ("upgrade", "elasticjob", str(CHART), "-n", SYSTEM, "--set", ",".join(values))
        await asyncio.to_thread(helm, *upgrade, kubeconfig=kubectl.kubeconfig)
        try:
            if env:
                await kubectl("-n", SYSTEM, "set", "env", deployment, *env)
            for each in (deployment, OPERATOR):
                await kubectl("-n", SYSTEM, "rollout", "status", each, READY)
            # an operator that still leads would know nothing of it
            await kubectl("-n", SYSTEM, "wait", "--for=delete", READY, *old)
            path = "jsonpath={.spec.clusterIP}"
            yield await kubectl("-n", SYSTEM, "get", "service", f"elasticjob-{program}", "-o", path)
        finally:
            await asyncio.to_thread(self.install)

    def install(self) -> None:
        """Install the operator as a user does, with Helm where it is, and wait until both replicas are ready.

        An earlier run may have left the objects on the node, installed the other way.
        """
        kubectl = self.kubectl.run
        apply = ("apply", "--server-side", "--force-conflicts")
        if program():
            kubectl(*apply, "-f", str(ROOT / "config" / "operator" / "namespace.yaml"))
            self._forget_what_has_no_owner()
            flags = ("--install", "--reset-values", "--take-ownership", "--namespace", SYSTEM)
            helm("upgrade", "elasticjob", str(CHART), *flags, kubeconfig=self.kubectl.kubeconfig)
        else:
            kubectl(*apply, "-k", str(ROOT / "config"))
        kubectl("-n", SYSTEM, "delete", "pods", "--field-selector=status.phase=Failed")  # of an earlier run
        # the image of that tag may be another than last time
        kubectl("-n", SYSTEM, "rollout", "restart", OPERATOR)
        kubectl("-n", SYSTEM, "rollout", "status", OPERATOR, READY)

    def _forget_what_has_no_owner(self) -> None:
        """An earlier version on a node that was kept made objects that no release takes with it."""
        kubectl = self.kubectl.run
        lease = "leases/elasticjob-operator"
        found = kubectl("-n", SYSTEM, "get", lease, "-o", "name", "--ignore-not-found")
        owned = "-o", "jsonpath={.metadata.ownerReferences}"
        if found and not kubectl("-n", SYSTEM, "get", lease, *owned):
            words = ("uninstall", "elasticjob", "--namespace", SYSTEM, "--wait", "--ignore-not-found")
            helm(*words, kubeconfig=self.kubectl.kubeconfig)
            kubectl("-n", SYSTEM, "delete", "leases,secrets", "--all")
