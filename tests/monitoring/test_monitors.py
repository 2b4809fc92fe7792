"""The monitors: they select what the manifests install, and label it as the rules expect."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from elasticjob.api.rpc.environment import MASTER_PORT
from elasticjob.api.v1alpha1.common import LABEL_JOB
from elasticjob.controllers.elasticjob.master import Provision, master_pod
from elasticjob.controllers.nodes.relaunch import Node
from elasticjob.controllers.parts import names
from elasticjob.kube.objects.kinds import Manifest
from lab.build.jobs import job
from tests.kit.monitoring.rig import CONFIG as PROMETHEUS
from tests.kit.monitoring.rig import rules

CONFIG: Final = PROMETHEUS.parent
MONITORS: Final = ("operator", "brain", "di-server")
SERVICES: Final = {"operator": "operator", "brain": "brain", "di-server": "diengine"}
"""The folder in which the Service of each is."""


def read(path: Path) -> list[Manifest]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def component(endpoint: Manifest) -> str:
    """Return the label `component` of an endpoint's targets."""
    (found,) = [each["replacement"] for each in endpoint["relabelings"] if each["targetLabel"] == "component"]
    return str(found)


@pytest.mark.parametrize("program", MONITORS)
def test_a_monitor_selects_one_port_of_one_service(program: str) -> None:
    (monitor,) = read(CONFIG / "prometheus" / f"{program}.yaml")
    (endpoint,) = monitor["spec"]["endpoints"]
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    services = read(CONFIG / SERVICES[program] / "service.yaml")
    selected = [each for each in services if wanted <= each["metadata"]["labels"].items()]
    ports = [port["name"] for each in selected for port in each["spec"]["ports"]]
    assert ports.count(endpoint["port"]) == 1
    assert component(endpoint) == f"elasticjob-{program}"


def test_masters_are_selected_and_called_by_the_name_of_their_job() -> None:
    (monitor,) = read(CONFIG / "prometheus" / "masters.yaml")
    pod = master_pod(job(), Node(names.MASTER, 0), Provision("trainer")).manifest
    spec, labels = monitor["spec"], pod["metadata"]["labels"]
    assert spec["selector"]["matchLabels"].items() <= labels.items()
    assert labels[spec["jobLabel"]] == "digits"
    assert spec["jobLabel"] == LABEL_JOB
    (endpoint,) = spec["podMetricsEndpoints"]
    (port,) = pod["spec"]["containers"][0]["ports"]
    assert (port["name"], port["containerPort"]) == (endpoint["port"], MASTER_PORT)
    assert component(endpoint) == "elasticjob-master"


def test_rules_ask_for_components_that_monitors_name() -> None:
    exprs: list[Any] = [rule["expr"] for group in rules() for rule in group["rules"]]
    asked = {name for expr in exprs for name in re.findall(r'component="elasticjob-([a-z-]+)"', expr)}
    assert asked == {"master", *MONITORS}


@pytest.mark.skipif(shutil.which("kubectl") is None, reason="kubectl is not installed")
def test_the_component_adds_monitors_and_rules(tmp_path: Path) -> None:
    (tmp_path / "prometheus").symlink_to(CONFIG / "prometheus")
    overlay = {"components": ["prometheus"], "labels": [{"pairs": {"release": "mine"}}]}
    (tmp_path / "kustomization.yaml").write_text(yaml.safe_dump(overlay))
    command = ["kubectl", "kustomize", "--load-restrictor=LoadRestrictionsNone", str(tmp_path)]
    made = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    found = list(yaml.safe_load_all(made))
    kinds = sorted(each["kind"] for each in found)
    assert kinds == ["PodMonitor", "PrometheusRule", *["ServiceMonitor"] * 3]
    assert {each["metadata"]["labels"]["release"] for each in found} == {"mine"}
    (spec,) = [each["spec"] for each in found if each["kind"] == "PrometheusRule"]
    assert spec == {"groups": rules()}
