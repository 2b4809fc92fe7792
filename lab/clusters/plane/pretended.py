"""Machines that kwok plays on a control plane."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from elasticjob.kube.objects.kinds import Manifest

ANNOTATION: Final = "kwok.x-k8s.io/node"
AMOUNTS: Final = {"cpu": "64", "memory": "256Gi", "pods": "110"}


def machine(
    name: str, amounts: Mapping[str, str] = AMOUNTS, labels: Mapping[str, str] | None = None, taint: str = ""
) -> Manifest:
    """Return a node, which flavors find by its type; no pod that does not tolerate its taint gets there."""
    all_labels = {"type": "kwok", **(labels or {})}
    about = {"name": name, "annotations": {ANNOTATION: "fake"}, "labels": all_labels}
    taints = [{"key": taint, "value": "yes", "effect": "NoSchedule"}] if taint else []
    status = {"allocatable": dict(amounts), "capacity": dict(amounts)}
    return {"metadata": about, "spec": {"taints": taints} if taints else {}, "status": status}
