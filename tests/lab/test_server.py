"""The API server in a dict answers the verbs that it has as devcluster's does: the same requests, on both."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from random import Random
from typing import Any, cast

import pytest

from elasticjob.devcluster.server import ApiServer
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.informer import Informer
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config, Static
from elasticjob.kube.errors import KubeError
from elasticjob.kube.objects.kinds import Kind, Manifest
from lab.running import beside
from lab.virtual.server import Server
from lab.waiting import until
from tests.kit.devcluster.api import client, definition

THING: Kind[Manifest] = Kind("example.com", "v1", "Thing", "things", dict)
FREE = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
HOME = "default"
UNSTABLE = ("managedFields", "creationTimestamp", "deletionGracePeriodSeconds")


class Side:
    """One of the two servers: its answers, with uids and resourceVersions as ordinals."""

    def __init__(self, client: Client) -> None:
        self.client, self.cache = client, Cache(THING)
        self.changes: list[Change] = []
        self.cache.subscribe(self.changes.append)
        self.newest: dict[str, Manifest] = {}
        """What a client remembers of each name: perhaps an object that is gone by now."""
        self._ordinals: dict[str, int] = {}

    async def ask(self, verb: str, name: str, body: Manifest, *, held: tuple[str, ...], **how: Any) -> Any:
        """The answer, or the class of the error. `held` are the preconditions: of what is remembered."""
        known = self.newest.get(name, {}).get("metadata", {})
        conditions = {field: known[field] for field in held if field in known}
        metadata = {"name": name, "namespace": HOME, **body.pop("metadata", {}), **conditions}
        try:
            match verb:
                case "create":
                    answer = await self.client.create(THING, {**body, "metadata": metadata})
                case "apply":
                    answer = await self.client.apply(THING, {**body, "metadata": metadata}, **how)
                case "patch":
                    answer = await self.client.merge_patch(
                        THING, name, {**body, "metadata": metadata}, HOME, **how
                    )
                case "delete":
                    uid, version = conditions.get("uid"), conditions.get("resourceVersion")
                    return await self.client.delete(THING, name, HOME, uid=uid, version=version)
                case _:
                    found = await self.client.list(THING, HOME, labels="team=a")
                    return sorted((self.stable(each) for each in found), key=str)
        except KubeError as error:
            return type(error).__name__
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
async def sides() -> AsyncIterator[tuple[Side, Side]]:
    async with ApiServer() as real:
        real.add_token("secret", "admin", ["system:masters"])
        async with client(real) as api:
            await api.define(definition(FREE))
        config = Config(real.url, ssl.create_default_context(cadata=real.ca_pem), Static("Bearer secret"))
        async with Client(config) as connected:
            made = Side(cast(Client, Server())), Side(connected)
            async with beside(*(Informer(each.client, each.cache).run() for each in made)):
                await asyncio.gather(*(each.cache.wait_synced() for each in made))
                yield made


def request(chance: Random, number: int) -> tuple[str, str, Manifest, dict[str, Any]]:
    """A verb, a name, a body and how it is sent; no two bodies are the same."""
    verb = chance.choice(("create", "create", "apply", "apply", "patch", "patch", "patch", "delete", "list"))
    part = chance.choice(("spec", "spec", "status")) if verb in ("apply", "patch") else "spec"
    fields = chance.sample(("size", "mode", "list", "deep"), chance.randint(1, 3))
    values = {"size": number, "mode": f"m{number}", "list": [number, {"n": number}], "deep": {"n": number}}
    body: Manifest = {part: {name: values[name] for name in fields}}
    if verb == "patch" and part == "spec" and chance.random() < 0.3:
        body[part] = {chance.choice(fields): None}
    if verb == "patch" and part == "spec" and chance.random() < 0.4:
        body["metadata"] = {"finalizers": []}
    if verb == "create" and chance.random() < 0.5:
        body["metadata"] = {"finalizers": ["example.com/held"], "labels": {"team": chance.choice("ab")}}
    conditions = tuple(each for each in ("uid", "resourceVersion") if chance.random() < 0.3)
    how: dict[str, Any] = {"held": conditions if verb in ("patch", "delete") else ()}
    how |= {"subresource": "status" if part == "status" else ""} if verb in ("apply", "patch") else {}
    if verb == "apply":
        how |= {"manager": chance.choice(("one", "two")), "held": ("uid",) if chance.random() < 0.8 else ()}
    return verb, chance.choice("xy"), body, how


@pytest.mark.parametrize("seed", range(3))
async def test_both_servers_answer_alike(seed: int) -> None:
    chance = Random(seed)
    async with sides() as (ours, real):
        for number in range(60):
            verb, name, body, how = request(chance, number)
            answers = [await side.ask(verb, name, dict(body), **how) for side in (ours, real)]
            assert answers[0] == answers[1], f"{number}: {verb} {name} {body} {how}"
        await until(lambda: len(ours.changes) == len(real.changes), "both watches tell of as many changes")
        heard = [
            [
                [side.stable(side.cache.view(item)) if item else None for item in (each.old, each.new)]
                for each in side.changes
            ]
            for side in (ours, real)
        ]
        assert heard[0] == heard[1]
