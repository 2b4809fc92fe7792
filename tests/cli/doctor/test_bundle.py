"""The bundle of a job: what is in it, what never is, and what it lacks where the cluster says nothing."""

from __future__ import annotations

import base64
import json
import os
import tarfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Final

import pytest

from elasticjob.api.crds import manifests
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.cli.errors import Exit
from elasticjob.kube.client.client import Client as Kube
from elasticjob.kube.crd.installing import install
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import EVENT, POD, SECRET
from elasticjob.kube.testing import Answer, FaultProxy, Stall, asking
from lab.clusters.accounts import grant
from lab.clusters.served import Served
from tests.client.test_trouble import elasticjob

MARK: Final = "PLANTEDplanted0123456789"
"""A part of each secret: nothing of an archive has it."""
APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"
PLANTED: Final = (
    f"DB_PASSWORD={MARK}",
    f"export AWS_SECRET_ACCESS_KEY='{MARK} x'",
    f"WANDB_API_KEY: {MARK}",
    f'{{"client_secret": "{MARK}", "step": 1}}',
    f'{{\\"passwd\\": \\"{MARK}\\"}}',
    f"run --token {MARK} --lr 0.1",
    f"run --api-key={MARK}",
    f"Authorization: Basic {MARK}",
    f"curl -H 'Authorization: Bearer {MARK}'",
    f"Set-Cookie: session={MARK}; Path=/",
    f"eyJhbGciOiJIUzI1NiJ9.eyJ{MARK}.{MARK}",
    f"fatal: ghp_{MARK} is not accepted",
    f"github_pat_{MARK}",
    f"AKIA{'ABCDEFGH' * 2}",
    f"login with hf_{MARK}",
    f"xoxb-{MARK}",
    f"postgres://me:{MARK}@db/history",
    f"git clone https://{MARK}@host/repository",
    f"GET https://host/data?X-Amz-Signature={MARK}&x=1",
    f"the token of this job is {MARK}",
    f"-----BEGIN PRIVATE KEY-----\n{MARK}\n-----END PRIVATE KEY-----",
    f"DefaultEndpointsProtocol=https;AccountKey={MARK}",
)
KEPT: Final = "first words\nlast words\n"
"""A value of a Secret, which the script prints by lines and in base64."""
PRINTED: Final = ("I am 'last words'", base64.b64encode(KEPT.encode()).decode(), "step 7 loss 0.5")
LOG: Final = "\n".join(f"2026-11-30T12:00:00Z {line}" for line in (*PLANTED, *PRINTED)) + "\n"
CONTAINER: Final[Manifest] = {
    "name": "main",
    "image": "x",
    "command": ["sh", "-c", "\n".join(PLANTED)],
    "args": ["--password", MARK],
    "env": [{"name": "MY_TOKEN", "value": MARK}, {"name": "EPOCHS", "value": "3"}],
    "envFrom": [{"secretRef": {"name": "hub"}}],
}
JOB: Final[Manifest] = {
    "metadata": {"name": "digits", "annotations": {APPLIED: json.dumps({"spec": CONTAINER})}},
    "spec": {
        "envs": {"S3_SECRET_KEY": {"value": MARK}},
        "replicaSpecs": {"worker": {"replicas": 1, "template": {"spec": {"containers": [CONTAINER]}}}},
    },
}


def a_pod(role: str) -> Manifest:
    labels = {"elasticjob.dlrover/name": "digits", "elasticjob.dlrover/replica-type": role}
    ended = {"exitCode": 1, "message": PLANTED[0]}
    life = {"lastState": {"terminated": ended}, "restartCount": 1, "ready": True, "image": "x", "imageID": ""}
    containers = [{"name": "main", **life}]
    status = {"phase": "Running", "containerStatuses": containers}
    return {
        "metadata": {"name": f"digits-{role}-0", "labels": labels},
        "spec": {"containers": [CONTAINER], "nodeName": role},
        "status": status,
    }


@pytest.fixture
async def team(client: Kube, namespace: str) -> str:
    """A namespace with a job, its two pods and an event, all with secrets in them."""
    await install(client, manifests(), manager="test")
    await client.create(ELASTICJOB.untyped(), JOB, namespace)
    for role in ("worker", "master"):
        made = a_pod(role)
        await client.create(POD.untyped(), made, namespace)
        await client.merge_patch(
            POD.untyped(),
            made["metadata"]["name"],
            {"status": made["status"]},
            namespace,
            subresource="status",
        )
    await client.create(SECRET.untyped(), {"metadata": {"name": "hub"}, "stringData": {"a": KEPT}}, namespace)
    about = {"kind": "Pod", "name": "digits-worker-0", "namespace": namespace}
    event = {"metadata": {"name": "e"}, "involvedObject": about, "message": "\n".join(PLANTED), "reason": "X"}
    await client.create(EVENT.untyped(), event, namespace)
    return namespace


