"""The authorization attributes of a request, from its method, path and query alone."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass

_VERBS = {
    "POST": "create",
    "GET": "get",
    "HEAD": "get",
    "PUT": "update",
    "PATCH": "patch",
    "DELETE": "delete",
}
_COLLECTION = {"get": "list", "delete": "deletecollection"}
_NAMESPACE_HALVES = ("status", "finalize")
_CHOSEN = re.compile(r"metadata\.name==?([^=!/%]+)")
_FALSE = ("false", "0")


@dataclass(frozen=True)
class RequestAttributes:
    """The attributes of one request. `path` is set for non-resource requests."""

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""

    @property
    def rule_resource(self) -> str:
        """The resource as rules write it."""
        return f"{self.resource}/{self.subresource}" if self.subresource else self.resource

    def message(self, user: str) -> str:
        """The sentence of a refusal."""
        who = json.dumps(user, ensure_ascii=False)
        if self.path:
            return f'User {who} cannot {self.verb} path "{self.path}"'
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        what = f'resource "{self.rule_resource}" in API group "{self.group}"'
        return f"User {who} cannot {self.verb} {what} {where}"


def attributes_of(method: str, path: str, query: Mapping[str, str]) -> RequestAttributes:
    """The attributes of a request, whether or not its resource exists."""
    parts = [part for part in path.split("/") if part]
    group, rest = _below(parts)
    if not rest:
        return RequestAttributes(method.lower(), path=path)
    verb = _VERBS.get(method, "")
    if is_old_watch(rest):
        verb, rest = "watch", rest[1:]
    namespace, rest = _namespace(rest)
    resource, name, subresource = (*rest, "", "")[:3]
    if not name and verb == "get":
        verb, name = _listing(query)
    elif not name:
        verb = _COLLECTION.get(verb, verb)
    return RequestAttributes(verb, group, resource, subresource, namespace, name)


def is_old_watch(rest: list[str]) -> bool:
    """Whether the path, after its version, is a watch."""
    return rest[0] == "watch" and len(rest) > 1


def _below(parts: list[str]) -> tuple[str, list[str]]:
    """The group and the path after its version; empty for non-resource paths."""
    if parts[:1] == ["api"]:
        return "", parts[2:]
    return (parts[1], parts[3:]) if parts[:1] == ["apis"] and len(parts) > 3 else ("", [])


def _namespace(rest: list[str]) -> tuple[str, list[str]]:
    """The namespace, and the path within it; a Namespace object is within itself."""
    if rest[0] != "namespaces" or len(rest) < 2:
        return "", rest
    return rest[1], rest[2:] if len(rest) > 2 and rest[2] not in _NAMESPACE_HALVES else rest


def _listing(query: Mapping[str, str]) -> tuple[str, str]:
    """list or watch, and the one name that a field selector chooses."""
    terms = query.get("fieldSelector", "").split(",")
    chosen = next((found[1] for term in terms if (found := _CHOSEN.fullmatch(term))), "")
    watches = "watch" in query and query["watch"].lower() not in _FALSE
    return "watch" if watches else "list", chosen
