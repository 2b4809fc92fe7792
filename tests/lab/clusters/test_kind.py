"""What kind is told, and when it is asked for a node: without Docker, no more can be tested."""

from __future__ import annotations

import base64
import json
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from lab.clusters.binaries import Missing
from lab.clusters.node import kind
from lab.clusters.node.chosen import choose
from lab.clusters.node.kind import KindNode, configuration
from lab.clusters.plane.pki import Pki

NO_DOCKER = "Docker does not answer (docker info): start it"


@pytest.mark.parametrize(
    ("asked", "root", "no_kind", "chosen"),
    [
        ("", True, NO_DOCKER, "node"),
        ("", True, "", "node"),
        ("", False, "", "kind"),
        ("kind", True, "", "kind"),
        ("node", True, "", "node"),
    ],
)
def test_root_has_the_projects_node_and_others_kind(
    asked: str, root: bool, no_kind: str, chosen: str
) -> None:
    assert choose(asked, root=root, no_kind=no_kind) == chosen


def test_where_no_node_can_be_it_is_said_what_to_do() -> None:
    with pytest.raises(Missing, match=r"needs root.* Without root, use kind: Docker does not answer"):
        choose("", root=False, no_kind=NO_DOCKER)
    with pytest.raises(Missing, match="there is no node of minikube"):
        choose("minikube", root=False, no_kind="")


def test_a_machine_without_kind_is_told_so(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(Missing, match="kind is not on PATH: install it, or leave --kind out"):
        KindNode(tmp_path)
    program(tmp_path / "kind", "exit 0")
    assert kind.absent() == NO_DOCKER
    program(tmp_path / "docker", "exit 1")
    assert kind.absent() == NO_DOCKER
    program(tmp_path / "docker", "exit 0")
    assert kind.absent() == ""


def program(path: Path, does: str) -> None:
    path.write_text(f"#!/bin/sh\n{does}\n")
    path.chmod(0o755)


class Shell:
    """What was run, and what it says."""

    def __init__(self) -> None:
        self.ran: list[str] = []
        self.says: dict[str, str] = {}

    def __call__(self, words: Sequence[str], **options: Any) -> subprocess.CompletedProcess[str]:
        line = " ".join(words)
        self.ran.append(line)
        output = next((text for part, text in self.says.items() if part in line), "")
        return subprocess.CompletedProcess(words, 0, output, "")


@pytest.fixture
def shell(monkeypatch: pytest.MonkeyPatch) -> Shell:
    monkeypatch.setattr(kind, "absent", lambda: "")
    return Shell()


def test_a_cluster_is_made_once_and_its_kubeconfig_kept(shell: Shell, tmp_path: Path) -> None:
    node = KindNode(tmp_path, run=shell)
    shell.says["get kubeconfig"] = "the administrator's"
    node.up()
    config = tmp_path / "kind.json"
    create = f"kind create cluster --config {config} --wait 180s --name elasticjob"
    assert shell.ran == ["kind get clusters", create, "kind get kubeconfig --name elasticjob"]
    assert json.loads(config.read_text()) == configuration(tmp_path)
    assert node.kubeconfig.read_text() == "the administrator's"
    assert node.kubeconfig.stat().st_mode & 0o077 == 0
    shell.says["get clusters"] = "other\nelasticjob\n"
    node.up()
    assert shell.ran.count(create) == 1
    assert node.down() == ["kind cluster elasticjob"]


def test_all_requests_are_logged_and_volumes_are_at_the_same_path(shell: Shell, tmp_path: Path) -> None:
    (node,) = configuration(tmp_path)["nodes"]
    mounted = {mount["hostPath"]: mount["containerPath"] for mount in node["extraMounts"]}
    made = KindNode(tmp_path, run=shell)
    assert mounted[str(made.volumes)] == str(made.volumes)
    api = json.loads(node["kubeadmConfigPatches"][0])["apiServer"]
    inside = {volume["hostPath"] for volume in api["extraVolumes"]}
    assert inside == {str(Path(flag).parent) for flag in api["extraArgs"].values()}
    assert mounted[str(tmp_path / "policies")] in inside


def test_the_audit_log_is_read_up_to_its_last_whole_line(shell: Shell, tmp_path: Path) -> None:
    at = "2026-01-01T00:00:00.000000Z"
    event = {"stage": "ResponseComplete", "requestReceivedTimestamp": at, "stageTimestamp": at}
    event |= {"verb": "get", "requestURI": "/version"}
    line = json.dumps(event | {"user": {"username": "jane"}})
    shell.says["cat"] = f"{line}\n{line[:40]}"
    found = KindNode(tmp_path, run=shell).audit()
    assert [(one.user, one.uri) for one in found] == [("jane", "/version")]
    assert shell.ran == ["docker exec elasticjob-control-plane cat /var/log/kubernetes/audit.log"]


def test_a_client_is_the_administrator_of_the_kubeconfig(
    shell: Shell, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    program(tmp_path / "kubectl", "exit 0")
    pki = Pki(tmp_path / "pki")
    pair = pki.client("admin")
    encoded = {path: base64.b64encode(path.read_bytes()).decode() for path in (pair.certificate, pair.key)}
    cluster = {"server": "https://127.0.0.1:6443"}
    cluster["certificate-authority-data"] = base64.b64encode(pki.ca_pem.encode()).decode()
    user = {"client-certificate-data": encoded[pair.certificate], "client-key-data": encoded[pair.key]}
    shell.says["config view"] = json.dumps({"clusters": [{"cluster": cluster}], "users": [{"user": user}]})
    config = KindNode(tmp_path, run=shell).config()
    assert config.server == "https://127.0.0.1:6443"
    assert config.ssl is not None
    assert len(config.ssl.get_ca_certs()) == 1
