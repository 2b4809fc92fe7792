"""What is wanted of a job, and the objects that say so."""

from __future__ import annotations

import base64
import inspect
import typing
from dataclasses import fields
from pathlib import Path
from typing import Any

import pytest

from elasticjob.cli.commands.jobs.submit import submit
from elasticjob.client import Refused, Unusable
from elasticjob.client.code import Code
from elasticjob.client.objects import IMAGE, JobOptions, Options, meant_otherwise, objects, stem
from elasticjob.devcluster.node.container.environment import expand

CODE = Code({"train.py": b"print(1)\n"}, "train.py", ("--epochs", "3"))


def spec(code: Code = CODE, **options: Any) -> dict[str, Any]:
    made: dict[str, Any] = objects(code, JobOptions(**options), namespace="team", unique="x7k2p").job["spec"]
    return made


def pod(**options: Any) -> dict[str, Any]:
    found: dict[str, Any] = spec(**options)["replicaSpecs"]["worker"]["template"]["spec"]
    return found


def test_the_least_job_runs_the_script_of_its_config_map() -> None:
    made = objects(CODE, JobOptions(), namespace="team", unique="x7k2p")
    assert made.job["metadata"] == {"name": "train-x7k2p", "namespace": "team"}
    assert made.code["metadata"]["name"] == "train-x7k2p-code"
    assert (made.code["immutable"], made.code["data"]) == (True, {"train.py": "print(1)\n"})
    (main,) = pod()["containers"]
    assert main["command"] == ["elasticjob", "run", "/code/train.py"]
    assert (main["args"], main["image"], main.get("resources")) == (["--epochs", "3"], IMAGE, None)
    assert pod()["volumes"] == [{"name": "code", "configMap": {"name": "train-x7k2p-code"}}]
    assert "runPolicy" not in spec()


def test_each_option_has_its_field() -> None:
    worker = spec(workers=(1, 4), restarts=5)["replicaSpecs"]["worker"]
    assert (worker["minReplicas"], worker["maxReplicas"], worker["restartCount"]) == (1, 4, 5)
    assert "replicas" not in worker
    made = spec(
        queue="batch", priority_class="low", deadline_seconds=60, ttl_seconds=0, env={"A": "1"}, suspend=True
    )
    scheduling = {"queue": "batch", "priorityClassName": "low"}
    assert made["runPolicy"] == {
        "activeDeadlineSeconds": 60,
        "ttlSecondsAfterFinished": 0,
        "scheduling": scheduling,
    }
    assert (made["envs"], made["suspend"]) == ({"A": {"value": "1"}}, True)
    (main,) = pod(cpu="2", memory="4Gi", gpus=2)["containers"]
    assert main["command"][2:4] == ["--nproc-per-node", "2"]
    assert main["resources"] == {
        "requests": {"cpu": "2", "memory": "4Gi"},
        "limits": {"memory": "4Gi", "nvidia.com/gpu": "2"},
    }


QUEUES = [
    ({"queue": "a"}, {"queue": "a"}, "name a gang, volcano for that queue, or none"),
    ({"queue": "a", "gang": "volcano"}, {"queue": "a", "gang": "volcano"}, ""),
    ({"queue": "a", "gang": "none"}, {"queue": "a", "gang": "none"}, ""),
    ({"gang": "coscheduling"}, {"gang": "coscheduling"}, ""),
]


@pytest.mark.parametrize(("options", "scheduling", "warning"), QUEUES)
def test_a_queue_is_what_the_api_calls_so(options: Any, scheduling: Any, warning: str) -> None:
    assert spec(**options)["runPolicy"] == {"scheduling": scheduling}
    told = meant_otherwise(JobOptions(**options))
    assert warning in told
    assert bool(told) is bool(warning)


FLAGS = {"gpus": "gpu", "packages": "package", "volumes": "volume", "labels": "label", "env": "env"}
FLAGS |= {"deadline_seconds": "deadline", "ttl_seconds": "ttl"}


def test_each_option_is_declared_alike_for_programs_and_for_people() -> None:
    flags = inspect.signature(submit).parameters
    page = (Path(__file__).parents[2] / "docs" / "client.md").read_text()
    for each in fields(JobOptions):
        default = flags[FLAGS.get(each.name, each.name)].default
        assert default == each.default or not (default or each.default) or each.default in (1, IMAGE)
        assert f"`{each.name}`" in page


