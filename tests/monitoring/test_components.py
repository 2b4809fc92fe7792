"""What config/ adds for Prometheus and Grafana: the names in it exist, and people can read it."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
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
from lab.metrics import PARTS, declared
from tests.kit.monitoring.rig import CONFIG as PROMETHEUS
from tests.kit.monitoring.rig import METRIC, RECORDED, RULES, rules

CONFIG: Final = PROMETHEUS.parent
SERVICES: Final = {"operator": "operator", "brain": "brain", "di-server": "diengine"}
"""Monitor → the folder in which its Service is."""
FILES: Final = {path.stem: path.read_text() for path in sorted((CONFIG / "grafana").glob("*.json"))}
MODELS: Final[dict[str, Any]] = {name: json.loads(text) for name, text in FILES.items()}
PANELS: Final = {name: list(model["panels"]) for name, model in MODELS.items()}
ASKED: Final = {rule.get("alert") or rule["record"]: [rule["expr"]] for rule in RULES} | {
    board: [each["expr"] for panel in panels for each in panel.get("targets", ())]
    for board, panels in PANELS.items()
}
"""Rule or dashboard → its expressions."""
WIDTH: Final = 24
"""Columns of Grafana's grid."""
LARGEST: Final = 1 << 20
"""Bytes of a ConfigMap."""


@pytest.mark.parametrize("name", ASKED)
def test_what_a_rule_or_a_dashboard_asks_for_exists(name: str) -> None:
    suffixes = {"histogram": ("_bucket", "_sum", "_count")}
    metrics = [each for part in PARTS for each in declared(part)]
    series = {each.name + suffix for each in metrics for suffix in suffixes.get(each.type, ("",))}
    asked = re.sub(r'"[^"]*"', "", "\n".join(ASKED[name]))
    assert asked
    assert set(METRIC.findall(asked)) <= series
    assert set(RECORDED.findall(asked)) <= {rule["record"] for rule in RULES if "record" in rule}


@pytest.mark.parametrize("board", MODELS)
def test_a_dashboard_is_read_and_loaded(board: str) -> None:
    """Each panel says how to read it, asks the chosen server, and lies on the grid without overlap."""
    taken = Counter[tuple[int, int]]()
    for panel in PANELS[board]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        rows, columns = (range(place[a], place[a] + place[b]) for a, b in (("y", "h"), ("x", "w")))
        taken.update((row, column) for row in rows for column in columns)
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["description"].endswith("."), panel["title"]
            assert panel["datasource"] == {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
            assert all(target["expr"] and target["legendFormat"] for target in panel["targets"])
            assert not Counter(target["refId"] for target in panel["targets"]) - Counter("ABCDEFGHIJ")
    assert set(taken.values()) == {1}
    variables = [each["name"] for each in MODELS[board]["templating"]["list"]]
    wanted = ["DS_PROMETHEUS", "namespace", *(["job"] if board != "fleet" else [])]
    assert (MODELS[board]["uid"], variables) == (f"elasticjob-{board}", wanted)
    assert set(Counter(panel["id"] for panel in PANELS[board]).values()) == {1}


def read(path: Path) -> list[Manifest]:
    return [each for each in yaml.safe_load_all(path.read_text()) if each]


def component(endpoint: Manifest) -> str:
    """Return the label `component` of an endpoint's targets."""
    (found,) = [each["replacement"] for each in endpoint["relabelings"] if each["targetLabel"] == "component"]
    return str(found)


@pytest.mark.parametrize("program", SERVICES)
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
    assert (spec["jobLabel"], labels[spec["jobLabel"]]) == (LABEL_JOB, "digits")
    (endpoint,) = spec["podMetricsEndpoints"]
    (port,) = pod["spec"]["containers"][0]["ports"]
    assert (port["name"], port["containerPort"]) == (endpoint["port"], MASTER_PORT)
    assert component(endpoint) == "elasticjob-master"


def test_rules_ask_for_components_that_monitors_name() -> None:
    asked = {name for rule in RULES for name in re.findall(r'component="elasticjob-([a-z-]+)"', rule["expr"])}
    assert asked == {"master", *SERVICES}


def kustomized(folder: Path, component: str, **more: Any) -> list[Manifest]:
    """Return the objects of an overlay that has nothing but a component."""
    program = shutil.which("kubectl") or pytest.skip("kubectl is not installed")
    shutil.copytree(CONFIG / component, folder / component)
    (folder / "kustomization.yaml").write_text(yaml.safe_dump({"components": [component], **more}))
    command = (program, "kustomize", "--load-restrictor=LoadRestrictionsNone", folder)
    return list(
        yaml.safe_load_all(subprocess.run(command, check=True, capture_output=True, text=True).stdout)
    )


def test_a_component_makes_a_labelled_config_map_of_each_dashboard(tmp_path: Path) -> None:
    maps = {each["metadata"]["name"]: each for each in kustomized(tmp_path, "grafana")}
    assert {name: (each["metadata"]["labels"], each["data"]) for name, each in maps.items()} == {
        f"elasticjob-dashboard-{board}": ({"grafana_dashboard": "1"}, {f"{board}.json": text})
        for board, text in FILES.items()
    }
    assert max(len(json.dumps(each)) for each in maps.values()) < LARGEST


def test_a_component_adds_monitors_and_rules(tmp_path: Path) -> None:
    found = kustomized(tmp_path, "prometheus", labels=[{"pairs": {"release": "mine"}}])
    assert Counter(each["kind"] for each in found) == {
        "PodMonitor": 1,
        "PrometheusRule": 1,
        "ServiceMonitor": 3,
    }
    assert {each["metadata"]["labels"]["release"] for each in found} == {"mine"}
    (made,) = [each["spec"] for each in found if each["kind"] == "PrometheusRule"]
    assert made == {"groups": rules()}
