"""docs/walkthrough.md, run with the real kubectl against a cluster with the operator beside it."""

from __future__ import annotations

import os
import shutil
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from elasticjob.cli.laptop import preloaded
from elasticjob.cli.laptop.laptop import operator_of
from elasticjob.kube.client.client import Client
from tests.kit.clusters.webhooks import heeded
from tests.kit.clusters.whole import WholeClusters
from tests.kit.console import Command, follow
from tests.kit.e2e import DIGITS, held

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "walkthrough.md"


@pytest.fixture
async def kubeconfig(whole_cluster: WholeClusters, tmp_path: Path) -> AsyncIterator[Path]:
    async with (
        whole_cluster(tmp_path, supervisor=preloaded.COMMAND) as cluster,
        operator_of(cluster.kubeconfig, tmp_path),
    ):
        async with Client(cluster.config()) as client:
            await heeded(client)
        yield cluster.kubeconfig


@pytest.mark.skipif(
    shutil.which("kubectl") is None, reason="no kubectl on PATH: the walkthrough is written for it"
)
@pytest.mark.story
@pytest.mark.timeout(1800)
async def test_walkthrough_shows_what_is_printed(kubeconfig: Path, tmp_path: Path) -> None:
    """The page's example, with a small network that trains until the page waits for its end."""
    root, gate = tmp_path / "root", tmp_path / "gate"
    example = root / DIGITS.relative_to(ROOT)
    example.parent.mkdir(parents=True)
    example.write_text(held(gate, epochs=50, width=4))

    def open_gate(command: Command) -> None:
        if "--for=condition=Complete" in command.command:
            gate.touch()

    await follow(PAGE, root, {**os.environ, "KUBECONFIG": str(kubeconfig)}, open_gate)
    assert gate.exists()
