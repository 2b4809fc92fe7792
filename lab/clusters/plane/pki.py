"""A cluster's own authorities, the certificates they sign, and kubeconfigs that carry them."""

from __future__ import annotations

import base64
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec

from elasticjob.kube.webhook.certs.certificates import POLICY, issue, new_authority, read_authority


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
        """An authority of that name: `etcd-ca` signs for etcd, which accepts no other authority's clients."""
        pair = self._pair(name)
        if not pair.certificate.exists():
            made = new_authority(name, datetime.now(UTC))
            _write(pair, made.certificate, made.key)
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
        """A client certificate."""
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
        issuer = read_authority(authority.certificate.read_bytes(), authority.key.read_bytes())
        leaf = issue(issuer, hosts, datetime.now(UTC), POLICY.authority_lifetime, user=user, groups=groups)
        _write(pair, leaf.chain, leaf.key)
        return pair

    def _pair(self, name: str) -> Pair:
        return Pair(self._folder / f"{name}.crt", self._folder / f"{name}.key")


def write_private(path: Path, content: bytes) -> Path:
    """A file that only this user of the machine may read; it appears whole or not at all."""
    new = path.with_name(f".{path.name}.{os.getpid()}")
    with open(os.open(new, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
    return new.replace(path)


def _write(pair: Pair, certificate: bytes, key: bytes) -> None:
    """The key first: where there is a certificate, its key is there too."""
    write_private(pair.key, key)
    write_private(pair.certificate, certificate)


def _pem(key: ec.EllipticCurvePrivateKey) -> bytes:
    """As `EC PRIVATE KEY`: the API server finds the public half of tokens' keys in no other form."""
    form = serialization.PrivateFormat.TraditionalOpenSSL
    return key.private_bytes(serialization.Encoding.PEM, form, serialization.NoEncryption())


def _encoded(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()
