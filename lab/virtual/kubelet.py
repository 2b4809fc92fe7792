"""A kubelet without processes: performs the decisions in virtual time; containers are scripted."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from elasticjob.devcluster.node.pod import record as events
from elasticjob.devcluster.node.pod.decide import (
    Action,
    Kill,
    Probe,
    Remove,
    Resize,
    Rules,
    Start,
    Step,
    Stop,
    Tell,
    decide,
)
from elasticjob.devcluster.node.pod.probes import judge, probe_of
from elasticjob.devcluster.node.pod.record import PodRecord, Refusal, admit, every_container
from elasticjob.devcluster.node.pod.status import status
from elasticjob.kube.objects.views import POD, Pod

START = datetime(2026, 1, 1, tzinfo=UTC)
SECOND = timedelta(seconds=1)


def pod(*containers: Mapping[str, Any], init: tuple[Mapping[str, Any], ...] = (), **spec: Any) -> Pod:
    """A pod of these containers (name and image are filled in)."""
    return POD.convert(
        {
            "metadata": {"name": "p", "namespace": "default", "uid": "u"},
            "spec": {
                "nodeName": "n",
                "containers": [named(each, f"c{i}") for i, each in enumerate(containers or ({},))],
                "initContainers": [named(each, f"i{i}") for i, each in enumerate(init)],
                **spec,
            },
        }
    )


def named(container: Mapping[str, Any], name: str) -> dict[str, Any]:
    return {"name": name, "image": "python:3.11", **container}


class VirtualKubelet:
    """One pod from its admission on. `said` are the reasons of its events, `done` all other actions."""

    def __init__(self, pod: Pod, rules: Rules | None = None) -> None:
        self.pod, self.rules = pod, rules or Rules()
        self.now = START
        self.record: PodRecord = admit(pod, "127.64.0.1", self.now)
        self.reasons: list[str] = []
        self.done: list[Action] = []
        self.runs = 0
        self.refuse_resize = ""
        self.probes: dict[tuple[str, str], bool] = {}
        self.removed = False
        self.settle()

    def settle(self) -> Step:
        """Decide and perform until no action is due now."""
        for _ in range(20):
            step = decide(self.pod, self.record, self.now, self.rules)
            self.record = step.record
            for action in step.actions:
                self.perform(action)
            if not [action for action in step.actions if not isinstance(action, Tell | Remove)]:
                return step
        raise AssertionError(f"no end of actions: {step.actions}")

    def perform(self, action: Action) -> None:
        if not isinstance(action, Tell):
            self.done.append(action)
        match action:
            case Tell(_, reason, _):
                self.reasons.append(reason)
            case Start(name):
                self.runs += 1
                self.record = events.on_start(self.record, name, f"run-{self.runs}", self.now)
            case Kill(name):
                self.exit(name, 137)
            case Resize(name):
                self.resize(name)
            case Probe(name, run, check):
                container = next(c for c in every_container(self.pod) if c.name == name)
                probe = probe_of(container, check)
                assert probe is not None
                passed = self.probes.get((name, check), False)
                self.record = events.on_probe(
                    self.record, name, run, check, lambda known: judge(probe, known, passed, self.now)
                )
            case Stop():
                pass
            case Remove():
                self.removed = True

    def resize(self, name: str) -> None:
        container = next(c for c in every_container(self.pod) if c.name == name)
        if self.refuse_resize:
            refusal = Refusal("Error", self.refuse_resize, self.now, self.now + 5 * SECOND)
            self.record = self.record.change(name, resize=refusal)
        else:
            self.record = self.record.change(name, resources=container.resources, resize=None)

    def exit(self, name: str, code: int, reason: str = "") -> None:
        """The container's process ends (without a decision yet)."""
        run = self.record[name].run
        assert run is not None
        how = reason or ("Completed" if code == 0 else "Error")
        self.record = events.on_end(self.record, name, run.id, code, how, "", self.now)

    def exits(self, name: str, code: int, reason: str = "") -> None:
        """The same, followed by the kubelet's reaction."""
        self.exit(name, code, reason)
        self.settle()

    def delete(self, grace: int = 30) -> None:
        """The user deletes the pod."""
        metadata = msgspec.structs.replace(
            self.pod.metadata, deletion_timestamp=self.now, deletion_grace_period_seconds=grace
        )
        self.pod = msgspec.structs.replace(self.pod, metadata=metadata)
        self.settle()

    def after(self, seconds: float) -> None:
        """Time passes; the kubelet wakes whenever it asked to."""
        end = self.now + timedelta(seconds=seconds)
        while True:
            step = self.settle()
            if step.again is None or step.again > end:
                break
            assert step.again > self.now, f"asks to be woken in the past: {step}"
            self.now = step.again
        self.now = end
        self.settle()

    def change(self, **fields: Any) -> None:
        """Change the spec of the first container."""
        first = msgspec.structs.replace(self.pod.spec.containers[0], **fields)
        spec = msgspec.structs.replace(self.pod.spec, containers=[first, *self.pod.spec.containers[1:]])
        self.pod = msgspec.structs.replace(self.pod, spec=spec)
        self.settle()

    @property
    def alive(self) -> list[str]:
        return [name for name, own in self.record.containers.items() if own.alive]

    @property
    def status(self) -> dict[str, Any]:
        shown, self.record = status(self.pod, self.record, self.now, self.rules, "127.0.0.1")
        return shown

    @property
    def phase(self) -> str:
        return str(self.status["phase"])

    def state(self, name: str) -> str:
        """`running`, `CrashLoopBackOff`, `terminated Error 1`: what kubectl shows of the container."""
        both = [*self.status["containerStatuses"], *self.status.get("initContainerStatuses", [])]
        found = next(each for each in both if each["name"] == name)["state"]
        if "terminated" in found:
            return f"terminated {found['terminated']['reason']} {found['terminated']['exitCode']}"
        return "running" if "running" in found else str(found["waiting"]["reason"])

    def has_started(self) -> bool:
        """Whether the first container has passed its startup probe."""
        return bool(self.status["containerStatuses"][0]["started"])

    def condition(self, type_: str) -> tuple[str, str]:
        found = next((c for c in self.status["conditions"] if c["type"] == type_), None)
        return ("", "") if found is None else (found["status"], found.get("reason", ""))


def restarted_at(kubelet: VirtualKubelet, now: datetime) -> VirtualKubelet:
    """The same pod as a new kubelet meets it, which knows only the status that was written."""
    written = msgspec.json.encode({**msgspec.to_builtins(kubelet.pod), "status": kubelet.status})
    fresh = VirtualKubelet.__new__(VirtualKubelet)
    fresh.__dict__.update(kubelet.__dict__)
    fresh.pod = POD.decode(written)
    fresh.now = now
    fresh.record = replace(admit(fresh.pod, "127.64.0.2", now))
    fresh.settle()
    return fresh
