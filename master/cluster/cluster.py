"""The master's Kubernetes client: it watches its ElasticJob and pods, and writes two objects.

It writes `status.training` of its ElasticJob: a new round, the first step and the end at once, mere progress
about every 10 s. It writes ScalePlans: at the start for roles without `replicas`, later as the optimizer
says. All decisions are pure functions; only `Cluster` does I/O.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Iterable, Mapping
from datetime import datetime, timedelta
from typing import Any

from elasticjob.api.roles import MASTER, MASTER_ALIAS
from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_RELAUNCH, LABEL_ROLE
from elasticjob.api.v1alpha1.containers import main_container, main_end
from elasticjob.api.v1alpha1.elasticjob import (
    ELASTICJOB,
    FINISHED,
    ElasticJob,
    ExitCodeOperator,
    FailureRule,
    NodeCheck,
)
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.api.v1alpha1.sizing import facts_of
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.cache.store import Change
from elasticjob.kube.client.client import Client
from elasticjob.kube.controller.passes import Passes
from elasticjob.kube.errors import KubeError, Unauthorized
from elasticjob.kube.objects.conditions import timestamp
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import POD, Pod
from elasticjob.kube.operator.operator import Operator
from elasticjob.master.cluster.autoscaler import Autoscaler
from elasticjob.master.cluster.brain import Brain, BrainOptimizer, Reporter, WithStandIn
from elasticjob.master.durable.store import MANAGER
from elasticjob.master.handlers import check as checks
from elasticjob.master.handlers import nodes
from elasticjob.master.handlers.incarnations import JUMP
from elasticjob.master.progress import goodput, progress
from elasticjob.master.rendezvous import servers
from elasticjob.master.rendezvous.topology import spot_of
from elasticjob.master.scalers.pods import Pods, Rules
from elasticjob.master.scalers.scaleplan import ScalePlanScaler
from elasticjob.master.scaling.local import LocalOptimizer
from elasticjob.master.scaling.observed import placed_of
from elasticjob.master.scaling.optimizer import Optimizer
from elasticjob.master.serving.core import Core
from elasticjob.master.state.condition import Finding
from elasticjob.master.state.job import Job, Limits, Rule, Spec
from elasticjob.master.state.node import Phase
from elasticjob.master.state.scaling import Target
from elasticjob.master.state.training import Training
from elasticjob.sizing.table import all_algorithms

log = logging.getLogger("elasticjob.master")

FORESEEABLE = timedelta(days=3650)
PLAIN_JOB = ELASTICJOB.untyped()
RELEASED = 64
"""Pods of parameter servers that are named as released at once."""


def spec_of(job: ElasticJob, limits: Limits) -> Spec:
    """Return the roles that train together and the bounds of the world size, from an ElasticJob."""
    given, roles, bounds = job.spec.roles, job.spec.training_roles, job.spec.world
    wanted = sum(given[role].initial for role in roles)
    restarts = max((given[role].restart_count for role in roles), default=0)
    forgive = job.spec.run_policy.forgive_restarts_after_seconds
    return Spec(
        job=job.metadata.name,
        bounds=bounds,
        limits=limits,
        replicas=max(wanted, bounds.smallest),
        restart_count=restarts,
        suspended=job.spec.suspend,
        forgive=timedelta(seconds=forgive) if forgive else None,
        roles=roles,
        spares=sum(given[role].spares for role in roles),
        exclude_stragglers=job.spec.node_check is NodeCheck.STRAGGLERS,
        sizes=facts_of(job),
        leader=leader_of(job),
        rules=tuple(map(_rule, job.spec.run_policy.failure_policy.rules)),
    )


def after_told(job: Job, declared: ElasticJob) -> Job:
    """Return the job in no earlier round than its status, which may be written before the snapshot is."""
    training = declared.status.training
    told = (training.round if training else None) or 0
    return job.but(round=told) if job.round < told <= job.round + JUMP else job


def leader_of(job: ElasticJob) -> str:
    """Return the node whose success is the job's, "" where all nodes must succeed."""
    return "-".join(map(str, (job.metadata.name, *job.spec.leader))) if job.spec.leader else ""


def _rule(rule: FailureRule) -> Rule:
    others = rule.on_exit_codes.operator is ExitCodeOperator.NOT_IN
    return Rule(rule.action.value, tuple(rule.on_exit_codes.values), others, tuple(rule.roles))


def pods_of(job: str, pods: Iterable[Pod]) -> list[nodes.Pod]:
    """Return the pods of training nodes; skips the master's pod and pods without an index label."""
    return [_pod(job, pod) for pod in pods if _is_node(pod.metadata.labels)]


