"""Bearer tokens: who is behind which, and new ones for service accounts."""

from __future__ import annotations

import secrets
from collections.abc import Iterable

from elasticjob.devcluster.server.asking import User

ANONYMOUS = User("system:anonymous", ("system:unauthenticated",))


class Tokens:
    """A table token → user."""

    def __init__(self) -> None:
        self._users: dict[str, User] = {}

    def add(self, token: str, user: str, groups: Iterable[str] = (), uid: str = "") -> None:
        """Accept `token` as `user`; every known user is in system:authenticated."""
        self._users[token] = User(user, tuple(dict.fromkeys((*groups, "system:authenticated"))), uid)

    def user_of(self, token: str) -> User | None:
        return self._users.get(token)

    def issue(self, namespace: str, name: str, uid: str) -> str:
        """A new token of a service account."""
        token = secrets.token_urlsafe(32)
        groups = ("system:serviceaccounts", f"system:serviceaccounts:{namespace}")
        self.add(token, f"system:serviceaccount:{namespace}:{name}", groups, uid)
        return token
