"""The certificate authority that replicas share: tables, and months of it in virtual time."""

from __future__ import annotations

import asyncio
import base64
from datetime import UTC, datetime, timedelta
from typing import cast

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.x509.oid import NameOID

from elasticjob.kube.client.client import Client
from elasticjob.kube.clock import VirtualClock
from elasticjob.kube.errors import ConfigError
from elasticjob.kube.objects.kinds import Key
from elasticjob.kube.objects.views import CONFIG_MAP, SECRET, VALIDATING_WEBHOOKS
from elasticjob.kube.webhook.certs.certificates import (
    Leaf,
    Policy,
    certificates_in,
    issue,
    new_authority,
    read_authority,
    verifies,
)
from elasticjob.kube.webhook.certs.secret import Authorities, CaSecret, read_secret, secret_data
from elasticjob.kube.webhook.registration import Address, Registration, admission_places
from elasticjob.kube.webhook.review import Webhook
from lab.virtual.server import Server

NOW = datetime.now(UTC).replace(microsecond=0)
POLICY = Policy()
OLD = new_authority("old", NOW - timedelta(days=3000))
NEW = new_authority("new", NOW)
ENDED = new_authority("ended", NOW - timedelta(days=4000))
ROTATING = Authorities(NEW, OLD)
SETTLED, FORGOTTEN = POLICY.settle, POLICY.retention - POLICY.backdating
MOMENT = timedelta(seconds=1)


@pytest.mark.parametrize(
    ("held", "after", "signer", "trusted"),
    [
        (Authorities(NEW), timedelta(), NEW, [NEW]),
        (ROTATING, timedelta(), OLD, [NEW, OLD]),
        (ROTATING, SETTLED - MOMENT, OLD, [NEW, OLD]),
        (ROTATING, SETTLED, NEW, [NEW, OLD]),
        (ROTATING, FORGOTTEN - MOMENT, NEW, [NEW, OLD]),
        (ROTATING, FORGOTTEN, NEW, [NEW]),
        (Authorities(NEW, ENDED), timedelta(), NEW, [NEW]),
    ],
)
def test_signer_and_bundle_follow_from_the_time(
    held: Authorities, after: timedelta, signer: object, trusted: list[object]
) -> None:
    assert held.signer(NOW + after, POLICY) == signer
    certificates = held.bundle(NOW + after, POLICY)
    assert [each for each in (NEW, OLD, ENDED) if each.certificate in certificates] == trusted


def test_every_leaf_of_the_previous_authority_ends_before_it_is_forgotten() -> None:
    last = issue(OLD, ["h"], NOW + SETTLED + POLICY.skew)
    assert last.expires <= NOW + FORGOTTEN - POLICY.skew


def data(held: Authorities, **changed: bytes) -> dict[str, bytes]:
    decoded = {name: base64.b64decode(value) for name, value in secret_data(held).items()}
    return decoded | {name.replace("_", "."): value for name, value in changed.items()}


@pytest.mark.parametrize("held", [Authorities(NEW), ROTATING])
def test_a_secret_is_read_as_it_was_written(held: Authorities) -> None:
    assert read_secret(data(held)) == held


def test_a_secret_without_certificates_is_empty() -> None:
    assert read_secret({}) is read_secret({"tls.crt": b"", "other": b"x"}) is None


@pytest.mark.parametrize(
    "changed",
    [
        {"tls_crt": b"not PEM"},
        {"tls_key": b""},
        {"tls_key": OLD.key},
        {"tls_key": NEW.key[:40]},
        {"previous_key": NEW.key},
    ],
)
def test_a_malformed_secret_is_not_read(changed: dict[str, bytes]) -> None:
    with pytest.raises(ValueError, match=r"PEM|key"):
        read_secret(data(ROTATING, **changed))


def foreign(
    key: ec.EllipticCurvePrivateKey | rsa.RSAPrivateKey, *, ca: bool, signs: bool
) -> tuple[bytes, bytes]:
    """An authority as others make them."""
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "another")])
    usage = x509.KeyUsage(True, False, False, False, False, signs, False, False, False)
    made = (
        x509.CertificateBuilder(name, name, key.public_key(), 1, NOW, NOW + timedelta(days=900))
        .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
        .add_extension(usage, critical=True)
        .sign(key, hashes.SHA256())
    )
    pem, form = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    return made.public_bytes(pem), key.private_bytes(pem, form, serialization.NoEncryption())


def test_an_authority_of_others_is_used() -> None:
    authority = read_authority(*foreign(ec.generate_private_key(ec.SECP384R1()), ca=True, signs=True))
    assert verifies(authority.certificate, issue(authority, ["h"], NOW), "h") is None


