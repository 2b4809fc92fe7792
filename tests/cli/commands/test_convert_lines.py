"""`elasticjob convert -- torchrun …`: a command line in place of files, and the files that it names."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from elasticjob.cli.commands.convert import convert


def test_words_that_call_a_launcher_are_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "hosts").write_text("a slots=2\nb slots=2\n")
    assert convert(["deepspeed", "--hostfile", "hosts", "train.py", "--name", "a b"]) == 0
    told = capsys.readouterr()
    role = yaml.safe_load(told.out)["spec"]["replicaSpecs"]["worker"]
    assert role["replicas"] == 2
    assert role["template"]["spec"]["containers"][0]["command"] == [
        *("elasticjob", "run", "--nproc-per-node", "2", "train.py", "--name", "a b")
    ]
    assert "command:1 --hostfile: kept (2 hosts" in told.err


def test_a_file_of_that_name_is_a_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "torchrun").write_text("srun torchrun other.py\n")
    assert convert(["torchrun"]) == 0
    assert "other.py" in capsys.readouterr().out
