"""Certificates that Python's own TLS accepts, strictly."""

from __future__ import annotations

import asyncio
import base64
import ssl
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
import pytest

from elasticjob.kube.certificates import (
    AUTHORITY_LIFETIME,
    Authority,
    issue,
    load_leaf,
    new_authority,
    server_context,
    shared_authority,
)
from tests.kube.build import status
from tests.kube.stub import Stub, answer

NOW = datetime.now(UTC)


async def handshake(context: ssl.SSLContext, bundle: bytes, host: str) -> bytes:
    """Connect as `host`, trusting `bundle`; the certificate that was shown."""

    async def nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(nothing, "127.0.0.1", 0, ssl=context) as server:
        trusted = ssl.create_default_context(cadata=bundle.decode())
        trusted.verify_flags |= ssl.VERIFY_X509_STRICT
        port = server.sockets[0].getsockname()[1]
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=trusted, server_hostname=host)
        shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
        writer.close()
        await writer.wait_closed()
        return shown


@pytest.mark.parametrize("host", ["127.0.0.1", "hooks.sys.svc"])
async def test_a_leaf_is_accepted_for_its_hosts(host: str) -> None:
    authority = new_authority("test", NOW)
    context = server_context(issue(authority, ["hooks.sys.svc", "127.0.0.1"], NOW))
    assert await handshake(context, authority.bundle, host)
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(context, authority.bundle, "elsewhere")


async def test_another_authority_is_not_trusted() -> None:
    context = server_context(issue(new_authority("test", NOW), ["127.0.0.1"], NOW))
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(context, new_authority("test", NOW).bundle, "127.0.0.1")


async def test_a_new_leaf_of_a_new_authority_serves_under_a_bundle_of_both() -> None:
    old = new_authority("test", NOW)
    made = new_authority("test", NOW)
    both = Authority(made.certificate, made.key, previous=old.certificate).bundle
    context = server_context(issue(old, ["127.0.0.1"], NOW))
    first = await handshake(context, both, "127.0.0.1")
    load_leaf(context, issue(made, ["127.0.0.1"], NOW))
    assert await handshake(context, both, "127.0.0.1") != first


def test_a_leaf_is_due_when_two_thirds_of_its_life_are_over() -> None:
    leaf = issue(new_authority("test", NOW), ["h"], NOW, timedelta(days=30))
    assert [leaf.is_due(NOW + timedelta(days=days)) for days in (0, 19, 20, 31)] == [False, False, True, True]


def secret(authority: Authority) -> dict[str, Any]:
    data = {"tls.crt": authority.certificate, "tls.key": authority.key, "previous.crt": authority.previous}
    return {
        "metadata": {"name": "ca", "namespace": "sys", "resourceVersion": "4"},
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
    }


async def test_the_authority_in_the_secret_is_taken() -> None:
    authority = new_authority("test", NOW)
    async with Stub() as stub, stub.client() as client:
        stub.then(answer(200, secret(authority)))
        assert await shared_authority(client, "sys", "ca", NOW) == authority


async def test_of_two_that_make_one_the_second_takes_the_first_s() -> None:
    first = new_authority("test", NOW)
    async with Stub() as stub, stub.client() as client:
        stub.then(
            answer(404, status(404, "NotFound")),
            answer(409, status(409, "AlreadyExists")),
            answer(200, secret(first)),
        )
        assert await shared_authority(client, "sys", "ca", NOW) == first


async def test_an_authority_that_ends_soon_is_replaced_and_still_trusted() -> None:
    old = new_authority("test", NOW)
    late = NOW + AUTHORITY_LIFETIME * 0.95
    async with Stub() as stub, stub.client() as client:
        stub.then(answer(200, secret(old)), answer(200, secret(old)))
        found = await shared_authority(client, "sys", "ca", late)
        assert found.certificate != old.certificate
        assert found.bundle == found.certificate + old.certificate
        patch = msgspec.json.decode(stub.seen[1].body)
        assert patch["metadata"]["resourceVersion"] == "4"
        assert base64.b64decode(patch["data"]["previous.crt"]) == old.certificate


@pytest.mark.parametrize("spoiled", ["tls.crt", "tls.key"])
async def test_an_authority_that_somebody_spoiled_is_replaced(spoiled: str) -> None:
    kept = secret(new_authority("test", NOW))
    kept["data"][spoiled] = base64.b64encode(b"not PEM").decode()
    async with Stub() as stub, stub.client() as client:
        stub.then(answer(200, kept), answer(200, kept))
        found = await shared_authority(client, "sys", "ca", NOW)
        patch = msgspec.json.decode(stub.seen[1].body)
        assert base64.b64decode(patch["data"]["tls.crt"]) == found.certificate