@pytest.mark.parametrize(
    ("pair", "why"),
    [
        (foreign(ec.generate_private_key(ec.SECP256R1()), ca=False, signs=False), "may sign others"),
        (foreign(ec.generate_private_key(ec.SECP256R1()), ca=True, signs=False), "may sign others"),
        (foreign(rsa.generate_private_key(65537, 2048), ca=True, signs=True), "elliptic curves"),
    ],
    ids=["a leaf", "no signer", "RSA"],
)
def test_an_authority_that_cannot_sign_is_refused(pair: tuple[bytes, bytes], why: str) -> None:
    with pytest.raises(ValueError, match=why):
        read_authority(*pair)


KEY = Key("sys", "ca")
PLACE = VALIDATING_WEBHOOKS


class Replica:
    """One of several that share a Secret and a registration."""

    def __init__(self, cluster: Server, policy: Policy = POLICY) -> None:
        client = cast(Client, cluster)
        self.served: list[Leaf] = []
        places = admission_places("hooks", [Webhook(CONFIG_MAP, validate=lambda _: [])])
        self._secret = CaSecret(
            client,
            KEY,
            Registration(client, "hooks", places, lambda: Address("https://hooks")),
            self.served.append,
            name="hooks",
            hosts=["hooks"],
            clock=client.clock,
            policy=policy,
        )

    async def look(self) -> None:
        await self._secret.look()

    @property
    def issuer(self) -> bytes:
        return self.served[-1].issuer


def bundle(cluster: Server) -> tuple[bytes, ...]:
    entry = cluster.lookup(PLACE, "hooks")["webhooks"][0]
    return certificates_in(base64.b64decode(entry["clientConfig"]["caBundle"]))


async def test_each_certificate_verifies_through_the_rotations_of_months() -> None:
    """Replicas look in turn, nine hours apart, and are restarted now and then."""
    clock, policy = VirtualClock(NOW), Policy(authority_lifetime=timedelta(days=90))
    cluster = Server(clock)
    ours = [Replica(cluster, policy) for _ in range(3)]
    signers: list[bytes] = []
    for step in range(600):
        await ours[step % 3].look()
        for each in (each for each in ours if each.served):
            assert each.issuer in bundle(cluster)
            assert each.served[-1].expires > clock.now()
            signers += [each.issuer] if each.issuer not in signers else []
        if step % 100 == 50:
            ours[step % 3] = Replica(cluster, policy)
        clock.jump(timedelta(hours=9).total_seconds())
    assert len(signers) == 4
    assert {each.issuer for each in ours} == {signers[-1]}
    assert bundle(cluster) == (signers[-1],)


async def test_replicas_that_start_at_once_share_one_authority() -> None:
    cluster = Server(VirtualClock(NOW))
    ours = [Replica(cluster) for _ in range(4)]
    await asyncio.gather(*[each.look() for each in ours])
    assert {each.issuer for each in ours} == {bundle(cluster)[0]}
    assert len(bundle(cluster)) == 1


async def test_a_deleted_secret_begins_one_rotation() -> None:
    clock = VirtualClock(NOW)
    cluster = Server(clock)
    ours = [Replica(cluster) for _ in range(3)]
    for each in ours:
        await each.look()
    old = ours[0].issuer
    for _ in range(2):  # deleted amid the rotation, it is stored as it was
        cluster.remove(SECRET, cluster.lookup(SECRET, "ca", "sys"))
        await asyncio.gather(*[each.look() for each in ours])
        assert {each.issuer for each in ours} == {old}
    new = bundle(cluster)[0]
    assert bundle(cluster) == (new, old)
    clock.jump(POLICY.settle.total_seconds())
    await asyncio.gather(*[each.look() for each in ours])
    assert {each.issuer for each in ours} == {new}


async def test_a_secret_of_something_else_is_named_and_left_alone() -> None:
    cluster = Server(VirtualClock(NOW))
    running = Replica(cluster)
    await running.look()
    before = bundle(cluster)
    cluster.change(SECRET, cluster.lookup(SECRET, "ca", "sys"), data={"tls.crt": "eA==", "tls.key": "eA=="})
    cluster.change(PLACE, cluster.lookup(PLACE, "hooks"), webhooks=[])
    with pytest.raises(ConfigError, match=r"the Secret sys/ca holds no certificate authority: .*; delete it"):
        await Replica(cluster).look()
    await running.look()
    assert bundle(cluster) == before
    assert cluster.lookup(SECRET, "ca", "sys")["data"] == {"tls.crt": "eA==", "tls.key": "eA=="}
    cluster.remove(SECRET, cluster.lookup(SECRET, "ca", "sys"))
    await running.look()
    assert bundle(cluster)[1:] == before


async def test_an_empty_secret_is_filled() -> None:
    cluster = Server(VirtualClock(NOW))
    cluster.put(SECRET, {"metadata": {"name": "ca", "namespace": "sys"}})
    replica = Replica(cluster)
    await replica.look()
    assert base64.b64decode(cluster.lookup(SECRET, "ca", "sys")["data"]["tls.crt"]) == replica.issuer
