"""What config/rbac/users.yaml adds to the cluster's roles view, edit and admin."""

from __future__ import annotations

from pathlib import Path
from typing import Any, Final

import pytest
import yaml

from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import CLUSTER_ROLE, ROLE_BINDING
from lab.clusters.accounts import ACCESS_REVIEW
from lab.clusters.rights import Right, allows
from lab.waiting import until

ROLES: Final[list[Manifest]] = [*yaml.safe_load_all(Path("config/rbac/users.yaml").read_text())]
GROUP: Final = "elastic.iml.github.io"

TABLE: Final = [
    ("view", "elasticjobs", "watch", True),
    ("view", "jobresources", "list", True),
    ("view", "elasticjobs/scale", "get", True),
    ("view", "elasticjobs", "create", False),
    ("view", "elasticjobs/scale", "patch", False),
    ("edit", "elasticjobs", "get", True),
    ("edit", "elasticjobs", "create", True),
    ("edit", "elasticjobs", "deletecollection", True),
    ("edit", "elasticjobs/scale", "patch", True),
    ("edit", "scaleplans", "create", True),
    ("edit", "elasticjobs/status", "patch", False),
    ("edit", "jobresources", "patch", False),
    ("admin", "elasticjobs", "list", True),
    ("admin", "elasticjobs", "delete", True),
]


@pytest.mark.parametrize(("role", "resource", "verb", "allowed"), TABLE)
def test_the_clusters_roles_know_our_kinds(role: str, resource: str, verb: str, allowed: bool) -> None:
    label = f"rbac.authorization.k8s.io/aggregate-to-{role}"
    rules = [
        rule for found in ROLES if found["metadata"]["labels"].get(label) == "true" for rule in found["rules"]
    ]
    assert allows(rules, Right(GROUP, resource, verb, "")) is allowed


@pytest.mark.plane
async def test_a_real_cluster_aggregates_them(client: Client, namespace: str) -> None:
    for found in ROLES:
        await client.apply(CLUSTER_ROLE.untyped(), found, manager="test")
    for role in ("view", "edit", "admin"):
        await client.create(ROLE_BINDING, binding(role), namespace)

    async def answers() -> list[tuple[str, str, str, bool]]:
        return [(*row[:3], await may(client, namespace, *row[:3])) for row in TABLE]

    async def as_expected() -> bool:
        return await answers() == TABLE

    await until(as_expected, "the controller of aggregated roles has added ours")


async def may(client: Client, namespace: str, role: str, resource: str, verb: str) -> bool:
    """Return whether the user named like a role may do something in the namespace."""
    plural, _, subresource = resource.partition("/")
    asked = {"group": GROUP, "resource": plural, "subresource": subresource, "verb": verb}
    spec = {"user": role, "resourceAttributes": asked | {"namespace": namespace}}
    answer = await client.create(ACCESS_REVIEW, {"spec": spec})
    allowed: bool = answer["status"]["allowed"]
    return allowed


def binding(role: str) -> dict[str, Any]:
    """Return the binding of a role of the cluster to the user of its name."""
    group = "rbac.authorization.k8s.io"
    return {
        "metadata": {"name": role},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": group, "kind": "User", "name": role}],
    }
