"""Admission webhooks: matching them to requests, and calling them over TLS.

Mutating webhooks are asked one after the other, by the name of their configuration; validating ones all at
once. A webhook that cannot be reached refuses or passes by its failurePolicy.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import ssl
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from io import BytesIO
from typing import Any

import aiohttp
import msgspec

from elasticjob.devcluster.server.auth.reviews import user_info
from elasticjob.devcluster.server.crd.scaling import scale_of
from elasticjob.devcluster.server.model.asking import NAMESPACES, Attributes
from elasticjob.devcluster.server.model.errors import StatusError, bad_request, forbidden, internal
from elasticjob.devcluster.server.model.registry import Registry, Resource
from elasticjob.devcluster.server.model.selectors import label_selector, matches_labels
from elasticjob.devcluster.server.model.store import Manifest, Store, Type, encode
from elasticjob.devcluster.server.schema.expressions import NoValue, condition
from elasticjob.devcluster.server.write.patches import json_patch
from elasticjob.kube.http.messages import in_words
from elasticjob.kube.json import JsonReader

_GROUP = "admissionregistration.k8s.io"
_MUTATING = Type(_GROUP, "mutatingwebhookconfigurations")
_VALIDATING = Type(_GROUP, "validatingwebhookconfigurations")
_SERVICES = Type("", "services")
_ANY: JsonReader[Any] = JsonReader(Any)


class WebhookFailed(Exception):
    """The webhook gave no usable answer; failurePolicy decides the outcome."""


@dataclass(frozen=True)
class Hook:
    """One webhook of one configuration, as it is in the store."""

    spec: Manifest

    @property
    def name(self) -> str:
        return str(self.spec["name"])


@dataclass(frozen=True)
class Verdict:
    """A webhook's answer that let the request pass."""

    patch: list[Manifest]
    warnings: list[str]