def training_status(job: Job) -> Manifest:
    """Return `status.training`, a pure function of the job: equal jobs cause no write.

    Without nodes that train there is no speed, and no end in sight.
    """
    training, kept, world = (
        job.training,
        progress.checkpoints_of(job),
        None if job.spec.suspended else job.running,
    )
    latest = training.progress
    rate, ends = (progress.speed(training), _end(training)) if world else (None, None)
    share = latest.step / latest.total_steps if latest and latest.total_steps else None
    known = {
        "step": latest and latest.step,
        "checkpointStep": training.stored or None,
        "checkpointMemoryStep": None if kept.memory_alone else kept.in_memory or None,
        "lostSteps": training.lost or None,
        "epoch": latest and round(latest.epoch, 4),
        "progress": share if share is None else round(min(1.0, share), 4),
        "stepsPerSecond": rate and round(rate.steps, 3),
        "samplesPerSecond": rate and round(rate.samples, 3),
        "eta": _stamp(ends),
        "worldSize": world.size if world else 0,
        "round": job.round,
        "restarts": job.restarted or None,
        "goodput": _share(progress.shown_goodput(job)),
        "badputSeconds": _seconds(goodput.lost(job.account)) or None,
        "findings": [_finding(each) for each in job.health.findings] or None,
        "nodeCheck": checks.sentence(job) or None,
        "released": sorted(servers.releasable(job))[:RELEASED] or None,
    }
    return {name: value for name, value in known.items() if value is not None}


def is_urgent(old: Manifest, new: Manifest) -> bool:
    """Whether two values of `status.training` differ in more than progress."""
    return _turning_point(old) != _turning_point(new)


