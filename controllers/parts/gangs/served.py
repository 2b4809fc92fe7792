"""Which APIs of gang schedulers a cluster has: found by discovery, and read again when that is stale."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from typing import Final

import msgspec

from elasticjob.controllers.parts.discovery import verbs
from elasticjob.controllers.parts.gangs.apis import APIS, Api
from elasticjob.kube.client.client import Client

STALE: Final = timedelta(minutes=1)
"""How long what was found is believed."""
MISSED: Final = timedelta(milliseconds=100)
"""The same where the API that is looked for was not there: many jobs may wait for it at one time."""


class _Version(msgspec.Struct, rename="camel"):
    group_version: str


class _Group(msgspec.Struct):
    versions: list[_Version] = []


class _Groups(msgspec.Struct):
    """The document of `/apis`."""

    groups: list[_Group] = []


class GangApis:
    """Remembers the answers of one cluster. Time is an argument."""

    def __init__(self, client: Client, now: Callable[[], datetime]) -> None:
        self._client = client
        self._now = now
        self._found: frozenset[str] = frozenset()
        self._read_at: datetime | None = None

    async def look(self, apis: Iterable[Api]) -> frozenset[str]:
        """Return group and version of each API that the cluster serves; asked anew if none of `apis` is."""
        known = any(api.name in self._found for api in apis)
        if self._read_at is None or self._now() - self._read_at >= (STALE if known else MISSED):
            self._found = await self._read()
            self._read_at = self._now()
        return self._found

    def forget(self) -> None:
        """Ask anew next time: an object could not be made."""
        self._read_at = None

    async def _read(self) -> frozenset[str]:
        groups = msgspec.json.decode(await self._client.raw("GET", "/apis"), type=_Groups).groups
        versions = {version.group_version for group in groups for version in group.versions}
        return frozenset([api.name for api in APIS if api.name in versions and await self._has(api)])

    async def _has(self, api: Api) -> bool:
        plurals = await verbs(self._client, api.name)
        return all(kind.plural in plurals for kind in api.kinds)
