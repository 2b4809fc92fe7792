"""The Helm that is on PATH, or else the one that hack/kube-binaries built."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

import yaml

from lab.clusters.binaries import Places, catalog
from lab.paths import ROOT

CHART: Final = ROOT / "charts" / "elasticjob"

SYSTEM: Final = "elasticjob-system"
KUBERNETES: Final = ("--kube-version", catalog().version)
"""A Helm that is built without flags takes a cluster that it cannot ask for one of Kubernetes 1.20."""


class HelmFailed(AssertionError):
    """A command ended with another exit code than 0; the message is what it printed."""


def program() -> str | None:
    """Return the path of Helm; None where there is none."""
    built = Places.of().find(catalog().programs["helm"])
    return shutil.which("helm") or (str(built) if built else None)


def helm(*words: str, kubeconfig: Path | None = None) -> str:
    """Run a command and return its stdout. Raises HelmFailed."""
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig or os.devnull)}
    command = [str(program()), *words]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise HelmFailed(f"helm {' '.join(words)}: {done.stderr.strip()}")
    return done.stdout


def templated(
    *flags: str, chart: Path = CHART, namespace: str = SYSTEM, values: Mapping[str, Any] | None = None
) -> str:
    """Return the text of a release's manifests, with values of a file before those of flags."""
    command = ["template", "elasticjob", str(chart), "--namespace", namespace, *KUBERNETES, *flags]
    if values is None:
        return helm(*command)
    with tempfile.NamedTemporaryFile("w", suffix=".yaml") as file:
        yaml.safe_dump(dict(values), file)
        return helm(*command, "--values", file.name)
