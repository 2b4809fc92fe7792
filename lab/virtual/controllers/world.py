"""A simulated cluster in a dict: scripted pods, delayed reads by the controller, virtual time."""

from __future__ import annotations

from copy import deepcopy
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any

from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule
from msgspec.structs import replace as replaced

from elasticjob.api.readings import indexes
from elasticjob.api.v1alpha1.elasticjob import ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.controllers.jobresource.decide import (
    KEPT_LIVES,
    Seen,
    decide,
    make_no_pods_for_a_job_that_ends,
)
from elasticjob.controllers.jobresource.status import describe
from elasticjob.controllers.nodes.relaunch import Node, Standing, life_of
from elasticjob.controllers.passes.plan import Apply, Create, Delete, Plan, Resize
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import POD
from lab.build.jobs import NOW, at

MACHINES = ("m1", "m2")


@dataclass(frozen=True)
class Moment:
    """Everything at one resourceVersion."""

    resource: JobResource
    pods: dict[str, Manifest]
    machines: tuple[str, ...]


@dataclass
class World:
    """Pods by name, the JobResource, and every state they ever had."""

    job: ElasticJob
    resource: JobResource
    now: datetime = NOW
    pods: dict[str, Manifest] = field(default_factory=dict)
    machines: tuple[str, ...] = MACHINES
    history: list[Moment] = field(default_factory=list)
    cursor: int = 0  # the state the controller has read
    wrote: int = 0  # the state it must have read before its next pass
    writes: int = 0
    born: int = 0
    failures: dict[int, int] = field(default_factory=dict)  # restarts that count, by index

    def __post_init__(self) -> None:
        self._record()

    # events of pods

    def names(self, *, running: bool | None = None, terminating: bool | None = None) -> list[str]:
        """Pods that live, by name."""
        return [
            name
            for name, pod in sorted(self.pods.items())
            if not _over(pod)
            and (running is None or running == (pod["status"]["phase"] == "Running"))
            and (terminating is None or terminating == ("deletionTimestamp" in pod["metadata"]))
        ]

    def leaving(self) -> list[str]:
        """Pods on their way out, ended or not."""
        return sorted(name for name, pod in self.pods.items() if "deletionTimestamp" in pod["metadata"])

    def start(self, name: str, machine: str) -> None:
        pod = self._changed(name)
        pod["spec"]["nodeName"] = machine
        state = {"name": "main", "ready": True, "state": {"running": {"startedAt": at(self.now)}}}
        pod["status"] = {
            "phase": "Running",
            "containerStatuses": [state],
            "conditions": [{"type": "Ready", "status": "True"}],
        }
        self._record()

    def end(self, name: str, code: int, reason: str = "Error") -> None:
        """The training container exits; counted restarts are counted here too, to check the controller."""
        pod = self._changed(name)
        ended = {"exitCode": code, "reason": reason, "finishedAt": at(self.now), "startedAt": at(self.now)}
        pod["status"] = {
            "phase": "Succeeded" if code == 0 else "Failed",
            "containerStatuses": [{"name": "main", "state": {"terminated": ended}}],
        }
        counts = code not in (0, 75, 137, 143) or reason == "OOMKilled"
        if counts and "deletionTimestamp" not in pod["metadata"]:
            self.failures[_index(pod)] = self.failures.get(_index(pod), 0) + 1
        self._record()

    def delete(self, name: str) -> None:
        """A user deletes a pod: it terminates until it is reaped."""
        pod = self._changed(name)
        if _over(pod):
            del self.pods[name]
        else:
            pod["metadata"]["deletionTimestamp"] = at(self.now)
        self._record()

    def reap(self, name: str) -> None:
        del self.pods[name]
        self._record()

    def lose(self, machine: str) -> None:
        """A machine leaves the cluster: its pods are dead, whatever their status is."""
        self.machines = tuple(m for m in self.machines if m != machine)
        self._record()

    def find_machine(self, machine: str) -> None:
        self.machines = tuple(sorted({*self.machines, machine}))
        self._record()

    def scale(self, count: int, *, suspend: bool = False) -> None:
        metadata = replaced(self.resource.metadata, generation=self.resource.metadata.generation + 1)
        spec = self.resource.spec.model_copy(
            update={
                "suspend": suspend,
                "replica_resource_specs": {
                    "worker": self.resource.spec.replica_resource_specs["worker"].model_copy(
                        update={"replicas": count}
                    )
                },
            }
        )
        self.resource = self.resource.model_copy(update={"metadata": metadata, "spec": spec})
        self._record()

    def wait(self, seconds: int) -> None:
        self.now += timedelta(seconds=seconds)

    # the controller

    def observe(self) -> Seen:
        moment = self.history[self.cursor]
        found = (life_of(POD.convert(pod), moment.machines) for pod in moment.pods.values())
        lives = tuple(life for life in found if life is not None)
        return Seen(moment.resource, self.job, lives, master="10.0.0.1:50001")

    def reconcile(self, *, behind: int = 0) -> Plan:
        """One pass on a view that is up to `behind` states late, but never older than its own writes."""
        seen, plan = self._decide(behind)
        for action in plan.actions:
            self._perform(action)
        self._write_status(seen, plan)
        return plan

    def crash(self, *, behind: int, after: int) -> None:
        """A reconcile pass whose process is killed after some of its writes."""
        _, plan = self._decide(behind)
        for action in plan.actions[:after]:
            self._perform(action)
        self.restart_operator()

    def _decide(self, behind: int) -> tuple[Seen, Plan]:
        self.cursor = max(self.cursor, self.wrote, len(self.history) - 1 - behind)
        seen = self.observe()
        return seen, decide(seen, self.now)

    def restart_operator(self) -> None:
        """A new process lists everything."""
        self.cursor = self.wrote = len(self.history) - 1

    def _perform(self, action: Any) -> None:
        self.writes += 1
        match action:
            case Create(_, manifest):
                if manifest["metadata"]["name"] not in self.pods:
                    self._bear(manifest)
            case Delete(_, name, uid, grace):
                if name in self.pods and self.pods[name]["metadata"]["uid"] == uid:
                    if grace == 0:
                        self.reap(name)
                    elif "deletionTimestamp" not in self.pods[name]["metadata"]:
                        self.delete(name)
                    self.wrote = len(self.history) - 1
            case Apply(_, manifest):
                self._store(manifest["status"])
            case Resize():
                raise AssertionError("nothing asked for other resources")

    def _bear(self, manifest: Manifest) -> None:
        self.born += 1
        pod = deepcopy(manifest)
        pod["metadata"] |= {"uid": f"uid-{self.born}", "creationTimestamp": at(self.now)}
        pod["status"] = {"phase": "Pending"}
        self.pods[pod["metadata"]["name"]] = pod
        self._record()
        self.wrote = len(self.history) - 1

    def _write_status(self, seen: Seen, plan: Plan) -> None:
        status = describe(seen, plan, self.now).manifest()
        if status == seen.resource.status.manifest():
            return
        self.writes += 1
        self._store(status)

    def _store(self, status: Manifest) -> None:
        stored = {"metadata": {}, "spec": self.resource.spec.manifest(), "status": status}
        self.resource = self.resource.model_copy(update={"status": JOBRESOURCE.convert(stored).status})
        self._record()
        self.wrote = len(self.history) - 1

    # invariants

    def living(self, index: int) -> list[str]:
        """Pods of a place whose program runs or may run, on a machine that is there."""
        return [name for name, pod in self.pods.items() if self._lives(pod) and _index(pod) == index]

    def check(self) -> None:
        """Never two live pods of one place, nor one of a place that has done its work."""
        doubled = {index: names for index in range(10) if len(names := self.living(index)) > 1}
        assert not doubled, f"two lives of one place: {doubled}"
        done = indexes(self.resource.status.completed_indexes.get("worker", ""), 10)
        again = {index: names for index in done if (names := self.living(index))}
        assert not again, f"they run a second time: {again}"

    def check_settled(self) -> None:
        """Exactly the expected pods run, and finished ones are cleaned up except for the kept few.

        A job that ends is left as it is.
        """
        if make_no_pods_for_a_job_that_ends(self.observe(), self.now):
            return
        size = (
            0 if self.resource.spec.suspend else self.resource.spec.replica_resource_specs["worker"].replicas
        )
        seen = self.observe()
        for index in range(10):
            node = seen.nodes.get(("worker", index), Node("worker", index))
            ended = node.standing(seen.policy("worker"), self.now) in (Standing.DONE, Standing.SPENT)
            wanted = index < (size or 0) and not ended
            assert len(self.living(index)) == wanted, f"{index}: {self.living(index)}"
        lost = [name for name, pod in self.pods.items() if not self._is_there(pod) and not _over(pod)]
        assert not lost, f"left on lost machines: {lost}"
        assert all(sum(map(_over, self._of(index))) <= KEPT_LIVES for index in range(size or 0))

    def _changed(self, name: str) -> Manifest:
        """A pod to change; the states that were recorded keep the old one."""
        self.pods[name] = deepcopy(self.pods[name])
        return self.pods[name]

    def _lives(self, pod: Manifest) -> bool:
        return not _over(pod) and self._is_there(pod)

    def _is_there(self, pod: Manifest) -> bool:
        return pod["spec"].get("nodeName", self.machines[0]) in self.machines

    def _of(self, index: int) -> list[Manifest]:
        return [pod for pod in self.pods.values() if _index(pod) == index]

    def _record(self) -> None:
        self.history.append(Moment(self.resource, dict(self.pods), self.machines))


