"""Requests and answers: users, options, authorization and admission attributes."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from typing import Protocol

from elasticjob.devcluster.server.model.registry import Resource
from elasticjob.devcluster.server.model.store import Entry, Manifest, Type

NAMESPACES = Type("", "namespaces")
ORPHAN, FOREGROUND = "orphan", "foregroundDeletion"
Compute = Callable[[Manifest], Manifest | Awaitable[Manifest]]


@dataclass(frozen=True)
class User:
    """The user of a request."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Options:
    """The options of a request."""

    user: User
    manager: str
    dry_run: bool = False
    field_validation: str = "Warn"
    force: bool = False
    named: str = ""  # the fieldManager that the query names
    asked_validation: str = ""


@dataclass(frozen=True)
class Deletion:
    """DeleteOptions."""

    grace: int | None = None
    propagation: str = ""
    uid: str = ""
    version: str = ""


@dataclass
class Answer:
    """A stored (or, for a dry run, would-be) object; `warnings` go to the client's terminal."""

    stored: Entry
    created: bool = False
    warnings: list[str] = field(default_factory=list)
    gone: bool = False


@dataclass(frozen=True)
class Attributes:
    """The admission attributes of a request."""

    resource: Resource
    operation: str
    namespace: str
    name: str
    subresource: str
    old: Manifest | None
    options: Options


class Admission(Protocol):
    """Where webhooks change or refuse an object."""

    def concerns(self, attributes: Attributes) -> bool: ...
    async def mutate(self, attributes: Attributes, new: Manifest, warnings: list[str]) -> Manifest: ...
    async def validate(self, attributes: Attributes, new: Manifest | None) -> list[str]: ...


class Rights(Protocol):
    """Authorization checks that depend on the content of a write. Raises Forbidden."""

    def check_creation(self, attributes: Attributes) -> None:
        """An apply that makes a new object needs the right to create it, too."""
