"""Asking a conversion webhook, and holding it to what it may change."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from elasticjob.devcluster.server.admission import Hook, WebhookFailed
from elasticjob.devcluster.server.errors import StatusError, internal
from elasticjob.devcluster.server.registry import Resource
from elasticjob.devcluster.server.store import Manifest

_TIMEOUT = 30
_FREE = ("labels", "annotations")


class Caller(Protocol):
    """Who reaches webhooks."""

    async def post(self, hook: Hook, review: Manifest) -> Any: ...


class WebhookConverter:
    """The `Converter` of all kinds."""

    def __init__(self, caller: Caller, new_uid: Callable[[], str]) -> None:
        self._caller = caller
        self._new_uid = new_uid

    async def convert(self, resource: Resource, items: Sequence[Manifest]) -> list[Manifest]:
        """The objects in this version, in their order. Raises StatusError when the webhook does not."""
        others = [item for item in items if item["apiVersion"] != resource.api_version]
        converted = iter(await self._ask(resource, others) if others else ())
        return [
            item if item["apiVersion"] == resource.api_version else _kept(resource, item, next(converted))
            for item in items
        ]

    async def _ask(self, resource: Resource, items: Sequence[Manifest]) -> list[Manifest]:
        uid, source = self._new_uid(), f"{items[0]['apiVersion']}, Kind={resource.kind}"
        request = {"uid": uid, "desiredAPIVersion": resource.api_version, "objects": list(items)}
        review = {"kind": "ConversionReview", "apiVersion": "apiextensions.k8s.io/v1", "request": request}
        hook = Hook({"name": source, "clientConfig": resource.webhook, "timeoutSeconds": _TIMEOUT})
        try:
            return _converted(await self._caller.post(hook, review), uid, len(items))
        except WebhookFailed as error:
            raise internal(f"conversion webhook for {source} failed: {error}") from error


def _converted(review: Any, uid: str, count: int) -> list[Manifest]:
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict) or response.get("uid") != uid:
        raise WebhookFailed("the answer is no ConversionReview with the uid of the request")
    result = response.get("result") or {}
    if result.get("status") != "Success":
        raise WebhookFailed(str(result.get("message") or "without explanation"))
    objects = response.get("convertedObjects") or []
    if len(objects) != count:
        raise WebhookFailed(f"received {len(objects)} converted objects, expected {count}")
    return list(objects)


def _kept(resource: Resource, before: Manifest, after: Manifest) -> Manifest:
    """A converted object with the metadata that it had, but for labels and annotations."""
    if (after.get("apiVersion"), after.get("kind")) != (resource.api_version, resource.kind):
        raise _invalid(resource, f"is {after.get('kind')} in {after.get('apiVersion')}")
    old, new = before["metadata"], after.get("metadata") or {}
    for name in ("name", "namespace", "uid"):
        if old.get(name) != new.get(name):
            raise _invalid(resource, f"must have the same {name}: {new.get(name)} != {old.get(name)}")
    metadata = {name: value for name, value in old.items() if name not in _FREE}
    return after | {"metadata": metadata | {name: new[name] for name in _FREE if new.get(name)}}


def _invalid(resource: Resource, why: str) -> StatusError:
    what = f"{resource.api_version}, Kind={resource.kind}"
    return internal(f"conversion webhook for {what} failed: invalid converted object: {why}")
