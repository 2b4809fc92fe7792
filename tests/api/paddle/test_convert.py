"""From a TrainingJob to its ElasticJob, field by field; and what is refused or noted."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticjob.api import crds
from elasticjob.api.paddle.convert import elasticjob_of, notes, problems, what_waits
from elasticjob.api.paddle.trainingjob import DECLARATION, TrainingJob
from lab.build.manifests import ABSENT, changed

EXAMPLE = yaml.safe_load((Path(__file__).parents[3] / "examples" / "trainingjob.yaml").read_text())
SMALL: dict[str, Any] = {
    "metadata": {"name": "job-1", "namespace": "lab"},
    "spec": {"image": "i", "trainer": {"entrypoint": "train", "min-instance": 2, "max-instance": 4}},
}
WORKER = "spec/replicaSpecs/worker"
POD = f"{WORKER}/template/spec"
MAIN = f"{POD}/containers/0"
MASTER = "spec/replicaSpecs/dlrover-master/template/spec"
PUBLISHED = Path(__file__).parent / "published"
RANGE = {"min-instance": 3, "max-instance": 5}
GPU, OLD_GPU = "nvidia.com/gpu", "alpha.kubernetes.io/nvidia-gpu"
REFUSED = "spec: its ElasticJob is refused: "


def made(changes: dict[str, Any], base: dict[str, Any] = SMALL) -> TrainingJob:
    return TrainingJob.model_validate(changed(base, changes))


def at(manifest: Any, path: str) -> Any:
    """Return what is at a path; None if nothing is."""
    for part in path.split("/"):
        manifest = manifest[int(part)] if isinstance(manifest, list) else manifest.get(part)
        if manifest is None:
            return None
    return manifest


@pytest.mark.parametrize(
    ("changes", "path", "expected"),
    [
        ({}, f"{MAIN}/image", "i"),
        ({}, f"{WORKER}/replicas", 2),
        ({}, f"{WORKER}/minReplicas", 2),
        ({}, f"{WORKER}/maxReplicas", 4),
        ({}, "spec/distributionStrategy", "AllreduceStrategy"),
        ({}, "spec/optimizeMode", "cluster"),
        ({"spec/trainer/max-instance": 2}, "spec/optimizeMode", "manual"),
        ({"spec/trainer/entrypoint": "python 'my train.py' -x"}, f"{MAIN}/command",
         ["python", "my train.py", "-x"]),
        ({"spec/trainer/entrypoint": ABSENT}, f"{MAIN}/command", None),
        ({"spec/trainer/workspace": "/home/job"}, f"{MAIN}/workingDir", "/home/job"),
        ({"spec/trainer/resources": {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}},
         f"{MAIN}/resources", {"requests": {"cpu": "500m"}, "limits": {"memory": "1Gi"}}),
        ({"spec/trainer/resources": {"limits": {OLD_GPU: 2}}}, f"{MAIN}/resources",
         {"requests": {GPU: 2}, "limits": {GPU: 2}}),
        ({"spec/pserver": RANGE}, "spec/distributionStrategy", "ParameterServerStrategy"),
        ({"spec/pserver": RANGE}, "spec/replicaSpecs/ps/replicas", 3),
        ({"spec/pserver": RANGE}, "spec/replicaSpecs/ps/autoScale", False),
        ({"spec/pserver": RANGE}, "spec/replicaSpecs/ps/template/spec/containers/0/image", "i"),
        ({"spec/master": {"resources": {"requests": {"cpu": "1"}}}},
         "spec/replicaSpecs/dlrover-master/template/spec/containers/0/resources", {"requests": {"cpu": "1"}}),
        ({"spec/master": {}}, MASTER, None),
        ({"spec/imagePullSecrets": [{"name": "s"}]}, f"{MASTER}/imagePullSecrets", [{"name": "s"}]),
        ({"spec/NodeSelector": {"disk": "ssd"}}, f"{MASTER}/nodeSelector", {"disk": "ssd"}),
        ({"spec/imagePullSecrets": [{"name": "s"}]}, f"{MASTER}/containers", [{"name": "main"}]),
        ({"spec/NodeSelector": {"disk": "ssd"}}, f"{MASTER}/containers", [{"name": "main"}]),
        ({"spec/hostNetwork": True}, MASTER, None),
        ({"spec/trainer/passes": 50}, f"{MAIN}/env/4", {"name": "PADDLE_INIT_NUM_PASSES", "value": "50"}),
        ({"spec/fault_tolerant": True}, f"{WORKER}/restartCount", None),
        ({"spec/fault_tolerant": False, "spec/trainer/max-instance": 2}, f"{WORKER}/restartCount", 0),
        ({"spec/port": 8000, "spec/ports_num": 2}, f"{MAIN}/ports",
         [{"name": f"jobport-{port}", "containerPort": port} for port in (8000, 8001, 8002)]),
        ({}, f"{MAIN}/ports/0/name", "jobport-7164"),
        ({"spec/passes": 7}, f"{MAIN}/env/4", {"name": "PADDLE_INIT_NUM_PASSES", "value": "7"}),
        ({"spec/volumes": [{"name": "v", "emptyDir": {}}]}, f"{POD}/volumes/0/name", "v"),
        ({"spec/VolumeMounts": [{"name": "v", "mountPath": "/v"}]}, f"{MAIN}/volumeMounts",
         [{"name": "v", "mountPath": "/v"}]),
        ({"spec/imagePullSecrets": [{"name": "s"}]}, f"{POD}/imagePullSecrets", [{"name": "s"}]),
        ({"spec/hostNetwork": True}, f"{POD}/hostNetwork", True),
        ({"spec/host_network": True}, f"{POD}/hostNetwork", True),
        ({"spec/NodeSelector": {"disk": "ssd"}}, f"{POD}/nodeSelector", {"disk": "ssd"}),
    ],
)  # fmt: skip
def test_what_follows_from_a_field(changes: dict[str, Any], path: str, expected: object) -> None:
    assert at(elasticjob_of(made(changes)), path) == expected


def test_the_manifest_of_the_design_is_accepted() -> None:
    job = TrainingJob.model_validate(changed(EXAMPLE, {"spec/fault_tolerant": ABSENT}))
    assert (problems(job), notes(job)) == ([], [])
    assert elasticjob_of(job)["spec"]["replicaSpecs"].keys() == {"worker", "ps", "dlrover-master"}


@pytest.mark.parametrize(
    ("name", "passes", "noted"),
    [
        ("fixed", "50", []),
        ("kube-batch", "10", ["spec.mountPath", "spec.schedulerName", "spec.podGroupName"]),
    ],
)
def test_published_manifests_run_as_they_are_written(name: str, passes: str, noted: list[str]) -> None:
    manifest = yaml.safe_load((PUBLISHED / f"{name}.yaml").read_text())
    (version,) = crds.manifest(DECLARATION)["spec"]["versions"]
    schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert not list(unknown(manifest["spec"], schema))
    job = TrainingJob.model_validate(manifest)
    assert problems(job) == []
    assert [each.path for each in notes(job)] == noted
    variables = {each["name"]: each["value"] for each in at(elasticjob_of(job), f"{MAIN}/env")}
    assert variables["PADDLE_INIT_NUM_PASSES"] == passes


def unknown(value: Any, schema: Any) -> Iterator[str]:
    """Find the fields that a server would refuse, since the schema lacks them."""
    if isinstance(value, dict) and "properties" in schema:
        yield from (name for name in value if name not in schema["properties"])
        for name in value.keys() & schema["properties"].keys():
            yield from unknown(value[name], schema["properties"][name])


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"spec/passes": 2, "spec/trainer/passes": 3}, "spec.passes: is not as spec.trainer.passes 3"),
        ({"spec/image": ABSENT}, "spec.image: is missing"),
        ({"spec/trainer/min-instance": 5}, "spec.trainer.min-instance: is more than max-instance 4"),
        ({"spec/pserver": RANGE | {"max-instance": 2}}, "spec.pserver.min-instance: is more than"),
        ({"spec/fault_tolerant": False}, "spec.fault_tolerant: is false, and the number of trainers may"),
        ({"spec/hostNetwork": True, "spec/host_network": False}, "spec.hostNetwork: is not as"),
        ({"spec/ports_num": 200}, "spec.ports_num: leads to 201 ports from 7164 on: use at most 100"),
        ({"spec/port": 65_535}, "spec.ports_num: leads to 2 ports from 65535 on"),
        ({"spec/trainer/entrypoint": "python 'train.py"}, "spec.trainer.entrypoint: has a quotation mark"),
        ({"spec/trainer/resources/request": {"cpu": 1}}, "spec.trainer.resources.request: is unknown"),
        ({"spec/trainer/resources": {"requests": 1}}, "spec.trainer.resources.requests: is no object"),
        ({"spec/master/resources/limits": {OLD_GPU: 1, GPU: 1}}, "spec.master.resources.limits: has"),
        ({"metadata/name": "Job_1"}, f"{REFUSED}metadata.name"),
        ({"spec/trainer/resources/requests": {"cpu": "many"}}, f"{REFUSED}spec.replicaSpecs[worker]"),
        ({"spec/volumes": [{"emptyDir": {}}]}, "spec.volumes[0].name: is missing"),
        ({"spec/volumes": [{"name": "data"}, {"name": "data"}]}, "spec.volumes[1].name: two volumes"),
        ({"spec/VolumeMounts": [{"name": "absent", "mountPath": "/v"}]}, f"{REFUSED}spec.replicaSpecs["),
    ],
)
def test_what_is_refused(changes: dict[str, Any], message: str) -> None:
    found = [str(each) for each in problems(made(changes))]
    assert found
    assert found[0].startswith(message)


def test_what_cannot_change() -> None:
    (found,) = problems(made({"spec/pserver": RANGE}), made({}))
    assert str(found).startswith("spec.pserver: cannot be added or removed while the job exists")
    assert problems(made({"spec/image": ABSENT}), made({"spec/image": ABSENT})) == []


@pytest.mark.parametrize(
    ("phase", "changes", "waits"),
    [
        ("running", {"spec/image": "other"}, True),
        ("running", {"spec/NodeSelector": {"disk": "ssd"}}, True),
        ("running", {"spec/trainer/max-instance": 6}, False),
        ("succeeded", {"spec/image": "other"}, False),
        (None, {"spec/image": "other"}, False),
    ],
)
def test_a_changed_template_waits_until_the_job_is_suspended(
    phase: str | None, changes: dict[str, Any], waits: bool
) -> None:
    old = made({"status/phase": phase})
    assert bool(what_waits(made(changes), old)) == waits


@pytest.mark.parametrize(
    ("changes", "note"),
    [
        ({"spec/master": {"etcd-endpoint": "http://etcd:2379"}}, "spec.master.etcd-endpoint: has no effect"),
        ({"spec/pserver": RANGE}, "spec.pserver.max-instance: has no effect: there are always 3"),
        ({"spec/trainer/entrypoint": "cd /data && python train.py"}, "spec.trainer.entrypoint: is not given"),
        ({"spec/trainer/entrypoint": "mpirun -np 2 train"}, "spec.trainer.entrypoint: mpirun reaches other"),
        ({"metadata/labels": {"runai/queue": "team"}}, "metadata.labels[runai/queue]: this has no effect"),
    ],
)
def test_what_is_noted(changes: dict[str, Any], note: str) -> None:
    (found,) = notes(made(changes))
    assert str(found).startswith(note)
