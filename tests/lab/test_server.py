"""The API server in a dict answers the verbs that it has as devcluster's does: the same requests, on both."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from copy import deepcopy
from random import Random
from typing import Any, cast

import pytest

from elasticjob.api.crds import DECLARATIONS, manifests
from elasticjob.devcluster.server import ApiServer
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config, Static
from elasticjob.kube.clock import SystemClock
from elasticjob.kube.errors import ApiError
from elasticjob.kube.objects.kinds import Kind, Manifest
from lab.build.manifests import changed, declared
from lab.running import beside
from lab.virtual.admission import Admission
from lab.virtual.server import Instant, Server
from lab.waiting import until
from tests.kit.devcluster.api import client, definition

THING: Kind[Manifest] = Kind("example.com", "v1", "Thing", "things", dict)
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
HOME = "default"
WRITES = ("create", "create", "apply", "apply", *["merge_patch"] * 3, "replace", "delete")
UPDATES = ("apply", "merge_patch", "replace")
FIELDS = ("", "metadata.name=x", "metadata.name!=x")
WORKER = "spec/replicaSpecs/worker"
CHANGES: tuple[tuple[str, Any], ...] = (
    ("spec/colour", "red"),
    ("spec/nodeUnit", 0),
    ("spec/nodeUnit", "two"),
    ("spec/suspend", None),
    ("spec/selector/name", "other"),
    ("spec/ownerJob", "other"),
    ("spec/optimizeMode", "manual"),
    (f"{WORKER}/minReplicas", 9),
    (f"{WORKER}/replicas", 3),
    (f"{WORKER}/colour", "red"),
    ("spec/replicaResourceSpecs/worker/replicas", -1),
    ("spec/collector/template/spec/colour", "red"),
    ("spec/passes", 3),
    ("colour", "red"),
)
"""What is drawn for any kind: some of it is unknown to it, and goes."""
HELD = (("uid",), ("uid",), ("uid", "resourceVersion"), ())
"""By an apply."""
PATCHED: tuple[Manifest, ...] = ({"phase": "Running"}, {"conditions": 3}, {"colour": "red"})
ROLES: tuple[Manifest, ...] = ({"worker": {}}, {"ps": {"desired": 1}}, {"worker": {"desired": 1}}, {})
APPLIED = (*PATCHED, *({"replicaStatuses": roles} for roles in ROLES))
"""Of status. What was patched first would stay, whoever applies it later: that is not known here."""
UNSTABLE = ("managedFields", "creationTimestamp", "deletionGracePeriodSeconds")


class Hasty(SystemClock):
    """Of a client that asks again at once what has failed."""

    async def sleep(self, seconds: float) -> None: ...


class Side:
    """One of the two servers: its answers, with uids and resourceVersions as ordinals."""

    def __init__(self, client: Client) -> None:
        self.client, self.cache = client, Cache(THING)
        self.changes: list[Change] = []
        self.cache.subscribe(self.changes.append)
        self.newest: dict[str, Manifest] = {}
        """What a client remembers of each name: perhaps an object that is gone by now."""
        self._ordinals: dict[str, int] = {}

    async def ask(self, verb: str, name: str, body: Any, *, held: tuple[str, ...] = (), **how: Any) -> Any:
        """The answer, or the class of the error. `held` are the preconditions: of what is remembered."""
        kind: Kind[Manifest] = how.pop("kind", THING)
        known = self.newest.get(name, {}).get("metadata", {})
        conditions = {field: known[field] for field in held if field in known}
        if isinstance(body, dict):
            metadata = {"name": name, "namespace": HOME, **body.pop("metadata", {}), **conditions}
            body = {**body, "metadata": metadata}
        try:
            match verb:
                case "create" | "apply" | "replace":
                    answer = await getattr(self.client, verb)(kind, body, **how)
                case "merge_patch" | "json_patch":
                    answer = await getattr(self.client, verb)(kind, name, body, HOME, **how)
                case "delete":
                    uid, version = conditions.get("uid"), conditions.get("resourceVersion")
                    return await self.client.delete(kind, name, HOME, uid=uid, version=version)
                case _:
                    found = await self.client.list(kind, HOME, **how)
                    return [self.stable(each) for each in found]
        except ApiError as error:
            return type(error).__name__, error.message if kind is not THING else ""
        self.newest[name] = answer
        return self.stable(answer)

    def stable(self, found: Manifest) -> Manifest:
        """An object without what differs from one server to another."""
        about = {name: value for name, value in found["metadata"].items() if name not in UNSTABLE}
        for name in ("uid", "resourceVersion"):
            about[name] = self._ordinals.setdefault(f"{name} {about[name]}", len(self._ordinals))
        about |= {"deletionTimestamp": "some time"} if "deletionTimestamp" in about else {}
        whole = {**found, "metadata": about}
        return {name: value for name, value in whole.items() if name in ("metadata", "spec", "status")}


@asynccontextmanager
async def sides(*definitions: Manifest) -> AsyncIterator[tuple[Side, Side]]:
    """The server in a dict, with the schemas of our kinds only, and devcluster's with these definitions."""
    async with ApiServer() as real:
        real.add_token("secret", "admin", ["system:masters"])
        async with client(real) as api:
            for each in definitions:
                await api.define(each)
        config = Config(real.url, ssl.create_default_context(cadata=real.ca_pem), Static("Bearer secret"))
        async with Client(config, clock=Hasty()) as connected:
            server = Server()
            server.admission = Admission(Instant(server), webhooks=())
            yield Side(cast(Client, server)), Side(connected)


