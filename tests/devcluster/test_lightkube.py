"""The documented examples of lightkube, on a dev cluster."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

lightkube = pytest.importorskip("lightkube")

from lightkube.config.kubeconfig import KubeConfig  # noqa: E402 - skipped where it is not installed
from lightkube.models.meta_v1 import ObjectMeta  # noqa: E402
from lightkube.resources.apps_v1 import Deployment  # noqa: E402
from lightkube.resources.core_v1 import ConfigMap, Pod  # noqa: E402
from lightkube.types import PatchType  # noqa: E402

from tests.kit.devcluster.live import Live, manifest  # noqa: E402


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")  # it never closes sockets
async def test_documented_examples(cluster: Live) -> None:
    await asyncio.to_thread(_examples, cluster.cluster.kubeconfig)


def _examples(kubeconfig: Path) -> None:
    client = lightkube.Client(KubeConfig.from_file(kubeconfig), field_manager="me")
    config = ConfigMap(metadata=ObjectMeta(name="c", namespace="default"), data={"key": "value"})
    client.create(config)
    assert client.get(ConfigMap, name="c").data == {"key": "value"}
    client.patch(ConfigMap, "c", {"data": {"more": "x"}}, patch_type=PatchType.MERGE)
    config.apiVersion, config.kind, config.data = "v1", "ConfigMap", {"key": "other"}
    assert client.apply(config, force=True).data == {"key": "other", "more": "x"}
    assert "c" in {each.metadata.name for each in client.list(ConfigMap)}

    spec = {"containers": [{"name": "main", "image": "python:3.11"}]}
    template = {"metadata": {"labels": {"app": "d"}}, "spec": spec}
    body = {"replicas": 2, "selector": {"matchLabels": {"app": "d"}}, "template": template}
    client.create(Deployment.from_dict({"metadata": {"name": "d", "namespace": "default"}, "spec": body}))
    scale = Deployment.Scale.from_dict(
        {"metadata": {"name": "d", "namespace": "default"}, "spec": {"replicas": 1}}
    )
    client.replace(scale, "d")
    assert client.get(Deployment, name="d").spec.replicas == 1

    client.create(Pod.from_dict(manifest("p", "sh", "-c", "echo hello; sleep 0.2; exit 0")))
    for event, pod in client.watch(Pod, fields={"metadata.name": "p"}):
        if event != "DELETED" and pod.status and pod.status.phase == "Succeeded":
            break
    assert [line.strip() for line in client.log("p")] == ["hello"]
    for kind, name in ((Pod, "p"), (Deployment, "d"), (ConfigMap, "c")):
        client.delete(kind, name)
    with pytest.raises(lightkube.ApiError, match="not found"):
        client.get(ConfigMap, name="c")
