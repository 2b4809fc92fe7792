"""The operator's own account: the rights that it is shipped with, and a token of it, on either server."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any, Protocol

import yaml

from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config, Static
from elasticjob.kube.errors import AlreadyExists, Forbidden, NotFound
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import CLUSTER_ROLE, NAMESPACE, POD, ROLE, ROLE_BINDING, SERVICE_ACCOUNT
from lab.paths import ROOT
from lab.truths.leftovers import CLUSTER_ROLE_BINDING
from lab.waiting import until

RIGHTS: tuple[Manifest, ...] = tuple(yaml.safe_load_all((ROOT / "config/rbac/operator.yaml").read_text()))
RULES: list[Manifest] = [
    rule for found in RIGHTS if found["kind"] == "ClusterRole" for rule in found["rules"]
]
"""What the operator may do in the whole cluster."""
SYSTEM, ACCOUNT = "elasticjob-system", "elasticjob-operator"
KINDS: dict[str, Kind[Any]] = {
    kind.name: kind for kind in (SERVICE_ACCOUNT, ROLE, ROLE_BINDING, CLUSTER_ROLE, CLUSTER_ROLE_BINDING)
}
ACCESS_REVIEW: Kind[Manifest] = Kind(
    "authorization.k8s.io", "v1", "SubjectAccessReview", "subjectaccessreviews", dict, namespaced=False
)
LIFETIME = 24 * 3600  # seconds


class Place(Protocol):
    """A server, and the authority that its clients trust."""

    @property
    def url(self) -> str: ...

    @property
    def ca_pem(self) -> str: ...


async def shipped_account(place: Place, admin: Client) -> Config:
    """How a client is the operator's service account, with the shipped rights and no other."""
    await ship_rights(admin)
    return await account_of(ACCOUNT, place, admin)


async def account_beside(rights: str, name: str, place: Place, admin: Client, namespace: str = "") -> Config:
    """How a client is another service account of the operator's namespace, with the rights of a manifest, in
    one namespace or in all.
    """
    for manifest in yaml.safe_load_all(rights):
        await admin.apply(KINDS[manifest["kind"]], manifest, manager="test")
    return await account_of(name, place, admin, namespace)


async def account_of(name: str, place: Place, admin: Client, namespace: str = "") -> Config:
    """How a client is a service account of the operator's namespace, once it may list pods."""
    request = {
        "apiVersion": "authentication.k8s.io/v1",
        "kind": "TokenRequest",
        "spec": {"expirationSeconds": LIFETIME},
    }
    answer = await admin.post(SERVICE_ACCOUNT, name, "token", request, SYSTEM)
    trusted = ssl.create_default_context(cadata=place.ca_pem)
    config = Config(place.url, trusted, Static(f"Bearer {answer['status']['token']}"))
    async with Client(config) as mine:
        await until(lambda: _may_list(mine, namespace), f"the rights of {name} count")
    return config


async def ship_rights(admin: Client) -> None:
    """The operator's namespace, its account and its rights, once the server heeds them; a namespace that an
    earlier test left has gone before.
    """
    await until(lambda: _made_namespace(admin), f"the namespace {SYSTEM} is new")
    await until(lambda: _takes_objects(admin), f"the namespace {SYSTEM} is not taken for the one that went")
    for manifest in RIGHTS:
        await admin.apply(KINDS[manifest["kind"]], manifest, manager="test")
    await until(lambda: _counts(admin), "the rights of the operator's account count")


async def _made_namespace(admin: Client) -> bool:
    try:
        await admin.create(NAMESPACE, {"metadata": {"name": SYSTEM}})
    except AlreadyExists:
        return False
    return True


async def _takes_objects(admin: Client) -> bool:
    """A server refuses them for as long as it knows only of the namesake that was being deleted."""
    try:
        await admin.create(SERVICE_ACCOUNT, {"metadata": {"generateName": "probe-"}}, SYSTEM, dry_run=True)
    except (Forbidden, NotFound):
        return False
    return True


async def _counts(admin: Client) -> bool:
    """Whether all roles count, each of which comes to the server by watches of its own."""
    asked = (("", "events", "create"), ("", "nodes", "list"), ("coordination.k8s.io", "leases", "create"))
    return not any([await _lacks(admin, resource, verb, SYSTEM, group) for group, resource, verb in asked])


@asynccontextmanager
async def without_right(admin: Client, resource: str, verb: str, namespace: str) -> AsyncIterator[None]:
    """Meanwhile the operator's ClusterRole does not give it one verb on resources of the core group."""
    shipped = next(found for found in RIGHTS if found["kind"] == "ClusterRole")
    fewer = [
        rule | {"verbs": [each for each in rule["verbs"] if (rule["resources"], each) != ([resource], verb)]}
        for rule in shipped["rules"]
    ]
    await _give(admin, fewer)
    await until(lambda: _lacks(admin, resource, verb, namespace), "the right is gone")
    try:
        yield
    finally:
        await _give(admin, shipped["rules"])

    async def back() -> bool:
        return not await _lacks(admin, resource, verb, namespace)

    await until(back, "the right is back")


async def _give(admin: Client, rules: list[Manifest]) -> None:
    await admin.merge_patch(CLUSTER_ROLE.untyped(), ACCOUNT, {"rules": rules})


async def _lacks(admin: Client, resource: str, verb: str, namespace: str, group: str = "") -> bool:
    asked = {"group": group, "resource": resource, "verb": verb, "namespace": namespace}
    spec = {"user": f"system:serviceaccount:{SYSTEM}:{ACCOUNT}", "resourceAttributes": asked}
    answer = await admin.create(ACCESS_REVIEW, {"spec": spec})
    return not answer["status"]["allowed"]


async def _may_list(client: Client, namespace: str) -> bool:
    try:
        await client.list(POD.untyped(), namespace)
    except Forbidden:
        return False
    return True


async def grant(admin: Client, namespace: str, user: str, *rules: Manifest) -> None:
    """Give a user the rights of a Role of a namespace."""
    group = "rbac.authorization.k8s.io"
    await admin.create(ROLE, {"metadata": {"name": user}, "rules": [*rules]}, namespace)
    binding = {
        "metadata": {"name": user},
        "roleRef": {"apiGroup": group, "kind": "Role", "name": user},
        "subjects": [{"apiGroup": group, "kind": "User", "name": user}],
    }
    await admin.create(ROLE_BINDING, binding, namespace)
