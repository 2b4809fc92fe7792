"""One HTTP request, read: who asks, what for, with which options and body."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import msgspec
import yaml

from elasticjob.devcluster.server import protobuf
from elasticjob.devcluster.server.errors import Cause, bad_request, invalid, unsupported_media
from elasticjob.devcluster.server.lists import Form
from elasticjob.devcluster.server.objects import Deletion, Options, User
from elasticjob.devcluster.server.store import Manifest
from elasticjob.devcluster.server.target import Target

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY)
_BODIES = ("application/json", "application/yaml")


@dataclass(frozen=True)
class Call:
    """A request to one target."""

    method: str
    target: Target
    query: Mapping[str, str]
    form: Form
    user: User
    agent: str
    media: str
    body: bytes

    def options(self) -> Options:
        """dryRun, fieldManager, fieldValidation and force. 400 for values that mean nothing."""
        dry = self.query.get("dryRun", "")
        if dry not in ("", "All"):
            raise bad_request(f'dryRun: Unsupported value: "{dry}": supported values: "All"')
        validation = self.query.get("fieldValidation") or "Warn"
        if validation not in ("Strict", "Warn", "Ignore"):
            raise bad_request(
                f'fieldValidation: Unsupported value: "{validation}": '
                'supported values: "Ignore", "Strict", "Warn"'
            )
        manager = self.query.get("fieldManager") or self.agent.partition("/")[0] or "unknown"
        force = self.query.get("force") in ("true", "1")
        return Options(self.user, manager, dry == "All", validation, force)

    def manifest(self) -> Any:
        """The body as an object, JSON or YAML."""
        if self.media == protobuf.MEDIA:
            return protobuf.decode(self.body)
        if self.media not in (*_BODIES, "", APPLY):
            raise unsupported_media(self.media, _BODIES)
        return parsed(self.body, yaml_too=self.media in ("application/yaml", APPLY))

    def deletion(self) -> Deletion:
        """DeleteOptions from the body and the query; the query wins."""
        body = self._delete_options()
        preconditions = body.get("preconditions") or {}
        return Deletion(
            _grace(self.query.get("gracePeriodSeconds", body.get("gracePeriodSeconds"))),
            _propagation(
                self.query.get("propagationPolicy") or body.get("propagationPolicy") or "",
                self.query.get("orphanDependents") or body.get("orphanDependents"),
            ),
            preconditions.get("uid") or "",
            preconditions.get("resourceVersion") or "",
        )

    def dry_deletion(self) -> bool:
        return self._delete_options().get("dryRun") == ["All"]

    def _delete_options(self) -> Manifest:
        body = parsed(self.body) if self.body.strip() and "json" in (self.media or "json") else {}
        if not isinstance(body, dict):
            raise bad_request("DeleteOptions must be an object")
        return body


def _grace(value: Any) -> int | None:
    if value is None:
        return None
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise bad_request(f"gracePeriodSeconds: Invalid value: {value!r}: must be a number") from error


def _propagation(policy: str, orphan: Any) -> str:
    if policy not in ("", "Orphan", "Background", "Foreground"):
        why = f'Unsupported value: "{policy}": supported values: "Foreground", "Background", "Orphan"'
        cause = Cause("propagationPolicy", why, "FieldValueNotSupported")
        raise invalid("meta.k8s.io", "DeleteOptions", "", [cause])
    return "Orphan" if not policy and orphan in (True, "true") else policy


def parsed(body: bytes, *, yaml_too: bool = False) -> Any:
    """A decoded body, or BadRequest with the place of the mistake."""
    try:
        return msgspec.json.decode(body)
    except msgspec.DecodeError as error:
        if not yaml_too:
            raise bad_request(f"the body of the request is not valid JSON: {error}") from error
    try:
        return yaml.load(body, _Loader)  # a SafeLoader
    except yaml.YAMLError as error:
        raise bad_request(f"the body of the request is neither JSON nor YAML: {error}") from error


class _Loader(yaml.SafeLoader):
    """YAML without dates: a timestamp stays the text that it is."""


_Loader.yaml_implicit_resolvers = {
    first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:timestamp"]
    for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
}


def status_success(target: Target, name: str, uid: str) -> Manifest:
    """The answer to a deletion that left nothing behind."""
    details = {"name": name, "group": target.resource.group, "kind": target.resource.plural, "uid": uid}
    kept = {key: value for key, value in details.items() if value}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": kept}
