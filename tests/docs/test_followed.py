"""Pages that are run as they stand, with the real kubectl and Helm: on devcluster, or with the real Kueue on
a real control plane; and the script of docs/training.md.
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
import yaml

from elasticjob.cli.laptop import preloaded
from elasticjob.cli.laptop.laptop import operator_of
from elasticjob.controllers.install import install
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import NODE
from elasticjob.trainer import torch as public
from lab.clusters.binaries import Places, catalog
from lab.clusters.installed.helm import program, templated
from lab.clusters.plane import pretended
from lab.clusters.plane.kueue import why_missing
from lab.clusters.plane.whole_kueue import real_kueue
from lab.clusters.served import devcluster_server
from lab.clusters.webhooks import heeded
from lab.clusters.whole import WholeClusters
from lab.jobs.job import DIGITS, held
from lab.waiting import PATIENCE
from tests.kit.blocks import blocks, yaml_problems
from tests.kit.console import Command, follow, run
from tests.kit.controllers.whole_kueue import operator

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
ARGOCD = ROOT / "examples" / "argocd"
MONITORS = Places.of().find(catalog().programs["monitoring-definitions"])
MONITORING = ("podmonitors", "prometheusrules", "servicemonitors")
with_helm = pytest.mark.skipif(HELM is None, reason="no helm: hack/kube-binaries helm builds it")
with_kubectl = pytest.mark.skipif(shutil.which("kubectl") is None, reason="the pages are written for kubectl")
HERE = "tests/docs/test_followed.py"
EXCEPTIONS = {
    "helm push ": ("tests/chart/test_chart.py", "test_a_registry_carries_the_chart"),
    "helm install elasticjob oci://": ("tests/chart/test_chart.py", "test_a_registry_carries_the_chart"),
    "helm install … --set userId=0": ("tests/chart/rows.yaml", "userId=0"),
    "kubectl apply -f examples/argocd/": (
        "tests/docs/test_followed.py",
        "test_applications_name_what_is_there",
    ),
    "$ kubectl get --raw /api/v1/namespaces/": ("tests/node/test_memory.py", "/proxy/status"),
    "$ kubectl -n NAMESPACE exec svc/JOB-master": ("tests/master/serving/test_server.py", '"/status"'),
    "argocd app actions run ": ("tests/argocd/test_customizations.py", "test_an_action_changes_what_it_says"),
}
"""Commands that need a registry, OpenShift, a kubelet or Argo CD's server, and what is checked instead."""
FOLLOWED = ("chart", "gitops", "install", "kueue", "monitoring")


def test_each_command_is_followed_or_an_exception() -> None:
    read = (each for page in FOLLOWED for each in blocks(ROOT / "docs" / f"{page}.md"))
    lines = [line for each in read if each.language in ("", "bash", "sh") for line in each.text.splitlines()]
    known = {line: [name for name in EXCEPTIONS if line.startswith(name)] for line in lines}
    assert [line for line, names in known.items() if not names] == []
    assert {name for names in known.values() for name in names} == {*EXCEPTIONS}
    assert len(EXCEPTIONS) <= 8
    assert all(name in (ROOT / file).read_text() for file, name in EXCEPTIONS.values())


def linked(folder: Path) -> Path:
    """A folder in which the commands of a page find the repository's files, and may write their own."""
    for name in ("charts", "config", "examples"):
        (folder / name).symlink_to(ROOT / name)
    return folder


async def begin(command: str, folder: Path, environment: dict[str, str]) -> None:
    """Do what a page takes for granted."""
    code, printed = await run(Command(0, command, ()), folder, environment)
    assert code == 0, printed


@pytest.fixture
async def environment(tmp_path: Path) -> AsyncIterator[dict[str, str]]:
    """That of a shell with kubectl and Helm, and a devcluster."""
    path = os.pathsep.join([os.environ["PATH"], *([str(Path(HELM).parent)] if HELM else [])])
    async with devcluster_server(tmp_path) as served:
        yield {**os.environ, "PATH": path, "KUBECONFIG": str(served.kubeconfig)}


@with_kubectl
@pytest.mark.story
@with_helm
async def test_install_shows_what_is_printed(environment: dict[str, str], tmp_path: Path) -> None:
    await follow(ROOT / "docs" / "install.md", linked(tmp_path), environment)


@with_kubectl
@pytest.mark.story
@with_helm
@pytest.mark.skipif(shutil.which("promtool") is None, reason="promtool is not installed")
@pytest.mark.skipif(MONITORS is None, reason="hack/kube-binaries chart brings the definitions of monitors")
async def test_monitoring_shows_what_is_printed(environment: dict[str, str], tmp_path: Path) -> None:
    """Where the operator is installed, and the kinds of prometheus-operator are there."""
    kinds = " ".join(f"-f {MONITORS}/monitoring.coreos.com_{kind}.yaml" for kind in MONITORING)
    there = f"kubectl apply --server-side {kinds} -f config/operator/namespace.yaml"
    installed = "helm install elasticjob charts/elasticjob --namespace elasticjob-system"
    await begin(f"{there} && {installed}", linked(tmp_path), environment)
    await follow(ROOT / "docs" / "monitoring.md", tmp_path, environment)


@with_kubectl
async def test_gitops_shows_what_is_printed(environment: dict[str, str], tmp_path: Path) -> None:
    """Where Argo CD's own ConfigMap is there."""
    there = "kubectl create configmap argocd-cm -n argocd --from-literal=a=b"
    await begin(f"kubectl create namespace argocd && {there}", linked(tmp_path), environment)
    await follow(ROOT / "docs" / "gitops.md", tmp_path, environment)


@with_helm
def test_applications_name_what_is_there() -> None:
    """Those of Argo CD: the folder of jobs, which admission takes, and values that the chart knows."""
    operator, jobs = (yaml.safe_load((ARGOCD / f"{name}.yaml").read_text()) for name in ("operator", "jobs"))
    found = [file.read_text() for file in (ROOT / jobs["spec"]["source"]["path"]).iterdir()]
    assert [problem for each in found for problem in yaml_problems(each)] == []
    templated(values=operator["spec"]["source"]["helm"]["valuesObject"])


@with_kubectl
@pytest.mark.plane
@pytest.mark.skipif(bool(why_missing()), reason=why_missing())
async def test_kueue_shows_what_is_printed(tmp_path: Path) -> None:
    """With the real Kueue, on machines that only pretend."""
    amounts = {"cpu": "128", "memory": "1Ti", "pods": "110", "nvidia.com/gpu": "16"}
    labels = {"nvidia.com/gpu.present": "true"}
    async with real_kueue(tmp_path) as client:
        await install(client)
        await client.create(NODE.untyped(), pretended.machine("gpus", amounts, labels))
        async with operator(client):
            kubeconfig = {"KUBECONFIG": str(tmp_path / "plane" / "admin.kubeconfig")}
            await follow(ROOT / "docs" / "kueue.md", linked(tmp_path), {**os.environ, **kubeconfig})


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
