"""A second machine of a node's cluster, on the same kernel: a kubelet and a containerd of its own.

Its pods have a bridge of their own; the kernel passes packets on between the two, and the first node's
kube-proxy and CoreDNS serve both. Its folder and its cgroup are inside those of the first.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from lab.clusters.images.containers import Containerd
from lab.clusters.images.oci import Image, Store
from lab.clusters.node import nodeconfig
from lab.clusters.node.host import Host
from lab.clusters.node.place import Place
from lab.clusters.plane.controlplane import ControlPlane
from lab.clusters.plane.pki import write_private
from lab.processes import Process, environment, running


def place_beside(first: Place) -> Place:
    """Return the place of the second machine."""
    return replace(
        first,
        folder=first.folder / "second",
        node="node-1",
        address="10.250.0.2",
        pods="10.244.1.0/24",
        bridge="elasticjob1",
        cgroup=f"{first.cgroup}/second",
    )


class Second:
    """The second machine beside the node at `first`, which is up."""

    def __init__(self, first: Place, plane: ControlPlane) -> None:
        self.place = place_beside(first)
        self._plane = plane
        self._containerd = Containerd(self.place.socket)
        # the address for names is the first's, and so are the rules of kube-proxy
        self._host = Host(replace(self.place, dns=self.place.address), tables=())
        folder = self.place.folder
        containerd = Process(
            "containerd",
            ["containerd", "--config", folder / "containerd.toml"],
            folder / "programs",
            environment(folder),
            ready=self._containerd.answers,
            outlive=True,
        )
        kubelet = Process("kubelet", (), folder / "programs", environment(folder), outlive=True)
        self._programs = {each.name: each for each in (containerd, kubelet)}

    def is_there(self) -> bool:
        """Whether it was ever up, or still is."""
        return self.place.folder.exists()

    def up(self, kubelet: Path, plugins: Path, images: Iterable[Image], store: Store) -> None:
        """Start what does not run, and load images; the Node is there soon after."""
        place = self.place
        place.folder.mkdir(exist_ok=True, mode=0o700)
        place.make_folders()
        self._host.prepare()
        serving = self._plane.pki.server(f"kubelet-{place.node}", [place.address, place.node])
        for path, text in nodeconfig.machine(place, plugins, serving, self._plane.pki.ca.certificate).items():
            write_private(path, text.encode())
        self._programs["containerd"].start()
        for image in images:
            self._containerd.load(image, store)
        user = self._plane.kubeconfig_of(f"system:node:{place.node}", ("system:nodes",))
        self._programs["kubelet"].command = nodeconfig.kubelet_command(place, kubelet, user)
        self._programs["kubelet"].spawn()

    def down(self) -> list[str]:
        """End everything and undo all changes of the machine; return the leftovers, in words."""
        if not self.is_there():
            return []
        self._programs["kubelet"].stop()
        self._host.kill_containers()
        if self._programs["containerd"].identity:
            self._containerd.remove_tasks()
        self._programs["containerd"].stop()
        self._containerd.kill_shims()
        self._host.restore()
        shutil.rmtree(self.place.network / "addresses", ignore_errors=True)
        return [*self._host.leftovers(), *(f"program {name}" for name in running(self._programs.values()))]
