"""The dashboards of config/grafana as files: Grafana can load them, and a person can read them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
import yaml

from lab.metrics import PARTS, Declared, declared

FOLDER: Final = Path(__file__).parents[2] / "config" / "grafana"
BOARDS: Final = {path.stem: json.loads(path.read_text()) for path in sorted(FOLDER.glob("*.json"))}
WIDTH: Final = 24
"""Columns of Grafana's grid."""
METRIC = re.compile(
    r"\b(?:elasticjob|training_operator|controller_runtime|workqueue|rest_client|leader_election)_\w+"
)
LARGEST = 1 << 20
"""Bytes of a ConfigMap."""


named = pytest.mark.parametrize("board", BOARDS)


@named
def test_each_panel_says_how_to_read_it_and_asks_the_chosen_server(board: str) -> None:
    for panel in BOARDS[board]["panels"]:
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["description"].endswith("."), panel["title"]
            assert panel["datasource"] == {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
            assert all(target["expr"] and target["legendFormat"] for target in panel["targets"])
            assert not Counter(target["refId"] for target in panel["targets"]) - Counter("ABCDEFGHIJ")


@named
def test_panels_lie_on_the_grid_without_overlap(board: str) -> None:
    taken = Counter[tuple[int, int]]()
    for panel in BOARDS[board]["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        rows, columns = (range(place[a], place[a] + place[b]) for a, b in (("y", "h"), ("x", "w")))
        taken.update((row, column) for row in rows for column in columns)
    assert set(taken.values()) == {1}


def test_each_dashboard_has_the_variables_by_which_its_series_are_chosen() -> None:
    for board, model in BOARDS.items():
        names = [each["name"] for each in model["templating"]["list"]]
        wanted = ["DS_PROMETHEUS", "namespace", *(["job"] if board != "fleet" else [])]
        assert (model["uid"], names) == (f"elasticjob-{board}", wanted)
        ids = [panel["id"] for panel in model["panels"]]
        assert len(ids) == len(set(ids))


@named
def test_each_metric_of_a_dashboard_is_one_of_a_program(board: str) -> None:
    known = {each.name + suffix for part in PARTS for each in declared(part) for suffix in suffixes(each)}
    asked = {
        name
        for panel in BOARDS[board]["panels"]
        for each in panel.get("targets", ())
        for name in METRIC.findall(each["expr"])
    }
    assert asked
    assert not asked - known


def suffixes(metric: Declared) -> tuple[str, ...]:
    """Return what the names of its series have behind its own."""
    return ("_bucket", "_sum", "_count") if metric.type == "histogram" else ("",)


def test_the_component_makes_a_labelled_config_map_of_each_dashboard(tmp_path: Path) -> None:
    program = shutil.which("kubectl") or pytest.skip("no kubectl")
    shutil.copytree(FOLDER, tmp_path / "grafana")
    (tmp_path / "kustomization.yaml").write_text("components: [grafana]\n")
    made = subprocess.run((program, "kustomize", tmp_path), check=True, capture_output=True, text=True).stdout
    maps = {each["metadata"]["name"]: each for each in yaml.safe_load_all(made)}
    for board in BOARDS:
        found = maps.pop(f"elasticjob-dashboard-{board}")
        assert found["metadata"]["labels"] == {"grafana_dashboard": "1"}
        assert found["data"] == {f"{board}.json": (FOLDER / f"{board}.json").read_text()}
        assert len(json.dumps(found)) < LARGEST
    assert not maps