class Living(RuleBasedStateMachine):
    """Pods of a world that come and go, and passes over them that read late or die."""

    world: World

    @rule(behind=st.integers(0, 4))
    def reconcile(self, behind: int) -> None:
        self.world.reconcile(behind=behind)

    @rule(behind=st.integers(0, 4), after=st.integers(0, 3))
    def crash(self, behind: int, after: int) -> None:
        self.world.crash(behind=behind, after=after)

    @precondition(lambda self: self.world.pods)
    @rule(data=st.data())
    def delete(self, data: Any) -> None:
        self.world.delete(data.draw(st.sampled_from(sorted(self.world.pods))))

    @precondition(lambda self: self.world.leaving())
    @rule(data=st.data())
    def reap(self, data: Any) -> None:
        self.world.reap(data.draw(st.sampled_from(self.world.leaving())))

    @invariant()
    def one_life_at_a_time(self) -> None:
        self.world.check()

    def start_all(self) -> None:
        for name in self.world.names(running=False, terminating=False):
            self.world.start(name, self.world.machines[0])

    def look(self) -> Plan:
        """The passes of one moment, when nobody disturbs them."""
        return self.world.reconcile()

    def state(self) -> Any:
        """The state of the cluster, by which a machine at rest is told: pods made and deleted so far."""
        return len(self.world.history)

    def settle(self) -> None:
        """Leave it alone: what leaves goes, what is made starts, until nothing changes."""
        for _ in range(200):
            before = self.state()
            again = self.look().again_in
            self.world.check()
            for name in self.world.leaving():
                self.world.reap(name)
            self.start_all()
            if again:
                self.world.now += again
            elif self.state() == before:
                return
        raise AssertionError("it never comes to rest")


def _index(pod: Manifest) -> int:
    return int(pod["metadata"]["labels"]["elasticjob.dlrover/replica-index"])


def _over(pod: Manifest) -> bool:
    return pod["status"]["phase"] in ("Succeeded", "Failed")
