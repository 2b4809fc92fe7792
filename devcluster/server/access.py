"""Who may do what: everybody everything, or by Roles and ClusterRoles when they are enforced.

Members of system:masters may do everything. Discovery, health and reviews are free to all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from elasticjob.devcluster.server.asking import User
from elasticjob.devcluster.server.errors import StatusError, forbidden
from elasticjob.devcluster.server.http import Gate
from elasticjob.devcluster.server.store import Manifest, Store, Type
from elasticjob.devcluster.server.target import Target
from elasticjob.devcluster.server.tokens import Tokens

_GROUP = "rbac.authorization.k8s.io"
_SERVICE_ACCOUNTS = Type("", "serviceaccounts")
_ROLES, _ROLE_BINDINGS = Type(_GROUP, "roles"), Type(_GROUP, "rolebindings")
_CLUSTER_ROLES, _CLUSTER_ROLE_BINDINGS = Type(_GROUP, "clusterroles"), Type(_GROUP, "clusterrolebindings")


@dataclass(frozen=True)
class Wish:
    """One thing that somebody wants to do."""

    verb: str
    group: str
    resource: str
    subresource: str = ""
    namespace: str = ""
    name: str = ""

    def told(self, user: User) -> str:
        """The sentence of a refusal."""
        resource = f"{self.resource}/{self.subresource}" if self.subresource else self.resource
        where = f'in the namespace "{self.namespace}"' if self.namespace else "at the cluster scope"
        return (
            f'User "{user.name}" cannot {self.verb} resource "{resource}" in API group "{self.group}" {where}'
        )


class Access(Gate):
    """The answers of `http.Gate`."""

    def __init__(self, tokens: Tokens, store: Store, *, enforced: bool) -> None:
        self._tokens = tokens
        self._store = store
        self._enforced = enforced

    def user_of(self, token: str) -> User | None:
        """Who holds the token; nobody once its service account is gone."""
        user = self._tokens.user_of(token)
        return user if user is None or self._exists(user) else None

    def _exists(self, user: User) -> bool:
        if not user.uid:
            return True
        namespace, name = user.name.split(":")[2:]
        account = self._store.get(_SERVICE_ACCOUNTS, namespace, name)
        return account is not None and account.metadata["uid"] == user.uid

    def check(self, user: User, verb: str, target: Target) -> None:
        resource = target.resource
        wish = Wish(verb, resource.group, resource.plural, target.subresource, target.namespace, target.name)
        if not self._allowed(user, wish):
            raise self._refusal(user, wish)

    def may(self, user: User, spec: Mapping[str, Any]) -> bool:
        """The answer to an access review; questions about plain URLs are answered yes."""
        asked = spec.get("resourceAttributes")
        if not asked:
            return True
        wish = Wish(
            *(
                asked.get(name) or ""
                for name in ("verb", "group", "resource", "subresource", "namespace", "name")
            )
        )
        return self._allowed(user, wish)

    def _refusal(self, user: User, wish: Wish) -> StatusError:
        return forbidden(wish.group, wish.resource, wish.name, wish.told(user))

    def _allowed(self, user: User, wish: Wish) -> bool:
        if not self._enforced or "system:masters" in user.groups:
            return True
        return any(_permits(rule, wish) for rule in self._rules(user, wish.namespace))

    def _rules(self, user: User, namespace: str) -> Iterator[Manifest]:
        """Every rule bound to a user, cluster-wide and in one namespace."""
        for binding in self._store.every(_CLUSTER_ROLE_BINDINGS):
            yield from self._bound(user, binding.body, "")
        for binding in self._store.every(_ROLE_BINDINGS, namespace) if namespace else ():
            yield from self._bound(user, binding.body, namespace)

    def _bound(self, user: User, binding: Manifest, namespace: str) -> Sequence[Manifest]:
        if not any(_is_subject(each, user, namespace) for each in binding.get("subjects") or ()):
            return ()
        reference = binding["roleRef"]
        inside = reference["kind"] == "Role"
        type_ = _ROLES if inside else _CLUSTER_ROLES
        role = self._store.get(type_, namespace if inside else "", reference["name"])
        return role.body.get("rules") or () if role else ()


def _is_subject(subject: Mapping[str, Any], user: User, namespace: str) -> bool:
    kind, name = subject["kind"], subject["name"]
    if kind == "ServiceAccount":
        return user.name == f"system:serviceaccount:{subject.get('namespace') or namespace}:{name}"
    return name in user.groups if kind == "Group" else bool(name == user.name)


def _permits(rule: Mapping[str, Any], wish: Wish) -> bool:
    resource = f"{wish.resource}/{wish.subresource}" if wish.subresource else wish.resource
    resources = rule.get("resources") or ()
    names = rule.get("resourceNames") or ()
    return (
        _among(wish.verb, rule.get("verbs") or ())
        and _among(wish.group, rule.get("apiGroups") or ())
        and (_among(resource, resources) or (bool(wish.subresource) and f"*/{wish.subresource}" in resources))
        and (not names or wish.name in names)
    )


def _among(value: str, allowed: Sequence[str]) -> bool:
    return "*" in allowed or value in allowed
