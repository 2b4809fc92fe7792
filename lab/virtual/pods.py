"""What a kubelet says of a pod, on a server in a dict or any other."""

from __future__ import annotations

from datetime import datetime
from typing import Final
from zlib import crc32

from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD
from lab.virtual.server import Server

RUN: Final[Manifest] = {"image": "", "imageID": "", "restartCount": 0}
"""What each container's status has."""


def start(server: Server, pod: Manifest, machine: str) -> Manifest:
    """Return a pod that runs on a machine, with the resources that it asks for now."""
    spec = {**pod["spec"], "nodeName": machine}
    return server.change(POD, pod, spec=spec, status=running(pod, server.clock.now()))


def end(server: Server, pod: Manifest, code: int, reason: str = "Error", message: str = "") -> Manifest:
    """Return a pod whose container has exited, with a termination message."""
    return server.change(POD, pod, status=ended(pod, code, server.clock.now(), reason, message))


def running(pod: Manifest, now: datetime) -> Manifest:
    """Return the status of a pod that runs."""
    shown = {**RUN, "ready": True, "state": {"running": {"startedAt": timestamp(now)}}}
    address = f"10.64.0.{1 + crc32(pod['metadata']['uid'].encode()) % 254}"
    return {
        "phase": "Running",
        "podIP": address,
        "podIPs": [{"ip": address}],
        "containerStatuses": [
            {**shown, **{name: each[name] for name in ("name", "resources") if name in each}}
            for each in pod["spec"]["containers"]
        ],
        "conditions": [{"type": "Ready", "status": "True"}],
    }


def ended(pod: Manifest, code: int, now: datetime, reason: str = "Error", message: str = "") -> Manifest:
    """Return the status of a pod whose container has exited."""
    exited = {"exitCode": code, "reason": reason, "finishedAt": timestamp(now), "startedAt": timestamp(now)}
    exited |= {"message": message} if message else {}
    before = pod["status"].get("containerStatuses", [{**RUN, "name": pod["spec"]["containers"][0]["name"]}])
    states = [{**each, "ready": False, "state": {"terminated": exited}} for each in before]
    kept = {name: pod["status"][name] for name in ("podIP", "podIPs") if name in pod["status"]}
    return {**kept, "phase": "Failed" if code else "Succeeded", "containerStatuses": states}
