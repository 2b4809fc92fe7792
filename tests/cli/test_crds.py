"""The custom resource definitions on stdout are those of config/crd."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner

from elasticjob.cli.main import application

ROOT = Path(__file__).parents[2]
FILES = sorted((ROOT / "config" / "crd").glob("*.yaml"))


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(application(arguments), list(arguments))
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_crds_are_those_of_the_repository(output: str) -> None:
    text = printed("crds", "--output", output)
    shown = json.loads(text)["items"] if output == "json" else list(yaml.safe_load_all(text))
    assert {one["metadata"]["name"]: one for one in shown} == {
        one["metadata"]["name"]: one for one in (yaml.safe_load(file.read_text()) for file in FILES)
    }
