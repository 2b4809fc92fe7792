"""The operator as one of several: with the rights that it is shipped with, by the settings that it reads."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest
import yaml

from elasticjob.cli.operator import lease_of
from elasticjob.controllers.settings import Settings
from elasticjob.kube.client import Client
from elasticjob.kube.election import Election
from elasticjob.kube.kinds import Kind
from elasticjob.kube.objects import EVENT, LEASE, NAMESPACE, ROLE, ROLE_BINDING, SERVICE_ACCOUNT
from elasticjob.kube.operator import Operator
from tests.kit.served import Served

RIGHTS = tuple(yaml.safe_load_all(Path("config/rbac/operator.yaml").read_text()))
RBAC = "rbac.authorization.k8s.io"
KINDS: dict[str, Kind[Any]] = {
    "ServiceAccount": SERVICE_ACCOUNT,
    "Role": ROLE,
    "RoleBinding": ROLE_BINDING,
    "ClusterRole": Kind(RBAC, "v1", "ClusterRole", "clusterroles", dict, namespaced=False),
    "ClusterRoleBinding": Kind(
        RBAC, "v1", "ClusterRoleBinding", "clusterrolebindings", dict, namespaced=False
    ),
}
SYSTEM = "elasticjob-system"
ACCOUNT = f"system:serviceaccount:{SYSTEM}:elasticjob-operator"


async def test_the_shipped_rights_are_enough_to_lead_and_to_say_so(served: Served, client: Client) -> None:
    await client.create(NAMESPACE, {"metadata": {"name": SYSTEM}})
    for manifest in RIGHTS:
        await client.apply(KINDS[manifest["kind"]], manifest, manager="test")
    try:
        async with Client(served.config(ACCOUNT, ("system:serviceaccounts",))) as mine:
            election = Election(Settings().lease, SYSTEM, identity="me")
            operator = Operator(mine, probes=None, signals=False, election=election)
            running = asyncio.create_task(operator.run())
            await asyncio.wait_for(operator.wait_leading(), 60)
            assert (await client.get(LEASE, "elasticjob-operator", SYSTEM)).spec.holder_identity == "me"
            operator.stop()
            await running
    finally:
        for manifest in RIGHTS:
            if manifest["kind"].startswith("Cluster"):
                await client.delete(KINDS[manifest["kind"]], manifest["metadata"]["name"])
    assert (await client.get(LEASE, "elasticjob-operator", SYSTEM)).spec.holder_identity == ""
    said = {event.message for event in await client.list(EVENT, SYSTEM)}
    assert said == {"me became leader", "me stopped leading"}


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


@pytest.mark.parametrize(
    ("flag", "lease", "namespace"),
    [(None, None, None), ("mine", "mine", None), ("there/mine", "mine", "there")],
)
def test_the_flag_names_a_lease(flag: str | None, lease: str | None, namespace: str | None) -> None:
    assert lease_of(flag) == {"lease": lease, "lease_namespace": namespace}
