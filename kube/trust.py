"""One replica's part in the life of the webhooks' authority (authorities.py): look, write, publish, sign.

The order of one look is what keeps bundles from going back: first the bundles are read, then the Secret; then
a bundle is written only where it still is as it was read. Whoever meets somebody else's write looks again.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Protocol

from elasticjob.kube.authorities import (
    Authorities,
    Authority,
    Certificate,
    Kept,
    Leaf,
    Plan,
    Policy,
    Seen,
    Sightings,
    decide,
    reason_to_sign,
    settled,
    sighted,
)
from elasticjob.kube.clock import Clock
from elasticjob.kube.errors import Conflict
from elasticjob.kube.kinds import Manifest

ATTEMPTS = 5
"""How often a look is begun anew because another replica wrote in between."""

log = logging.getLogger(__name__)


class Vault(Protocol):
    """Where replicas keep their authority."""

    async def kept(self) -> Kept:
        """What it holds now."""

    async def keep(self, plan: Plan, before: Kept) -> None:
        """Have it hold what is planned. Raises Conflict if it is no longer as it was `before`."""


@dataclass(frozen=True)
class Published:
    """What the API server has been told: `places` as they were read, and the bundle of each."""

    places: tuple[Manifest, ...]
    bundles: tuple[bytes, ...]
    certificates: tuple[frozenset[Certificate], ...]

    @property
    def everywhere(self) -> frozenset[Certificate]:
        """What every bundle holds."""
        return frozenset.intersection(*self.certificates) if self.certificates else frozenset()

    @property
    def anywhere(self) -> frozenset[Certificate]:
        """What any bundle holds."""
        return frozenset[Certificate]().union(*self.certificates)


class Notices(Protocol):
    """Where the API server is told how to reach us, and whom to trust."""

    async def read(self) -> Published:
        """What it has been told."""

    async def publish(self, bundle: bytes | None, before: Published) -> Published:
        """Tell it; with None, bundles are somebody else's. Raises Conflict if it is no longer as `before`."""


@dataclass(frozen=True)
class Maker:
    """Makes keys and certificates."""

    authority: Callable[[datetime], Authority]
    leaf: Callable[[Authority, datetime], Leaf]
    is_ours: Callable[[Certificate], bool]
    """Whether a certificate is of an authority that such a maker made."""


class Trust:
    """Keeps a leaf served that every bundle verifies; `serve` shows a new one from its return on."""

    def __init__(
        self,
        vault: Vault,
        notices: Notices,
        maker: Maker,
        serve: Callable[[Leaf], None],
        *,
        clock: Clock,
        policy: Policy,
    ) -> None:
        self.leaf: Leaf | None = None
        self._vault = vault
        self._notices = notices
        self._maker = maker
        self._serve = serve
        self._clock = clock
        self._policy = policy
        self._remembered: tuple[Authorities, datetime] | None = None
        self._sightings: Sightings = {}

    async def look(self) -> str | None:
        """Bring Secret, bundles and leaf one step on; why calls cannot reach us, or None where they can.

        Raises KubeError; what was reached stays.
        """
        for _ in range(ATTEMPTS - 1):
            try:
                return await self._look()
            except Conflict:
                continue
        return await self._look()

    async def _look(self) -> str | None:
        now = self._clock.now()  # before the Secret is read: a leaf's life, and a memory's, count from here
        before = await self._notices.read()
        held = await self._held(before)
        self._remembered = held, now
        if self.leaf is None:
            self._sign(held, now, "the first")
        published = await self._notices.publish(held.bundle, before)
        self._sightings = sighted(self._sightings, published.everywhere, self._clock.monotonic())
        if why := reason_to_sign(self.leaf, held, published.everywhere, self._settled(), now):
            self._sign(held, now, why)
        return self._problem(published)

    async def _held(self, before: Published) -> Authorities:
        """What is shared from now on, after at most one step."""
        kept = await self._vault.kept()
        now = self._clock.now()  # dates count from the decision; it is stored within the client's time limit
        reliable = self._settled() & before.everywhere
        ours = frozenset(filter(self._maker.is_ours, before.anywhere))
        seen = Seen(kept, self._recent(now), ours, reliable)
        plan = decide(seen, now, lambda: self._maker.authority(now), self._policy)
        if plan.why:
            await self._vault.keep(plan, kept)
            log.log(logging.WARNING if kept.spoiled else logging.INFO, plan.why)
        return plan.authorities

    def _recent(self, now: datetime) -> Authorities | None:
        """What was remembered a short while ago: what is older, others may have forgotten."""
        if self._remembered is None:
            return None
        held, since = self._remembered
        return held if now - since < self._policy.memory else None

    def _settled(self) -> frozenset[Certificate]:
        return settled(self._sightings, self._clock.monotonic(), self._policy)

    def _sign(self, held: Authorities, now: datetime, why: str) -> None:
        self.leaf = self._maker.leaf(held.current, now)
        self._serve(self.leaf)
        log.info("a serving certificate is issued", extra={"why": why, "until": str(self.leaf.expires)})

    def _problem(self, published: Published) -> str | None:
        if self.leaf is None or (published.bundles and self.leaf.issuer not in published.everywhere):
            return "the API server does not trust our authority yet"
        if self._clock.now() >= self.leaf.expires:
            return f"our certificate ended at {self.leaf.expires}"
        return None
