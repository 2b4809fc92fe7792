"""The verb, resource and names of a request, read from its first line."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

VERBS: Mapping[str, str] = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}


@dataclass(frozen=True)
class ApiRequest:
    """One request. `verb`, `resource` and `name` are "" where the path is none of an object or collection."""

    method: str
    path: str
    query: Mapping[str, str] = field(default_factory=dict)
    user_agent: str = ""

    @property
    def verb(self) -> str:
        """RBAC's word: get, list, watch, create, update, patch, delete, deletecollection."""
        if not self.resource:
            return ""
        if self.method == "DELETE":
            return "delete" if self.name else "deletecollection"
        if self.method != "GET":
            return VERBS.get(self.method, "")
        if self.name:
            return "get"
        return "watch" if self.query.get("watch") in ("true", "1") else "list"

    @property
    def resource(self) -> str:
        """The plural: `pods`; with a subresource `pods/status`."""
        parts = self._parts
        return "/".join((parts[0], *parts[2:3])) if parts else ""

    @property
    def name(self) -> str:
        return self._parts[1] if len(self._parts) > 1 else ""

    @property
    def namespace(self) -> str:
        return self._below_version[1] if self._is_within_namespace else ""

    @property
    def group(self) -> str:
        """The API group; "" for the core's."""
        match self.path.strip("/").split("/"):
            case ["apis", group, _, *_]:
                return group
            case _:
                return ""

    @property
    def can_i(self) -> str:
        """The kubectl command that says whether a user may do this; "" where the path is no object's."""
        if not self.verb:
            return ""
        plural, _, part = self.resource.partition("/")
        kind = f"{plural}.{self.group}" if self.group else plural
        below = f" --subresource={part}" if part else ""
        place = f" -n {self.namespace}" if self.namespace else " -A"
        return f"kubectl auth can-i {self.verb} {kind}{below}{place}"

    @property
    def in_words(self) -> str:
        """Verb, resource and namespace for a message: `watch pods in namespace team`."""
        if not self.verb:
            return str(self)
        return f"{self.verb} {self.resource} in " + (
            f"namespace {self.namespace}" if self.namespace else "all namespaces"
        )

    @property
    def writes(self) -> bool:
        """Whether something may change by it."""
        return self.method in VERBS and self.query.get("dryRun") != "All"

    @property
    def _below_version(self) -> list[str]:
        match self.path.strip("/").split("/"):
            case ["api", _, *rest] | ["apis", _, _, *rest]:
                return rest
            case _:
                return []

    @property
    def _parts(self) -> list[str]:
        """Plural, name, subresource: as many as there are."""
        root = self._below_version
        return root[2:] if self._is_within_namespace else root

    @property
    def _is_within_namespace(self) -> bool:
        root = self._below_version
        return len(root) > 2 and root[0] == "namespaces" and root[2] not in ("status", "finalize")

    def __str__(self) -> str:
        return f"{self.method} {self.path}"
