"""The kubelet's folders on this machine."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from elasticjob.devcluster.node.container.volumes import Places
from elasticjob.kube.objects.views import Pod


@dataclass(frozen=True)
class Place:
    """`state` outlives the cluster; `memory` is a folder in a file system in memory."""

    state: Path
    memory: Path

    def volumes(self, pod: Pod) -> Places:
        """Where the pod's volumes are."""
        claims = self.state / "claims" / pod.metadata.namespace
        return Places(self.pod(pod), self.memory / pod.metadata.uid, claims)

    def pod(self, pod: Pod) -> Path:
        """The pod's own folder, deleted with it."""
        return self.state / "pods" / pod.metadata.uid

    def identity(self, pod: Pod) -> Path:
        """The service account's files."""
        return self.pod(pod) / "serviceaccount"

    def root(self, pod: Pod, container: str) -> Path:
        """Where a container without a workingDir starts."""
        return self.pod(pod) / "containers" / container / "root"

    def last_words(self, pod: Pod, container: str) -> Path:
        """The file behind the container's terminationMessagePath."""
        return self.pod(pod) / "containers" / container / "termination-log"

    def log(self, pod: Pod, container: str, restarts: int) -> Path:
        """The log of one run of a container."""
        return self.pod(pod) / "logs" / container / f"{restarts}.log"
