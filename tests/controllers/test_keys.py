"""The keys of an installation: drawn once, shared, and no token changes with time, restart or deletion."""

from __future__ import annotations

from base64 import b64decode
from itertools import count
from types import SimpleNamespace
from typing import Any, cast

import pytest

from elasticjob.controllers.keys import Keys
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import AlreadyExists, Forbidden, Unreachable
from elasticjob.kube.objects.kinds import Kind, Manifest


class Server:
    """Holds one Secret, or refuses."""

    config = SimpleNamespace(namespace="elasticjob-system")

    def __init__(self, *, hidden: int = 0, refuses: bool = False) -> None:
        self.data: dict[str, bytes] | None = None
        self.hidden, self.refuses = hidden, refuses

    async def find(self, kind: Kind[Any], name: str, namespace: str) -> Any:
        assert (name, namespace) == ("elasticjob-operator-keys", "elasticjob-system")
        if self.refuses:
            raise Forbidden(403, "Forbidden", "secrets is forbidden")
        self.hidden -= 1
        return None if self.data is None or self.hidden >= 0 else SimpleNamespace(data=self.data)

    async def create(self, kind: Kind[Any], manifest: Manifest) -> None:
        if self.data is not None:
            raise AlreadyExists(409, "AlreadyExists", "it exists")
        self.data = {name: b64decode(value) for name, value in manifest["data"].items()}


def keys(server: Server) -> Keys:
    drawn = count()
    return Keys(
        cast(Client, server), "elasticjob-operator-keys", "", None, lambda: f"{id(drawn)}-{next(drawn)}"
    )


async def test_replicas_have_the_same_tokens_and_jobs_have_different_ones() -> None:
    server = Server()
    first, second = keys(server), keys(server)
    await first.look()
    server.hidden = 1  # the second does not see yet what the first has made
    await second.look()
    assert first.token("u1") == second.token("u1") == first.token("u1")
    assert len({first.token("u1"), first.token("u2"), *(server.data or {}).values()}) == 4
    assert first.of_di_server() == second.of_di_server() == (server.data or {})["key"]


async def test_a_secret_that_is_deleted_comes_back_as_it_was() -> None:
    server = Server()
    ours = keys(server)
    await ours.look()
    before, server.data = server.data, None
    await ours.look()
    assert server.data == before


async def test_without_the_right_to_read_it_tokens_are_random_and_dijobs_wait() -> None:
    ours = keys(Server(refuses=True))
    with pytest.raises(Forbidden):
        await ours.look()
    assert ours.token("u1") != ours.token("u1")
    with pytest.raises(Unreachable, match="Secret elasticjob-operator-keys has no key"):
        ours.of_di_server()