def request(chance: Random, number: int) -> tuple[str, str, Any, dict[str, Any]]:
    """A verb, a name, a body and how it is sent; no two bodies are the same."""
    verb = chance.choice((*WRITES, "json_patch", "list"))
    if verb == "list":
        chosen = {"labels": chance.choice(("", "team=a", "team!=a")), "fields": chance.choice(FIELDS)}
        return verb, "", {}, chosen
    if verb == "json_patch":
        return verb, chance.choice("xy"), operations(chance, number), {}
    part = chance.choice(("spec", "spec", "status")) if verb in UPDATES else "spec"
    fields = chance.sample(("size", "mode", "list", "deep"), chance.randint(1, 3))
    values = {"size": number, "mode": f"m{number}", "list": [number, {"n": number}], "deep": {"n": number}}
    body: Manifest = {part: {name: values[name] for name in fields}}
    if verb == "merge_patch" and part == "spec" and chance.random() < 0.3:
        body[part] = {chance.choice(fields): None}
    if verb == "merge_patch" and part == "spec" and chance.random() < 0.4:
        body["metadata"] = {"finalizers": []}
    if verb == "create" and chance.random() < 0.5:
        body["metadata"] = {"finalizers": ["example.com/held"], "labels": {"team": chance.choice("ab")}}
    conditions = tuple(each for each in ("uid", "resourceVersion") if chance.random() < 0.3)
    how: dict[str, Any] = {"held": conditions if verb in ("merge_patch", "replace", "delete") else ()}
    how |= {"subresource": "status" if part == "status" else ""} if verb in UPDATES else {}
    if verb == "apply":
        how |= {"manager": chance.choice(("one", "two")), "held": chance.choice(HELD)}
    return verb, chance.choice("xy"), body, how


def operations(chance: Random, number: int) -> list[Manifest]:
    """A JSON patch, which may fail."""
    size = {"op": chance.choice(("add", "replace", "test")), "path": "/spec/size", "value": number}
    mode = {"op": chance.choice(("add", "remove")), "path": "/spec/mode", "value": f"m{number}"}
    label = {"op": "add", "path": "/metadata/labels", "value": {"team": chance.choice("ab")}}
    status = {"op": "add", "path": "/status", "value": {"size": number}}
    return chance.sample([size, mode, label, status], chance.randint(1, 3))


async def play(made: tuple[Side, Side], asked: Iterable[tuple[str, str, Any, dict[str, Any]]]) -> None:
    """Ask both servers the same."""
    for number, (verb, name, body, how) in enumerate(asked):
        answers = [await side.ask(verb, name, deepcopy(body), **how) for side in made]
        assert answers[0] == answers[1], f"{number}: {verb} {name} {body} {how}"


@pytest.mark.parametrize("seed", range(3))
async def test_both_servers_answer_alike(seed: int) -> None:
    chance = Random(seed)
    async with (
        sides(definition(FREE)) as (ours, real),
        beside(*(Informer(each.client, each.cache).run() for each in (ours, real))),
    ):
        await asyncio.gather(*(each.cache.wait_synced() for each in (ours, real)))
        await play((ours, real), (request(chance, number) for number in range(60)))
        await until(lambda: len(ours.changes) == len(real.changes), "both watches tell of as many changes")
        heard = [
            [
                [side.stable(side.cache.view(item)) if item else None for item in (each.old, each.new)]
                for each in side.changes
            ]
            for side in (ours, real)
        ]
        assert heard[0] == heard[1]


def ours_of(chance: Random, number: int) -> tuple[str, str, Any, dict[str, Any]]:
    """A request about an object of a kind of ours, right or wrong by its schema or a rule."""
    declaration = chance.choice(DECLARATIONS)
    kind, whole = declaration.kind.untyped(), declared(declaration.kind)
    verb, name = chance.choice(WRITES), f"digits-{kind.plural}"
    how: dict[str, Any] = {"kind": kind}
    if verb == "delete":
        return verb, name, {}, how
    if declaration.scale and chance.random() < 0.2:
        how["subresource"] = "scale"
        return "merge_patch", name, {"spec": {"replicas": chance.randint(0, 5)}}, how
    how |= {"manager": "me"} if verb == "apply" else {}
    how |= {"held": ("resourceVersion",)} if verb == "replace" and chance.random() < 0.8 else {}
    if verb in ("apply", "merge_patch") and chance.random() < 0.4:
        status = chance.choice(APPLIED if verb == "apply" else PATCHED)
        return verb, name, {**whole, "metadata": {}, "status": status}, {**how, "subresource": "status"}
    changes = dict(chance.sample(CHANGES, chance.randint(0, 2)))
    labels = chance.choice(({"team": "b"}, {"team": "a"}, {"a b": "c"}))
    return verb, name, changed({**whole, "metadata": {"labels": labels}}, changes), how


async def test_both_servers_know_the_schemas_of_our_kinds() -> None:
    chance = Random(0)
    async with sides(*manifests()) as made:
        await play(made, (ours_of(chance, number) for number in range(150)))
