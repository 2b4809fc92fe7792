"""Kinds that are asked and answered but never stored: who am I, may I, whose token is this."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

from elasticjob.devcluster.server.asking import User
from elasticjob.devcluster.server.store import Manifest

Answer = Callable[[Manifest, User], Manifest]


class Authority(Protocol):
    """Who is behind a token, and what a user may do."""

    def user_of(self, token: str) -> User | None: ...
    def may(self, user: User, spec: Mapping[str, Any]) -> bool: ...


def user_info(user: User) -> Manifest:
    uid = {"uid": user.uid} if user.uid else {}
    return {"username": user.name, "groups": list(user.groups)} | uid


def answers(authority: Authority) -> dict[tuple[str, str], Answer]:
    """(group, plural) → a function that fills in the status of a review."""

    def who(_: Manifest, user: User) -> Manifest:
        return {"userInfo": user_info(user)}

    def token(review: Manifest, _: User) -> Manifest:
        found = authority.user_of((review.get("spec") or {}).get("token") or "")
        return {"authenticated": True, "user": user_info(found)} if found else {"authenticated": False}

    def own_access(review: Manifest, user: User) -> Manifest:
        return {"allowed": authority.may(user, review.get("spec") or {})}

    def access(review: Manifest, _: User) -> Manifest:
        spec = review.get("spec") or {}
        return {"allowed": authority.may(User(spec.get("user") or "", tuple(spec.get("groups") or ())), spec)}

    def rules(_: Manifest, user: User) -> Manifest:
        every = {"verbs": ["*"], "apiGroups": ["*"], "resources": ["*"]}
        return {
            "resourceRules": [every] if "system:masters" in user.groups else [],
            "nonResourceRules": [],
            "incomplete": True,
        }

    authorization = "authorization.k8s.io"
    return {
        ("authentication.k8s.io", "selfsubjectreviews"): who,
        ("authentication.k8s.io", "tokenreviews"): token,
        (authorization, "selfsubjectaccessreviews"): own_access,
        (authorization, "subjectaccessreviews"): access,
        (authorization, "selfsubjectrulesreviews"): rules,
    }
