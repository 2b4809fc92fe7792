"""What every cluster offers, whatever stands behind it, and what those offer that run containers."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from elasticjob.kube.client.credentials import Config
    from lab.clusters.images.oci import Image, Store
    from lab.clusters.plane.audit import Audited


class Cluster(Protocol):
    """An API server: devcluster's, a control plane's, or that of a whole machine."""

    @property
    def url(self) -> str:
        """Where it listens."""

    @property
    def ca_pem(self) -> str:
        """The authority that clients are to trust."""

    @property
    def kubeconfig(self) -> Path:
        """The administrator's."""

    def config(self) -> Config:
        """For a Client of the framework, as the administrator."""


class Machine(Cluster, Protocol):
    """A cluster of a whole machine, which runs containers: our node, or kind's."""

    @property
    def volumes(self) -> Path:
        """A folder of this machine for PersistentVolumes, at the same path in the cluster."""

    @property
    def kubectl(self) -> Path:
        """A kubectl of its version."""

    def up(self) -> None:
        """Start what does not run; returns when its node is Ready."""

    def down(self) -> list[str]:
        """End everything; return the leftovers, in words."""

    def purge(self) -> list[str]:
        """`down`, and remove what it stored."""

    def is_up(self) -> bool:
        """Whether any of it runs."""

    def status(self) -> Mapping[str, tuple[int, int]]:
        """Return the programs of this machine that run: name → pid and resident bytes."""

    def load(self, image: Image, store: Store) -> None:
        """Have an image on the node."""

    def load_archive(self, file: Path) -> None:
        """Have the images of an archive on the node."""

    def audit(self) -> list[Audited]:
        """Every request that was answered so far."""
