"""The strategies of roles and their bindings."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from elasticjob.devcluster.server.model.errors import Cause
from elasticjob.devcluster.server.model.names import (
    missing,
    path_segment_problem,
    subdomain_problem,
    unsupported,
    wrong,
)
from elasticjob.devcluster.server.model.store import Manifest
from elasticjob.devcluster.server.model.strategy import Strategy, put

_GROUP = "rbac.authorization.k8s.io"
_GROUP_OF = {"ServiceAccount": "", "User": _GROUP, "Group": _GROUP}


def _default_role(role: Manifest) -> None:
    role["rules"] = role.get("rules") or None  # which Go never leaves out


def _check_role(role: Manifest) -> Iterator[Cause]:
    for index, rule in enumerate(role.get("rules") or ()):
        yield from _rule_problems(rule, f"rules[{index}]", namespaced=role["kind"] == "Role")


def _rule_problems(rule: Manifest, path: str, *, namespaced: bool) -> Iterator[Cause]:
    if not rule.get("verbs"):
        yield missing(f"{path}.verbs", "verbs must contain at least one value")
    if urls := rule.get("nonResourceURLs"):
        if namespaced:
            yield wrong(f"{path}.nonResourceURLs", urls, "namespaced rules cannot apply to non-resource URLs")
        if any(rule.get(name) for name in ("apiGroups", "resources", "resourceNames")):
            why = "rules cannot apply to both regular resources and non-resource URLs"
            yield wrong(f"{path}.nonResourceURLs", urls, why)
        return
    if not rule.get("apiGroups"):
        yield missing(f"{path}.apiGroups", "resource rules must supply at least one api group")
    if not rule.get("resources"):
        yield missing(f"{path}.resources", "resource rules must supply at least one resource")


def _default_binding(binding: Manifest) -> None:
    reference = binding.get("roleRef")
    if reference is not None and not reference.get("apiGroup"):
        reference["apiGroup"] = _GROUP
    for subject in binding.get("subjects") or ():
        if _GROUP_OF.get(subject.get("kind", "")):
            put(subject, apiGroup=_GROUP)


def _check_binding(binding: Manifest) -> Iterator[Cause]:
    namespaced = binding["kind"] == "RoleBinding"
    reference = binding.get("roleRef") or {}
    group, kind, name = (reference.get(part) or "" for part in ("apiGroup", "kind", "name"))
    kinds = ["Role", "ClusterRole"] if namespaced else ["ClusterRole"]
    if group != _GROUP:
        yield unsupported("roleRef.apiGroup", group, [_GROUP])
    if kind not in kinds:
        yield unsupported("roleRef.kind", kind, kinds)
    if not name:
        yield missing("roleRef.name")
    elif problem := path_segment_problem(name):
        yield wrong("roleRef.name", name, problem)
    for index, subject in enumerate(binding.get("subjects") or ()):
        yield from _subject_problems(subject, f"subjects[{index}]", namespaced=namespaced)


def _subject_problems(subject: Manifest, path: str, *, namespaced: bool) -> Iterator[Cause]:
    kind, name, group = (subject.get(part) or "" for part in ("kind", "name", "apiGroup"))
    if not name:
        yield missing(f"{path}.name")
    if kind not in _GROUP_OF:
        yield unsupported(f"{path}.kind", kind, list(_GROUP_OF))
        return
    if kind == "ServiceAccount" and name and (problem := subdomain_problem(name)):
        yield wrong(f"{path}.name", name, problem)
    if group != _GROUP_OF[kind]:
        yield unsupported(f"{path}.apiGroup", group, [_GROUP_OF[kind]])
    if kind == "ServiceAccount" and not namespaced and not subject.get("namespace"):
        yield missing(f"{path}.namespace")


def _check_binding_update(new: Manifest, old: Manifest) -> Iterator[Cause]:
    yield from _check_binding(new)
    reference: dict[str, Any] = new.get("roleRef") or {}
    if reference != old.get("roleRef"):
        shown = {
            "APIGroup": reference.get("apiGroup"),
            "Kind": reference.get("kind"),
            "Name": reference.get("name"),
        }
        yield wrong("roleRef", shown, "cannot change roleRef")


_BINDING = Strategy(_default_binding, check=_check_binding, check_update=_check_binding_update, says_all=True)
ROLES = {
    (_GROUP, "Role"): Strategy(_default_role, check=_check_role, says_all=True),
    (_GROUP, "ClusterRole"): Strategy(_default_role, check=_check_role, says_all=True),
    (_GROUP, "RoleBinding"): _BINDING,
    (_GROUP, "ClusterRoleBinding"): _BINDING,
}
