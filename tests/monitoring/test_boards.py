"""The dashboards of config/grafana as files: Grafana can load them, and a person can read them."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import yaml

from hack.dashboards.boards import BOARDS, FOLDER
from hack.dashboards.panels import WIDTH, Board
from hack.metrics import PARTS, Declared, declared

Panel = dict[str, Any]
METRIC = re.compile(
    r"\b(?:elasticjob|training_operator|controller_runtime|workqueue|rest_client|leader_election)_\w+"
)
LARGEST = 1 << 20
"""Bytes of a ConfigMap."""


def panels_of(board: Board) -> list[Panel]:
    """Return the panels of a dashboard's file."""
    found: list[Panel] = json.loads((FOLDER / f"{board.name}.json").read_text())["panels"]
    return found


named = pytest.mark.parametrize("board", BOARDS, ids=lambda board: board.name)


@named
def test_each_panel_says_how_to_read_it_and_asks_the_chosen_server(board: Board) -> None:
    for panel in panels_of(board):
        if panel["type"] != "row":
            assert panel["title"]
            assert panel["description"].endswith("."), panel["title"]
            assert panel["datasource"] == {"type": "prometheus", "uid": "${DS_PROMETHEUS}"}
            assert all(target["expr"] and target["legendFormat"] for target in panel["targets"])
            assert not Counter(target["refId"] for target in panel["targets"]) - Counter("ABCDEFGHIJ")


@named
def test_panels_lie_on_the_grid_without_overlap(board: Board) -> None:
    taken = Counter[tuple[int, int]]()
    for panel in panels_of(board):
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= WIDTH
        rows, columns = (range(place[a], place[a] + place[b]) for a, b in (("y", "h"), ("x", "w")))
        taken.update((row, column) for row in rows for column in columns)
    assert set(taken.values()) == {1}


def test_each_dashboard_has_the_variables_by_which_its_series_are_chosen() -> None:
    for board in BOARDS:
        model = json.loads((FOLDER / f"{board.name}.json").read_text())
        names = [each["name"] for each in model["templating"]["list"]]
        wanted = ["DS_PROMETHEUS", "namespace", *(["job"] if board.name != "fleet" else [])]
        assert (model["uid"], names) == (f"elasticjob-{board.name}", wanted)
        ids = [panel["id"] for panel in model["panels"]]
        assert len(ids) == len(set(ids))


@named
def test_each_metric_of_a_dashboard_is_one_of_a_program(board: Board) -> None:
    known = {each.name + suffix for part in PARTS for each in declared(part) for suffix in suffixes(each)}
    asked = {
        name
        for panel in panels_of(board)
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
        found = maps.pop(f"elasticjob-dashboard-{board.name}")
        assert found["metadata"]["labels"] == {"grafana_dashboard": "1"}
        assert found["data"] == {f"{board.name}.json": (FOLDER / f"{board.name}.json").read_text()}
        assert len(json.dumps(found)) < LARGEST
    assert not maps
