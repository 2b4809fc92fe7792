"""The custom resource definitions on stdout are those of config/crd."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import yaml
from typer.testing import Result

from elasticjob.api.crds import DECLARATIONS
from lab.clusters.served import Served
from tests.kit.commands import invoke

ROOT = Path(__file__).parents[3]
FILES = sorted((ROOT / "config" / "crd").glob("*.yaml"))


def printed(*arguments: str) -> str:
    result = invoke(*arguments)
    assert result.exit_code == 0, result.stderr
    return result.stdout


def test_crds_are_those_of_the_repository() -> None:
    kept = [yaml.load(file.read_text(), yaml.CSafeLoader) for file in FILES]
    shown = list(yaml.load_all(printed("crds"), yaml.CSafeLoader))
    by_name = {one["metadata"]["name"]: one for one in kept}
    assert {one["metadata"]["name"]: one for one in shown} == by_name
    assert json.loads(printed("crds", "--output", "json"))["items"] == shown


def test_the_help_names_every_kind() -> None:
    shown = printed("crds", "--help")
    assert [each.kind.name for each in DECLARATIONS if each.kind.name not in shown] == []


async def test_crds_are_applied_and_what_changes_is_told_first(served: Served) -> None:
    async def apply(*arguments: str) -> Result:
        flags = ("--apply", "--kubeconfig", served.kubeconfig, *arguments)
        return await asyncio.to_thread(invoke, "crds", *flags)

    first = await apply("--template", "opaque")
    assert "elasticjobs.elastic.iml.github.io: " in first.stdout
    assert "6 definitions are applied and served" in first.stdout
    narrower = await apply("--template", "full")
    assert narrower.exit_code == 1
    assert "nothing was applied; apply with --allow-breaking" in narrower.stderr
    allowed = await apply("--allow-breaking")
    assert (allowed.exit_code, "6 definitions are applied" in allowed.stdout) == (0, True)
