"""An upgrade of the definitions keeps every stored object: the same fields, read and written as before."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from copy import deepcopy
from typing import Any, Final

import pytest
import yaml

from elasticjob.api.crds import DECLARATIONS, manifests
from elasticjob.kube.client.client import Client
from elasticjob.kube.crd.installing import install
from elasticjob.kube.objects.kinds import Kind, Manifest
from lab.paths import ROOT

BEFORE_TAGS: Final = "a5548db8"
"""The release before, as long as there is no tag: a commit whose definitions lack many fields."""
JOB: Final[Manifest] = {"apiVersion": "elastic.iml.github.io/v1alpha1", "kind": "ElasticJob"}
PLAN: Final[Manifest] = {
    "apiVersion": "elastic.iml.github.io/v1alpha1",
    "kind": "ScalePlan",
    "metadata": {"name": "digits-user-1", "labels": {"scale-type": "manual"}},
    "spec": {
        "ownerJob": "digits",
        "manualScaling": True,
        "reason": "the user asks for worker 3",
        "replicaResourceSpecs": {"worker": {"replicas": 3, "resource": {"cpu": "2", "memory": "4Gi"}}},
        "createPods": [{"name": "digits-worker-2", "type": "worker", "id": 2, "rankIndex": 2}],
        "removePods": [{"name": "digits-worker-0"}],
        "psHosts": ["digits-ps-0:2222"],
    },
    "status": {"phase": "Succeeded", "observedGeneration": 1, "startTime": "2026-11-23T10:00:00Z"},
}
RESOURCE: Final[Manifest] = {
    "apiVersion": "elastic.iml.github.io/v1alpha1",
    "kind": "JobResource",
    "metadata": {"name": "digits"},
    "spec": {
        "selector": {"name": "digits"},
        "suspend": False,
        "replicaResourceSpecs": {"worker": {"replicas": 2, "resource": {"memory": "8Gi"}}},
    },
    "status": {
        "replicaStatuses": {"worker": {"desired": 2, "current": 2, "ready": 1}},
        "restarts": {"worker": {"0": 1}},
        "selector": "elasticjob.dlrover/name=digits",
    },
}
JOB_STATUS: Final[Manifest] = {
    "phase": "Running",
    "observedGeneration": 1,
    "startTime": "2026-11-23T10:00:00Z",
    "restarts": 1,
    "conditions": [
        {
            "type": "Running",
            "status": "True",
            "reason": "NodesRun",
            "message": "2 of 2 nodes run",
            "lastTransitionTime": "2026-11-23T10:00:00Z",
        }
    ],
}


def git(*words: str) -> str:
    return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=True).stdout


@pytest.fixture(scope="module")
def older() -> list[Manifest]:
    """The definitions of the newest tag before this commit, or of BEFORE_TAGS."""
    try:
        tags = git("tag", "--merged", "HEAD^", "--sort=-creatordate", "v*").split()
        commit = tags[0] if tags else BEFORE_TAGS
        files = git("ls-tree", "--name-only", f"{commit}", "config/crd/").split()
        return [yaml.load(git("show", f"{commit}:{file}"), yaml.CSafeLoader) for file in files]
    except subprocess.CalledProcessError as error:
        pytest.skip(f"this checkout has no history: {error.stderr.strip()}")


def objects() -> Iterator[Manifest]:
    """Yield objects of our kinds as users and programs write them."""
    ours = {declaration.kind.name for declaration in DECLARATIONS}
    for file in sorted((ROOT / "examples").rglob("*.yaml")):
        for one in yaml.safe_load_all(file.read_text()):
            if one and one["kind"] in ours:
                yield one | ({"status": JOB_STATUS} if one["kind"] == JOB["kind"] else {})
    yield from (PLAN, RESOURCE)


def kind_of(definition: Manifest) -> Kind[Manifest]:
    spec = definition["spec"]
    return Kind(
        spec["group"], spec["versions"][0]["name"], spec["names"]["kind"], spec["names"]["plural"], dict
    )


def content(stored: Manifest) -> dict[str, Any]:
    """Return what is the user's and the operator's of a stored object."""
    metadata = {key: stored["metadata"].get(key) for key in ("name", "labels", "annotations", "uid")}
    return {"metadata": metadata, "spec": stored.get("spec"), "status": stored.get("status")}


async def test_objects_of_the_release_before_are_read_and_written_after_an_upgrade(
    client: Client, namespace: str, older: list[Manifest]
) -> None:
    await install(client, older, "test")
    kinds = {definition["spec"]["names"]["kind"]: kind_of(definition) for definition in older}
    stored = []
    for given in objects():
        if (kind := kinds.get(given["kind"])) is None:
            continue  # a kind that is newer
        made = await client.create(kind, {key: given[key] for key in given if key != "status"}, namespace)
        if "status" in given:
            patch = {"status": given["status"]}
            made = await client.merge_patch(
                kind, made["metadata"]["name"], patch, namespace=namespace, subresource="status"
            )
        stored.append((kind, content(made)))
    assert {kind.name for kind, _ in stored} >= {"ElasticJob", "ScalePlan", "JobResource"}

    newer = manifests()
    await install(client, newer, "test")

    for kind, before in stored:
        name = before["metadata"]["name"]
        found = await client.get(kind, name, namespace)
        assert content(found) == before
        changed = deepcopy(found)
        changed["metadata"].setdefault("labels", {})["touched"] = "yes"
        await client.replace(kind, changed)
        after = content(await client.get(kind, name, namespace))
        assert after["spec"] == before["spec"]
        assert after["status"] == before["status"]
        assert after["metadata"]["labels"]["touched"] == "yes"
