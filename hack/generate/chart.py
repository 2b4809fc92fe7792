"""The generated part of the Helm chart `charts/elasticjob`.

Written by hand: its templates, and values.yaml. Made here: what they read of `config/` (CRDs, the rules of
roles, alerts, dashboards), so that it has one home; the schema of the values; and the pages that list them.
tests/chart/test_chart.py compares a release with what kustomize installs.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from functools import partial
from pathlib import Path
from typing import Any, Final

import yaml

from elasticjob import __version__
from hack.generate.chart_values import schema_text, values_table
from hack.generate.pages import filled
from lab.paths import ROOT

CONFIG: Final = ROOT / "config"
CHART: Final = ROOT / "charts" / "elasticjob"
PAGE: Final = ROOT / "docs" / "chart.md"
HEADER: Final = "# Made by `make generate` from config; do not edit.\n"
ROLES: Final = {
    "operator": "rbac/operator.yaml",
    "brain": "brain/rbac.yaml",
    "di-server": "diengine/rbac.yaml",
}
COPIED: Final = ("crd/*.yaml", "prometheus/*.yaml", "grafana/*.json")


def outputs() -> Mapping[Path, Callable[[], str]]:
    """Return the generated files: path → content."""
    values = {"values": f"\n{values_table()}\n"}
    return {
        CHART / "Chart.yaml": chart_text,
        CHART / "values.schema.json": schema_text,
        CHART / "README.md": partial(filled, CHART / "README.md", values),
        PAGE: partial(filled, PAGE, values),
        CHART / "files" / "rules.yaml": rules_text,
        **{CHART / "files" / name: (CONFIG / name).read_text for name in copied()},
    }


def copied() -> list[str]:
    """Return the files of `config/` that the chart's templates read, by their paths there."""
    found = (path for pattern in COPIED for path in CONFIG.glob(pattern))
    return sorted(str(path.relative_to(CONFIG)) for path in found if path.name != "kustomization.yaml")


def chart_text() -> str:
    """Return Chart.yaml; the chart and the operator have one version, the tag of images."""
    chart = {
        "apiVersion": "v2",
        "name": "elasticjob",
        "description": "The operator of ElasticJobs: distributed training that grows, shrinks and survives",
        "type": "application",
        "version": semantic(__version__),
        "appVersion": __version__,
        "kubeVersion": ">=1.29.0-0",
        "keywords": ["pytorch", "training", "elastic", "operator", "machine-learning"],
        "annotations": {
            "artifacthub.io/category": "ai-machine-learning",
            "artifacthub.io/operator": "true",
            "artifacthub.io/operatorCapabilities": "Auto Pilot",
        },
    }
    return HEADER + yaml.safe_dump(chart, sort_keys=False, width=120)


def semantic(version: str) -> str:
    """Return Python's spelling of a version as Helm reads it: 1.2.0rc1 → 1.2.0-rc1. Images keep the first."""
    return re.sub(r"^([\d.]*\d)\.?([a-z])", r"\1-\2", version)


def rules_text() -> str:
    """Return the rules of roles: those of each program by where they hold, and those of users."""
    found: dict[str, Any] = {program: rules_of(name) for program, name in ROLES.items()}
    users = yaml.safe_load_all((CONFIG / "rbac" / "users.yaml").read_text())
    found["users"] = [{**role["metadata"], "rules": role["rules"]} for role in users]
    return HEADER + yaml.safe_dump(found, sort_keys=False, width=120)


def rules_of(name: str) -> dict[str, Any]:
    """Return a program's rules: of jobs, of what belongs to the whole cluster, and of its own namespace."""
    found: dict[str, Any] = {}
    for each in yaml.safe_load_all((CONFIG / name).read_text()):
        match each["kind"]:
            case "ClusterRole" if each["metadata"]["name"].endswith("-cluster"):
                found["cluster"] = each["rules"]
            case "ClusterRole":
                found["jobs"] = each["rules"]
            case "Role":
                found["own"] = each["rules"]
    return found
