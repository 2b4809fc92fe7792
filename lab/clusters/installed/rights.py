"""The rights of our programs by the audit log: missing ones, and unused ones."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import groupby, product
from typing import Any, NamedTuple

from lab.clusters.plane.audit import Audited

OPERATOR = "system:serviceaccount:elasticjob-system:elasticjob-operator"
FORBIDDEN = 403
ENDING = "because it is being terminated"
"""What is said to whoever makes something in a namespace that is being deleted, whatever its rights."""


class Right(NamedTuple):
    """In the words of RBAC."""

    group: str
    resource: str
    verb: str


def forbidden(requests: Iterable[Audited]) -> list[str]:
    """Return every request of a service account of ours that was answered with 403 for want of a right."""
    return [
        f"{one.user} may not {one.verb} {one.uri}"
        for one in requests
        if one.code == FORBIDDEN and (one.user == OPERATOR or one.user.endswith("-master"))
        if ENDING not in one.message
    ]


def unused(roles: Iterable[dict[str, Any]], requests: Iterable[Audited]) -> list[str]:
    """Return the rights of some roles that the operator never used, by resource."""
    used = {Right(one.group, _resource(one), one.verb) for one in requests if one.user == OPERATOR}
    rest = sorted({right for role in roles for right in _granted(role)} - used)
    kinds = groupby(rest, key=lambda right: right.resource)
    return [f"{resource}: {' '.join(right.verb for right in rights)}" for resource, rights in kinds]


def _granted(role: dict[str, Any]) -> Iterator[Right]:
    for rule in role.get("rules", ()):
        yield from map(Right._make, product(rule["apiGroups"], rule["resources"], rule["verbs"]))


def _resource(one: Audited) -> str:
    return f"{one.resource}/{one.subresource}" if one.subresource else one.resource