def test_claims_are_mounted_and_the_script_is_told_where_checkpoints_go() -> None:
    made = spec(checkpoint="claim:/checkpoints", volumes=["data:/data"])
    assert made["envs"] == {"CHECKPOINT_PATH": {"value": "/checkpoints"}}
    found = made["replicaSpecs"]["worker"]["template"]["spec"]
    claims = [each["persistentVolumeClaim"]["claimName"] for each in found["volumes"][1:]]
    paths = [each["mountPath"] for each in found["containers"][0]["volumeMounts"]]
    assert (claims, paths) == (["claim", "data"], ["/code", "/checkpoints", "/data"])


def test_files_of_folders_and_of_bytes_keep_their_paths() -> None:
    code = Code({"pkg/a b.py": b"", "train.py": b"", "x.bin": b"\xff"}, "train.py")
    made = objects(code, JobOptions(name="it"), namespace="team", unique="")
    assert made.code["data"] == {"0-pkg_a_b.py": "", "train.py": ""}
    assert base64.b64decode(made.code["binaryData"]["x.bin"]) == b"\xff"
    (volume,) = made.job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["volumes"]
    assert volume["configMap"]["items"][0] == {"key": "0-pkg_a_b.py", "path": "pkg/a b.py"}


def test_no_file_takes_the_key_of_another() -> None:
    paths = ("1-a_b", "a/b", "..odd", "x" * 100 + "/" + "y" * 200 + ".py", "train.py")
    made = objects(
        Code({path: path.encode() for path in paths}, "train.py"), JobOptions(), namespace="team", unique="x"
    )
    volume = made.job["spec"]["replicaSpecs"]["worker"]["template"]["spec"]["volumes"][0]["configMap"]
    assert {item["path"]: made.code["data"][item["key"]] for item in volume["items"]} == {
        path: path for path in paths
    }
    assert all(len(key) <= 253 and not key.startswith("..") for key in made.code["data"])


def test_arguments_and_variables_reach_the_script_as_they_are_written() -> None:
    found = spec(Code({"train.py": b""}, "train.py", ("pa$$x", "$(HOME)", 'a "b')), env={"KEY": "s$$t"})
    main = found["replicaSpecs"]["worker"]["template"]["spec"]["containers"][0]
    assert [expand(word, {"HOME": "/root"}) for word in main["args"]] == ["pa$$x", "$(HOME)", 'a "b']
    assert expand(found["envs"]["KEY"]["value"], {}) == "s$$t"


def test_packages_are_installed_before_a_node_starts() -> None:
    found = pod(packages=["numpy==2.1"], image="python:3")
    (installer,), (main,) = found["initContainers"], found["containers"]
    assert installer["command"][-1] == "numpy==2.1"
    assert installer["image"] == "python:3"
    compile(installer["command"][2], "install", "exec")
    assert main["env"] == [{"name": "PYTHONPATH", "value": "/packages/site"}]
    assert "runAsUser" not in found["securityContext"]


@pytest.mark.parametrize(
    ("options", "error", "field"),
    [
        ({"name": "Digits"}, Refused, "metadata.name"),
        ({"workers": (5, 4)}, Refused, "spec.replicaSpecs[worker].minReplicas"),
        ({"workers": 0}, Unusable, "workers"),
        ({"workers": "1:"}, Unusable, "workers"),
        ({"workers": "2:1"}, Refused, "spec.replicaSpecs[worker].minReplicas"),
        ({"env": {"1 A": ""}}, Refused, "spec.envs[1 A]"),
        ({"cpu": "much"}, Refused, "spec.replicaSpecs[worker].template"),
        ({"checkpoint": "claim"}, Unusable, "volumes"),
        ({"restarts": -1}, Refused, "spec.replicaSpecs.worker.restartCount"),
        ({"deadline_seconds": 0}, Refused, "spec.runPolicy.activeDeadlineSeconds"),
        ({"env": {"EPOCHS": 3}}, Refused, "spec.envs.EPOCHS.value"),
    ],
)
def test_what_a_webhook_would_refuse_is_refused_with_the_field(
    options: dict[str, Any], error: type[Refused | Unusable], field: str
) -> None:
    with pytest.raises(error) as raised:
        spec(**options)
    assert raised.value.field.startswith(field)


@pytest.mark.parametrize(
    ("text", "begins"),
    [("train", "train"), ("My_Model", "my-model"), ("3d", "job-3d"), ("__", "job"), ("x" * 60, "x" * 40)],
)
def test_a_name_begins_as_the_file_does(text: str, begins: str) -> None:
    assert stem(text) == begins


def test_options_are_the_fields_of_what_is_wanted() -> None:
    assert [each.name for each in fields(JobOptions)] == list(typing.get_type_hints(Options))
