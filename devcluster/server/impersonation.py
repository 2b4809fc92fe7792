"""Acting as another: what a request must be allowed for it, and whom it then comes from."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from urllib.parse import unquote

from multidict import CIMultiDictProxy

from elasticjob.devcluster.server.asking import User
from elasticjob.devcluster.server.errors import bad_request
from elasticjob.devcluster.server.tokens import (
    ANONYMOUS,
    AUTHENTICATED,
    UNAUTHENTICATED,
    account_groups,
    account_of,
)
from elasticjob.devcluster.server.wish import Wish

_EXTRA = "impersonate-extra-"
_AUTHENTICATION = "authentication.k8s.io"


@dataclass(frozen=True)
class Impersonation:
    """Whom a request asks to be; empty where it asks for nothing."""

    user: str = ""
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, str], ...] = ()
    uid: str = ""

    def wishes(self) -> Iterator[Wish]:
        """What the one who really asks must be allowed."""
        account = account_of(self.user)
        if account:
            yield Wish("impersonate", "", "serviceaccounts", "", *account)
        else:
            yield Wish("impersonate", "", "users", name=self.user)
        for group in self.groups:
            yield Wish("impersonate", "", "groups", name=group)
        for key, value in self.extra:
            yield Wish("impersonate", _AUTHENTICATION, "userextras", key, name=value)
        if self.uid:
            yield Wish("impersonate", _AUTHENTICATION, "uids", name=self.uid)

    def whom(self) -> User:
        account = account_of(self.user)
        groups = self.groups or (account_groups(account[0]) if account else ())
        extra: dict[str, tuple[str, ...]] = {}
        for key, value in self.extra:
            extra[key] = (*extra.get(key, ()), value)
        return User(self.user, _completed(self.user, groups), self.uid, tuple(extra.items()))


def impersonation_of(headers: CIMultiDictProxy[str]) -> Impersonation | None:
    """What the headers ask for, or None. BadRequest where they do not say whom."""
    groups = tuple(headers.getall("Impersonate-Group", ()))
    extra = tuple(
        (unquote(name.lower().removeprefix(_EXTRA)), value)
        for name, value in headers.items()
        if name.lower().startswith(_EXTRA)
    )
    asked = Impersonation(
        headers.get("Impersonate-User", ""), groups, extra, headers.get("Impersonate-Uid", "")
    )
    if asked == Impersonation():
        return None
    if not asked.user:
        raise bad_request(f"requested [{' '.join(_references(asked))}] without impersonating a user")
    return asked


def _completed(user: str, groups: tuple[str, ...]) -> tuple[str, ...]:
    """The groups, with the one that says whether the user is known."""
    if user == ANONYMOUS.name:
        return groups if UNAUTHENTICATED in groups else (*groups, UNAUTHENTICATED)
    return groups if {AUTHENTICATED, UNAUTHENTICATED} & set(groups) else (*groups, AUTHENTICATED)


def _references(asked: Impersonation) -> Iterator[str]:
    """What was asked, as Go prints references to objects."""
    version = f"{_AUTHENTICATION}/v1"
    yield from ("{Group  " + group + "    }" for group in asked.groups)
    yield from ("{UserExtra  " + f"{value}  {version}  {key}" + "}" for key, value in asked.extra)
    if asked.uid:
        yield "{UID  " + f"{asked.uid}  {version}  " + "}"
