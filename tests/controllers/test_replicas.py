"""The operator as one of several: with the rights that it is shipped with, by the settings that it reads."""

from __future__ import annotations

import asyncio
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticjob.api.resources import Bytes
from elasticjob.cli.commands.operator import lease_of
from elasticjob.cli.errors import Exit, Failure
from elasticjob.cli.options import settings_of
from elasticjob.controllers.settings import Settings
from elasticjob.kube.client.client import Client
from elasticjob.kube.election.election import Election
from elasticjob.kube.objects.views import EVENT, LEASE
from elasticjob.kube.operator.operator import Operator
from lab.clusters.accounts import ACCOUNT, KINDS, RIGHTS, SYSTEM, ship_rights
from lab.clusters.served import Served
from lab.running import running
from lab.waiting import PATIENCE

USER = f"system:serviceaccount:{SYSTEM}:{ACCOUNT}"


async def test_the_shipped_rights_are_enough_to_lead_and_to_say_so(served: Served, client: Client) -> None:
    await ship_rights(client)
    try:
        async with Client(served.config(USER, ("system:serviceaccounts",))) as mine:
            election = Election(Settings().lease, SYSTEM, identity="me")
            operator = Operator(mine, probes=None, signals=False, election=election)
            async with running(operator):
                await asyncio.wait_for(operator.wait_leading(), PATIENCE)
                assert (await client.get(LEASE, "elasticjob-operator", SYSTEM)).spec.holder_identity == "me"
    finally:
        for manifest in RIGHTS:
            if manifest["kind"].startswith("Cluster"):
                await client.delete(KINDS[manifest["kind"]], manifest["metadata"]["name"])
    assert (await client.get(LEASE, "elasticjob-operator", SYSTEM)).spec.holder_identity == ""
    messages = {event.message for event in await client.list(EVENT, SYSTEM)}
    assert messages == {"me became leader", "me stopped leading"}


def test_a_plain_process_is_alone_and_pods_are_several(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Settings().leader_election is False
    deployment = next(
        found
        for found in yaml.safe_load_all(Path("config/operator/deployment.yaml").read_text())
        if found["kind"] == "Deployment"
    )
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    for variable in container["env"]:
        monkeypatch.setenv(variable["name"], variable.get("value", SYSTEM))
    settings = Settings()
    assert (settings.leader_election, settings.lease, settings.lease_namespace) == (
        True,
        "elasticjob-operator",
        SYSTEM,
    )


def test_the_operator_asks_for_the_memory_that_it_takes() -> None:
    deployment = yaml.safe_load(Path("config/operator/deployment.yaml").read_text())
    (container,) = deployment["spec"]["template"]["spec"]["containers"]
    assert Bytes.parse(container["resources"]["requests"]["memory"]) >= Bytes.parse(
        "172M"
    )  # RSS at 10,000 pods


@pytest.mark.parametrize(
    ("flag", "lease", "namespace"),
    [(None, None, None), ("mine", "mine", None), ("there/mine", "mine", "there")],
)
def test_the_flag_names_a_lease(flag: str | None, lease: str | None, namespace: str | None) -> None:
    assert lease_of(flag) == {"lease": lease, "lease_namespace": namespace}


@pytest.mark.parametrize(
    ("given", "why"),
    [
        (
            {"webhook_service": "hooks"},
            "webhook.service: Value error, 'hooks' is not of the form namespace/name",
        ),
        ({"webhook_service": "hooks/"}, "'hooks/' is not of the form namespace/name"),
        ({"webhook_inject_from": "/x"}, "'/x' is not of the form namespace/name"),
        ({"scrapers": {"team": "a"}}, "write a list of such"),
        ({"master_pod": {"containers": []}}, "containers is not one of affinity, imagePullSecrets, node"),
        ({"master_pod": {"tolerations": [{"efect": "x"}]}}, r"tolerations.0..efect: .* did you mean effect"),
        ({"master_pod": {"nodeSelector": "gpu"}}, "nodeSelector: 'gpu' is not fields"),
        ({"master_security_context": {"runAsUser": "me"}}, "runAsUser: 'me' is not a whole number"),
        ({"probes": "localhost"}, "probes: Value error, 'localhost' is not of the form host:port"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused_in_a_sentence(given: dict[str, Any], why: str) -> None:
    with pytest.raises(Failure, match=why) as refused:
        settings_of(Settings, given)
    assert refused.value.code == Exit.USAGE


def test_labels_that_are_no_json_are_refused_in_a_sentence(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ELASTICJOB_OPERATOR_SCRAPERS", "monitoring")
    with pytest.raises(Failure, match=r"field \"scrapers\".*; write it as JSON"):
        settings_of(Settings, {})


def test_an_address_that_is_taken_is_told_in_a_sentence(tmp_path: Path) -> None:
    cluster = {
        "clusters": [{"name": "a", "cluster": {"server": "http://127.0.0.1:9"}}],
        "users": [{"name": "a", "user": {}}],
    }
    context = {"contexts": [{"name": "a", "context": {"cluster": "a", "user": "a"}}], "current-context": "a"}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(yaml.safe_dump(cluster | context))
    with socket.create_server(("127.0.0.1", 0)) as taken:
        flags = ("--kubeconfig", str(kubeconfig), "--probes", f"127.0.0.1:{taken.getsockname()[1]}")
        command = (sys.executable, "-m", "elasticjob.cli", "operator", *flags)
        ended = subprocess.run(command, capture_output=True, text=True, check=False)
    (message,) = (line for line in ended.stderr.splitlines() if line.startswith("error: "))
    assert ended.returncode == Exit.FAILED
    assert "already in use; choose others with --probes" in message
