"""Pages that are run as they stand: docs/install.md, docs/walkthrough.md and docs/tutorial.md with the real
kubectl (and Helm), and the script of docs/training.md.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from elasticjob.cli.laptop import preloaded
from elasticjob.cli.laptop.laptop import operator_of
from elasticjob.kube.client.client import Client
from elasticjob.trainer import torch as public
from lab.clusters.installed.helm import program
from lab.clusters.served import devcluster_server
from lab.clusters.webhooks import heeded
from lab.clusters.whole import WholeClusters
from lab.jobs.job import DIGITS, held
from lab.waiting import PATIENCE
from tests.kit.console import Command, follow

ROOT = Path(__file__).parents[2]
TUTORIAL = ROOT / "docs" / "tutorial.md"
PAUSE = "    time.sleep(0.1)\n"
UNTIL = """\
    import pathlib
    gate = pathlib.Path({gate!r})
    time.sleep(0 if gate.exists() else 0.3)
    while step.epoch >= 149 and not gate.exists():
        time.sleep(0.01)
"""
HELM = program()
with_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="the pages are written for kubectl")


@with_kubectl
@pytest.mark.story
@pytest.mark.skipif(HELM is None, reason="no helm: hack/kube-binaries helm builds it")
async def test_install_shows_what_is_printed(tmp_path: Path) -> None:
    path = f"{os.environ['PATH']}{os.pathsep}{Path(str(HELM)).parent}"
    async with devcluster_server(tmp_path) as served:
        environment = {**os.environ, "PATH": path, "KUBECONFIG": str(served.kubeconfig)}
        await follow(ROOT / "docs" / "install.md", ROOT, environment)


@pytest.fixture
async def kubeconfig(whole_cluster: WholeClusters, tmp_path: Path) -> AsyncIterator[Path]:
    async with (
        whole_cluster(tmp_path, supervisor=preloaded.COMMAND) as cluster,
        operator_of(cluster.kubeconfig, tmp_path),
    ):
        async with Client(cluster.config()) as client:
            await heeded(client)
        yield cluster.kubeconfig


@with_kubectl
@pytest.mark.story
@pytest.mark.timeout(1800)
async def test_walkthrough_shows_what_is_printed(kubeconfig: Path, tmp_path: Path) -> None:
    """With the operator beside the cluster, and the page's example with a small network that trains until
    the page waits for its end.
    """
    root, gate = tmp_path / "root", tmp_path / "gate"
    example = root / DIGITS.relative_to(ROOT)
    example.parent.mkdir(parents=True)
    example.write_text(held(gate, epochs=50, width=4))

    def open_gate(command: Command) -> None:
        if "--for=condition=Complete" in command.command:
            gate.touch()

    environment = {**os.environ, "KUBECONFIG": str(kubeconfig)}
    await follow(ROOT / "docs" / "walkthrough.md", root, environment, open_gate)
    assert gate.exists()


@with_kubectl
@pytest.mark.story
@pytest.mark.timeout(1800)
async def test_tutorial_shows_what_is_printed(kubeconfig: Path, tmp_path: Path) -> None:
    """With the page's script, which waits before its last epoch until the page waits for its end."""
    gate, folder = tmp_path / "gate", tmp_path / "folder"
    (script,) = re.findall(r"^```python\n(.*?)^```", TUTORIAL.read_text(), re.MULTILINE | re.DOTALL)
    assert script.count(PAUSE) == 1
    folder.mkdir()
    (folder / "train.py").write_text(script.replace(PAUSE, UNTIL.format(gate=str(gate))))

    def open_gate(command: Command) -> None:
        if command.command == "elasticjob wait line --timeout 10m":
            gate.touch()

    path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "KUBECONFIG": str(kubeconfig), "PATH": path, "PYTHONPATH": str(ROOT)}
    await follow(TUTORIAL, folder, environment, open_gate)
    assert gate.exists()


@pytest.mark.story
def test_the_script_of_the_training_page_uses_every_public_name_and_runs(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "training.md").read_text()
    blocks = re.findall(r"^```python\n(.*?)^```", page, re.MULTILINE | re.DOTALL)
    (script,) = [block for block in blocks if block.startswith("import torch\n")]
    assert all(re.search(rf"\b{name}\b", script) for name in public.__all__)
    assert len(public.__all__) <= 15
    (tmp_path / "train.py").write_text(script)
    done = subprocess.run(
        [sys.executable, tmp_path / "train.py"], capture_output=True, text=True, timeout=PATIENCE
    )
    assert done.returncode == 0, done.stderr
    losses = [float(found) for found in re.findall(r"'loss': ([\d.e-]+)", done.stdout)]
    assert len(losses) == 2
    assert losses[1] < losses[0]
