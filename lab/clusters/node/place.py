"""Names, addresses and folders of a node."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LONGEST_SOCKET: Final = 95
"""Bytes of a path to a UNIX socket, less what containerd appends."""


@dataclass(frozen=True)
class Place:
    """A node's names, addresses and folders. The addresses are put on `lo`, unreachable from outside.

    An address of 127/8 does not work: the kubelet refuses it, and pods could not reach it.
    """

    folder: Path
    node: str = "node-0"
    address: str = "10.250.0.1"
    dns: str = "10.250.0.10"
    pods: str = "10.244.0.0/24"
    services: str = "10.96.0.0/16"
    bridge: str = "elasticjob0"
    cgroup: str = "elasticjob"

    @property
    def socket(self) -> Path:
        """Where containerd listens."""
        return self.folder / "containerd.sock"

    @property
    def containers(self) -> Path:
        """containerd's data: images, snapshots, containers."""
        return self.folder / "containerd"

    @property
    def network(self) -> Path:
        """The network's configuration and the assigned pod addresses."""
        return self.folder / "cni"

    @property
    def kubelet(self) -> Path:
        """The kubelet's folder: volumes of pods, and its state."""
        return self.folder / "kubelet"

    @property
    def kubelet_configuration(self) -> Path:
        """The kubelet's configuration, beside its folder."""
        return self.folder / "kubelet.json"

    def make_folders(self) -> None:
        """Make the folders that its programs expect."""
        for folder in (self.network / "net.d", self.folder / "volume-plugins", self.folder / "pod-logs"):
            folder.mkdir(parents=True, exist_ok=True)

    def problem(self) -> str:
        """Return why this folder cannot hold a node; "" if it can."""
        if len(str(self.socket).encode()) > LONGEST_SOCKET:
            return f"{self.folder} is too long a name for a UNIX socket in it: choose another with --folder"
        return ""


def default_folder() -> Path:
    """Return the default folder of this machine's node: outside of the tree, so that its images survive."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticjob" / "node"
