"""One parsed HTTP request: its user, target, options and body."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from elasticjob.devcluster.server.model.asking import Deletion, Options, User
from elasticjob.devcluster.server.model.errors import (
    Cause,
    bad_request,
    invalid,
    unreadable,
    unsupported_media,
)
from elasticjob.devcluster.server.model.names import missing, unsupported, wrong
from elasticjob.devcluster.server.model.store import Manifest
from elasticjob.devcluster.server.model.target import Target
from elasticjob.devcluster.server.read.lists import Form, flag
from elasticjob.devcluster.server.write import protobuf
from elasticjob.devcluster.server.write.jsonbody import parse, syntax_problem

APPLY = "application/apply-patch+yaml"
JSON_PATCH = "application/json-patch+json"
MERGE_PATCH = "application/merge-patch+json"
STRATEGIC_PATCH = "application/strategic-merge-patch+json"
PATCHES = (JSON_PATCH, MERGE_PATCH, STRATEGIC_PATCH, APPLY)
_BODIES = ("application/json", "application/yaml")
_LONGEST_MANAGER = 128
_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
_OPTIONS = {
    "POST": "CreateOptions",
    "PUT": "UpdateOptions",
    "PATCH": "PatchOptions",
    "DELETE": "DeleteOptions",
}
_ACCEPTED = (*_BODIES, protobuf.MEDIA)


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
        """dryRun, fieldManager, fieldValidation and force. Invalid for values that mean nothing."""
        problems = list(_option_problems(self.query, self.media == APPLY, self.method))
        if problems:
            raise invalid("meta.k8s.io", _OPTIONS.get(self.method, "PatchOptions"), "", problems)
        manager = self.query.get("fieldManager") or self.agent.partition("/")[0] or "unknown"
        validation = self.query.get("fieldValidation") or "Warn"
        force = bool(flag(self.query, "force"))
        return Options(
            self.user,
            manager,
            self.query.get("dryRun") == "All",
            validation,
            force,
            self.query.get("fieldManager", ""),
            self.query.get("fieldValidation", ""),
        )

    def manifest(self) -> Any:
        """The body as an object, JSON or YAML."""
        if self.media == protobuf.MEDIA:
            return protobuf.decode(self.body)
        if self.media not in (*_BODIES, "", APPLY):
            raise unsupported_media(_ACCEPTED)
        is_yaml = self.media in ("application/yaml", APPLY)
        if not is_yaml and (problem := syntax_problem(self.body)):
            raise unreadable(self.target.resource.kind, problem, self.body)
        return parse(self.body, yaml_too=is_yaml)

    def patch(self) -> Any:
        """The body as a patch."""
        if problem := syntax_problem(self.body):
            raise bad_request(f"error decoding patch: {problem}")
        return parse(self.body)

    def deletion(self) -> Deletion:
        """DeleteOptions from the body and the query; the query wins."""
        body = self._delete_options()
        preconditions, orphans = body.get("preconditions") or {}, flag(self.query, "orphanDependents")
        return Deletion(
            _grace(self.query.get("gracePeriodSeconds", body.get("gracePeriodSeconds"))),
            _propagation(
                self.query.get("propagationPolicy") or body.get("propagationPolicy") or "",
                body.get("orphanDependents") if orphans is None else orphans,
            ),
            preconditions.get("uid") or "",
            preconditions.get("resourceVersion") or "",
        )

    def dry_deletion(self) -> bool:
        return self._delete_options().get("dryRun") == ["All"]

    def _delete_options(self) -> Manifest:
        if self.media == protobuf.MEDIA:
            return protobuf.decode(self.body) if self.body else {}
        body = parse(self.body) if self.body.strip() and "json" in (self.media or "json") else {}
        if not isinstance(body, dict):
            raise bad_request("DeleteOptions must be an object")
        return body


def _option_problems(query: Mapping[str, str], applies: bool, method: str) -> Iterator[Cause]:
    """Problems of the options in a request's query."""
    if method == "PATCH" and not applies and "force" in query:
        yield Cause("force", "Forbidden: may not be specified for non-apply patch", "FieldValueForbidden")
    manager = query.get("fieldManager", "")
    if applies and not manager:
        yield missing("fieldManager", "is required for apply patch")
    if len(manager) > _LONGEST_MANAGER:
        why = f"Too long: may not be more than {_LONGEST_MANAGER} bytes"
        yield Cause("fieldManager", why, "FieldValueTooLong")
    elif not manager.isprintable():
        yield wrong("fieldManager", manager, "should only contain printable characters")
    dry = query.get("dryRun", "")
    if dry not in ("", "All"):
        why = f'Unsupported value: ["{dry}"]: supported values: "All"'
        yield Cause("dryRun", why, "FieldValueNotSupported")
    validation = query.get("fieldValidation", "")
    if validation not in _VALIDATIONS:
        yield unsupported("fieldValidation", validation, list(_VALIDATIONS))


def _grace(value: Any) -> int | None:
    if value is None:
        return None
    try:
        return int(value)
    except (TypeError, ValueError) as error:
        raise bad_request(f'strconv.ParseInt: parsing "{value}": invalid syntax') from error


def _propagation(policy: str, orphans: bool | None) -> str:
    if policy and orphans is not None:
        why = "orphanDependents and deletionPropagation cannot be both set"
        raise invalid("meta.k8s.io", "DeleteOptions", "", [wrong("propagationPolicy", policy, why)])
    if policy not in ("", "Orphan", "Background", "Foreground"):
        cause = unsupported("propagationPolicy", policy, ["Foreground", "Background", "Orphan", "nil"])
        raise invalid("meta.k8s.io", "DeleteOptions", "", [cause])
    return policy or {True: "Orphan", False: "Background", None: ""}[orphans]


def status_success(target: Target, name: str, uid: str) -> Manifest:
    """The answer to a deletion that left nothing behind."""
    details = {"name": name, "group": target.resource.group, "kind": target.resource.plural, "uid": uid}
    kept = {key: value for key, value in details.items() if value}
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success", "details": kept}
