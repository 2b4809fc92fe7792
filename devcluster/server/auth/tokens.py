"""Bearer tokens: their users, audiences and expiry; new ones for service accounts.

A token of an account counts as long as the account is there, and the object that it is bound to.
"""

from __future__ import annotations

import secrets
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import NamedTuple

from elasticjob.devcluster.server.model.asking import User
from elasticjob.devcluster.server.model.names import plain
from elasticjob.devcluster.server.model.store import Entry, Store, Type

AUTHENTICATED, UNAUTHENTICATED = "system:authenticated", "system:unauthenticated"
ANONYMOUS = User("system:anonymous", (UNAUTHENTICATED,))
AUDIENCE = "https://kubernetes.default.svc.cluster.local"
_ACCOUNTS = Type("", "serviceaccounts")
_KEY = "authentication.kubernetes.io/"
_PREFIX = "system:serviceaccount:"
_NOUNS = {"pods": "pod", "nodes": "node"}


class Bound(NamedTuple):
    """The object that a token lives and dies with."""

    type: Type
    namespace: str
    name: str
    uid: str


@dataclass(frozen=True)
class Token:
    """One token. `account` is (namespace, name); a token without an account is never revoked."""

    user: User
    audiences: tuple[str, ...] = (AUDIENCE,)
    expires: datetime | None = None
    account: tuple[str, str] | None = None
    bound: Bound | None = None


@dataclass(frozen=True)
class Verdict:
    """The user of a token and the accepted audiences, or the error."""

    user: User | None = None
    audiences: tuple[str, ...] = ()
    problem: str = ""


class Tokens:
    """A table of tokens, and the store that their accounts are in."""

    def __init__(self, store: Store, now: Callable[[], datetime], new_uid: Callable[[], str]) -> None:
        self._tokens: dict[str, Token] = {}
        self._store, self._now, self._new_uid = store, now, new_uid

    def add(self, token: str, user: str, groups: Iterable[str] = ()) -> None:
        """Accept `token` as `user`; every known user is in system:authenticated."""
        self._tokens[token] = Token(User(user, tuple(dict.fromkeys((*groups, AUTHENTICATED)))))

    def user_of(self, token: str) -> User | None:
        """The user that a token authenticates to this server."""
        return self.verdict(token).user

    def verdict(self, token: str, audiences: Sequence[str] = ()) -> Verdict:
        """The user of a token for one of these audiences (this server's, if none is given)."""
        asked = audiences or (AUDIENCE,)
        found = self._tokens.get(token)
        if found is None:
            return Verdict(problem="invalid bearer token")
        common = tuple(each for each in asked if each in found.audiences)
        if not common:
            theirs, ours = plain(found.audiences), plain(asked)
            why = f"token audiences {theirs} is invalid for the target audiences {ours}"
            return Verdict(problem=f"[invalid bearer token, {why}]")
        problem = self._problem(found)
        return (
            Verdict(problem=f"[invalid bearer token, {problem}]") if problem else Verdict(found.user, common)
        )

    def issue(
        self,
        account: Entry,
        *,
        audiences: tuple[str, ...],
        expires: datetime,
        bound: Bound | None,
        node: Entry | None,
    ) -> str:
        """A new token of a service account; it also tells the node of the pod that it is bound to."""
        namespace, name, uid = (account.metadata[part] for part in ("namespace", "name", "uid"))
        extra: list[tuple[str, tuple[str, ...]]] = [(f"{_KEY}credential-id", (f"JTI={self._new_uid()}",))]
        if bound and bound.type.plural in _NOUNS:
            extra += _describe(_NOUNS[bound.type.plural], bound.name, bound.uid)
        if node:
            extra += _describe("node", node.metadata["name"], node.metadata["uid"])
        groups = (*account_groups(namespace), AUTHENTICATED)
        user = User(f"{_PREFIX}{namespace}:{name}", groups, uid, tuple(extra))
        token = secrets.token_urlsafe(32)
        self._tokens[token] = Token(user, audiences, expires, (namespace, name), bound)
        return token

    def _problem(self, token: Token) -> str:
        """Why a token no longer counts; "" while it does."""
        if token.account is None:
            return ""
        if token.expires is not None and self._now() >= token.expires:
            return "service account token has expired"
        account = self._store.get(_ACCOUNTS, *token.account)
        if account is None:
            return f'serviceaccounts "{token.account[1]}" not found'
        uid = account.metadata["uid"]
        if uid != token.user.uid:
            return f"service account UID ({uid}) does not match claim ({token.user.uid})"
        return "" if self._is_there(token.bound) else "service account token has been invalidated"

    def _is_there(self, bound: Bound | None) -> bool:
        if bound is None:
            return True
        found = self._store.get(bound.type, bound.namespace, bound.name)
        return found is not None and found.metadata["uid"] == bound.uid


def _describe(noun: str, name: str, uid: str) -> list[tuple[str, tuple[str, ...]]]:
    return [(f"{_KEY}{noun}-name", (name,)), (f"{_KEY}{noun}-uid", (uid,))]


def account_groups(namespace: str) -> tuple[str, ...]:
    return ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
