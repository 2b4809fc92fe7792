"""The same node from kind, on machines that have Docker: `hack/node --kind …`, and `make e2e` without root.

Its API server logs every request, and a folder of the machine is mounted at the same path, for volumes.
"""

from __future__ import annotations

import base64
import json
import shutil
import ssl
import subprocess
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.clusters.binaries import Missing
from lab.clusters.images.oci import Image, Store, write_archive
from lab.clusters.node.place import default_folder
from lab.clusters.plane import audit
from lab.clusters.plane.audit import Audited
from lab.clusters.plane.pki import write_private

if TYPE_CHECKING:
    from elasticjob.kube.client.credentials import Config

NAME: Final = "elasticjob"
POLICIES: Final = "/etc/kubernetes/policies"
LOGS: Final = "/var/log/kubernetes"
Run = Callable[..., "subprocess.CompletedProcess[str]"]


def absent() -> str:
    """Return why there can be no cluster of kind, and what to do; "" if there can."""
    if not shutil.which("kind"):
        return "kind is not on PATH: install it"
    docker = shutil.which("docker")
    if not docker or subprocess.run([docker, "info"], capture_output=True, check=False).returncode:
        return "Docker does not answer (docker info): start it"
    return ""


class KindNode:
    """The cluster of kind that is called `elasticjob`; what it needs of this machine is in `folder`."""

    def __init__(self, folder: Path, *, run: Run = subprocess.run) -> None:
        """Raises Missing unless kind is on PATH and Docker answers."""
        if why := absent():
            raise Missing(f"{why}, or leave --kind out")
        self._folder = folder
        self._call = run
        folder.mkdir(parents=True, exist_ok=True)

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""
        return self._folder / "kubeconfig"

    @property
    def url(self) -> str:
        """Where its API server listens."""
        return str(self._cluster["server"])

    @property
    def ca_pem(self) -> str:
        """The authority that clients are to trust."""
        return _decoded(self._cluster["certificate-authority-data"]).decode()

    @property
    def volumes(self) -> Path:
        """A folder that is the same in the node's container as here."""
        return self._folder / "volumes"

    @property
    def kubectl(self) -> Path:
        """The one of this machine. Raises Missing."""
        if found := shutil.which("kubectl"):
            return Path(found)
        raise Missing("kubectl is not on PATH: install it, or build it with hack/kube-binaries kubectl")

    def up(self) -> None:
        """Create the cluster, unless it is there; returns when its node is Ready."""
        if not self.is_up():
            self._prepare()
            config = self._folder / "kind.json"
            config.write_text(json.dumps(configuration(self._folder)))
            self._kind("create", "cluster", "--config", str(config), "--wait", "180s")
        kubeconfig = self._kind("get", "kubeconfig").stdout
        write_private(self.kubeconfig, kubeconfig.encode())

    def down(self) -> list[str]:
        """Delete the cluster: kind keeps nothing of one that is down. Returns what is left, in words."""
        self._kind("delete", "cluster")
        return [f"kind cluster {NAME}"] if self.is_up() else []

    purge = down

    def is_up(self) -> bool:
        """Whether there is a cluster of ours."""
        return NAME in self._called("kind", "get", "clusters").stdout.split()

    def status(self) -> Mapping[str, tuple[int, int]]:
        """Return nothing: its programs are Docker's."""
        return {}

    def load(self, image: Image, store: Store) -> None:
        """Have an image on the node."""
        file = self._folder / "image.tar"
        with file.open("wb") as out:
            write_archive(store, image, out)
        self.load_archive(file)
        file.unlink()

    def load_archive(self, file: Path) -> None:
        """Have the images of an archive on the node."""
        self._kind("load", "image-archive", str(file))

    def audit(self) -> list[Audited]:
        """Every request that was answered so far, but perhaps the last few: the log is behind by a moment."""
        node = f"{NAME}-control-plane"  # where root alone may read it
        text = self._called("docker", "exec", node, "cat", f"{LOGS}/audit.log").stdout
        return audit.read(text[: text.rfind("\n")].splitlines())

    def config(self) -> Config:
        """For a Client of the framework, as the administrator."""
        from elasticjob.kube.client.credentials import Config

        user, trusted = self._access["users"][0]["user"], ssl.create_default_context(cadata=self.ca_pem)
        pair = write_private(
            self._folder / "admin.pem",
            _decoded(user["client-certificate-data"]) + b"\n" + _decoded(user["client-key-data"]),
        )
        trusted.load_cert_chain(pair)
        return Config(self.url, trusted)

    @property
    def _cluster(self) -> dict[str, str]:
        found: dict[str, str] = self._access["clusters"][0]["cluster"]
        return found

    @cached_property
    def _access(self) -> dict[str, Any]:
        words = "config", "view", "--raw", "-o", "json"
        told = self._called(str(self.kubectl), f"--kubeconfig={self.kubeconfig}", *words)
        found: dict[str, Any] = json.loads(told.stdout)
        return found

    def _prepare(self) -> None:
        for name in ("volumes", "policies"):
            (self._folder / name).mkdir(exist_ok=True)
        (self._folder / "policies" / "audit.yaml").write_text(audit.ALL)

    def _kind(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._called("kind", *words, "--name", NAME)

    def _called(self, *words: str) -> subprocess.CompletedProcess[str]:
        return self._call(words, check=True, capture_output=True, text=True)


def configuration(folder: Path) -> Mapping[str, Any]:
    """Return what kind is told: one node, all requests logged, `folder`'s volumes at their own path."""
    flags = {"audit-policy-file": f"{POLICIES}/audit.yaml", "audit-log-path": f"{LOGS}/audit.log"}
    mounts = [
        {"name": name, "hostPath": path, "mountPath": path, "readOnly": name == "policies"}
        | {"pathType": "DirectoryOrCreate"}
        for name, path in (("policies", POLICIES), ("logs", LOGS))
    ]
    api = {"extraArgs": flags, "extraVolumes": mounts}
    patch = json.dumps({"kind": "ClusterConfiguration", "apiServer": api})
    node = {
        "role": "control-plane",
        "kubeadmConfigPatches": [patch],
        "extraMounts": [
            {"hostPath": str(folder / "policies"), "containerPath": POLICIES, "readOnly": True},
            {"hostPath": str(folder / "volumes"), "containerPath": str(folder / "volumes")},
        ],
    }
    return {"kind": "Cluster", "apiVersion": "kind.x-k8s.io/v1alpha4", "nodes": [node]}


def default_kind_folder() -> Path:
    """Return where kind's files are kept: beside the node's."""
    return default_folder().with_name("kind")


def _decoded(text: str) -> bytes:
    return base64.b64decode(text)
