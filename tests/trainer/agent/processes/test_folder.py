"""The agent's folder: its own, gone at the end, and no others' heap up."""

from __future__ import annotations

from pathlib import Path

from elasticjob.trainer.agent.processes.folder import PREFIX, own_folder


def test_folder_is_removed_with_its_files(tmp_path: Path) -> None:
    with own_folder(tmp_path) as folder:
        (folder / "error-0.json").write_text("{}")
    assert list(tmp_path.iterdir()) == []


def test_folders_of_killed_agents_are_swept_and_those_of_living_ones_are_not(tmp_path: Path) -> None:
    killed = tmp_path / f"{PREFIX}killed"
    killed.mkdir()
    (killed / "error-0.json").write_text("{}")
    (tmp_path / "else").mkdir()
    with own_folder(tmp_path) as first, own_folder(tmp_path) as second:
        assert {path.name for path in tmp_path.iterdir()} == {first.name, second.name, "else"}
