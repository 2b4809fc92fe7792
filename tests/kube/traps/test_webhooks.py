"""Rows 18 to 20 of the trap table: slow webhooks, and certificates that change under load. No call fails."""

from __future__ import annotations

import asyncio
import base64
import signal
import ssl
import sys
import threading
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from aiohttp import ClientSession
from cryptography import x509

from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import ApiError, KubeError
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import CONFIG_MAP, SECRET, VALIDATING_WEBHOOKS, ConfigMap
from elasticjob.kube.webhook import handlers
from elasticjob.kube.webhook.certs.certificates import Leaf, certificates_in, issue, new_authority
from elasticjob.kube.webhook.registration import INJECT_FROM
from elasticjob.kube.webhook.review import Reader
from elasticjob.kube.webhook.server import Policy, Problem, Review, Webhook, WebhookServer
from lab import waiting
from lab.clusters.served import Served
from lab.processes import Process
from lab.running import beside, running
from lab.troubles.switch import Switch
from lab.waiting import PATIENCE, PAUSE
from tests.kit.kube.stub import until
from tests.kit.kube.tls import shown, trusting
from tests.kit.traps.operators import for_maps, operator_of
from tests.kit.traps.terms import within

QUICK = Policy(settle=timedelta(seconds=6), look=timedelta(seconds=0.1), poll=timedelta(seconds=0.02))
"""On a busy machine it takes seconds to store an authority, and an API server takes some to heed a bundle."""
HEEDED = "seen"
"""The label by which a write shows that it went past us."""
PROBE = "probe"
BREATH = 0.05
"""Seconds between two requests of a load: it is to go on, not to take the machine."""


def label(review: Review[ConfigMap]) -> Sequence[Manifest]:
    return [{"op": "add", "path": "/metadata/labels", "value": {HEEDED: "yes"}}]


@asynccontextmanager
async def serving(
    client: Client, webhook: Webhook[Any], name: str, policy: Policy = QUICK, **options: Any
) -> AsyncIterator[WebhookServer]:
    """A webhook server that the API server is being told of."""
    server = WebhookServer("127.0.0.1", 0, [webhook], client=client, name=name, policy=policy, **options)
    async with beside(server.run()):
        yield server


def probed(review: Review[ConfigMap]) -> Sequence[Problem]:
    """A check that refuses one name, by which a test sees that it is asked."""
    return [Problem("", f"this is only a {PROBE}")] if review.name == PROBE else []


async def heeded(client: Client, namespace: str) -> None:
    """Return once the API server asks us: it takes a moment to heed each new configuration."""
    async with asyncio.timeout(PATIENCE):
        while not (await labelled(client, namespace) and await refused(client, namespace)):  # noqa: ASYNC110
            await asyncio.sleep(PAUSE)


async def labelled(client: Client, namespace: str) -> bool:
    """Whether our mutating webhook is asked."""
    manifest = {"metadata": {"generateName": "a-"}}
    made = await client.create(CONFIG_MAP, manifest, namespace, dry_run=True)
    return HEEDED in made.metadata.labels


async def refused(client: Client, namespace: str) -> bool:
    """Whether our validating one is asked."""
    try:
        await client.create(CONFIG_MAP, {"metadata": {"name": PROBE}}, namespace, dry_run=True)
    except ApiError as error:
        return PROBE in error.message
    return False


async def stored(client: Client, name: str) -> Manifest:
    """The one validating webhook of a configuration, as the API server has it."""
    found = await client.get(VALIDATING_WEBHOOKS, name)
    return found.webhooks[0]


# 18


async def test_18_a_handler_that_blocks_stalls_neither_reconciles_nor_other_reviews(
    client: Client, namespace: str
) -> None:
    inside, go = threading.Event(), threading.Event()
    reconciled: list[str] = []

    def check(review: Review[ConfigMap]) -> Sequence[Problem]:
        if review.name == "slow":
            inside.set()
            go.wait(PATIENCE)
        return probed(review)

    async def reconcile(key: Key) -> None:
        reconciled.append(key.name)

    webhook = Webhook(CONFIG_MAP, mutate=label, validate=check, terms=within(namespace))
    operator = operator_of(client, namespace, for_maps(reconcile))
    operator.add(WebhookServer("127.0.0.1", 0, [webhook], client=client, name=namespace, policy=QUICK))
    async with running(operator):
        await heeded(client, namespace)
        slow = asyncio.create_task(client.create(CONFIG_MAP, {"metadata": {"name": "slow"}}, namespace))
        try:
            await until(inside.is_set)
            await client.create(CONFIG_MAP, {"metadata": {"name": "quick"}}, namespace)
            await until(lambda: "quick" in reconciled)
            assert not slow.done()
        finally:
            go.set()
        await slow


