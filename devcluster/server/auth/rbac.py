"""Matching of role rules against requests, and of binding subjects against users."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from elasticjob.devcluster.server.auth.attributes import RequestAttributes
from elasticjob.devcluster.server.model.asking import User

Rule = Mapping[str, Any]


def permits(rule: Rule, attributes: RequestAttributes) -> bool:
    """Whether one rule is enough for a wish."""
    if not _among(attributes.verb, rule.get("verbs")):
        return False
    if attributes.path:
        return any(_is_of_path(attributes.path, each) for each in rule.get("nonResourceURLs") or ())
    names = rule.get("resourceNames") or ()
    return (
        _among(attributes.group, rule.get("apiGroups"))
        and _is_of_resource(attributes.rule_resource, rule.get("resources") or ())
        and (not names or attributes.name in names)
    )


def is_meant(subject: Rule, user: User, namespace: str) -> bool:
    """Whether a subject of a binding in this namespace is the user."""
    kind, name = subject.get("kind"), subject.get("name")
    if kind == "ServiceAccount":
        place = subject.get("namespace") or namespace
        return bool(place) and user.name == f"system:serviceaccount:{place}:{name}"
    return name in user.groups if kind == "Group" else kind == "User" and name == user.name


def describe_subject(subject: Rule, namespace: str) -> str:
    if subject["kind"] == "ServiceAccount":
        return f'ServiceAccount "{subject["name"]}/{subject.get("namespace") or namespace}"'
    return f'{subject["kind"]} "{subject["name"]}"'


def _among(value: str, allowed: Sequence[str] | None) -> bool:
    return allowed is not None and ("*" in allowed or value in allowed)


def _is_of_resource(resource: str, allowed: Sequence[str]) -> bool:
    _, slash, subresource = resource.partition("/")
    return _among(resource, allowed) or (bool(slash) and f"*/{subresource}" in allowed)


def _is_of_path(path: str, allowed: str) -> bool:
    return path == allowed or (allowed.endswith("*") and path.startswith(allowed.rstrip("*")))
