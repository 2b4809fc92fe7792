"""What a node is called, where it is on the network, and where its files are."""

from __future__ import annotations

import os
from dataclasses import dataclass
from pathlib import Path
from typing import Final

LONGEST_SOCKET: Final = 95
"""Bytes of a path to a UNIX socket, less what containerd appends."""


@dataclass(frozen=True)
class Place:
    """A node's names, addresses and folders. The addresses are put on `lo`: nobody outside can reach them.

    An address of 127/8 would not do: the kubelet refuses it, and pods could not reach it.
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
        """What containerd keeps: images, snapshots, what runs."""
        return self.folder / "containerd"

    @property
    def network(self) -> Path:
        """The network's configuration and which pod has which address."""
        return self.folder / "cni"

    @property
    def kubelet(self) -> Path:
        """The kubelet's folder: volumes of pods, and its state."""
        return self.folder / "kubelet"

    @property
    def kubelet_configuration(self) -> Path:
        """The kubelet's configuration, beside its folder."""
        return self.folder / "kubelet.json"

    def problem(self) -> str:
        """Return why this folder cannot hold a node; "" if it can."""
        if len(str(self.socket).encode()) > LONGEST_SOCKET:
            return f"{self.folder} is too long a name for a UNIX socket in it: choose another with --folder"
        return ""


def default_folder() -> Path:
    """Return where the node of this machine is kept: outside of the tree, so that its images survive."""
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "elasticjob" / "node"