async def test_18_reconciles_that_block_threads_stall_no_review(client: Client, namespace: str) -> None:
    waiting: list[str] = []
    go = threading.Event()

    async def reconcile(key: Key) -> None:
        waiting.append(key.name)
        await asyncio.to_thread(go.wait, PATIENCE)

    webhook = Webhook(CONFIG_MAP, mutate=label, validate=probed, terms=within(namespace))
    operator = operator_of(client, namespace, for_maps(reconcile, concurrency=40))
    operator.add(WebhookServer("127.0.0.1", 0, [webhook], client=client, name=namespace, policy=QUICK))
    async with running(operator):
        await heeded(client, namespace)
        try:
            for number in range(40):
                await client.create(CONFIG_MAP, {"metadata": {"name": f"busy-{number}"}}, namespace)
            await until(lambda: len(waiting) == 40)
            assert await labelled(client, namespace)
        finally:
            go.set()


async def test_18_a_handler_that_never_returns_does_not_keep_the_process(
    served: Served, client: Client, namespace: str, tmp_path: Path
) -> None:
    """SIGTERM ends it as ever, though the handler's thread hangs until there is no process any more."""
    command = (sys.executable, "-m", "tests.kit.traps.stuck", str(served.kubeconfig), namespace)
    process = Process("stuck", command, tmp_path, ready="asked")
    process.spawn()
    asked = asyncio.Event()
    writing = asyncio.create_task(write_until(asked, client, namespace))
    try:
        async with asyncio.timeout(PATIENCE):
            await process.up()
            asked.set()
            process.send(signal.SIGTERM)
            assert await process.wait() == 0
            assert await writing != ""
    finally:
        writing.cancel()
        await asyncio.wait({writing})
        process.stop(0.0)
        await client.delete(VALIDATING_WEBHOOKS, namespace)


async def write_until(asked: asyncio.Event, client: Client, namespace: str) -> str:
    """What is said to the last write: an earlier one may be given up before the handler is asked, where a
    handshake takes long.
    """
    while True:
        answer = await answer_to_create(client, namespace)
        if asked.is_set():
            return answer
        await asyncio.sleep(BREATH)


@pytest.mark.parametrize("policy", ["Ignore", "Fail"])
async def test_18_a_failure_of_ours_is_let_through_only_where_that_was_chosen(
    client: Client, namespace: str, policy: Any
) -> None:
    asked: list[str] = []

    def broken(review: Review[ConfigMap]) -> Sequence[Problem]:
        asked.append(review.name)
        raise ZeroDivisionError(review.name)

    webhook = Webhook(CONFIG_MAP, validate=broken, terms=within(namespace, failure_policy=policy))
    async with serving(client, webhook, namespace) as server, asyncio.timeout(PATIENCE):
        await server.wait_started()
        answer = ""
        while not asked:
            answer = await answer_to_create(client, namespace)
    assert ("failed inside of the webhook (ZeroDivisionError" in answer) is (policy == "Fail")


async def answer_to_create(client: Client, namespace: str) -> str:
    """Why a ConfigMap may not be created; "" where it may."""
    try:
        await client.create(CONFIG_MAP, {"metadata": {"generateName": "a-"}}, namespace, dry_run=True)
    except ApiError as error:
        return error.message
    return ""


