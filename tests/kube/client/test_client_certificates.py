"""Who is known by a certificate: where its key is kept, and what becomes of it when others renew it."""

from __future__ import annotations

import asyncio
import base64
import json
import ssl
import tempfile
import threading
from collections.abc import AsyncIterator
from contextlib import suppress
from copy import deepcopy
from datetime import timedelta
from pathlib import Path
from typing import Any, cast

import pytest
import yaml
from aiohttp import web
from cryptography.hazmat.primitives import serialization

from elasticjob.kube.client import kubeconfig
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.credentials import Config
from elasticjob.kube.client.transport import Call
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.errors import ConfigError, Unauthorized, Unreachable
from elasticjob.kube.objects.views import CONFIG_MAP
from lab.clusters.plane.pki import Pki
from lab.waiting import PATIENCE
from tests.kit.kube.kubeconfigs import VERSION, plugin, printed_by, said, write
from tests.kit.kube.listening import Listening


class Server(Listening):
    """An API server that knows its clients by their certificates, and refuses some."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.pki = Pki(folder / "pki")
        self.refused: set[str] = set()
        self.seen: list[str] = []
        self.more = asyncio.Event()
        own = self.pki.server("server", ["127.0.0.1"])
        self.tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH, cafile=str(self.pki.ca.certificate))
        self.tls.verify_mode = ssl.CERT_REQUIRED
        self.tls.load_cert_chain(own.certificate, own.key)

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        assert request.transport is not None
        subject = request.transport.get_extra_info("peercert")["subject"]
        self.seen.append(dict(pair for part in subject for pair in part)["commonName"])
        if self.seen[-1] in self.refused:
            return web.Response(status=401)
        if request.path == "/log":
            return await self.follow(request)
        return web.json_response(
            {
                "kind": "ConfigMap",
                "metadata": {"name": "a", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
            }
        )

    async def follow(self, request: web.Request) -> web.StreamResponse:
        """A line now, and one when there is more."""
        log = web.StreamResponse()
        await log.prepare(request)
        await log.write(b"begun")
        await self.more.wait()
        await log.write(b"more")
        return log

    @property
    def cluster(self) -> dict[str, Any]:
        return {"server": self.url, "certificate-authority": str(self.pki.ca.certificate)}

    def giving(self, name: str, key_of: str = "", **more: Any) -> dict[str, Any]:
        """A user whose certificate comes from a program; called again, the program gives another one."""
        certificate, key = self.pki.client(name), self.pki.client(key_of or name).key
        status = {
            "clientCertificateData": certificate.certificate.read_text(),
            "clientKeyData": key.read_text(),
        }
        (self.folder / "answer").write_text(said(status | more))
        return printed_by("cat", str(self.folder / "answer"))

    async def config(self, name: str, clock: VirtualClock | None = None, **more: Any) -> Config:
        """What is read of the kubeconfig of a user whose certificate comes from a program."""
        path = write(self.folder / "config", self.giving(name, **more), self.cluster)
        return await kubeconfig.load(str(path), clock=clock)


@pytest.fixture
async def server(tmp_path: Path) -> AsyncIterator[Server]:
    async with Server(tmp_path) as found:
        yield found


@pytest.fixture
def clock() -> VirtualClock:
    return VirtualClock()


def open_files() -> list[str]:
    """Files of this process, memory under a name too; sockets come and go."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        with suppress(FileNotFoundError):  # of this very listing
            found.append(str(each.readlink()))
    return sorted(name for name in found if name.startswith("/") and not name.startswith("/proc/"))


def b64(text: bytes) -> str:
    return base64.b64encode(text).decode()


async def ask(client: Client) -> str:
    return (await client.get(CONFIG_MAP, "a", "ns")).metadata.name


async def test_keys_are_on_no_disk_and_no_file_stays_open(
    server: Server, clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(scratch))
    held = server.pki.kubeconfig(tmp_path / "held", server.url, "held")
    async with Client(await kubeconfig.load(str(held)), clock=clock) as client:
        await ask(client)
        assert list(scratch.iterdir()) == []
    found = await server.config("given", clock)
    before = open_files()
    for turn in range(5):
        server.giving(f"given-{turn}")
        await found.credentials.header(refused="")
        await clock.advance(kubeconfig.TRY_AGAIN)
    async with Client(found, clock=clock) as client:
        await ask(client)
    assert open_files() == before
    assert server.seen == ["held", "given-4"]
    assert list(scratch.iterdir()) == []


async def test_a_plugins_certificate_is_renewed_before_it_ends(server: Server, clock: VirtualClock) -> None:
    ends = (clock.now() + timedelta(minutes=10)).isoformat()
    found = await server.config("one", clock, expirationTimestamp=ends)
    server.giving("two")
    async with Client(found, clock=clock) as client:
        for minutes, known_as in ((8, "one"), (1, "one"), (1, "two")):
            await ask(client)
            assert server.seen[-1] == known_as
            await clock.advance(timedelta(minutes=minutes, seconds=1).total_seconds())


