"""Argo CD's ConfigMap with the health checks and actions of config/argocd/resource_customizations."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import yaml

from lab.paths import ROOT

FOLDER: Final = ROOT / "config" / "argocd"
CUSTOMIZATIONS: Final = FOLDER / "resource_customizations"
PREFIX: Final = "resource.customizations"
HEADER: Final = """\
# Made by `make generate` from the scripts in resource_customizations; do not edit. Adds keys to Argo CD's own
# ConfigMap:  kubectl apply --server-side --field-manager=elasticjob -n argocd -f argocd-cm.yaml
"""
OTHERS: Final = {
    f"{PREFIX}.ignoreResourceUpdates.elastic.iml.github.io_ElasticJob": {
        "jsonPointers": ["/status/training"]
    },
    **{
        f"{PREFIX}.ignoreDifferences.admissionregistration.k8s.io_{kind}": {
            "jqPathExpressions": [".webhooks[]?.clientConfig.caBundle"]
        }
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    },
}
"""A master reports progress every few seconds; the operator gives its webhooks the certificate."""


class Blocks(yaml.SafeDumper):
    """YAML with text of several lines as blocks."""


def _block(dumper: Blocks, text: str) -> yaml.ScalarNode:
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style="|" if "\n" in text else None)


Blocks.add_representer(str, _block)


def config_map() -> str:
    """Return the ConfigMap as YAML."""
    data: dict[str, str] = {}
    for script in sorted(CUSTOMIZATIONS.glob("*/*/health.lua")):
        key = f"{script.parent.parent.name}_{script.parent.name}"
        data[f"{PREFIX}.health.{key}"] = script.read_text()
        if (actions := script.parent / "actions").exists():
            data[f"{PREFIX}.actions.{key}"] = _dumped(_actions(actions))
    data |= {key: _dumped(value) for key, value in OTHERS.items()}
    labels = {"app.kubernetes.io/name": "argocd-cm", "app.kubernetes.io/part-of": "argocd"}
    metadata = {"name": "argocd-cm", "namespace": "argocd", "labels": labels}
    return HEADER + _dumped({"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data})


def _actions(folder: Path) -> dict[str, Any]:
    definitions = [
        {"name": script.parent.name, "action.lua": script.read_text()}
        for script in sorted(folder.glob("*/action.lua"))
    ]
    return {"discovery.lua": (folder / "discovery.lua").read_text(), "definitions": definitions}


def _dumped(value: Any) -> str:
    return yaml.dump(value, Dumper=Blocks, sort_keys=False, width=110)
