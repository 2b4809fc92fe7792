"""The real Kueue beside a `ControlPlane`, with its real validation of Workloads.

    with ControlPlane(folder / "plane") as plane, Kueue(plane, folder / "kueue") as kueue:
        ...
        kueue.kill()     # what is Kueue's own stays undone, and Workloads cannot be written
        kueue.start()

It manages no kind of job unless `integrations` names it, as `batch/job`; `gates` are its feature gates.
Metrics and the visibility API are off, and so is the election of a leader: one Kueue per plane.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from elasticjob.cli.laptop.ports import free_port
from lab.clusters import binaries
from lab.clusters.plane.guest import HOST, Guest, Recipe, as_secret, definitions, manifests, webhooks
from lab.clusters.plane.pki import write_private

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
        folder = folder.absolute()
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)
        serving = plane.pki.server("kueue", [HOST, "localhost"])
        certificates = as_secret(serving, folder / "certs")
        probes, port = free_port(), free_port()
        chosen = configuration(
            certificates,
            probes,
            port,
            integrations=integrations,
            gates={**GATES, **(gates or {})},
            wait_for_pods_ready=wait_for_pods_ready,
        )
        file = write_private(folder / "config.json", json.dumps({**chosen, **(settings or {})}).encode())
        kubeconfig = plane.kubeconfig_of("kueue", ("system:masters",))
        known = manifests(found["kueue-definitions"])
        groups = {GROUP, *(name.partition("/")[0] for name in integrations)}
        recipe = Recipe(
            "kueue",
            definitions(known),
            webhooks(known, groups),
            _with_certificates(
                certificates, [str(found["kueue"]), f"--config={file}", f"--kubeconfig={kubeconfig}"]
            ),
            probes,
            port,
        )
        super().__init__(plane, folder, recipe)


def why_missing() -> str:
    """A sentence for tests to be skipped with where Kueue cannot run here; "" where it can."""
    try:
        binaries.require(SET)
    except binaries.Missing as missing:
        return str(missing)
    return "" if shutil.which("unshare") else "Kueue needs unshare (util-linux) on PATH: install it"


def configuration(
    certificates: Path,
    probes: int,
    port: int,
    *,
    integrations: Sequence[str],
    gates: Mapping[str, bool],
    wait_for_pods_ready: Mapping[str, Any] | None,
) -> dict[str, Any]:
    """Kueue's own configuration file; pure."""
    found: dict[str, Any] = {
        "apiVersion": "config.kueue.x-k8s.io/v1beta2",
        "kind": "Configuration",
        "health": {"healthProbeBindAddress": f"{HOST}:{probes}"},
        "metrics": {"bindAddress": "0"},
        "webhook": {"host": HOST, "port": port, "certDir": str(certificates)},
        "leaderElection": {"leaderElect": False},
        "internalCertManagement": {"enable": False},
        "controller": {"groupKindConcurrency": dict(CONCURRENCY)},
        "clientConnection": {"qps": 300, "burst": 500},
        "integrations": {"frameworks": list(integrations)},
        "featureGates": dict(gates),
    }
    if wait_for_pods_ready is not None:
        found["waitForPodsReady"] = dict(wait_for_pods_ready)
    return found


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
