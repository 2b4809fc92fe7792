"""Making, reading and serving certificates (P-256)."""

from __future__ import annotations

import ipaddress
import re
import ssl
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from cryptography import x509
from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from elasticjob.kube.client.keyfile import as_file

Certificate = bytes
"""One certificate, PEM, as `cryptography` writes it: equal bytes are equal certificates."""


@dataclass(frozen=True)
class Policy:
    """How long things last."""

    authority_lifetime: timedelta = timedelta(days=3650)
    leaf_lifetime: timedelta = timedelta(days=7)
    settle: timedelta = timedelta(minutes=15)
    """How long a new authority is published before it signs: longer than replicas' clocks differ, and than
    API servers take to heed a bundle."""
    skew: timedelta = timedelta(minutes=5)
    """How far any clock may be from the true time."""
    look: timedelta = timedelta(minutes=1)
    """Between two checks of Secret and registration where nothing has changed."""
    poll: timedelta = timedelta(seconds=5)
    """Between two readings of certificate files that others write."""

    @property
    def backdating(self) -> timedelta:
        """How long before it is made a certificate begins: valid on any clock, though ours be ahead."""
        return 2 * self.skew

    @property
    def retention(self) -> timedelta:
        """From an authority's begin until the last certificate of the one before it has ended."""
        return self.backdating + self.settle + self.leaf_lifetime + 2 * self.skew


@dataclass(frozen=True)
class Authority:
    """A certificate authority with its key, PEM."""

    certificate: Certificate
    key: bytes
    begins: datetime
    expires: datetime

    def is_due(self, now: datetime) -> bool:
        """Whether two thirds of its life are over."""
        return now >= self.begins + (self.expires - self.begins) * 2 / 3


@dataclass(frozen=True)
class Leaf:
    """A serving certificate with its chain and key, PEM, and the certificate that signed it."""

    chain: bytes
    key: bytes
    issued: datetime
    expires: datetime
    issuer: Certificate = b""

    def is_due(self, now: datetime) -> bool:
        """Whether two thirds of its life are over."""
        return now >= self.issued + (self.expires - self.issued) * 2 / 3


POLICY = Policy()
_PEM = re.compile(rb"-----BEGIN CERTIFICATE-----.+?-----END CERTIFICATE-----", re.DOTALL)


def new_authority(
    name: str,
    now: datetime,
    lifetime: timedelta = POLICY.authority_lifetime,
    *,
    skew: timedelta = POLICY.skew,
) -> Authority:
    """A self-signed authority that may only sign leaves."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name[:64])])
    certificate = (
        _builder(subject, subject, key.public_key(), now - 2 * skew, now + lifetime)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .sign(key, hashes.SHA256())
    )
    return read_authority(_pem(certificate), _key_pem(key))


def read_authority(certificate: bytes, key: bytes) -> Authority:
    """The authority of a certificate and a key, PEM. Raises ValueError where they could not sign a leaf."""
    found = _certificate(certificate)
    public = _public_half(key)
    is_curve = isinstance(public, ec.EllipticCurvePublicKey)
    if not is_curve:
        raise ValueError("the key is of another kind than the elliptic curves that we sign with")
    if not _signs(found):
        raise ValueError("the certificate is not one that may sign others")
    if public != _certified_key(found):
        raise ValueError("the key is not that of the certificate")
    return Authority(_pem(found), key, found.not_valid_before_utc, found.not_valid_after_utc)


def certificates_in(bundle: bytes) -> tuple[Certificate, ...]:
    """The certificates of a PEM bundle, each once and in one form; what cannot be read is left out."""
    found = dict.fromkeys(filter(None, map(_normal, _PEM.findall(bundle))))
    return tuple(found)


def issue(
    authority: Authority,
    hosts: Sequence[str],
    now: datetime,
    lifetime: timedelta = POLICY.leaf_lifetime,
    *,
    skew: timedelta = POLICY.skew,
    user: str = "",
    groups: Sequence[str] = (),
) -> Leaf:
    """A certificate to serve as any of `hosts` (names or IP addresses), or of the client `user` in `groups`.

    It ends with the authority.
    It is valid at once for a clock that is `skew` behind the true time, even if ours is as much ahead.
    """
    issuer = x509.load_pem_x509_certificate(authority.certificate)
    issuer_key = serialization.load_pem_private_key(authority.key, password=None)
    assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
    expires = min(now + lifetime, authority.expires)
    key = ec.generate_private_key(ec.SECP256R1())
    names = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    subject = x509.Name([*names, x509.NameAttribute(NameOID.COMMON_NAME, (user or hosts[0])[:64])])
    usages = [ExtendedKeyUsageOID.SERVER_AUTH] * bool(hosts) + [ExtendedKeyUsageOID.CLIENT_AUTH] * bool(user)
    builder = (
        _builder(subject, issuer.subject, key.public_key(), now - 2 * skew, expires)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(
            x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
        )
    )
    if hosts:
        alternatives = x509.SubjectAlternativeName([_name(host) for host in hosts])
        builder = builder.add_extension(alternatives, critical=False)
    certificate = builder.sign(issuer_key, hashes.SHA256())
    chain = _pem(certificate) + authority.certificate
    return Leaf(chain, _key_pem(key), now, expires, authority.certificate)


def read_leaf(chain: bytes, key: bytes) -> Leaf:
    """The leaf of a certificate chain and a key, PEM. Raises ValueError where they cannot be served."""
    found = _certificate(chain)
    if _public_half(key) != _certified_key(found):
        raise ValueError("the key is not that of the certificate: one of the two files is older")
    leaf = Leaf(chain, key, found.not_valid_before_utc, found.not_valid_after_utc)
    try:
        server_context(leaf)
    except ssl.SSLError as error:
        raise ValueError(f"OpenSSL does not take them: {error}") from error
    return leaf


def server_context(leaf: Leaf | None = None) -> ssl.SSLContext:
    """The TLS context of all our servers: 1.2 or newer. It serves `leaf`, or none until `load_leaf`."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    if leaf:
        load_leaf(context, leaf)
    return context


