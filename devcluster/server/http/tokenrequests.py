"""POST serviceaccounts/NAME/token: a TokenRequest answered with a token that this server accepts."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from typing import Protocol

from elasticjob.devcluster.server.auth.reviews import review_resources
from elasticjob.devcluster.server.auth.tokens import AUDIENCE, Bound
from elasticjob.devcluster.server.http.call import Call
from elasticjob.devcluster.server.http.verbs import Reply
from elasticjob.devcluster.server.model import errors
from elasticjob.devcluster.server.model.errors import Cause
from elasticjob.devcluster.server.model.names import wrong
from elasticjob.devcluster.server.model.store import Entry, Manifest, Type, encode
from elasticjob.devcluster.server.write import managed
from elasticjob.devcluster.server.write.core import Core
from elasticjob.devcluster.server.write.decoding import decode

_GROUP = "authentication.k8s.io"
_SHORTEST, _LONGEST, _USUAL = 600, 2**32, 3600  # seconds that a token lasts
_BINDS = {"Pod": "pods", "Secret": "secrets", "Node": "nodes"}


class Issuer(Protocol):
    """Makes and registers a token of a service account."""

    def issue(
        self,
        account: Entry,
        *,
        audiences: tuple[str, ...],
        expires: datetime,
        bound: Bound | None,
        node: Entry | None,
    ) -> str: ...


class TokenRequests:
    """Handles TokenRequests; `issuer` keeps the issued tokens."""

    def __init__(self, core: Core, issuer: Issuer, now: Callable[[], datetime]) -> None:
        self._core, self._issuer, self._now = core, issuer, now
        self._resource = review_resources()["tokenrequests"]

    async def answer(self, call: Call) -> Reply:
        """Issue a token. Raises NotFound, Invalid, or BadRequest for an object that cannot bind a token."""
        target, options, warnings = call.target, call.options(), list[str]()
        request = decode(
            self._resource, target.namespace, call.manifest(), options.field_validation, warnings
        )
        account = self._account(call, request)
        spec = request.setdefault("spec", {})
        spec["expirationSeconds"] = spec.get("expirationSeconds") or _USUAL
        writer = self._core.writer(self._resource, options, "token")
        book = managed.fields_of_create(request, self._resource.schema, writer)
        _refuse("", _duration_problems(spec["expirationSeconds"]))
        bound, node = self._bound(account, spec.get("boundObjectRef"))
        expires = self._now() + timedelta(seconds=spec["expirationSeconds"])
        spec["audiences"] = spec.get("audiences") or [AUDIENCE]
        token = self._issuer.issue(
            account, audiences=tuple(spec["audiences"]), expires=expires, bound=bound, node=node
        )
        spec.setdefault("boundObjectRef", None)
        given = {
            "name": target.name,
            "uid": account.metadata["uid"],
            "creationTimestamp": self._core.stamp(),
        }
        request["metadata"] |= given | {"managedFields": book}
        stamp = expires.astimezone(UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
        status = {"token": token, "expirationTimestamp": stamp}
        return Reply(201, encode(request | {"status": status}), warnings)

    def _account(self, call: Call, request: Manifest) -> Entry:
        target, metadata = call.target, request["metadata"]
        if metadata.get("name") not in (None, "", target.name):
            why = "must match the service account name if specified"
            _refuse(target.name, [wrong("metadata.name", metadata["name"], why)])
        account = self._core.get(target.resource, target.namespace, target.name)
        uid = account.metadata["uid"]
        if metadata.get("uid") not in (None, "", uid):
            why = (
                f"the UID in the token request ({metadata['uid']}) does not match the UID of the service "
                f"account ({uid})"
            )
            raise errors.conflict(_GROUP, "TokenRequest", target.name, why)
        return account

    def _bound(self, account: Entry, reference: Manifest | None) -> tuple[Bound | None, Entry | None]:
        """The object that a token is bound to, and the node if it is a pod."""
        if not reference:
            return None, None
        group, _, version = (reference.get("apiVersion") or "").rpartition("/")
        kind, name = reference.get("kind") or "", reference.get("name") or ""
        if group or kind not in _BINDS:
            kind_name = f"{group}/{version}, Kind={kind}"
            raise errors.bad_request(f"cannot bind token to object of type {kind_name}")
        type_, namespace = Type("", _BINDS[kind]), "" if kind == "Node" else account.metadata["namespace"]
        found = self._core.store.get(type_, namespace, name)
        if found is None:
            raise errors.not_found("", type_.plural, name)
        node = self._node(account, found) if kind == "Pod" else None
        uid = found.metadata["uid"]
        if reference.get("uid") not in (None, "", uid):
            why = (
                f"the UID in the bound object reference ({reference['uid']}) does not match the UID in "
                "record. The object might have been deleted and then recreated"
            )
            raise errors.conflict("", kind, name, why)
        return Bound(type_, namespace, name, uid), node

    def _node(self, account: Entry, pod: Entry) -> Entry | None:
        name = account.metadata["name"]
        if pod.body["spec"].get("serviceAccountName") != name:
            raise errors.bad_request(
                f'cannot bind token for serviceaccount "{name}" to pod running with different '
                "serviceaccount name."
            )
        return self._core.store.get(Type("", "nodes"), "", pod.body["spec"].get("nodeName") or "")


def _duration_problems(seconds: int) -> Iterator[Cause]:
    field = "spec.expirationSeconds"
    if seconds < _SHORTEST:
        yield wrong(field, seconds, "may not specify a duration less than 10 minutes")
    if seconds > _LONGEST:
        yield wrong(field, seconds, "may not specify a duration larger than 2^32 seconds")


def _refuse(name: str, causes: Iterator[Cause] | list[Cause]) -> None:
    found = list(causes)
    if found:
        raise errors.invalid(_GROUP, "TokenRequest", name, found)