class Cluster:
    """Feeds a master with its job and pods, and writes the job's status: `await cluster.run()`.

    A machine without a kubelet goes on with its containers. The operator deletes their pods and makes another
    master: this one ends once its `pod` is gone, or its credentials, which are bound to that, are refused.
    """

    REFUSED = 60.0  # seconds; an API server without its database refuses them, too
    STATUS_EVERY = 1.0  # seconds
    LOOK_AGAIN = 10.0  # seconds at most, jitter apart, until a look that failed is taken again
    PROGRESS_AFTER = (8.0, 12.0)  # seconds; a random number between, so that masters do not write in step

    def __init__(
        self,
        client: Client,
        job: ElasticJob,
        master: Core,
        limits: Limits,
        pod: str = "",
        brain: Brain | None = None,
        rules: Rules | None = None,
    ) -> None:
        self._client, self._master, self._limits = client, master, limits
        self._key, self._uid = Key(job.metadata.namespace, job.metadata.name), job.metadata.uid
        self._own, self._own_uid = Key(job.metadata.namespace, pod), ""
        self._refused: float | None = None  # since when the credentials are refused
        self._written: Manifest = {}
        self._changed = asyncio.Event()
        name = job.metadata.name
        self._operator = Operator(
            client,
            job.metadata.namespace,
            name=MANAGER,
            probes=None,
            metrics=master.metrics,
            clock=master.clock,
            signals=False,
            one_of_many=True,
        )
        self._jobs = self._operator.cache(ELASTICJOB, fields=f"metadata.name={name}")
        self._pods = self._operator.cache(POD, labels=f"{LABEL_JOB}={name}")
        self._resources = self._operator.cache(JOBRESOURCE, fields=f"metadata.name={name}")
        self._plans = self._operator.cache(SCALEPLAN, labels=f"{LABEL_JOB}={name}")
        for cache in (self._jobs, self._pods, self._resources, self._plans):
            self._follow(cache)
        self._pods.subscribe(self._know_own)
        clock = master.clock
        self._maker = (
            Pods(client, job, rules, self._pods, clock, master.address, master.metrics) if rules else None
        )
        scaler = self._maker or ScalePlanScaler(client, job)
        self._autoscaler = Autoscaler(master, optimizer_of(job, brain), scaler)
        self._reporter = Reporter(brain, lambda: master.job, clock, master.metrics) if brain else None

    async def run(self) -> None:
        """Run until cancelled."""
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(self._operator.run())
            tasks.create_task(self._observe())
            tasks.create_task(self.report())
            tasks.create_task(self._scale())
            tasks.create_task(self._tell_brain())
            tasks.create_task(self._make_pods())

    async def report(self) -> None:
        """Write the status for ever: urgent changes within a second, progress every 10 s or so."""
        due, clock = 0.0, self._master.clock
        passes = Passes("status", clock, self._master.metrics, self._operator.recorder)
        while True:
            await clock.sleep(self.STATUS_EVERY)
            now = clock.monotonic()
            if passes.is_due(self._key.name):
                with passes.over(self._key.name):
                    await self.write_status(progress=now >= due)
            if now >= due:
                due = now + random.uniform(*self.PROGRESS_AFTER)

    async def write_status(self, *, progress: bool = True) -> None:
        """Write `status.training` if it has changed; retry later if the API server is unavailable.

        Without `progress`, only an urgent change is written.
        """
        status = training_status(self._master.job)
        if status == self._written or not (progress or is_urgent(self._written, status)):
            return
        manifest = {
            "apiVersion": ELASTICJOB.api_version,
            "kind": ELASTICJOB.name,
            "metadata": {"name": self._key.name, "namespace": self._key.namespace, "uid": self._uid},
            "status": {"training": status},
        }
        try:
            await self._client.apply(PLAIN_JOB, manifest, manager=MANAGER, subresource="status")
        except KubeError as error:
            log.warning("status of job %s is not written, again in a second: %s", self._key.name, error)
            self._end_when_refused(error)
            return
        self._written, self._refused = status, None

    async def write_last_status(self) -> None:
        """Write the status of a master that ends, as its job is now: suspended or over it trains no more."""
        try:
            found = await self._client.get(ELASTICJOB, self._key.name, self._key.namespace)
        except KubeError as error:
            log.warning("job %s cannot be read: %s", self._key.name, error)
        else:
            rests = found.spec.suspend or found.status.phase in FINISHED
            self._master.observe(lambda job, now: job.but(spec=job.spec.but(suspended=rests)))
        await self.write_status()

    def _end_when_refused(self, error: KubeError) -> None:
        """Retire the master whose credentials have been refused for long."""
        now = self._master.clock.monotonic()
        if not isinstance(error, Unauthorized):
            self._refused = None
        elif self._refused is None:
            self._refused = now
        elif now - self._refused >= self.REFUSED:
            self._master.retire(f"its credentials are refused, as those of a deleted pod: {error}")

    def _end_when_gone(self) -> None:
        """Retire the master whose pod was listed and is deleted; another may have its name since."""
        own = self._pods.get(self._own)
        if self._own_uid and (own is None or own.metadata.uid != self._own_uid):
            self._master.retire(f"its pod {self._own.name} is deleted: another master takes its place")

    def _know_own(self, change: Change) -> None:
        """Remember the uid of the own pod, however briefly it is there: looks are seldom under load."""
        for item in (change.old, change.new):
            if item is not None and item.key == self._own and not self._own_uid:
                self._own_uid = item.meta.uid

    def _follow(self, cache: Cache[Any]) -> None:
        cache.subscribe(lambda _: self._changed.set())

    async def _observe(self) -> None:
        """Pass the whole state to the master on every change, so that a missed event does no harm.

        While thousands of pods start, their changes are looked at together, in a fifth of the time. An error
        costs the look that met it, which is taken again after a pause.
        """
        await self._operator.wait_started()
        clock = self._master.clock
        passes = Passes("observations", clock, self._master.metrics, at_most=self.LOOK_AGAIN)
        looks = {
            "own pod": self._end_when_gone,
            "job": self._see_job,
            "sizes": self._see_sizes,
            "pods": self._see_pods,
        }
        while True:
            self._changed.clear()
            began = clock.monotonic()
            taken = 0
            for name, look in looks.items():
                if passes.is_due(name):
                    with passes.over(name):
                        look()
                        taken += 1
            await clock.sleep(4 * (clock.monotonic() - began))
            if taken == len(looks):
                await self._changed.wait()
            else:
                await clock.sleep(self.STATUS_EVERY)

    def _see_job(self) -> None:
        found = self._jobs.get(self._key)
        if found and found.metadata.uid == self._uid:
            if self._maker:
                self._maker.follow(found)
            spec = spec_of(found, self._limits)
            self._master.observe(lambda job, now: job.but(spec=spec))

    def _see_sizes(self) -> None:
        mark = self._master.job.spec.sizes.mark
        placed = placed_of(self._resources.get(self._key), self._plans.list(), self._key.name, mark)
        self._master.observe(lambda job, now: _placement(job, placed))

    def _see_pods(self) -> None:
        pods = pods_of(self._key.name, self._pods.list())
        if self._maker:
            self._maker.wake()
        self._master.observe(lambda job, now: nodes.observe(job, pods, now))

    async def _scale(self) -> None:
        """Learn and change the sizes of the job."""
        await self._operator.wait_started()
        await self._autoscaler.run()

    async def _make_pods(self) -> None:
        """Make the pods of a job that leaves them to its master."""
        if self._maker:
            await self._operator.wait_started()
            await self._maker.run(lambda: self._master.job.verdict is not None)

    async def _tell_brain(self) -> None:
        """Send statistics to Brain, if the job has one."""
        if self._reporter:
            await self._reporter.run()


