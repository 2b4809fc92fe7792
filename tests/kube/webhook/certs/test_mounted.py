"""A certificate that others keep in a folder: read again as it changes, never served by halves."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from pathlib import Path

from prometheus_client import CollectorRegistry

from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.metrics import Metrics
from elasticjob.kube.webhook.certs.certificates import Leaf, Policy, issue, new_authority
from elasticjob.kube.webhook.certs.mounted import MountedPair
from elasticjob.kube.webhook.registration import Registered
from tests.kit.kube.stub import until

NOW = datetime.now(UTC)
AUTHORITY = new_authority("another", NOW)
POLL = Policy().poll


class Told:
    """What the API server has been told, and by whom the bundle was filled in."""

    def __init__(self, bundle: bytes = AUTHORITY.certificate) -> None:
        self.bundle = bundle
        self.published: list[bytes | None] = []

    async def read(self) -> Registered:
        return Registered((), (self.bundle,))

    async def publish(self, bundle: bytes | None, before: Registered) -> Registered:
        self.published.append(bundle)
        return before


class Following:
    """A reader of `folder` that runs in virtual time."""

    def __init__(self, folder: Path, listener: Told | None = None) -> None:
        self.clock, self.metrics = VirtualClock(), Metrics(CollectorRegistry())
        self.served: list[Leaf] = []
        self.listener = listener or Told()
        self.mounted = MountedPair(
            folder,
            self.listener,
            self.served.append,
            host="hooks.sys.svc",
            clock=self.clock,
            poll=POLL,
            metrics=self.metrics,
        )

    async def __aenter__(self) -> Following:
        self._task = asyncio.create_task(self.mounted.run(lambda: None))
        await self.reads(1)
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()
        await asyncio.wait({self._task})

    async def reads(self, more: int) -> None:
        """Return after so many more readings have ended."""
        for _ in range(more):
            await until(lambda: self.clock.next_due == POLL.total_seconds())
            await self.clock.advance(POLL.total_seconds())
        await until(lambda: self.clock.next_due == POLL.total_seconds())

    def counted(self, name: str) -> float | None:
        return self.metrics.registry.get_sample_value(f"certwatcher_read_certificate{name}_total")


def put(folder: Path, age: int, chain: bytes = b"", key: bytes = b"") -> Leaf:
    leaf = issue(AUTHORITY, ["hooks.sys.svc"], NOW - timedelta(minutes=age))
    (folder / "tls.crt").write_bytes(chain or leaf.chain)
    (folder / "tls.key").write_bytes(key or leaf.key)
    return leaf


async def test_a_pair_is_served_once_and_another_when_it_comes(tmp_path: Path) -> None:
    first = put(tmp_path, age=2)
    async with Following(tmp_path) as it:
        await it.reads(3)
        second = put(tmp_path, age=1)
        await it.reads(1)
        assert [leaf.chain for leaf in it.served] == [first.chain, second.chain]
        assert it.counted("_errors") == 0
        assert await it.mounted.look() is None
        assert it.listener.published == [None]


async def test_half_a_pair_is_counted_and_not_served(tmp_path: Path) -> None:
    first = put(tmp_path, age=2)
    async with Following(tmp_path) as it:
        put(tmp_path, age=1, key=first.key)
        await it.reads(2)
        (tmp_path / "tls.crt").unlink()
        await it.reads(1)
        assert [leaf.chain for leaf in it.served] == [first.chain]
        assert it.counted("_errors") == 3
        assert await it.mounted.look() is None


async def test_without_a_certificate_we_are_not_ready_and_say_why(tmp_path: Path) -> None:
    async with Following(tmp_path) as it:
        assert "there is no certificate to serve" in str(await it.mounted.look())
        assert "tls.crt" in str(await it.mounted.look())


async def test_a_bundle_that_does_not_verify_us_is_said(tmp_path: Path) -> None:
    put(tmp_path, age=1)
    told = Told(b"")
    async with Following(tmp_path, told) as it:
        assert str(await it.mounted.look()) == (
            "the API server does not trust our certificate as hooks.sys.svc: "
            "the bundle holds no certificate; is the CA injected?"
        )
        told.bundle = new_authority("other", NOW).certificate
        assert "self-signed certificate in certificate chain" in str(await it.mounted.look())
        told.bundle += AUTHORITY.certificate
        assert await it.mounted.look() is None
