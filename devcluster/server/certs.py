"""A certificate authority and one serving certificate, made for the life of a server."""

from __future__ import annotations

import ssl
import tempfile
from dataclasses import dataclass
from datetime import datetime, timedelta
from ipaddress import ip_address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

_LIFETIME = timedelta(days=3650)
_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc")


@dataclass(frozen=True)
class Identity:
    """What a server shows (`chain`, `key`) and what its clients trust (`ca`), all PEM."""

    ca: str
    chain: str
    key: str


def make_identity(host: str, now: datetime) -> Identity:
    """A fresh CA and a leaf for `host`, loopback and the usual service names."""
    ca_key, leaf_key = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
    issuer = _name("devcluster-ca")
    ca = _certificate(issuer, issuer, ca_key, now).add_extension(
        x509.BasicConstraints(ca=True, path_length=None), critical=True
    )
    signed_ca = ca.sign(ca_key, hashes.SHA256())
    addresses = [x509.IPAddress(ip_address(each)) for each in dict.fromkeys(("127.0.0.1", *_address(host)))]
    names = [x509.DNSName(each) for each in _NAMES]
    leaf = _certificate(_name("kube-apiserver"), issuer, leaf_key, now)
    leaf = leaf.add_extension(x509.SubjectAlternativeName([*names, *addresses]), critical=False)
    signed_leaf = leaf.sign(ca_key, hashes.SHA256())
    key = leaf_key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return Identity(_pem(signed_ca), _pem(signed_leaf), key.decode())


def server_context(identity: Identity) -> ssl.SSLContext:
    """A TLS context that serves this identity. The key is on disk only while it is read."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    with tempfile.TemporaryDirectory() as folder:
        chain, key = Path(folder, "chain.pem"), Path(folder, "key.pem")
        chain.write_text(identity.chain)
        key.touch(mode=0o600)
        key.write_text(identity.key)
        context.load_cert_chain(chain, key)
    return context


def _address(host: str) -> tuple[str, ...]:
    try:
        return (str(ip_address(host)),)
    except ValueError:
        return ()


def _name(common: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])


def _certificate(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePrivateKey, now: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + _LIFETIME)
    )


def _pem(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()