@pytest.fixture
async def proxy(served: Served) -> AsyncIterator[FaultProxy]:
    async with FaultProxy(served.config()) as found:
        yield found


def answer(proxy: FaultProxy) -> None:
    """Have the machines answer, as far as no earlier rule forbids it."""
    proxy.add(asking(path="/proxy/status"), Answer(200, body=json.dumps({"why": PLANTED}).encode()))
    proxy.add(asking(path="/proxy/metrics"), Answer(200, body=b"steps 7\n"))
    proxy.add(asking(path="/log"), Answer(200, body=LOG.encode()))


def read(path: Path) -> dict[str, str]:
    """Return the files of a bundle, whose names begin with the job's."""
    assert path.stat().st_mode & 0o777 == 0o600
    with tarfile.open(path) as archive:
        found = {each.name: archive.extractfile(each) for each in archive}
        return {name.removeprefix("digits/"): file.read().decode() for name, file in found.items() if file}


async def test_a_bundle_has_all_of_a_job_and_none_of_its_secrets(
    proxy: FaultProxy, team: str, tmp_path: Path
) -> None:
    answer(proxy)
    path, to = proxy.write_kubeconfig(tmp_path / "config"), tmp_path / "digits.tgz"
    done = await elasticjob(path, "doctor", "digits", "--bundle", str(to), "-n", team)
    assert done.exit_code == Exit.DONE, done.output
    files = read(to)
    logs = [
        f"logs/digits-{role}-0/main{life}.log" for role in ("worker", "master") for life in ("", ".previous")
    ]
    wanted = {*logs, "doctor.txt", "doctor.json", "job.json", "pods.json", "events.json", "scaleplans.json"}
    wanted |= {"master-status.json", "master-metrics.txt", "missing.txt", "versions/server.json"}
    assert wanted <= files.keys(), files["missing.txt"]
    for name, text in files.items():
        assert MARK not in text, (name, [line for line in text.splitlines() if MARK in line])
        assert "AKIA" not in text, name
        assert "last words" not in text, name
        assert PRINTED[1][:20] not in text, name
    assert "Secret" not in files["missing.txt"]
    assert all("step 7 loss 0.5" in files[name] for name in logs)
    assert '"EPOCHS"' in files["pods.json"]
    assert files["master-metrics.txt"] == "steps 7\n"
    assert "jobresource.json: it is not there" in files["missing.txt"]

    before = to.read_bytes()
    again = await elasticjob(path, "doctor", "digits", "--bundle", str(to), "-n", team)
    assert (again.exit_code, to.read_bytes()) == (Exit.USAGE, before)
    assert "--bundle" in again.output
    assert "--force" in again.output
    os.mkfifo(tmp_path / "pipe")
    for there in (tmp_path, tmp_path / "pipe"):
        refused = await elasticjob(path, "doctor", "digits", "--bundle", str(there), "--force", "-n", team)
        assert (refused.exit_code, "is no regular file" in refused.output) == (Exit.USAGE, True)
    assert not [each for each in os.listdir(tmp_path) if each.startswith(".")], "a draft is left"


async def test_what_is_gone_refused_or_silent_is_named_and_costs_little(
    served: Served, client: Kube, team: str, tmp_path: Path
) -> None:
    rights = {"apiGroups": ["", "elastic.iml.github.io"], "resources": ["pods", "elasticjobs"]}
    await grant(client, team, "jane", {**rights, "verbs": ["get", "list"]})
    await client.delete(ELASTICJOB, "digits", team)
    async with FaultProxy(served.config("jane", ())) as proxy:
        proxy.add(asking(path="/proxy/metrics"), Stall())
        proxy.add(asking(path="/digits-worker-0/log"), Stall())
        answer(proxy)
        path, to = proxy.write_kubeconfig(tmp_path / "config"), tmp_path / "digits.tgz"
        done = await elasticjob(path, "doctor", "digits", "--bundle", str(to), "-n", team)
    assert done.exit_code == Exit.DONE, done.output
    files = read(to)
    lacking = dict(line.split(": ", 1) for line in files["missing.txt"].splitlines())
    assert lacking["job.json"] == "it is not there"
    assert "digits does not exist" in lacking["doctor.json"]
    assert 'User "jane" cannot list resource "events"' in lacking["events.json"]
    assert 'User "jane" cannot get' in lacking["printed values of Secret hub are not taken out"]
    for name in ("master-metrics.txt", "logs/digits-worker-0/main.log"):
        assert lacking[name] == "no answer within 3 s"
    assert {"pods.json", "logs/digits-master-0/main.log"} <= files.keys()
