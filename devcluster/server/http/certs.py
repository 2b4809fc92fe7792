"""A certificate authority and one serving certificate, made for the life of a server."""

from __future__ import annotations

import ssl
from dataclasses import dataclass
from datetime import datetime

from elasticjob.kube.webhook.certs import certificates
from elasticjob.kube.webhook.certs.certificates import Leaf

_NAMES = ("localhost", "kubernetes", "kubernetes.default", "kubernetes.default.svc", "127.0.0.1")


@dataclass(frozen=True)
class Identity:
    """A serving certificate, and the authority (PEM) that clients must trust."""

    ca: str
    leaf: Leaf


def make_identity(host: str, now: datetime) -> Identity:
    """A fresh authority and a certificate for `host`, loopback and the usual service names."""
    authority = certificates.new_authority("devcluster-ca", now)
    hosts = dict.fromkeys((*_NAMES, host))
    leaf = certificates.issue(authority, list(hosts), now, certificates.POLICY.authority_lifetime)
    return Identity(authority.certificate.decode(), leaf)


def server_context(identity: Identity) -> ssl.SSLContext:
    """A TLS context that serves this identity."""
    return certificates.server_context(identity.leaf)
