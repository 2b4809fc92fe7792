"""What a probe is: requests in order, each with what later ones take from its answer.

Texts may hold `{ns}` (the probe's namespace), `{group}` (an API group of its own), `{hook}` and `{ca}`
(the webhook
server) and every name that an earlier step has taken.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from tests.kit.devcluster.api import MEDIA

JSON = "application/json"
YAML = "application/yaml"
TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
PARTIAL = "application/json;as=PartialObjectMetadata;v=v1;g=meta.k8s.io,application/json"

CORE = "/api/v1/namespaces/{ns}"
MAPS = f"{CORE}/configmaps"
PODS = f"{CORE}/pods"
SECRETS = f"{CORE}/secrets"
SERVICES = f"{CORE}/services"
DEPLOYMENTS = "/apis/apps/v1/namespaces/{ns}/deployments"
LEASES = "/apis/coordination.k8s.io/v1/namespaces/{ns}/leases"
CRDS = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
THINGS = "/apis/{group}/v1/namespaces/{ns}/things"
NAMESPACES = "/api/v1/namespaces"
ONE, POD, SERVICE = f"{MAPS}/a", f"{PODS}/p", f"{SERVICES}/s"
DEPLOYMENT, THING = f"{DEPLOYMENTS}/d", f"{THINGS}/one"
TAKE = {"rv": "metadata.resourceVersion", "uid": "metadata.uid"}


class Raw(str):
    """A body that is sent as it stands."""

    __slots__ = ()


@dataclass(frozen=True)
class Step:
    """One request.

    `show` says what of the answer is compared: None everything, else dotted paths into the body; the code
    always is. Of refusals code, reason and fields are compared, never their wording.
    `take` names parts of the answer (dotted paths, `*` for the whole body) for later steps. `until` repeats
    the request until the code is this, or until every dotted path has this value (None: is absent).
    `events` makes it a watch that is read until so many events came (bookmarks count only if `bookmarks`, and
    after initial events only the one that ends them), or it ended; `meanwhile` is played once it has begun.
    `reviews` compares what the webhook was sent instead of an answer. `bare` sends it without the
    administrator's credentials. A header may have several values.
    """

    method: str
    path: str
    body: Any = None
    query: Mapping[str, str] = field(default_factory=dict)
    media: str = JSON
    accept: str = JSON
    headers: Mapping[str, str | tuple[str, ...]] = field(default_factory=dict)
    show: tuple[str, ...] | None = None
    take: Mapping[str, str] = field(default_factory=dict)
    until: int | Mapping[str, Any] | None = None
    events: int = 0
    bookmarks: bool = False
    meanwhile: tuple[Step, ...] = ()
    bare: bool = False

    def quietly(self) -> Step:
        """The same, with nothing but its code compared."""
        return replace(self, show=())

    def but(self, **changes: Any) -> Step:
        return replace(self, **changes)

    def by(self, user: str, *groups: str) -> Step:
        """The same, asked by another user: the administrator acts as it."""
        more = {"Impersonate-Group": groups} if groups else {}
        return replace(self, headers={**self.headers, "Impersonate-User": user, **more})

    def with_token(self, token: str) -> Step:
        """The same, asked by whoever has this bearer token."""
        return replace(self, headers={**self.headers, "Authorization": f"Bearer {token}"}, bare=True)


@dataclass(frozen=True)
class Probe:
    """A named row of the table. `name` is a sentence that says what is asked."""

    name: str
    steps: tuple[Step, ...]

    @property
    def slug(self) -> str:
        """A short name that may be a namespace."""
        plain = "".join(each if each.isalnum() else "-" for each in self.name.lower())
        return "p-" + "-".join(part for part in plain.split("-") if part)[:48].strip("-")


def probe(name: str, *steps: Step | tuple[Step, ...]) -> Probe:
    """A probe of these steps; tuples of steps are laid out flat."""
    flat: list[Step] = []
    for each in steps:
        flat += [each] if isinstance(each, Step) else each
    return Probe(name, tuple(flat))


def get(path: str, **more: Any) -> Step:
    return _step("GET", path, None, more)


def post(path: str, body: Any, **more: Any) -> Step:
    return _step("POST", path, body, more)


def put(path: str, body: Any, **more: Any) -> Step:
    return _step("PUT", path, body, more)


def patch(kind: str, path: str, body: Any, **more: Any) -> Step:
    """`kind` is json, merge, strategic or apply."""
    return _step("PATCH", path, body, {"media": MEDIA[kind], **more})


def apply(path: str, body: Any, manager: str = "me", **more: Any) -> Step:
    return patch("apply", path, body, fieldManager=manager, **more)


def delete(path: str, body: Any = None, **more: Any) -> Step:
    return _step("DELETE", path, body, more)


def watch(path: str, events: int, **more: Any) -> Step:
    """Read until so many events came, for which no machine is too busy; where fewer come, `timeoutSeconds`
    says when it ends.
    """
    return _step("GET", path, None, {"events": events, "watch": "1", "timeoutSeconds": "60", **more})


def given(*steps: Step) -> tuple[Step, ...]:
    """Steps that only prepare."""
    return tuple(step.quietly() for step in steps)


_FIELDS = frozenset(Step.__dataclass_fields__)


def _step(method: str, path: str, body: Any, more: dict[str, Any]) -> Step:
    """Fields of Step by name; every other name is a query parameter (`continue_` for `continue`)."""
    fields = {name: value for name, value in more.items() if name in _FIELDS}
    query = {name.rstrip("_"): str(value) for name, value in more.items() if name not in _FIELDS}
    return Step(method, path, body, query, **fields)
