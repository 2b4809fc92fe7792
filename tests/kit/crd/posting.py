"""Posts CRDs to a server: returns its errors, or waits until the kind is served."""

from __future__ import annotations

from typing import Any

import msgspec

from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import ApiError, NotFound
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import CRD
from lab.waiting import until

CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"


THINGS = {"kind": "Thing", "listKind": "ThingList", "plural": "things", "singular": "thing"}


def crd_of(
    schema: Manifest, group: str = "example.org", names: Manifest = THINGS, **version: Any
) -> Manifest:
    """Return a definition of Things, or of another kind, whose root has the given schema."""
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{names['plural']}.{group}"},
        "spec": {
            "group": group,
            "names": dict(names),
            "scope": "Namespaced",
            "versions": [
                {
                    "name": "v1",
                    "served": True,
                    "storage": True,
                    "schema": {"openAPIV3Schema": schema},
                    **version,
                }
            ],
        },
    }


def with_spec(spec: Manifest) -> Manifest:
    """Return a definition of Things whose spec has the given schema."""
    return crd_of({"type": "object", "properties": {"spec": spec}})


async def answer_to(client: Client, manifest: Manifest) -> str:
    """Return the server's errors for a definition, strictly and as a dry run; "" if it is accepted."""
    body = msgspec.json.encode(manifest)
    try:
        await client.raw("POST", CRDS, body, dryRun="All", fieldValidation="Strict")
    except ApiError as error:
        return str(error)
    return ""


async def established(client: Client, manifest: Manifest, kind: Kind[Any]) -> None:
    """Store a definition, new or changed, and return when its kind is served.

    A changed schema counts some moments after its definition was stored: who depends on that probes for it.
    """
    await client.apply(CRD.untyped(), manifest, manager="test")
    await until(lambda: _served(client, kind), f"{kind.resource} is served")


async def _served(client: Client, kind: Kind[Any]) -> bool:
    found = await client.get(CRD.untyped(), kind.resource)
    conditions = found.get("status", {}).get("conditions") or ()
    if not any(each["type"] == "Established" and each["status"] == "True" for each in conditions):
        return False
    try:
        await client.raw("GET", kind.path(), limit="1")
    except NotFound:
        return False
    return True
