"""`elasticjob convert`: jobs on stdout, what became of each field on stderr, and exit codes."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
import yaml

from elasticjob.api.crds import manifest
from elasticjob.api.paddle.trainingjob import DECLARATION as PADDLE
from elasticjob.api.paddle.trainingjob import TRAININGJOB
from elasticjob.cli.errors import Exit
from elasticjob.kube.client.client import Client
from elasticjob.kube.crd.installing import install
from lab.build.manifests import TRAINING
from lab.clusters.served import Served
from tests.kit.commands import invoke

JOB = """\
apiVersion: kubeflow.org/v1
kind: PyTorchJob
metadata: {name: digits}
spec:
  elasticPolicy:
    minReplicas: 1
    maxReplicas: 4
  pytorchReplicaSpecs:
    Worker:
      replicas: 2
      template:
        spec:
          containers:
          - {name: main, image: i, command: [torchrun, train.py]}
"""
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\n"


def run(*arguments: str, given: str | None = None) -> tuple[int, str, str]:
    found = invoke("convert", *arguments, given=given)
    return found.exit_code, found.stdout, found.stderr


def test_a_job_comes_out_and_each_field_is_told(tmp_path: Path) -> None:
    file = tmp_path / "job.yaml"
    file.write_text(JOB)
    code, shown, told = run(str(file))
    assert code == Exit.DONE
    [made] = yaml.safe_load_all(shown)
    assert made["apiVersion"] == "elastic.iml.github.io/v1alpha1"
    assert made["spec"]["replicaSpecs"]["worker"]["maxReplicas"] == 4
    assert (
        f"{file}:6 spec.elasticPolicy.minReplicas: kept (as spec.replicaSpecs.worker.minReplicas)"
        in told.splitlines()
    )


def test_standard_input_is_read_without_a_name_too() -> None:
    for arguments in ((), ("-",)):
        code, shown, told = run(*arguments, given=JOB)
        assert (code, yaml.safe_load(shown)["metadata"]) == (Exit.DONE, {"name": "digits"})
        assert told.startswith("stdin:1 apiVersion: kept")


def test_strict_fails_where_something_is_lost() -> None:
    assert run("--strict", given=JOB)[0] == Exit.DONE
    code, shown, told = run("--strict", "--quiet", given=f"{JOB}  priority: 5\n")
    assert code == Exit.FAILED
    assert yaml.safe_load(shown)["kind"] == "ElasticJob"
    assert told.startswith("stdin:15 spec.priority: dropped (")
    assert len(told.splitlines()) == 1


def test_several_documents_come_out_and_others_are_named() -> None:
    code, shown, told = run("-q", given=f"{SERVICE}---\n{JOB}---\n{JOB.replace('digits', 'letters')}")
    assert code == Exit.DONE
    assert [each["metadata"]["name"] for each in yaml.safe_load_all(shown)] == ["digits", "letters"]
    assert told == "stdin:1 Service web: no system that is known here: apply it as it is\n"


def test_objects_beside_the_job_that_mean_the_old_operators_pods_are_named() -> None:
    service = f"{SERVICE}spec: {{selector: {{training.kubeflow.org/job-name: digits}}}}\n"
    nothing = "kind: Thing\n"
    _, _, told = run("-q", given=f"{JOB}---\n{service}---\n{nothing}")
    assert told.splitlines() == [
        "stdin:16 Service web: no system that is known here: apply it as it is",
        "stdin:16 Service web: training.kubeflow.org/job-name is on no pod of the ElasticJob: "
        "write elasticjob.dlrover/name",
        "stdin:21 Thing: no system that is known here: write apiVersion and kind",
    ]


@pytest.mark.parametrize(
    ("text", "code", "why"),
    [
        (SERVICE, Exit.USAGE, "there is nothing that can be converted; docs/convert.md lists the systems"),
        ("", Exit.USAGE, "there is nothing that can be converted; docs/convert.md lists the systems"),
        (f"{JOB}kind: Job\n", Exit.USAGE,
         "error: standard input has kind twice, in lines 2 and 15; leave one of them out"),
        (JOB.replace("Worker", "Servant"), Exit.FAILED,
         "stdin:1 error: spec.pytorchReplicaSpecs has neither Master nor Worker"),
        (JOB.replace("image: i", "image: <mine>"), Exit.FAILED,
         "stdin:1 error: the result would be refused: spec.replicaSpecs[worker].template.spec.containers[0]"),
    ],
)  # fmt: skip
def test_what_cannot_be_converted_has_an_exit_code(text: str, code: Exit, why: str) -> None:
    found, _, told = run("-q", given=text)
    assert found == code
    assert why in told


def test_wrong_usage_is_told(tmp_path: Path) -> None:
    assert run("absent.yaml") == (
        Exit.USAGE,
        "",
        "error: absent.yaml cannot be read: no such file or directory; correct its name\n",
    )
    assert "a command line follows --command" in run("torchrun train.py")[2]
    assert "exclude each other" in run("a.yaml", "--from-cluster", "pytorchjob/a")[2]
    assert "'pods' is no kind that can be converted; write one of " in run("--from-cluster", "pods/a")[2]
    assert "'digits' is not KIND/NAME; write it as pytorchjob/digits" in run("--from-cluster", "digits")[2]


async def test_an_object_of_the_cluster_is_converted(served: Served, client: Client, namespace: str) -> None:
    about = {"name": "digits", "namespace": namespace}
    await install(client, [manifest(PADDLE)], manager="test")
    await client.create(TRAININGJOB.untyped(), {**TRAINING, "metadata": about})
    options = ["--kubeconfig", str(served.kubeconfig), "-n", namespace, "--strict"]
    code, shown, told = await asyncio.to_thread(run, "--from-cluster", "trainingjob/digits", *options)
    assert (code, yaml.safe_load(shown)["metadata"]) == (Exit.DONE, about)
    assert "trainingjob/digits:1 metadata.uid: dropped (the cluster writes it anew)" in told
    absent = "trainingjobs.paddlepaddle.org/b"
    code, _, told = await asyncio.to_thread(run, "--from-cluster", absent, *options)
    assert code == Exit.NOT_FOUND
    assert f"TrainingJob {namespace}/b does not exist; kubectl get trainingjobs.paddlepaddle.org -A" in told
    code, _, told = await asyncio.to_thread(run, "--from-cluster", "pytorchjob/b", *options)
    assert code == Exit.NOT_FOUND
    assert "the cluster has no kind pytorchjobs.kubeflow.org; kubectl api-resources lists its kinds" in told


def test_words_that_call_a_launcher_are_a_line(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("hosts").write_text("a slots=2\nb slots=2\n")
    code, shown, told = run("--", "deepspeed", "--hostfile", "hosts", "train.py", "--name", "a b")
    role = yaml.safe_load(shown)["spec"]["replicaSpecs"]["worker"]
    assert (code, role["replicas"]) == (Exit.DONE, 2)
    command = ["elasticjob", "run", "--nproc-per-node", "2", "train.py", "--name", "a b"]
    assert role["template"]["spec"]["containers"][0]["command"] == command
    assert "command:1 --hostfile: kept (2 hosts" in told


def test_a_file_of_that_name_is_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("torchrun").write_text("srun torchrun other.py\n")
    code, shown, _ = run("torchrun")
    assert (code, "other.py" in shown) == (Exit.DONE, True)
