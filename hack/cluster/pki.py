"""A cluster's own authorities, the certificates they sign, and kubeconfigs that carry them."""

from __future__ import annotations

import base64
import ipaddress
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

LIFETIME = timedelta(days=3650)
SKEW = timedelta(minutes=5)


@dataclass(frozen=True)
class Pair:
    """Files of a certificate and of its key, PEM."""

    certificate: Path
    key: Path


class Pki:
    """What `folder` holds; what is asked for and not there yet is made, and found again by the next one."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        folder.mkdir(parents=True, exist_ok=True, mode=0o700)

    @property
    def ca(self) -> Pair:
        """The authority of the cluster: of servers and of clients."""
        return self.authority("ca")

    @property
    def ca_pem(self) -> str:
        return self.ca.certificate.read_text()

    def authority(self, name: str) -> Pair:
        """An authority of that name: `etcd-ca` signs for etcd, which nobody else's clients may speak to."""
        pair = self._pair(name)
        if not pair.certificate.exists():
            key = ec.generate_private_key(ec.SECP256R1())
            subject = _name(name)
            certificate = (
                _builder(subject, subject, key.public_key())
                .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
                .add_extension(_usage(signs=True), critical=True)
                .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
                .sign(key, hashes.SHA256())
            )
            _write(pair, certificate, key)
        return pair

    def signing_key(self) -> Path:
        """The key that signs tokens of service accounts."""
        path = self._folder / "service-accounts.key"
        if not path.exists():
            write_private(path, _pem(ec.generate_private_key(ec.SECP256R1())))
        return path

    def server(self, name: str, hosts: Sequence[str], user: str = "", *, authority: str = "ca") -> Pair:
        """A certificate for serving as any of `hosts` (names or addresses), which may be a user's as well."""
        return self._signed(name, user or name, (), hosts, authority)

    def client(self, user: str, groups: Sequence[str] = (), *, authority: str = "ca") -> Pair:
        """A certificate that says who a client is."""
        of = () if authority == "ca" else (authority,)
        words = "-".join((*of, "client", user, *groups)).replace(":", "_").replace("/", "_")
        return self._signed(words, user, groups, (), authority)

    def kubeconfig(self, path: Path, server: str, user: str, groups: Sequence[str] = ()) -> Path:
        """A kubeconfig of that user, everything in it, readable by this user of the machine alone."""
        pair = self.client(user, groups)
        about = {"cluster": "cluster", "user": user, "namespace": "default"}
        config = {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [
                {
                    "name": "cluster",
                    "cluster": {
                        "server": server,
                        "certificate-authority-data": _encoded(self.ca.certificate),
                    },
                }
            ],
            "users": [
                {
                    "name": user,
                    "user": {
                        "client-certificate-data": _encoded(pair.certificate),
                        "client-key-data": _encoded(pair.key),
                    },
                }
            ],
            "contexts": [{"name": "cluster", "context": about}],
            "current-context": "cluster",
        }
        return write_private(path, json.dumps(config, indent=2).encode() + b"\n")

    def _signed(self, name: str, user: str, groups: Sequence[str], hosts: Sequence[str], by: str) -> Pair:
        pair, authority = self._pair(name), self.authority(by)
        if pair.certificate.exists():
            return pair
        issuer = x509.load_pem_x509_certificate(authority.certificate.read_bytes())
        issuer_key = serialization.load_pem_private_key(authority.key.read_bytes(), password=None)
        assert isinstance(issuer_key, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        usages = [ExtendedKeyUsageOID.CLIENT_AUTH, *([ExtendedKeyUsageOID.SERVER_AUTH] if hosts else [])]
        builder = (
            _builder(_name(user, groups), issuer.subject, key.public_key())
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(x509.ExtendedKeyUsage(usages), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key()), critical=False
            )
        )
        if hosts:
            builder = builder.add_extension(
                x509.SubjectAlternativeName([_host(host) for host in hosts]), critical=False
            )
        _write(pair, builder.sign(issuer_key, hashes.SHA256()), key)
        return pair

    def _pair(self, name: str) -> Pair:
        return Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")


def write_private(path: Path, content: bytes) -> Path:
    """A file that only this user of the machine may read; it appears whole or not at all."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    return new.replace(path)


def _write(pair: Pair, certificate: x509.Certificate, key: ec.EllipticCurvePrivateKey) -> None:
    """The key first: where there is a certificate, its key is there too."""
    write_private(pair.key, _pem(key))
    write_private(pair.certificate, certificate.public_bytes(serialization.Encoding.PEM))


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey
) -> x509.CertificateBuilder:
    now = datetime.now(UTC)
    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - SKEW)
        .not_valid_after(now + LIFETIME)
    )


def _name(user: str, groups: Sequence[str] = ()) -> x509.Name:
    parts = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, group) for group in groups]
    return x509.Name([*parts, x509.NameAttribute(NameOID.COMMON_NAME, user)])


def _usage(*, signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=True,
        key_encipherment=not signs,
        key_cert_sign=signs,
        crl_sign=signs,
        content_commitment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )


def _host(host: str) -> x509.GeneralName:
    try:
        return x509.IPAddress(ipaddress.ip_address(host))
    except ValueError:
        return x509.DNSName(host)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """As `EC PRIVATE KEY`: the API server finds the public half of tokens' keys in no other form."""
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
