"""Built-in values come back in the one form that Kubernetes has for them; writes that change nothing."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from elasticjob.devcluster.server.schema.normal import canonical_quantity
from tests.kit.devcluster.api import CONFIG_MAPS, MEDIA, Api, config_map

LEASES = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
QUOTAS = "/api/v1/namespaces/default/resourcequotas"
SECRETS = "/api/v1/namespaces/default/secrets"


@pytest.mark.parametrize(
    ("given", "canonical"),
    [
        ("1024Mi", "1Gi"),
        ("1500Mi", "1500Mi"),
        ("0.5Gi", "512Mi"),
        ("1000m", "1"),
        ("0.5", "500m"),
        (0.25, "250m"),
        (2, "2"),
        ("2000", "2k"),
        ("1500k", "1500k"),
        ("0.0000000001", "1n"),
        ("0Gi", "0"),
        ("1e3", "1e3"),
        ("1000e3", "1e6"),
        ("100m", "100m"),
        ("1Ki", "1Ki"),
        ("0.5Ki", "512"),
        ("-1024Mi", "-1Gi"),
    ],
)
def test_canonical_quantity(given: Any, canonical: str) -> None:
    assert canonical_quantity(given) == canonical


async def test_what_is_stored_is_canonical(api: Api) -> None:
    spec = {"renewTime": "2026-01-02T03:04:05.500000+01:00", "holderIdentity": "me"}
    lease = await api.post(LEASES, {"metadata": {"name": "l"}, "spec": spec})
    assert lease.body["spec"]["renewTime"] == "2026-01-02T02:04:05.500000Z"
    text = base64.encodebytes(b"x" * 100).decode()
    secret = await api.post(SECRETS, {"metadata": {"name": "s"}, "data": {"k": text}})
    assert (secret.code, secret.body["data"]["k"]) == (201, text.replace("\n", ""))


QUOTA = {"metadata": {"name": "q"}, "spec": {"hard": {"memory": "1024Mi", "cpu": "0.5"}}}


@pytest.mark.parametrize("verb", ["put", "merge", "strategic", "apply"])
async def test_a_write_that_changes_nothing_is_none(api: Api, verb: str) -> None:
    body = {"apiVersion": "v1", "kind": "ResourceQuota", **QUOTA}
    first = await api.apply(f"{QUOTAS}/q", body, dryRun="")
    version = first.body["metadata"]["resourceVersion"]
    if verb == "put":
        again = await api.put(f"{QUOTAS}/q", body)
    else:
        query = {"fieldManager": "me"} if verb == "apply" else {}
        again = await api.call("PATCH", f"{QUOTAS}/q", body, MEDIA[verb], **query)
    assert (again.code, again.body["metadata"]["resourceVersion"]) == (200, version)
    async with api.watch(QUOTAS, resourceVersion=version) as events:
        await api.delete(f"{QUOTAS}/q")
        assert (await anext(events))["type"] == "DELETED"


async def test_booleans_of_a_query(api: Api) -> None:
    await api.apply(f"{CONFIG_MAPS}/a", config_map("a", x="1"))
    other = config_map("a", x="2")
    for force, code in {"True": 200, "1": 200, "T": 200, "False": 409, "0": 409}.items():
        query = {"manager": "you", "force": force, "dryRun": "All"}
        assert (await api.apply(f"{CONFIG_MAPS}/a", other, **query)).code == code


async def test_version_zero_is_any_version(api: Api) -> None:
    await api.post(CONFIG_MAPS, config_map("a"))
    assert (await api.get(f"{CONFIG_MAPS}/a", resourceVersion="0")).code == 200
    body = config_map("a", x="1")
    body["metadata"]["resourceVersion"] = "0"
    assert (await api.put(f"{CONFIG_MAPS}/a", body)).code == 200
