"""The custom resource definitions on stdout are those of config/crd."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
import yaml
from typer.testing import CliRunner, Result

from elasticjob.cli.main import application
from tests.kit.clusters.served import Served

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "config" / "crd").glob("*.yaml"))


def printed(*arguments: str) -> str:
    result = CliRunner().invoke(application(arguments), list(arguments))
    assert result.exit_code == 0, result.stderr
    return result.stdout


@pytest.mark.parametrize("output", ["yaml", "json"])
def test_crds_are_those_of_the_repository(output: str) -> None:
    text = printed("crds", "--output", output)
    shown = json.loads(text)["items"] if output == "json" else list(yaml.load_all(text, yaml.CSafeLoader))
    assert {one["metadata"]["name"]: one for one in shown} == {
        one["metadata"]["name"]: one
        for one in (yaml.load(file.read_text(), yaml.CSafeLoader) for file in FILES)
    }


async def test_crds_are_applied_and_what_changes_is_told_first(served: Served) -> None:
    def apply(*arguments: str) -> Result:
        given = ["crds", "--apply", "--kubeconfig", str(served.kubeconfig), *arguments]
        return CliRunner().invoke(application(given), given)

    first, wider, narrower = [
        await asyncio.to_thread(apply, *more)
        for more in ([], ["--template", "opaque"], ["--template", "full"])
    ]
    assert "elasticjobs.elastic.iml.github.io: " in first.stdout
    assert "6 definitions are applied and served" in first.stdout
    assert "elasticjobs.elastic.iml.github.io: no breaking change" in wider.stdout
    assert narrower.exit_code == 1
    assert "nothing was applied; apply with --allow-breaking" in narrower.stderr
    allowed = await asyncio.to_thread(apply, "--allow-breaking")
    assert (allowed.exit_code, "6 definitions are applied" in allowed.stdout) == (0, True)