class Webhooks:
    """The `Admission` of objects. `session` is set while the server runs."""

    def __init__(self, store: Store, registry: Registry, new_uid: Callable[[], str]) -> None:
        self._store = store
        self._registry = registry
        self._new_uid = new_uid
        self.session: aiohttp.ClientSession | None = None

    def concerns(self, attributes: Attributes) -> bool:
        """Whether any webhook might have to be asked: a quick look at rules only."""
        return attributes.resource.group != _GROUP and any(
            self._has_rule(hook, attributes)
            for type_ in (_MUTATING, _VALIDATING)
            for hook in self._hooks(type_)
        )

    async def mutate(self, attributes: Attributes, new: Manifest, warnings: list[str]) -> Manifest:
        """The object after all mutating webhooks; refusals are raised, warnings added to the list."""
        # webhooks with reinvocationPolicy IfNeeded, and the object they saw
        asked: list[tuple[Hook, Manifest]] = []
        for hook in self._hooks(_MUTATING):
            if self._matches(hook, attributes, new):
                new = await self._change(hook, attributes, new, warnings)
                if hook.spec.get("reinvocationPolicy") == "IfNeeded":
                    asked.append((hook, new))
        for hook, seen in asked:
            if new != seen:
                new = await self._change(hook, attributes, new, warnings)
        return new

    async def _change(
        self, hook: Hook, attributes: Attributes, new: Manifest, warnings: list[str]
    ) -> Manifest:
        is_deletion = attributes.operation == "DELETE"
        verdict = await self._ask(hook, attributes, None if is_deletion else new)
        warnings += verdict.warnings
        if is_deletion or not verdict.patch:
            return new
        return _patch(hook, attributes.resource, new, verdict.patch)

    def _has_rule(self, hook: Hook, attributes: Attributes) -> bool:
        """Whether a rule of the webhook names the request, itself or by another version of the same
        objects.
        """
        same = [attributes.resource]
        if hook.spec.get("matchPolicy") == "Equivalent":
            type_, plural = same[0].type, same[0].plural
            alike = (each for each in self._registry if each.plural == plural and each.type == type_)
            same += [each for each in alike if each is not same[0]]
        rules = hook.spec.get("rules") or ()
        return any(_rule_matches(rule, attributes, resource) for rule in rules for resource in same)

    async def validate(self, attributes: Attributes, new: Manifest | None) -> list[str]:
        """Warnings of all validating webhooks; the first refusal is raised."""
        chosen = [hook for hook in self._hooks(_VALIDATING) if self._matches(hook, attributes, new)]
        verdicts = await asyncio.gather(*(self._ask(hook, attributes, new, changes=False) for hook in chosen))
        return [warning for verdict in verdicts for warning in verdict.warnings]

    def _hooks(self, type_: Type) -> Iterator[Hook]:
        for configuration in self._store.every(type_):
            for spec in configuration.body.get("webhooks") or ():
                yield Hook(spec)

    def _matches(self, hook: Hook, attributes: Attributes, new: Manifest | None) -> bool:
        return (
            self._has_rule(hook, attributes)
            and self._namespace_matches(hook, attributes, new)
            and _object_matches(hook, attributes, new)
            and _conditions_hold(hook, attributes, new)
        )

    def _namespace_matches(self, hook: Hook, attributes: Attributes, new: Manifest | None) -> bool:
        requirements = label_selector(hook.spec.get("namespaceSelector"))
        if not requirements:
            return True
        if attributes.resource.type == NAMESPACES:
            return matches_labels(
                requirements, ((new or attributes.old or {}).get("metadata") or {}).get("labels")
            )
        if not attributes.resource.namespaced:
            return True
        found = self._store.get(NAMESPACES, "", attributes.namespace)
        return matches_labels(requirements, found.metadata.get("labels") if found else {})

    async def _ask(
        self, hook: Hook, attributes: Attributes, new: Manifest | None, *, changes: bool = True
    ) -> Verdict:
        if attributes.options.dry_run and hook.spec.get("sideEffects") not in ("None", "NoneOnDryRun"):
            raise bad_request(f'admission webhook "{hook.name}" does not support dry run')
        uid = self._new_uid()
        try:
            response = await self.post(hook, _review(attributes, new, uid))
            return _verdict(hook, response, uid, changes=changes)
        except WebhookFailed as error:
            if hook.spec.get("failurePolicy") == "Ignore":
                return Verdict([], [])
            raise internal(f'failed calling webhook "{hook.name}": {error}') from error

    async def post(self, hook: Hook, review: Manifest) -> Any:
        """POST a review; everything that is no JSON answer with 200 is WebhookFailed."""
        assert self.session is not None, "the server is not running"
        url, host = self._address(hook)
        limit = hook.spec.get("timeoutSeconds") or 10
        try:
            async with (
                asyncio.timeout(limit),
                self.session.post(
                    f"{url}?timeout={limit}s",
                    data=BytesIO(encode(review)),
                    # each call has a TLS context, so a connection of its own, that no other call can use
                    headers={"Content-Type": "application/json", "Connection": "close"},
                    ssl=_context(hook),
                    server_hostname=host,
                ) as answer,
            ):
                raw = await answer.read()
                if answer.status != 200:
                    text = raw[:200].decode(errors="replace")
                    message = f'an error on the server ("{text}") has prevented the request from succeeding'
                    raise WebhookFailed(f"failed to call webhook: {message}")
                return _ANY.decode(raw)
        except TimeoutError as error:
            raise WebhookFailed(f'failed to call webhook: Post "{url}": context deadline exceeded') from error
        except aiohttp.ClientError as error:
            raise WebhookFailed(f'failed to call webhook: Post "{url}": {in_words(error)}') from error
        except msgspec.DecodeError as error:
            raise WebhookFailed(f"failed to call webhook: the answer is not JSON: {error}") from error

    def _address(self, hook: Hook) -> tuple[str, str | None]:
        """Where to connect, and the name its certificate must carry."""
        client = hook.spec.get("clientConfig") or {}
        if client.get("url"):
            return str(client["url"]), None
        service = client["service"]
        found = self._store.get(_SERVICES, service["namespace"], service["name"])
        if found is None:
            host = f"{service['name']}.{service['namespace']}.svc:{service.get('port', 443)}"
            place = (
                f"https://{host}{service.get('path') or '/'}?timeout={hook.spec.get('timeoutSeconds') or 10}s"
            )
            why = f'Post "{place}": service "{service["name"]}" not found'
            raise WebhookFailed(f"failed to call webhook: {why}")
        address = f"{found.body['spec'].get('clusterIP')}:{service.get('port', 443)}"
        path = str(service.get("path") or "/")
        return f"https://{address}{path}", f"{service['name']}.{service['namespace']}.svc"


def _rule_matches(rule: Mapping[str, Any], attributes: Attributes, resource: Resource) -> bool:
    scope = rule.get("scope") or "*"
    return (
        _among(attributes.operation, rule.get("operations") or ())
        and _among(resource.group, rule.get("apiGroups") or ())
        and _among(resource.version, rule.get("apiVersions") or ())
        and any(_names(each, resource.plural, attributes.subresource) for each in rule.get("resources") or ())
        and (scope == "*" or (scope == "Namespaced") == resource.namespaced)
    )


def _among(value: str, allowed: Any) -> bool:
    return "*" in allowed or value in allowed


def _names(pattern: str, plural: str, subresource: str) -> bool:
    resource, _, below = pattern.partition("/")
    return resource in ("*", plural) and (below == subresource or (below == "*" and pattern != "*"))


def _object_matches(hook: Hook, attributes: Attributes, new: Manifest | None) -> bool:
    requirements = label_selector(hook.spec.get("objectSelector"))
    found = [each for each in (new, attributes.old) if each is not None]
    return not requirements or any(
        matches_labels(requirements, each["metadata"].get("labels")) for each in found
    )


def _conditions_hold(hook: Hook, attributes: Attributes, new: Manifest | None) -> bool:
    conditions = hook.spec.get("matchConditions") or ()
    if not conditions:
        return True
    request = _review(attributes, new, "")["request"]
    values = {"object": request["object"], "oldObject": request["oldObject"], "request": request}
    try:
        return all(condition(each["expression"]).evaluate(values) is True for each in conditions)
    except NoValue as error:
        if hook.spec.get("failurePolicy") == "Ignore":
            return False
        resource = attributes.resource
        text = next(each["expression"] for each in conditions)
        why = f"expression '{text}' resulted in error: {error}"
        raise forbidden(resource.group, resource.plural, attributes.name, why) from error


