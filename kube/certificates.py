"""Our own certificate authority and serving certificates (P-256), kept in memory or in a Secret."""

from __future__ import annotations

import base64
import ipaddress
import logging
import ssl
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from elasticjob.kube.client import Client
from elasticjob.kube.errors import AlreadyExists, Conflict
from elasticjob.kube.objects import SECRET, Secret

AUTHORITY_LIFETIME = timedelta(days=3650)
LEAF_LIFETIME = timedelta(days=30)
SKEW = timedelta(minutes=5)
"""Certificates begin a little in the past: clocks differ."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Authority:
    """A certificate authority; `previous` are certificates of older ones that are still trusted."""

    certificate: bytes
    key: bytes
    previous: bytes = b""

    @property
    def bundle(self) -> bytes:
        """What clients are to trust: PEM, the newest first."""
        return self.certificate + self.previous

    @property
    def expires(self) -> datetime:
        return x509.load_pem_x509_certificate(self.certificate).not_valid_after_utc


@dataclass(frozen=True)
class Leaf:
    """A serving certificate with its chain and key, PEM."""

    chain: bytes
    key: bytes
    issued: datetime
    expires: datetime

    def is_due(self, now: datetime) -> bool:
        """Whether two thirds of its life are over."""
        return now >= self.issued + (self.expires - self.issued) * 2 / 3


def new_authority(name: str, now: datetime, lifetime: timedelta = AUTHORITY_LIFETIME) -> Authority:
    """A self-signed authority that may only sign leaves."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    certificate = (
        _builder(subject, subject, key.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return Authority(_pem(certificate), _key_pem(key))


def issue(
    authority: Authority, hosts: Sequence[str], now: datetime, lifetime: timedelta = LEAF_LIFETIME
) -> Leaf:
    """A certificate for serving as any of `hosts` (names or IP addresses)."""
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, hosts[0][:64])])
    certificate = (
        _builder(subject, issuer.subject, key.public_key(), now, lifetime)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage([ExtendedKeyUsageOID.SERVER_AUTH]), critical=False)
        .add_extension(x509.SubjectAlternativeName([_name(host) for host in hosts]), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
        .sign(issuer_key, hashes.SHA256())
    )
    return Leaf(_pem(certificate) + authority.certificate, _key_pem(key), now, now + lifetime)


def load_leaf(context: ssl.SSLContext, leaf: Leaf) -> None:
    """Serve `leaf` from now on: on a live context, new connections get it and others are undisturbed."""
    with tempfile.TemporaryDirectory(prefix="leaf-") as folder:
        path = Path(folder, "tls.pem")
        path.touch(mode=0o600)
        path.write_bytes(leaf.chain + leaf.key)
        context.load_cert_chain(path)


def server_context(leaf: Leaf) -> ssl.SSLContext:
    """A TLS server context that serves `leaf`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    load_leaf(context, leaf)
    return context


async def shared_authority(client: Client, namespace: str, name: str, now: datetime) -> Authority:
    """The authority in the Secret `namespace/name`, made where there is none; many may ask at once.

    One that ends within a tenth of its life is replaced; its certificate stays in the bundle.
    """
    while True:
        secret = await client.find(SECRET, name, namespace)
        found = _authority(secret) if secret else None
        if found and found.expires - now > AUTHORITY_LIFETIME / 10:
            return found
        new = new_authority(name, now)
        if found:
            new = Authority(new.certificate, new.key, found.certificate)
        try:
            await _keep(client, namespace, name, new, secret)
        except (AlreadyExists, Conflict):
            continue  # another replica was first: take its authority
        return new


async def _keep(client: Client, namespace: str, name: str, new: Authority, old: Secret | None) -> None:
    data = {"tls.crt": new.certificate, "tls.key": new.key, "previous.crt": new.previous}
    encoded = {key: base64.b64encode(value).decode() for key, value in data.items()}
    if old is None:
        manifest = {"metadata": {"name": name, "namespace": namespace}, "type": "Opaque", "data": encoded}
        await client.create(SECRET, manifest)
        return
    patch = {"metadata": {"resourceVersion": old.metadata.resource_version}, "data": encoded}
    await client.merge_patch(SECRET, name, patch, namespace)


def _authority(secret: Secret) -> Authority | None:
    """The authority in a Secret; None where there is none that can be used."""
    certificate, key = secret.data.get("tls.crt", b""), secret.data.get("tls.key", b"")
    try:
        x509.load_pem_x509_certificate(certificate)
        serialization.load_pem_private_key(key, password=None)
    except ValueError as error:
        log.warning("the Secret holds no authority and gets a new one", extra={"error": str(error)})
        return None
    return Authority(certificate, key, secret.data.get("previous.crt", b""))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, now: datetime, lifetime: timedelta
) -> x509.CertificateBuilder:
    now = now.astimezone(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + lifetime)
    )


def _usage(*, signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=signs_certificates,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _name(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(certificate: x509.Certificate) -> bytes:
    return certificate.public_bytes(serialization.Encoding.PEM)


def _key_pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    return key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