def load_leaf(context: ssl.SSLContext, leaf: Leaf) -> None:
    """Serve `leaf` from now on: on a live context, new connections get it and others are undisturbed.

    Chain and key must belong together (`issue` and `read_leaf` see to it): of a pair that does not, a live
    context would keep one half.
    """
    with as_file(leaf.chain + leaf.key) as path:
        context.load_cert_chain(path)


def verifies(bundle: bytes, leaf: Leaf, host: str) -> str | None:
    """The TLS error of a client that trusts `bundle`, at `host` that serves `leaf`; None if it connects.

    It is asked by a real handshake, in memory; as API servers do, any certificate of the bundle is a root.
    """
    trusted = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    trusted.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if not (roots := certificates_in(bundle)):
        return "the bundle holds no certificate"
    trusted.load_verify_locations(cadata=b"".join(roots).decode())
    to_server, to_client = ssl.MemoryBIO(), ssl.MemoryBIO()
    client = trusted.wrap_bio(to_client, to_server, server_hostname=host)
    server = server_context(leaf).wrap_bio(to_server, to_client, server_side=True)
    for side in (client, server, client):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
    return None


def _certificate(pem: bytes) -> x509.Certificate:
    """The first certificate. Raises ValueError, whatever is wrong with it."""
    try:
        return x509.load_pem_x509_certificate(pem)
    except x509.InvalidVersion as error:
        raise ValueError(str(error)) from error


def _certified_key(certificate: x509.Certificate) -> object:
    try:
        return certificate.public_key()
    except UnsupportedAlgorithm as error:
        raise ValueError(f"the certificate is for a kind of key that cannot be read: {error}") from error


def _public_half(key: bytes) -> object:
    try:
        return serialization.load_pem_private_key(key, password=None).public_key()
    except TypeError as error:
        raise ValueError("the key is encrypted: store it without a password") from error
    except UnsupportedAlgorithm as error:
        raise ValueError(f"the key is of a kind that cannot be read: {error}") from error


def _signs(certificate: x509.Certificate) -> bool:
    """Whether API servers take what is signed with it."""
    try:
        extensions = certificate.extensions
        authority = extensions.get_extension_for_class(x509.BasicConstraints).value.ca
        return authority and extensions.get_extension_for_class(x509.KeyUsage).value.key_cert_sign
    except (x509.ExtensionNotFound, x509.DuplicateExtension, ValueError):
        return False


def _normal(block: bytes) -> Certificate | None:
    try:
        return _pem(_certificate(block))
    except ValueError:
        return None


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begins: datetime, expires: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begins.astimezone(UTC))
        .not_valid_after(expires.astimezone(UTC))
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
