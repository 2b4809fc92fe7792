"""The real control plane itself: what is killed comes back with what it stored. Only with `--kube real`."""

from __future__ import annotations

import http.client
import os
import ssl
import subprocess
import sys
from contextlib import closing
from pathlib import Path

import pytest

from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import Forbidden
from elasticjob.kube.objects.views import CONFIG_MAP, NODE, POD
from lab.clusters.namespaces import new_namespace
from lab.clusters.plane.controlplane import APISERVER, CONTROLLER_MANAGER, ControlPlane
from lab.processes import ProgramFailed, running
from lab.waiting import until

pytestmark = pytest.mark.plane


async def make(plane: ControlPlane, name: str) -> None:
    async with Client(plane.config()) as client:
        await client.create(CONFIG_MAP, {"metadata": {"name": name}}, "default")


async def made(plane: ControlPlane) -> set[str]:
    async with Client(plane.config()) as client:
        return {found.metadata.name for found in await client.list(CONFIG_MAP, "default")} - {
            "kube-root-ca.crt"
        }


async def test_what_was_stored_survives_crashes_and_restarts(tmp_path: Path) -> None:
    with ControlPlane(tmp_path) as plane:
        await make(plane, "before")
        url, first = plane.url, plane.programs[APISERVER].pid
        for name in (APISERVER, "etcd"):
            plane.kill(name)
        with pytest.raises(ProgramFailed, match="kube-apiserver does not run: start it first"):
            assert plane.programs[APISERVER].pid
        plane.start("etcd")
        plane.start(APISERVER)
        assert plane.programs[APISERVER].pid != first
        assert await made(plane) == {"before"}
        await make(plane, "after")
        assert [
            found.name for found in plane.audit() if found.resource == "configmaps" and found.user == "admin"
        ] == ["before", "after"]
    with ControlPlane(tmp_path) as plane:
        assert plane.url == url
        assert await made(plane) == {"before", "after"}
    assert running(plane.programs.values()) == ()


async def test_etcd_speaks_to_the_api_server_alone(tmp_path: Path) -> None:
    """Not to an administrator of the cluster, whose certificate is of another authority; nor to a peer."""
    with ControlPlane(tmp_path) as plane:
        for port in plane.etcd_ports:
            for context in (plane.tls(), ssl.create_default_context()):
                context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
                context.maximum_version = ssl.TLSVersion.TLSv1_2  # which refuses in the handshake
                etcd = http.client.HTTPSConnection("127.0.0.1", port, context=context)
                refusals = (ssl.SSLError, ConnectionError)  # it closes as it says so, amid what we say
                with closing(etcd), pytest.raises(refusals, match=r"alert|reset|pipe"):
                    etcd.connect()


async def test_two_run_at_once_and_kwok_plays_nodes_and_pods(tmp_path: Path) -> None:
    with (
        ControlPlane(tmp_path / "a") as plain,
        ControlPlane(tmp_path / "b", scheduler=True, kwok=True) as pretended,
    ):
        assert plain.url != pretended.url
        assert pretended.programs[CONTROLLER_MANAGER].rss > 1 << 20
        async with Client(pretended.config()) as client:
            annotations = {"kwok.x-k8s.io/node": "fake"}
            await client.create(NODE, {"metadata": {"name": "n", "annotations": annotations}})
            namespace = await new_namespace(client, "here")
            spec = {"containers": [{"name": "main", "image": "none"}]}
            await client.create(POD, {"metadata": {"name": "p"}, "spec": spec}, namespace)

            async def runs() -> bool:
                return (await client.get(POD, "p", namespace)).status.phase == "Running"

            await until(runs, "the pod runs")
        assert await made(plain) == set()


async def test_users_have_the_rights_that_roles_give_them(control_plane: ControlPlane) -> None:
    async with Client(control_plane.config("jane", ("people",))) as client:
        with pytest.raises(Forbidden, match='User "jane" cannot list'):
            await client.list(CONFIG_MAP, "default")
    text = control_plane.kubeconfig_of("jane", ("people",)).read_text()
    assert control_plane.url in text


def test_a_command_finds_it_by_kubeconfig_and_leaves_nothing(tmp_path: Path) -> None:
    ask = ["kubectl", "get", "namespace", "default", "-o", "name"]
    command = [sys.executable, "-m", "lab.clusters.plane.command", "run", "--", *ask]
    done = subprocess.run(
        command, capture_output=True, text=True, check=True, env={**os.environ, "TMPDIR": str(tmp_path)}
    )
    assert done.stdout == "namespace/default\n"
    assert list(tmp_path.iterdir()) == []
