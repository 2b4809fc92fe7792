"""`kubectl drain` on a machine that has a job's master."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from elasticjob.controllers.elasticjob.master import Provision, master_pod
from elasticjob.controllers.nodes.relaunch import Node
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.views import NODE, POD, SERVICE_ACCOUNT
from lab.build.jobs import job
from lab.clusters.installed.kubectl import Kubectl
from lab.clusters.served import devcluster_server
from lab.waiting import PATIENCE

KUBECTL = shutil.which("kubectl")


@pytest.mark.skipif(KUBECTL is None, reason="no kubectl on PATH")
async def test_a_machine_with_a_master_can_be_drained(tmp_path: Path) -> None:
    made = master_pod(
        job(metadata={"namespace": "default"}), Node("master", 0), Provision("trainer")
    ).manifest
    made["spec"]["nodeName"] = "m1"
    async with devcluster_server(tmp_path) as served, Client(served.config()) as client:
        await client.create(NODE.untyped(), {"metadata": {"name": "m1"}})
        account = {"metadata": {"name": made["spec"]["serviceAccountName"]}}
        await client.create(SERVICE_ACCOUNT, account, "default")
        await client.create(POD.untyped(), made)
        kubectl = Kubectl(Path(str(KUBECTL)), served.kubeconfig)
        await kubectl("drain", "m1", "--grace-period=0", f"--timeout={PATIENCE:.0f}s")
        assert await client.find(POD, "digits-master-0", "default") is None