def _review(attributes: Attributes, new: Manifest | None, uid: str) -> Manifest:
    resource, options = attributes.resource, attributes.options
    kind = {"group": resource.group, "version": resource.version, "kind": resource.kind}
    where = {"group": resource.group, "version": resource.version, "resource": resource.plural}
    below = {"subResource": attributes.subresource, "requestSubResource": attributes.subresource}
    request = {
        "uid": uid,
        "kind": kind,
        "resource": where,
        "requestKind": kind,
        "requestResource": where,
        **(below if attributes.subresource else {}),
        "name": attributes.name,
        **({"namespace": attributes.namespace} if resource.namespaced else {}),
        "operation": attributes.operation,
        "userInfo": user_info(options.user),
        "object": _serve(resource, new),
        "oldObject": _serve(resource, attributes.old),
        "dryRun": options.dry_run,
        "options": _options(attributes),
    }
    if attributes.subresource == "scale" and resource.scale is not None:
        _as_scale(request, resource)
    return {"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request}


def _options(attributes: Attributes) -> Manifest:
    options = attributes.options
    kind = {"CREATE": "CreateOptions", "DELETE": "DeleteOptions"}.get(attributes.operation, "UpdateOptions")
    options_sent: Manifest = {"kind": kind, "apiVersion": "meta.k8s.io/v1"}
    options_sent |= {"dryRun": ["All"]} if options.dry_run else {}
    options_sent |= {"force": True} if options.force else {}
    options_sent |= {"fieldManager": options.named} if options.named else {}
    return options_sent | ({"fieldValidation": options.asked_validation} if options.asked_validation else {})


def _as_scale(request: Manifest, resource: Resource) -> None:
    """Webhooks of a scale subresource are sent Scales."""
    kind = {"group": "autoscaling", "version": "v1", "kind": "Scale"}
    for name in ("object", "oldObject"):
        if request[name] is not None:
            request[name] = scale_of(resource, request[name], lenient=True)
    request |= {"kind": kind, "requestKind": kind}


def _serve(resource: Resource, item: Manifest | None) -> Manifest | None:
    return resource.conversion.from_storage(item) if resource.conversion and item else item


def _verdict(hook: Hook, review: Any, uid: str, *, changes: bool) -> Verdict:
    response = review.get("response") if isinstance(review, dict) else None
    if not isinstance(response, dict):
        raise WebhookFailed("received invalid webhook response: expected response, got none")
    if response.get("uid") != uid:
        why = f'expected response.uid="{uid}", got "{response.get("uid")}"'
        raise WebhookFailed(f"received invalid webhook response: {why}")
    if response.get("patch") and not changes:
        raise WebhookFailed(
            "received invalid webhook response: validating webhook may not return response.patch"
        )
    if not response.get("allowed"):
        raise _refusal(hook, response.get("status") or {})
    return Verdict(_operations(response), list(response.get("warnings") or ()))


def _refusal(hook: Hook, status: Manifest) -> StatusError:
    why = status.get("message") or status.get("reason") or "without explanation"
    between = ": " if status.get("message") or status.get("reason") else " "
    message = f'admission webhook "{hook.name}" denied the request{between}{why}'
    return StatusError(
        max(400, status.get("code") or 0), status.get("reason") or "", message, status.get("details")
    )


def _operations(response: Manifest) -> list[Manifest]:
    if not response.get("patch"):
        return []
    if not response.get("patchType"):
        why = "webhook returned response.patch but not response.patchType"
        raise WebhookFailed(f"received invalid webhook response: {why}")
    if response.get("patchType") != "JSONPatch":
        raise WebhookFailed(f"unsupported patchType {response.get('patchType')!r}: only JSONPatch is known")
    try:
        operations = _ANY.decode(base64.b64decode(response["patch"], validate=True))
    except (binascii.Error, msgspec.DecodeError) as error:
        raise WebhookFailed(f"the patch is not base64 of JSON: {error}") from error
    return operations if isinstance(operations, list) else []


def _patch(hook: Hook, resource: Resource, new: Manifest, operations: list[Manifest]) -> Manifest:
    try:
        changed = json_patch(_serve(resource, new), operations)
    except StatusError as error:
        raise internal(
            f'admission webhook "{hook.name}" sent a patch that cannot be applied: {error.message}'
        ) from error
    answer: Manifest = resource.conversion.to_storage(changed) if resource.conversion else changed
    return answer


def _context(hook: Hook) -> ssl.SSLContext:
    """Trust in exactly the CA bundle of the webhook (the system's roots without one)."""
    bundle = (hook.spec.get("clientConfig") or {}).get("caBundle")
    try:
        return ssl.create_default_context(cadata=base64.b64decode(bundle).decode() if bundle else None)
    except (binascii.Error, ssl.SSLError, UnicodeDecodeError) as error:
        raise WebhookFailed(f"unable to load root certificates: caBundle is no PEM: {error}") from error
