"""The real Kueue beside a `ControlPlane`, with its real validation of Workloads.

    with ControlPlane(folder / "plane") as plane, Kueue(plane, folder / "kueue") as kueue:
        ...
        kueue.kill()     # what is Kueue's own stays undone, and Workloads cannot be written
        kueue.start()

It manages no kind of job unless `integrations` names it, as `batch/job`; `gates` are its feature gates.
Metrics and the visibility API are off, and so is the election of a leader: one Kueue per plane.
"""

from __future__ import annotations

import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from lab.clusters import binaries
from lab.clusters.plane.guest import Guest

if TYPE_CHECKING:
    from lab.clusters.plane.controlplane import ControlPlane

SET: Final = "kueue"
GROUP: Final = "kueue.x-k8s.io"
METRICS_CERTIFICATES: Final = "/etc/kueue/metrics"
"""Kueue reads a pair in `certs` there, a path that no setting changes, even where metrics are off."""
GATES: Final[Mapping[str, bool]] = {"VisibilityOnDemand": False}
CONCURRENCY: Final = {
    **{f"{kind}.{GROUP}": 5 for kind in ("LocalQueue", "ClusterQueue")},
    **{f"{kind}.{GROUP}": 1 for kind in ("Cohort", "ResourceFlavor")},
    f"Workload.{GROUP}": 10,
    "Job.batch": 5,
}


class Kueue(Guest):
    """Runs while the `with` lasts; see Guest. Raises `binaries.Missing` where it has not been built.

    `wait_for_pods_ready` is the setting of that name, such as `{"timeout": "5s"}`; `settings` are merged into
    the configuration at its top.
    """

    def __init__(
        self,
        plane: ControlPlane,
        folder: Path,
        *,
        integrations: Sequence[str] = (),
        gates: Mapping[str, bool] | None = None,
        wait_for_pods_ready: Mapping[str, Any] | None = None,
        settings: Mapping[str, Any] | None = None,
    ) -> None:
        found = binaries.require(SET)
        waits = {} if wait_for_pods_ready is None else {"waitForPodsReady": dict(wait_for_pods_ready)}
        groups = {GROUP, *(name.partition("/")[0] for name in integrations)}
        chosen = {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "internalCertManagement": {"enable": False},
            "controller": {"groupKindConcurrency": dict(CONCURRENCY)},
            "clientConnection": {"qps": 300, "burst": 500},
            "integrations": {"frameworks": list(integrations)},
            "featureGates": {**GATES, **(gates or {})},
            **waits,
            **(settings or {}),
        }
        super().__init__(plane, folder, "kueue", found["kueue"], found["kueue-definitions"], groups, chosen)
        self.command = _with_certificates(self.folder / "certs", [*map(str, self.words)])


def why_missing() -> str:
    """A sentence for tests to be skipped with where Kueue cannot run here; "" where it can."""
    try:
        binaries.require(SET)
    except binaries.Missing as missing:
        return str(missing)
    return "" if shutil.which("unshare") else "Kueue needs unshare (util-linux) on PATH: install it"


def _with_certificates(certificates: Path, command: Sequence[str]) -> list[str]:
    """The command, in a mount namespace of its own whose /etc holds nothing but the certificates.

    Nothing is written to the machine's /etc, several may run at once, and root is not needed.
    """
    script = (
        f"mount -t tmpfs none /etc && mkdir -p {METRICS_CERTIFICATES} && "
        f"ln -s {shlex.quote(str(certificates))} {METRICS_CERTIFICATES}/certs && exec {shlex.join(command)}"
    )
    mapped = [] if os.geteuid() == 0 else ["--map-root-user"]
    return ["unshare", "--mount", *mapped, "sh", "-c", script]