def optimizer_of(job: ElasticJob, brain: Brain | None) -> Optimizer:
    """Return who decides about sizes: Brain while it answers, if the job has one."""
    if brain is None:
        return LocalOptimizer(all_algorithms())
    return WithStandIn(BrainOptimizer(brain), LocalOptimizer(all_algorithms()))


def _placement(job: Job, placed: Target) -> Job:
    return job if placed == job.scaling.placed else job.but(scaling=job.scaling.but(placed=placed))


MOST_DIGITS = 9
_NOT_NODES = (None, MASTER, MASTER_ALIAS)
_PHASES = {phase.value: phase for phase in Phase}


def _is_node(labels: Mapping[str, str]) -> bool:
    """Whether the labels name a training role and an index; labels are untrusted."""
    numbers = labels.get(LABEL_INDEX, "0"), labels.get(LABEL_RELAUNCH, "0")
    plain = all(each.isdecimal() and len(each) <= MOST_DIGITS for each in numbers)
    return labels.get(LABEL_ROLE) not in _NOT_NODES and plain


def _pod(job: str, pod: Pod) -> nodes.Pod:
    labels = pod.metadata.labels
    role, index = labels[LABEL_ROLE], int(labels.get(LABEL_INDEX, "0"))
    return nodes.Pod(
        name=pod.metadata.name,
        uid=pod.metadata.uid,
        node=f"{job}-{role}-{index}",
        role=role,
        index=index,
        phase=_phase(pod),
        leaving=pod.metadata.deletion_timestamp is not None,
        grace=pod.metadata.deletion_grace_period_seconds,
        relaunch=int(labels.get(LABEL_RELAUNCH, "0")),
        spot=spot_of(role, labels),
        resource=_resource(pod),
        created=pod.metadata.creation_timestamp,
        placed=bool(pod.spec.node_name),
    )


def _resource(pod: Pod) -> dict[str, str]:
    """Return what the training container of a pod is given."""
    main = main_container(pod)
    given = main.resources.requests | main.resources.limits if main else {}
    return {name: str(amount) for name, amount in given.items()}


def _phase(pod: Pod) -> Phase:
    """Return the phase of a node: its main container ends it, whatever runs beside."""
    if end := main_end(pod):
        return Phase.FAILED if end.exit_code else Phase.SUCCEEDED
    # Unknown: the kubelet is unreachable. The heartbeat of the agent tells whether the node still trains.
    return _PHASES.get(pod.status.phase, Phase.RUNNING if pod.status.phase else Phase.INITIAL)


def _end(training: Training) -> datetime | None:
    """Return the estimated time of the last step; None when unknown, or too far away to be meaningful."""
    left = progress.eta(training)
    if training.at is None or left is None or left > FORESEEABLE.total_seconds():
        return None
    return training.at + timedelta(seconds=left)


def _turning_point(status: Manifest) -> object:
    """The round, its size, what was found, which pods may go, and whether there is a first or a last step."""
    shown = status.get("round"), status.get("worldSize"), status.get("nodeCheck"), status.get("findings")
    return *shown, status.get("released"), "step" in status, status.get("progress") == 1.0


def _finding(finding: Finding) -> Manifest:
    known = {
        "time": _stamp(finding.at),
        "reason": finding.reason.value,
        "message": finding.message,
        "until": _stamp(finding.until),
        "count": finding.count if finding.count > 1 else None,
        "lastTime": _stamp(finding.last),
    }
    return {name: value for name, value in known.items() if value is not None}


def _stamp(at: datetime | None) -> str | None:
    return timestamp(at) if at else None


def _share(share: float | None) -> float | None:
    return None if share is None else round(share, 3)


def _seconds(lost: Mapping[str, float]) -> dict[str, int]:
    """Return whole seconds to two digits: a job that waits for days then seldom writes that it still does."""
    return {cause: int(float(f"{seconds:.2g}")) for cause, seconds in lost.items() if seconds >= 1}
