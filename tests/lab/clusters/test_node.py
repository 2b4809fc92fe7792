"""What of a node can be told without one: configurations, refusals, what is changed and put back."""

from __future__ import annotations

import errno
import json
import os
import tomllib
from pathlib import Path

import pytest

from lab.clusters import debian
from lab.clusters.debian import missing_packages
from lab.clusters.node import host, node, nodeconfig
from lab.clusters.node.node import refusal
from lab.clusters.node.place import Place
from lab.clusters.node.second import place_beside
from lab.clusters.plane.pki import Pair

PLACE = Place(Path("/state"))
PAIR = Pair(Path("/state/tls.crt"), Path("/state/tls.key"))


def test_containerd_keeps_everything_in_the_nodes_folder() -> None:
    found = tomllib.loads(nodeconfig.containerd(PLACE, Path("/plugins")))
    cri = found["plugins"]["io.containerd.grpc.v1.cri"]
    assert (found["root"], found["state"]) == ("/state/containerd/root", "/state/containerd/run")
    assert found["grpc"]["address"] == "/state/containerd.sock"
    assert cri["sandbox_image"] == nodeconfig.PAUSE
    assert cri["cni"] == {"bin_dir": "/plugins", "conf_dir": "/state/cni/net.d"}
    assert cri["containerd"]["runtimes"]["runc"]["options"] == {
        "SystemdCgroup": False,
        "Root": "/state/containerd/runc",
    }


def test_kubelet_and_proxy_meet_the_rest() -> None:
    kubelet = json.loads(nodeconfig.kubelet(PLACE, PAIR, Path("/state/ca.crt")))
    assert kubelet["containerRuntimeEndpoint"] == f"unix://{PLACE.socket}"
    assert kubelet["clusterDNS"] == [PLACE.dns]
    assert kubelet["cgroupRoot"] == f"/{PLACE.cgroup}"
    proxy = json.loads(nodeconfig.proxy(PLACE, Path("/state/proxy.kubeconfig")))
    assert proxy["hostnameOverride"] == PLACE.node
    assert (
        proxy["clusterCIDR"]
        == json.loads(nodeconfig.network(PLACE))["plugins"][0]["ipam"]["ranges"][0][0]["subnet"]
    )
    assert f"bind {PLACE.dns}" in nodeconfig.corefile(PLACE, Path("/state/dns.kubeconfig"))


def test_second_machine_is_inside_the_first_and_takes_nothing_from_it() -> None:
    beside = place_beside(PLACE)
    assert PLACE.folder in beside.folder.parents
    assert beside.cgroup.startswith(f"{PLACE.cgroup}/")
    own = ("node", "address", "pods", "bridge", "socket", "kubelet", "network")
    assert all(getattr(beside, name) != getattr(PLACE, name) for name in own)
    assert (beside.dns, beside.services) == (PLACE.dns, PLACE.services)
    for place in (PLACE, beside):
        kubelet = json.loads(nodeconfig.kubelet(place, PAIR, Path("/state/ca.crt")))
        assert {kubelet["address"], kubelet["healthzBindAddress"]} == {place.address}
        assert f"--hostname-override={place.node}" in nodeconfig.kubelet_command(
            place, Path("kubelet"), Path("user")
        )


@pytest.fixture
def root(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    """A machine on which we are root, everything is installed and no node is up."""
    monkeypatch.setattr(os, "geteuid", lambda: 0)
    monkeypatch.setattr(node, "missing_packages", dict)
    monkeypatch.setattr(node, "CURRENT", tmp_path / "current")
    return tmp_path


def test_a_machine_that_is_not_fit_is_told_why(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert refusal(Place(root)) == ""
    assert "choose another with --folder" in refusal(Place(root / ("x" * 100)))
    (root / "current").write_text("/another")
    assert "another node is up, in /another: one per machine" in refusal(Place(root))
    (root / "current").write_text(str(root))
    assert refusal(Place(root)) == ""
    monkeypatch.setattr(node, "missing_packages", lambda: {"runc": "runc", "nft": "nftables"})
    assert refusal(Place(root)) == "not installed: runc, nft; on Debian: apt-get install runc nftables"
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    assert "a node needs root" in refusal(Place(root))


def test_a_command_that_is_called_like_a_plugin_is_none(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """iproute2 has a `bridge`; a machine with that and without plugins lacks the plugins."""
    for name in ("containerd", "runc", "nft", "ip", "bridge"):
        (tmp_path / name).touch(mode=0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(debian, "PLUGINS", (tmp_path / "plugins",))
    assert missing_packages() == {"bridge": "containernetworking-plugins"}
    (tmp_path / "plugins").mkdir()
    (tmp_path / "plugins" / "bridge").touch()
    assert missing_packages() == {}


@pytest.mark.parametrize(
    ("has", "passes_on", "written"),
    [
        pytest.param("cpu cpuset hugetlb io memory pids rdma", "cpu cpuset memory pids", "+hugetlb", id="v2"),
        pytest.param("", "", "\n", id="hybrid"),
    ],
)
def test_children_of_a_cgroup_get_the_controllers_that_it_has(
    tmp_path: Path, has: str, passes_on: str, written: str
) -> None:
    (tmp_path / "cgroup.controllers").write_text(f"{has}\n")
    (tmp_path / "cgroup.subtree_control").write_text(f"{passes_on}\n")
    host.pass_on_controllers(tmp_path)
    assert (tmp_path / "cgroup.subtree_control").read_text() == written


def test_a_container_whose_root_cgroup_is_in_use_is_told_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "cgroup.controllers").write_text("memory\n")
    (tmp_path / "cgroup.subtree_control").write_text("\n")

    def busy(*_: object) -> int:
        raise OSError(errno.EBUSY, "Device or resource busy")

    monkeypatch.setattr(Path, "write_text", busy)
    with pytest.raises(host.Unfit, match=r"does not take \+memory .*cgroup.procs"):
        host.pass_on_controllers(tmp_path)


def test_cgroups_that_go_while_they_are_looked_at_are_passed_over(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, pids in (("pod", "1\n2\n"), ("pod/stays", "3\n"), ("pod/goes", "4\n")):
        (tmp_path / name).mkdir()
        (tmp_path / name / "cgroup.procs").write_text(pids)
    look = os.scandir

    def gone(path: str) -> object:
        if Path(path).name == "goes":
            raise FileNotFoundError(path)
        return look(path)

    monkeypatch.setattr(os, "scandir", gone)
    assert set(host._pids_below(tmp_path)) == {1, 2, 3}
