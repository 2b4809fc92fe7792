"""Authorization: all users may do everything or, with RBAC on, only as Roles and ClusterRoles allow.

Members of system:masters may do everything. A role may hand out rights that its writer does not hold.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from elasticjob.devcluster.server.auth.attributes import RequestAttributes
from elasticjob.devcluster.server.auth.rbac import Rule, describe_subject, is_meant, permits
from elasticjob.devcluster.server.model import errors
from elasticjob.devcluster.server.model.asking import Attributes, User
from elasticjob.devcluster.server.model.store import Manifest, Store, Type

GROUP = "rbac.authorization.k8s.io"
MASTERS = "system:masters"
_ROLES, _ROLE_BINDINGS = Type(GROUP, "roles"), Type(GROUP, "rolebindings")
_CLUSTER_ROLES, _CLUSTER_ROLE_BINDINGS = Type(GROUP, "clusterroles"), Type(GROUP, "clusterrolebindings")
_EVERYTHING: tuple[Rule, ...] = (
    {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]},
    {"verbs": ["*"], "nonResourceURLs": ["*"]},
)


@dataclass(frozen=True)
class Decision:
    """A verdict; `why` names the binding that allows or the missing role, and may be empty."""

    allowed: bool
    why: str = ""


@dataclass(frozen=True)
class Lost:
    """A binding refers to a role that does not exist."""

    kind: str
    name: str

    def message(self) -> str:
        return f'{self.kind.lower()}.{GROUP} "{self.name}" not found'


@dataclass(frozen=True)
class Grant:
    """The rules that one binding gives to a user, or the role that it has lost."""

    rules: Sequence[Rule]
    source: str = ""
    lost: Lost | None = None


class Access:
    """The rights of users, as roles and bindings in the store have it."""

    def __init__(self, store: Store, *, enforced: bool) -> None:
        self._store = store
        self.enforced = enforced

    def check(self, user: User, attributes: RequestAttributes) -> None:
        decision = self.decide(user, attributes)
        if not decision.allowed:
            why = (
                f"{_plain(attributes.message(user.name))}: {decision.why}"
                if decision.why
                else _plain(attributes.message(user.name))
            )
            raise errors.forbidden(attributes.group, attributes.resource, attributes.name, why)

    def decide(self, user: User, attributes: RequestAttributes) -> Decision:
        """Whether the user may, and why."""
        if not self.enforced or MASTERS in user.groups:
            return Decision(True)
        lost = []
        for held in self._grants(user, attributes.namespace):
            if any(permits(rule, attributes) for rule in held.rules):
                return Decision(True, f"RBAC: allowed by {held.source}")
            lost += [held.lost.message()] if held.lost else []
        return Decision(False, f"RBAC: {_join(lost)}" if lost else "")

    def rules_of(self, user: User, namespace: str) -> tuple[list[Rule], str]:
        """Every rule that applies to a user in a namespace, and the missing roles."""
        every = list(self._grants(user, namespace))
        if not self.enforced:
            return list(_EVERYTHING), ""
        return [rule for held in every for rule in held.rules], _join(
            [held.lost.message() for held in every if held.lost]
        )

    def check_creation(self, attributes: Attributes) -> None:
        """An apply that makes a new object needs the right to create it, too."""
        resource = attributes.resource
        requested = RequestAttributes(
            "create", resource.group, resource.plural, "", attributes.namespace, attributes.name
        )
        self.check(attributes.options.user, requested)

    def _grants(self, user: User, namespace: str) -> Iterator[Grant]:
        """The rules that each binding grants to a user, cluster-wide and in one namespace."""
        for binding in self._store.every(_CLUSTER_ROLE_BINDINGS):
            yield from self._of(user, binding.body, "")
        for binding in self._store.every(_ROLE_BINDINGS, namespace) if namespace else ():
            yield from self._of(user, binding.body, namespace)

    def _of(self, user: User, binding: Manifest, namespace: str) -> Iterator[Grant]:
        subjects = (each for each in binding.get("subjects") or () if is_meant(each, user, namespace))
        subject = next(subjects, None)
        if subject is None:
            return
        kind, name = binding["roleRef"]["kind"], binding["roleRef"]["name"]
        rules = self._rules(kind, name, namespace)
        if rules is None:
            yield Grant((), lost=Lost(kind, name))
            return
        place = f"/{namespace}" if namespace else ""
        of = f'{binding["kind"]} "{binding["metadata"]["name"]}{place}" of {kind} "{name}"'
        yield Grant(rules, f"{of} to {describe_subject(subject, namespace)}")

    def _rules(self, kind: str, name: str, namespace: str) -> Sequence[Rule] | None:
        inside = kind == "Role"
        role = self._store.get(_ROLES if inside else _CLUSTER_ROLES, namespace if inside else "", name)
        return (role.body.get("rules") or ()) if role else None


def _join(messages: Sequence[str]) -> str:
    """Several errors as one."""
    each = list(dict.fromkeys(messages))
    return each[0] if len(each) == 1 else f"[{', '.join(each)}]" if each else ""


def _plain(text: str) -> str:
    """The text, HTML-escaped."""
    return text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
