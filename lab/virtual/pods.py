"""What a kubelet says of a pod, on a server in a dict."""

from __future__ import annotations

from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD
from lab.virtual.server import Server


def start(server: Server, pod: Manifest, machine: str) -> Manifest:
    """Return a pod that runs on a machine, with the resources that it asks for now."""
    state = {"running": {"startedAt": timestamp(server.clock.now())}}
    shown = {"ready": True, "state": state}
    status = {
        "phase": "Running",
        "containerStatuses": [
            {**{name: each[name] for name in ("name", "resources") if name in each}, **shown}
            for each in pod["spec"]["containers"]
        ],
        "conditions": [{"type": "Ready", "status": "True"}],
    }
    return server.change(POD, pod, spec={**pod["spec"], "nodeName": machine}, status=status)


def end(server: Server, pod: Manifest, code: int, reason: str = "Error", message: str = "") -> Manifest:
    """Return a pod whose container has exited, with a termination message."""
    now = timestamp(server.clock.now())
    ended = {"exitCode": code, "reason": reason, "finishedAt": now, "startedAt": now}
    ended |= {"message": message} if message else {}
    before = pod["status"].get("containerStatuses", [{"name": "main"}])
    states = [{**each, "ready": False, "state": {"terminated": ended}} for each in before]
    status = {"phase": "Failed" if code else "Succeeded", "containerStatuses": states}
    return server.change(POD, pod, status=status)