async def test_a_certificate_that_is_refused_is_read_again(server: Server, clock: VirtualClock) -> None:
    async with Client(await server.config("one", clock), clock=clock) as client:
        await ask(client)
        server.giving("two")
        server.refused.add("one")
        await ask(client)
        server.refused.add("two")
        with pytest.raises(Unauthorized):
            await ask(client)
    assert server.seen == ["one", "one", "two", "two"]


async def test_what_is_under_way_outlives_one_renewal(server: Server, clock: VirtualClock) -> None:
    found = await server.config("one", clock)

    async def renew(name: str) -> None:
        server.giving(name)
        await clock.advance(kubeconfig.TRY_AGAIN)
        await found.credentials.header(refused="")
        await ask(client)

    async with Client(found, clock=clock) as client:
        async with client.stream(Call("GET", "/log")) as log:
            assert await anext(log) == b"begun"
            await renew("two")
            server.more.set()
            assert await anext(log) == b"more"
        server.more.clear()
        async with client.stream(Call("GET", "/log")) as log:
            assert await anext(log) == b"begun"
            waiting = asyncio.ensure_future(anext(log))
            await renew("three")
            await renew("four")
            with pytest.raises(Unreachable):
                await asyncio.wait_for(waiting, PATIENCE)
    assert server.seen == ["one", "two", "two", "three", "four"]


async def test_no_one_waits_for_a_client_that_is_closed(server: Server, tmp_path: Path) -> None:
    held = server.pki.kubeconfig(tmp_path / "held", server.url, "held")
    async with Client(await kubeconfig.load(str(held)), clock=VirtualClock()) as client:
        log = await client.stream(Call("GET", "/log")).__aenter__()
        assert await anext(log) == b"begun"
        waiting = asyncio.ensure_future(anext(log))
        await asyncio.sleep(0)
    with pytest.raises(Unreachable):
        await asyncio.wait_for(waiting, PATIENCE)


async def test_two_event_loops_at_once_change_nothing_that_the_other_uses(server: Server) -> None:
    found = await server.config("one")
    before = found.tls()
    server.giving("two")
    both = threading.Barrier(2)

    async def refused() -> None:
        await asyncio.to_thread(both.wait, PATIENCE)
        await found.credentials.header(refused="")

    await asyncio.gather(asyncio.to_thread(asyncio.run, refused()), refused())
    assert found.tls() is not before
    async with Client(found) as client:
        await ask(client)
    assert server.seen == ["two"]


async def test_half_a_pair_is_never_used(server: Server, clock: VirtualClock) -> None:
    found = await server.config("one", clock)
    server.giving("two", key_of="three")
    with pytest.raises(ConfigError, match="clientCertificateData of the exec plugin's answer with"):
        await found.credentials.header(refused="")
    async with Client(found, clock=clock) as client:
        await ask(client)
    assert server.seen == ["one"]


async def test_files_and_programs_are_found_beside_the_kubeconfig(
    server: Server, clock: VirtualClock, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    server.pki.client("one")
    cluster = server.cluster | {"certificate-authority": "pki/ca.crt"}
    files = {"client-certificate": "pki/client-one.crt", "client-key": "./pki/client-one.key"}
    write(tmp_path / "config", files, cluster)
    found = await kubeconfig.load("../config")
    async with Client(found, clock=clock) as client:
        await ask(client)
    assert server.seen == ["one"]
    (tmp_path / "linked").symlink_to(Path("elsewhere", "real"))
    (tmp_path / "config").rename(tmp_path / "elsewhere" / "real")
    await kubeconfig.load("../linked")  # beside the link, that is
    user = plugin(tmp_path)
    user["exec"]["command"] = "./plugin"
    write(tmp_path / "config", user)
    assert await (await kubeconfig.load("../config")).credentials.header() == "Bearer t1"


async def test_a_key_with_a_password_is_refused_and_nobody_is_asked_for_it(tmp_path: Path) -> None:
    pki = Pki(tmp_path)
    key = serialization.load_pem_private_key(pki.client("one").key.read_bytes(), password=None)
    locked = key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.BestAvailableEncryption(b"secret"),
    )
    user = {"client-certificate": str(pki.client("one").certificate), "client-key-data": b64(locked)}
    with pytest.raises(ConfigError, match=r"client-one.crt with in client-key-data .* encrypted"):
        await kubeconfig.load(str(write(tmp_path / "config", user)))


@pytest.mark.parametrize(
    ("user", "header"),
    [
        ({"tokenFile": "token"}, "Bearer t"),
        ({"username": "u", "password": "p"}, "Basic dTpw"),
        (printed_by("cat", "answer") | {"token": "other"}, "Bearer given"),
        ({}, None),
    ],
)
async def test_who_says_who_we_are(
    user: dict[str, Any], header: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "token").write_text("t\n")
    (tmp_path / "answer").write_text(said({"token": "given"}))
    found = await kubeconfig.load(str(write(tmp_path / "config", user)))
    assert await found.credentials.header() == header


