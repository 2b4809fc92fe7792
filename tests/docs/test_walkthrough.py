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
from tests.kit.console import follow

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "walkthrough.md"
EPOCHS = 80


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
@pytest.mark.long
@pytest.mark.timeout(1800)
async def test_walkthrough_shows_what_is_printed(kubeconfig: Path, tmp_path: Path) -> None:
    folder = shorter(tmp_path)
    await follow(PAGE, folder, {**os.environ, "KUBECONFIG": str(kubeconfig)})


def shorter(folder: Path) -> Path:
    """Return a folder that has the page's example as the repository's root has it, but of fewer epochs."""
    text = (ROOT / "examples" / "digits" / "job.yaml").read_text()
    assert '--epochs, "130"' in text
    example = folder / "root" / "examples" / "digits" / "job.yaml"
    example.parent.mkdir(parents=True)
    example.write_text(text.replace('--epochs, "130"', f'--epochs, "{EPOCHS}"'))
    return folder / "root"
