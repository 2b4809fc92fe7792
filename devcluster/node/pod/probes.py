"""Probes: their settings, and how results change a verdict. `checks.py` performs them."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta

import msgspec

from elasticjob.devcluster.node.pod.record import Check, ProbeState
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import Container, View


class Probe(View, frozen=True):
    """A probe as in the manifest; one of the handlers is set."""

    http_get: Manifest | None = None
    tcp_socket: Manifest | None = None
    exec: Manifest | None = None
    grpc: Manifest | None = None
    initial_delay_seconds: int = 0
    timeout_seconds: int = 1
    period_seconds: int = 10
    success_threshold: int = 1
    failure_threshold: int = 3
    termination_grace_period_seconds: int | None = None

    @property
    def handler(self) -> Manifest:
        """The handler under its name, as hooks have it too."""
        given = {"httpGet": self.http_get, "tcpSocket": self.tcp_socket, "exec": self.exec, "grpc": self.grpc}
        return {name: how for name, how in given.items() if how is not None}


def probe_of(container: Container, check: Check) -> Probe | None:
    """The container's probe of that kind."""
    manifest: Manifest | None = {
        Check.STARTUP: container.startup_probe,
        Check.READINESS: container.readiness_probe,
        Check.LIVENESS: container.liveness_probe,
    }[check]
    return None if manifest is None else msgspec.convert(manifest, Probe, strict=False)


def first(probe: Probe, since: datetime) -> ProbeState:
    """A probe before its first result, of something that runs since then."""
    return ProbeState(due=since + timedelta(seconds=probe.initial_delay_seconds))


def judge(probe: Probe, known: ProbeState, passed: bool, now: datetime) -> ProbeState:
    """The verdict after one more result; it changes after as many equal results as the threshold."""
    streak = max(known.streak, 0) + 1 if passed else min(known.streak, 0) - 1
    verdict = known.passed
    if streak >= probe.success_threshold:
        verdict = True
    elif -streak >= probe.failure_threshold:
        verdict = False
    return replace(
        known, due=now + timedelta(seconds=probe.period_seconds), passed=verdict, streak=streak, busy=False
    )
