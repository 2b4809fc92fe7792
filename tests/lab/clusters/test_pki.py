"""A cluster's certificates: who signed them, whom they name, and that they are found again."""

from __future__ import annotations

import base64
import json
import ssl
import stat
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.oid import NameOID

from lab.clusters.plane.pki import Pair, Pki


@pytest.fixture
def pki(tmp_path: Path) -> Pki:
    return Pki(tmp_path / "pki")


def loaded(pair: Pair) -> x509.Certificate:
    return x509.load_pem_x509_certificate(pair.certificate.read_bytes())


def names(pair: Pair) -> tuple[str, list[str]]:
    subject = loaded(pair).subject
    (common,) = subject.get_attributes_for_oid(NameOID.COMMON_NAME)
    groups = subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
    return str(common.value), [str(group.value) for group in groups]


def test_clients_are_users_in_groups_signed_by_the_authority(pki: Pki) -> None:
    pair = pki.client("jane", ["people", "system:masters"])
    assert names(pair) == ("jane", ["people", "system:masters"])
    loaded(pair).verify_directly_issued_by(loaded(pki.ca))


def test_each_authority_signs_for_its_own(pki: Pki) -> None:
    other = loaded(pki.authority("etcd-ca"))
    for pair in (
        pki.client("jane", authority="etcd-ca"),
        pki.server("etcd", ["localhost"], authority="etcd-ca"),
    ):
        loaded(pair).verify_directly_issued_by(other)
    loaded(pki.client("jane")).verify_directly_issued_by(loaded(pki.ca))


def test_the_same_user_in_other_groups_has_another_certificate(pki: Pki) -> None:
    assert pki.client("jane", ["a"]) != pki.client("jane", ["b"])
    assert pki.client("jane", ["a"]) == pki.client("jane", ["a"])


def test_what_was_made_is_found_again(pki: Pki, tmp_path: Path) -> None:
    made = [
        pair.certificate.read_bytes() for pair in (pki.ca, pki.client("jane"), pki.server("s", ["localhost"]))
    ]
    key = pki.signing_key().read_bytes()
    again = Pki(tmp_path / "pki")
    assert made == [
        pair.certificate.read_bytes()
        for pair in (again.ca, again.client("jane"), again.server("s", ["localhost"]))
    ]
    assert again.signing_key().read_bytes() == key
    assert key.startswith(b"-----BEGIN EC PRIVATE KEY-----")


def test_servers_are_trusted_for_their_hosts_and_no_others(pki: Pki) -> None:
    pair = pki.server("api", ["127.0.0.1", "kubernetes.default"])
    for host, trusted in (("127.0.0.1", True), ("kubernetes.default", True), ("localhost", False)):
        assert (handshake(pki, pair, host) == "") is trusted, host


def handshake(pki: Pki, pair: Pair, host: str) -> str:
    """ "" or why a client that looks for `host` refuses the server."""
    server, client = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER), ssl.create_default_context(cadata=pki.ca_pem)
    server.load_cert_chain(pair.certificate, pair.key)
    there, back = ssl.MemoryBIO(), ssl.MemoryBIO()
    near = client.wrap_bio(back, there, server_hostname=host)
    far = server.wrap_bio(there, back, server_side=True)
    for side in (near, far, near, far):
        try:
            side.do_handshake()
        except ssl.SSLWantReadError:
            continue
        except ssl.SSLCertVerificationError as error:
            return error.verify_message
    return ""


def test_secrets_are_for_their_owner_alone(pki: Pki, tmp_path: Path) -> None:
    kubeconfig = pki.kubeconfig(tmp_path / "jane.kubeconfig", "https://127.0.0.1:1", "jane", ["people"])
    secrets = [kubeconfig, pki.signing_key(), pki.ca.key, pki.client("jane", ["people"]).key]
    assert {stat.S_IMODE(path.stat().st_mode) for path in secrets} == {0o600}
    assert list(tmp_path.glob(".*")) == []


def test_a_kubeconfig_carries_all_that_a_client_needs(pki: Pki, tmp_path: Path) -> None:
    path = pki.kubeconfig(tmp_path / "kubeconfig", "https://127.0.0.1:1", "jane", ["people"])
    config = json.loads(path.read_text())
    user = config["users"][0]["user"]
    assert (
        base64.b64decode(user["client-certificate-data"])
        == pki.client("jane", ["people"]).certificate.read_bytes()
    )
    cluster = config["clusters"][0]["cluster"]
    assert cluster["server"] == "https://127.0.0.1:1"
    assert base64.b64decode(cluster["certificate-authority-data"]).decode() == pki.ca_pem
    assert config["current-context"] == "cluster"