async def test_18_more_reviews_than_fit_are_put_off_and_not_lost(
    client: Client, namespace: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(handlers, "REVIEWS", (2, handlers.MIB))
    inside: list[str] = []
    most, go = 0, asyncio.Event()

    async def check(review: Review[ConfigMap], reader: Reader) -> Sequence[Problem]:
        nonlocal most
        if review.name.startswith("slow"):
            inside.append(review.name)
            most = max(most, len(inside))
            await go.wait()
            inside.remove(review.name)
        return probed(review)

    webhook = Webhook(CONFIG_MAP, mutate=label, validate=check, terms=within(namespace))
    async with serving(client, webhook, namespace) as server:
        await server.wait_started()
        await heeded(client, namespace)
        names = [f"slow-{number}" for number in range(2)]
        slow = [
            asyncio.create_task(client.create(CONFIG_MAP, {"metadata": {"name": name}}, namespace))
            for name in names
        ]
        await until(lambda: len(inside) == 2)
        async with (
            ClientSession() as session,
            session.post(server.url + "/validate/configmaps/v1", data=b"{}", ssl=False) as answer,
        ):
            assert (answer.status, answer.headers["Retry-After"]) == (429, "1")
        go.set()
        await asyncio.gather(*slow)
    assert most == 2


# 19


def put_in_place(folder: Path, leaf: Leaf) -> None:
    """Two writes: between them, the two files do not belong together."""
    (folder / "tls.crt").write_bytes(leaf.chain)
    (folder / "tls.key").write_bytes(leaf.key)


def put_by_rename(folder: Path, leaf: Leaf) -> None:
    for name, content in (("tls.crt", leaf.chain), ("tls.key", leaf.key)):
        (folder / f".{name}").write_bytes(content)
        (folder / f".{name}").rename(folder / name)


def put_by_volume_update(folder: Path, leaf: Leaf) -> None:
    """As the kubelet does: the files are links into a folder that a link names, which is replaced at once."""
    version = folder / f"..{leaf.issued.timestamp()}"
    version.mkdir()
    put_in_place(version, leaf)
    (folder / "..tmp").symlink_to(version.name)
    (folder / "..tmp").rename(folder / "..data")
    for name in ("tls.crt", "tls.key"):
        if not (folder / name).is_symlink():
            (folder / name).unlink(missing_ok=True)
            (folder / name).symlink_to(f"..data/{name}")


WAYS: tuple[Callable[[Path, Leaf], None], ...] = (
    put_in_place,
    put_by_rename,
    put_by_volume_update,
    put_by_volume_update,
)


async def inject(client: Client, name: str, authority: bytes) -> None:
    """What cert-manager's injector does where it finds its annotation."""
    found = await client.get(VALIDATING_WEBHOOKS, name)
    assert found.metadata.annotations[INJECT_FROM] == "ns/certificate"
    bundle = base64.b64encode(authority).decode()
    path = "/webhooks/0/clientConfig/caBundle"
    await client.json_patch(VALIDATING_WEBHOOKS, name, [{"op": "add", "path": path, "value": bundle}])


async def test_19_certificate_files_are_replaced_and_no_call_fails(
    client: Client, namespace: str, tmp_path: Path
) -> None:
    now = datetime.now(UTC)
    authority = new_authority("another", now)
    leaves = [issue(authority, ["127.0.0.1"], now - timedelta(minutes=age)) for age in range(5)]
    put_in_place(tmp_path, leaves[0])
    webhook = Webhook(CONFIG_MAP, validate=probed, terms=within(namespace))
    options: dict[str, Any] = {"certificates": tmp_path, "inject_from": "ns/certificate"}
    async with serving(client, webhook, namespace, **options) as server:
        await until(lambda: "is the CA injected?" in str(server.ready()))
        await inject(client, namespace, authority.certificate)
        await server.wait_started()
        await until_refused(client, namespace)
        port = int(server.url.rpartition(":")[2])
        async with Alive(port) as alive, Load(client, namespace) as load:
            assert await alive.ask() == 400
            for put, leaf in zip(WAYS, leaves[1:], strict=True):
                (tmp_path / "tls.crt").write_bytes(b"half of ")
                await load.goes_on(5)
                put(tmp_path, leaf)
                der = ssl.PEM_cert_to_DER_cert(certificates_in(leaf.chain)[0].decode())
                await until_shown(port, der)
                await load.goes_on(5)
                assert await alive.ask() == 400
    assert load.failures == []
    bundle = base64.b64decode((await stored(client, namespace))["clientConfig"]["caBundle"])
    assert bundle == authority.certificate


async def until_refused(client: Client, namespace: str) -> None:
    await waiting.until(lambda: refused(client, namespace), "writes are refused")


async def until_shown(port: int, der: bytes) -> None:
    async def is_shown() -> bool:
        return await shown(port) == der

    await waiting.until(is_shown, "the certificate is shown")


class Alive:
    """One connection that is kept: `ask` gives the status of one more answer on it."""

    def __init__(self, port: int) -> None:
        self._port = port

    async def __aenter__(self) -> Alive:
        self._reader, self._writer = await asyncio.open_connection("127.0.0.1", self._port, ssl=trusting())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._writer.close()
        await self._writer.wait_closed()

    async def ask(self) -> int:
        head = "POST /validate/configmaps/v1 HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n\r\n{}"
        self._writer.write(head.encode())
        status, *headers = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower().split("\r\n")
        length = next(line for line in headers if line.startswith("content-length:"))
        await self._reader.readexactly(int(length.partition(":")[2]))
        return int(status.split()[1])


# 20


class Load:
    """Writes that pass our webhook, without end, several at once; `failures` are those that did not go well.

    Every name is refused by our validating webhook: an answer in its own words shows that it was asked.
    """

    def __init__(self, client: Client, namespace: str, width: int = 4) -> None:
        self.calls = 0
        self.failures: list[str] = []
        self._client = client
        self._namespace = namespace
        self._width = width
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Load:
        self._tasks = [asyncio.create_task(self._write()) for _ in range(self._width)]
        return self

    async def __aexit__(self, *_: object) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    async def goes_on(self, more: int) -> None:
        """Return after so many more calls."""
        until_now = self.calls
        await until(lambda: self.calls >= until_now + more)

    async def _write(self) -> None:
        manifest = {"metadata": {"name": PROBE}}
        while True:
            try:
                await self._client.create(CONFIG_MAP, manifest, self._namespace, dry_run=True)
                self.failures.append("our webhook was not asked")
            except KubeError as error:
                if f"this is only a {PROBE}" not in str(error):
                    self.failures.append(str(error))
            self.calls += 1
            await asyncio.sleep(BREATH)


@dataclass
class Handshakes:
    """Handshakes with every replica, each trusting the bundle that the API server has at that moment."""

    client: Client
    name: str
    ports: Sequence[int]
    issuers: set[bytes] = field(default_factory=set)
    failures: list[str] = field(default_factory=list)
    over: bool = False

    async def shown(self, number: int) -> None:
        """Return once leaves of so many authorities were seen."""
        await until(lambda: len(self.issuers) == number)

    async def run(self) -> None:
        """Until it is `over`: one that is broken off would leave its socket behind."""
        while not self.over:
            bundle = base64.b64decode((await stored(self.client, self.name))["clientConfig"]["caBundle"])
            trusted = ssl.create_default_context(cadata=bundle.decode())
            trusted.check_hostname = False
            for port in self.ports:
                try:
                    der = await shown(port, trusted)
                except ssl.SSLError as error:
                    self.failures.append(f"port {port}: {error}")
                else:
                    self.issuers.add(_authority_key(der))
            await asyncio.sleep(BREATH)


def _authority_key(der: bytes) -> bytes:
    found = x509.load_der_x509_certificate(der)
    key = found.extensions.get_extension_for_class(x509.AuthorityKeyIdentifier).value.key_identifier
    assert key is not None
    return key


@asynccontextmanager
async def replicas(client: Client, namespace: str, secret: Key) -> AsyncIterator[list[WebhookServer]]:
    """Two servers behind one address, that share their authority."""
    webhook = Webhook(CONFIG_MAP, validate=probed, terms=within(namespace))
    async with Switch() as switch, AsyncExitStack() as stack:
        found = []
        for _ in range(2):
            options: dict[str, Any] = {"secret": secret, "reachable_as": switch.address}
            found.append(await stack.enter_async_context(serving(client, webhook, namespace, **options)))
            await found[-1].wait_started()
            switch.ports.append(found[-1].port)
        yield found


async def kept(client: Client, secret: Key) -> dict[str, bytes]:
    return (await client.get(SECRET, secret.name, secret.namespace)).data


async def test_20_the_authority_is_replaced_under_load_and_no_call_fails(
    client: Client, namespace: str
) -> None:
    secret = Key(namespace, "authority")
    async with replicas(client, namespace, secret) as servers:
        await until_refused(client, namespace)
        shakes = Handshakes(client, namespace, [server.port for server in servers])
        async with Load(client, namespace) as load, asyncio.TaskGroup() as tasks:
            tasks.create_task(shakes.run())
            first = (await kept(client, secret))["tls.crt"]
            await client.delete(SECRET, secret.name, secret.namespace)
            await until_other(client, secret, first)
            await shakes.shown(2)
            await load.goes_on(50)
            shakes.over = True
    assert load.failures == []
    assert shakes.failures == []


async def until_other(client: Client, secret: Key, certificate: bytes) -> None:
    async def is_other() -> bool:
        found = await client.find(SECRET, secret.name, secret.namespace)
        return found is not None and found.data["tls.crt"] != certificate

    await waiting.until(is_other, "another authority signs")


async def test_20_a_bundle_that_somebody_overwrites_is_repaired_at_once(
    client: Client, namespace: str
) -> None:
    webhook = Webhook(CONFIG_MAP, validate=probed, terms=within(namespace))
    options: dict[str, Any] = {"policy": Policy(), "secret": Key(namespace, "authority")}
    async with serving(
        client, webhook, namespace, **options
    ) as server:  # which looks by itself once a minute
        await server.wait_started()
        before = await stored(client, namespace)
        other = base64.b64encode(new_authority("other", datetime.now(UTC)).certificate).decode()
        malformed = before | {"clientConfig": before["clientConfig"] | {"caBundle": other}}
        patch = {"webhooks": [malformed]}
        await client.merge_patch(VALIDATING_WEBHOOKS, namespace, patch)
        await until_same(client, namespace, before)
        await client.delete(VALIDATING_WEBHOOKS, namespace)
        await until_same(client, namespace, before)
        await until(lambda: server.ready() is None)


async def until_same(client: Client, name: str, wanted: Manifest) -> None:
    async def is_same() -> bool:
        found = await client.find(VALIDATING_WEBHOOKS, name)
        return found is not None and found.webhooks == [wanted]

    await waiting.until(is_same, f"the registration {name} is as wanted")