async def test_a_context_without_a_user_and_a_kubeconfig_of_two_files(tmp_path: Path) -> None:
    one, two = tmp_path / "one", tmp_path / "two"
    server = {"name": "c", "cluster": {"server": "https://one"}}
    one.write_text(yaml.safe_dump({"clusters": [server], "current-context": "x"}))
    two.write_text(yaml.safe_dump({"contexts": [{"name": "x", "context": {"cluster": "c"}}]}))
    found = await kubeconfig.load(f"{one}:{tmp_path / 'nowhere'}:{two}")
    assert (found.server, found.namespace, await found.credentials.header()) == (
        "https://one",
        "default",
        None,
    )


async def test_a_plugin_that_tells_no_end_runs_again_when_it_is_refused(
    tmp_path: Path, clock: VirtualClock
) -> None:
    found = await kubeconfig.load(str(write(tmp_path / "config", plugin(tmp_path))), clock=clock)
    await clock.advance(timedelta(days=1).total_seconds())
    assert await found.credentials.header() == "Bearer t1"
    assert await found.credentials.header(refused="Bearer t1") == "Bearer t2"


@pytest.mark.parametrize(
    ("user", "message"),
    [
        ({"client-certificate-data": "%"}, "client-certificate-data is not base64"),
        ({"client-certificate": "nowhere.crt"}, r"No such file .*nowhere\.crt"),
        ({"client-certificate-data": b64(b"x")}, "in client-certificate-data cannot be read"),
        (printed_by("false"), "process returned 1"),
        (printed_by("./nowhere"), "No such file"),
        ({"exec": {"apiVersion": VERSION}}, "command"),
        (printed_by("cat", "answer", version="v0"), "version"),
        (printed_by("cat", "answer"), "gave no token, and no client"),
        (printed_by("cat", "none"), "plugin's answer is none"),
        (printed_by("echo", "7"), "plugin's answer is none"),
    ],
)
async def test_what_is_wrong_with_a_user_is_said(
    user: dict[str, Any], message: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "answer").write_text(said({"clientCertificateData": "a certificate without its key"}))
    (tmp_path / "none").write_text(said(None))
    with pytest.raises(ConfigError, match=message):
        await kubeconfig.load(str(write(tmp_path / "config", user)))


async def test_a_user_that_is_not_there_is_missed(tmp_path: Path) -> None:
    path = write(tmp_path / "config", {"token": "t"})
    path.write_text(path.read_text().replace("user: u", "user: v"))
    with pytest.raises(ConfigError, match=r"name v in .*users list"):
        await kubeconfig.load(str(path))


async def test_bad_yaml_is_pointed_at_and_not_quoted(tmp_path: Path) -> None:
    (tmp_path / "config").write_text("users:\n- password: *secret\n")
    with pytest.raises(ConfigError, match="it is no YAML: see line 2, column 13") as caught:
        await kubeconfig.load(str(tmp_path / "config"))
    assert "secret" not in str(caught.value)


def whole(folder: Path) -> dict[str, Any]:
    """A kubeconfig of all that one may hold; its secrets say so."""
    pki, answer = Pki(folder), said({"token": "secret"})
    pair, key = pki.client("one"), pki.client("one").key.read_text()
    user = {
        "client-certificate-data": b64(pair.certificate.read_bytes()),
        "client-key-data": b64(f"secret\n{key}".encode()),
        "token": "secret",
    }
    authority = b64(pki.ca.certificate.read_bytes())
    return {
        "clusters": [
            {"name": "c", "cluster": {"server": "https://one", "certificate-authority-data": authority}}
        ],
        "contexts": [
            {"name": "x", "context": {"cluster": "c", "user": "u", "namespace": "lab"}},
            {"name": "y", "context": {"cluster": "c", "user": "v"}},
        ],
        "users": [{"name": "u", "user": printed_by("echo", answer)}, {"name": "v", "user": user}],
        "current-context": "x",
    }


def places(node: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """The paths of all values in a document."""
    inner = list(
        node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    )
    return [path] + [found for key, value in inner for found in places(value, (*path, key))]


JUNK: tuple[Any, ...] = (None, "", "no such", 7, [], {}, [None], {"name": None})


@pytest.mark.parametrize(("context", "other"), [("x", 1), ("y", 0)])
async def test_a_kubeconfig_of_another_form_is_no_traceback_and_tells_no_secret(
    context: str, other: int, tmp_path: Path
) -> None:
    path, good = tmp_path / "config", whole(tmp_path)
    secrets = "secret", b64(b"secret"), good["users"][1]["user"]["client-key-data"][:20]
    usable = 0
    unread = ("contexts", other), ("users", other)
    for where in (where for where in places(good) if where[:2] not in unread):
        for junk in JUNK:
            damaged: Any = {"root": deepcopy(good)}
            node, last = damaged, cast(Any, "root")
            for key in where:
                node, last = node[last], key
            node[last] = junk
            path.write_text(json.dumps(damaged["root"]))  # YAML, too, and written in no time
            try:
                found = repr(await asyncio.to_thread(kubeconfig._read, str(path), context))
                usable += 1
            except ConfigError as error:
                found = str(error)
            assert not [secret for secret in secrets if secret in found], (where, junk)
    assert usable > len(JUNK)  # much may be damaged and is not used
