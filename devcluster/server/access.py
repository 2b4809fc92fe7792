"""Who may do what: everybody everything, or by Roles."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from elasticjob.devcluster.server.http import Gate
from elasticjob.devcluster.server.objects import User
from elasticjob.devcluster.server.store import Store
from elasticjob.devcluster.server.target import Target
from elasticjob.devcluster.server.tokens import Tokens


class Access(Gate):
    """The answers of `http.Gate`."""

    def __init__(self, tokens: Tokens, store: Store, *, enforced: bool) -> None:
        self._tokens = tokens
        self._store = store
        self._enforced = enforced

    def user_of(self, token: str) -> User | None:
        return self._tokens.user_of(token)

    def may(self, user: User, spec: Mapping[str, Any]) -> bool:
        return True

    def check(self, user: User, verb: str, target: Target) -> None:
        return None
