"""Certificates that Python's own TLS accepts, strictly."""

from __future__ import annotations

import asyncio
import base64
import ssl
from datetime import UTC, datetime, timedelta

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import serialization

from elasticjob.kube.webhook.certs.certificates import (
    Policy,
    certificates_in,
    issue,
    load_leaf,
    new_authority,
    read_authority,
    read_leaf,
    server_context,
    verifies,
)
from tests.kit.kube.tls import shown

NOW = datetime.now(UTC)


async def handshake(context: ssl.SSLContext, bundle: bytes, host: str) -> bytes:
    """Connect as `host`, trusting `bundle`; the certificate that was shown."""

    async def nothing(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.close()

    async with await asyncio.start_server(nothing, "127.0.0.1", 0, ssl=context) as server:
        trusted = ssl.create_default_context(cadata=bundle.decode())
        trusted.verify_flags |= ssl.VERIFY_X509_STRICT
        return await shown(server.sockets[0].getsockname()[1], trusted, host)


@pytest.mark.parametrize("host", ["127.0.0.1", "hooks.sys.svc"])
async def test_a_leaf_is_accepted_for_its_hosts(host: str) -> None:
    authority = new_authority("test", NOW)
    context = server_context(issue(authority, ["hooks.sys.svc", "127.0.0.1"], NOW))
    assert await handshake(context, authority.certificate, host)
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(context, authority.certificate, "elsewhere")
    with pytest.raises(ssl.SSLCertVerificationError):
        await handshake(context, new_authority("test", NOW).certificate, host)


async def test_a_new_leaf_of_a_new_authority_serves_under_a_bundle_of_both() -> None:
    old = new_authority("test", NOW)
    made = new_authority("test", NOW)
    both = old.certificate + made.certificate
    context = server_context(issue(old, ["127.0.0.1"], NOW))
    first = await handshake(context, both, "127.0.0.1")
    load_leaf(context, issue(made, ["127.0.0.1"], NOW))
    assert await handshake(context, both, "127.0.0.1") != first


def test_a_leaf_is_due_when_two_thirds_of_its_life_are_over() -> None:
    leaf = issue(new_authority("test", NOW), ["h"], NOW, timedelta(days=30))
    assert [leaf.is_due(NOW + timedelta(days=days)) for days in (0, 19, 20, 31)] == [False, False, True, True]


CURRENT, COMING = (new_authority("test", NOW) for _ in range(2))


@pytest.mark.parametrize("skew", [Policy().skew, timedelta(hours=1)])
def test_what_is_issued_is_valid_on_every_clock(skew: timedelta) -> None:
    """Ours is ahead of the true time, the API server's behind it."""
    ours, theirs = NOW + skew, NOW - skew
    authority = new_authority("test", ours, skew=skew)
    leaf = issue(authority, ["h"], ours, skew=skew)
    for pem in (authority.certificate, leaf.chain):
        assert x509.load_pem_x509_certificate(pem).not_valid_before_utc <= theirs


def test_a_bundle_is_read_whoever_wrote_it() -> None:
    written_elsewhere = b"# ours\n" + CURRENT.certificate.replace(b"\n", b"\r\n") + COMING.certificate
    assert certificates_in(written_elsewhere * 2) == (CURRENT.certificate, COMING.certificate)
    assert (
        certificates_in(b"\n")
        == certificates_in(b"-----BEGIN CERTIFICATE-----x-----END CERTIFICATE-----")
        == ()
    )


VERSION_3, VERSION_6 = b"\xa0\x03\x02\x01\x02", b"\xa0\x03\x02\x01\x05"


def test_a_certificate_of_a_later_world_is_no_certificate() -> None:
    """A library has its own error for it, and whoever may write a bundle could end the process with one."""
    der = x509.load_pem_x509_certificate(CURRENT.certificate).public_bytes(serialization.Encoding.DER)
    assert VERSION_3 in der
    body = base64.encodebytes(der.replace(VERSION_3, VERSION_6, 1))
    odd = b"-----BEGIN CERTIFICATE-----\n" + body + b"-----END CERTIFICATE-----\n"
    assert certificates_in(odd + COMING.certificate) == (COMING.certificate,)
    with pytest.raises(ValueError, match="is not a valid X509 version"):
        read_authority(odd, CURRENT.key)
    with pytest.raises(ValueError, match="is not a valid X509 version"):
        read_leaf(odd, CURRENT.key)


def test_a_leaf_ends_with_its_authority() -> None:
    short = new_authority("test", NOW, timedelta(days=2))
    assert issue(short, ["h"], NOW, timedelta(days=30)).expires == short.expires


def test_a_leaf_is_read_back() -> None:
    leaf = issue(CURRENT, ["h"], NOW)
    found = read_leaf(leaf.chain, leaf.key)
    assert (found.chain, found.key) == (leaf.chain, leaf.key)
    assert abs(found.expires - leaf.expires) < timedelta(seconds=1)


@pytest.mark.parametrize(
    ("chain", "key", "why"),
    [
        (b"", b"", "PEM"),
        (CURRENT.certificate[:200], CURRENT.key, "PEM"),
        (CURRENT.certificate, CURRENT.key[:50], "PEM|key"),
        (
            CURRENT.certificate,
            COMING.key,
            "the key is not that of the certificate: one of the two files is older",
        ),
    ],
)
def test_half_a_pair_is_not_read(chain: bytes, key: bytes, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_leaf(chain, key)


@pytest.mark.parametrize(
    ("bundle", "host", "why"),
    [
        (CURRENT.certificate, "hooks.sys.svc", None),
        (COMING.certificate + CURRENT.certificate, "127.0.0.1", None),
        (COMING.certificate, "127.0.0.1", "self-signed certificate in certificate chain"),
        (
            CURRENT.certificate,
            "other.sys.svc",
            "Hostname mismatch, certificate is not valid for 'other.sys.svc'.",
        ),
        (b"", "127.0.0.1", "the bundle holds no certificate"),
    ],
)
def test_what_a_client_says_of_a_leaf(bundle: bytes, host: str, why: str | None) -> None:
    assert verifies(bundle, issue(CURRENT, ["hooks.sys.svc", "127.0.0.1"], NOW), host) == why


def test_a_leaf_that_has_ended_is_not_welcome() -> None:
    old = issue(CURRENT, ["h"], NOW - timedelta(days=9))
    assert verifies(CURRENT.certificate, old, "h") == "certificate has expired"


def test_nothing_older_than_tls_1_2_is_spoken() -> None:
    assert server_context().minimum_version is ssl.TLSVersion.TLSv1_2
