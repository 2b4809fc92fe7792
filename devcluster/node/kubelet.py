"""The kubelet: brings the processes of this machine in line with the pods bound to its nodes.

For each pod: observe (the pod from the cache, the record of its processes) → `decide` → perform, until
nothing is left to do; then write the status if it changed. Ends of processes, results of probes and timers
wake the pod's next pass. Several virtual nodes share one kubelet.

Containers run as the present user with the whole machine in view: securityContext, cpu limits and read-only
mounts have no effect. A memory limit has: see `supervisor.py`. ConfigMaps and Secrets are
written to their volumes when a container starts, and not again. Ports are the machine's: see `proxy.py`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import signal
import uuid
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Any, Protocol

import msgspec

from elasticjob.devcluster.node.addresses import Addresses
from elasticjob.devcluster.node.container import checks, logs
from elasticjob.devcluster.node.container.environment import Unready
from elasticjob.devcluster.node.container.maker import Maker, Run, Startable, memory_limit
from elasticjob.devcluster.node.container.mounts import rewrite_all
from elasticjob.devcluster.node.container.place import Place
from elasticjob.devcluster.node.container.processes import CannotStart, End, Nursery, Process
from elasticjob.devcluster.node.images import Image, find
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
from elasticjob.devcluster.node.pod.record import (
    Check,
    PodRecord,
    Refusal,
    admit,
    every_container,
    failed_to_start,
    on_end,
    on_probe,
    on_refusal,
    on_start,
)
from elasticjob.devcluster.node.pod.status import status
from elasticjob.kube.cache.cache import Cache
from elasticjob.kube.client.client import Client
from elasticjob.kube.client.recorder import reference
from elasticjob.kube.clock import Clock
from elasticjob.kube.controller.controller import Result
from elasticjob.kube.errors import Invalid, NotFound
from elasticjob.kube.objects.kinds import Key, Manifest
from elasticjob.kube.objects.views import POD, Container, EventType, ObjectReference, Pod

log = logging.getLogger(__name__)

RETRY_UNREADY = timedelta(seconds=1)
RETRY_RESIZE = timedelta(seconds=5)
LONGEST_MESSAGE = 4096
POST_START_SECONDS = 60.0


class Recorder(Protocol):
    """Where events go."""

    def event(self, regarding: ObjectReference, type_: EventType, reason: str, note: str) -> None: ...


@dataclass(frozen=True)
class Machine:
    """The kubelet's dependencies."""

    client: Client
    pods: Cache[Pod]
    nursery: Nursery
    maker: Maker
    place: Place
    recorder: Recorder
    clock: Clock
    addresses: Addresses
    host: str = "127.0.0.1"


@dataclass
class PodSlot:
    """A pod that this kubelet has taken on."""

    pod: Pod
    record: PodRecord
    processes: dict[str, Process] = field(default_factory=dict)
    made: dict[str, Startable] = field(default_factory=dict)
    published: Manifest | None = None

    @property
    def key(self) -> Key:
        return Key(self.pod.metadata.namespace, self.pod.metadata.name)

    def container(self, name: str) -> Container:
        return next(container for container in every_container(self.pod) if container.name == name)


class Kubelet:
    """Runs the pods of the nodes in `rules`. `reconcile` is its controller's; `run` keeps what it starts
    beside it.
    """

    def __init__(self, machine: Machine, rules: Mapping[str, Rules]) -> None:
        self._at = machine
        self._rules = rules
        self._held: dict[Key, PodSlot] = {}
        self._wake: Callable[[Key], None] = lambda key: None
        self._tasks: set[asyncio.Task[None]] = set()

    def woken_by(self, wake: Callable[[Key], None]) -> None:
        """`wake(key)` has the controller run the key again."""
        self._wake = wake

    async def run(self) -> None:
        """Until cancelled; then ends the probes and hooks in flight."""
        try:
            await asyncio.Event().wait()
        finally:
            for task in self._tasks:
                task.cancel()
            await asyncio.gather(*self._tasks, return_exceptions=True)

    async def reconcile(self, key: Key) -> Result:
        """Bring the processes of one pod in line with it."""
        pod = self._at.pods.get(key)
        held = self._held.get(key)
        if held is not None and (pod is None or pod.metadata.uid != held.pod.metadata.uid):
            await self._let_go(held)
            held = None
        if pod is None or pod.spec.node_name not in self._rules:
            return Result.done()
        if held is None:
            held = self._held[key] = self._take(pod)
        held.pod = pod
        step = await self._settle(held)
        await self._publish(held)
        if Remove() in step.actions:
            await self._at.client.delete(POD, key.name, key.namespace, uid=pod.metadata.uid, grace=0)
        return Result.again(None if step.again is None else step.again - self._now())

    def find(self, key: Key) -> tuple[Pod, PodRecord] | None:
        """The pod as this kubelet knows it."""
        held = self._held.get(key)
        return None if held is None else (held.pod, held.record)

    # taking on, letting go

    def _take(self, pod: Pod) -> PodSlot:
        ip = self._at.host if pod.spec.host_network else self._at.addresses.take()
        return PodSlot(pod, admit(pod, ip, self._now()))

    async def _let_go(self, held: PodSlot) -> None:
        """The object is gone: so is everything that belonged to it."""
        for process in held.processes.values():
            process.kill()
        if held.processes:  # waited for without being cancelled with us
            await asyncio.wait([process.gone for process in held.processes.values()])
        await asyncio.to_thread(self._at.maker.forget, held.pod)
        self._at.addresses.give_back(held.record.ip)
        del self._held[held.key]

    # deciding and doing

    async def _settle(self, held: PodSlot) -> Step:
        """Decide and perform until no action is due now; returns the last step."""
        while True:
            step = decide(held.pod, held.record, self._now(), self._rules[held.pod.spec.node_name])
            held.record = step.record
            for action in step.actions:
                await self._perform(held, action)
            starts = [action for action in step.actions if isinstance(action, Start)]
            done = await asyncio.gather(
                *(self._start(held, held.container(start.container)) for start in starts),
                return_exceptions=True,  # none goes on by itself while the pod is tried again
            )
            for error in filter(None, done):
                raise error
            if not starts:
                return step

    async def _perform(self, held: PodSlot, action: Action) -> None:
        match action:
            case Tell(type_, reason, note):
                self._tell(held, type_, reason, note)
            case Stop(name):
                self._stop(held, held.container(name))
            case Kill(name):
                held.processes[name].kill()
            case Probe(name, run, check):
                self._beside(self._probe(held, held.container(name), run, check))
            case Resize(name):
                await self._resize(held, held.container(name))
            case Start() | Remove():  # by `_settle`, all at once; by `reconcile`, after the last status
                pass

    def _beside(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._aside_ended)

    def _aside_ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            log.error("a probe or hook broke", exc_info=error)

    # starting

    async def _start(self, held: PodSlot, container: Container) -> None:
        name, run = container.name, f"devcluster://{uuid.uuid4().hex}"
        try:
            made = await self._at.maker.make(self._wants(held, container))
            process = await self._at.nursery.start(made.order)
        except Unready as unready:
            self._put_off(held, name, unready)
        except CannotStart as error:
            why = f"failed to start container {name!r}: {error}"
            held.record = failed_to_start(held.record, name, run, why, self._now())
            self._tell(held, "Warning", "Failed", f"Error: {why}")
        else:
            held.processes[name], held.made[name] = process, made
            self._started(held, container, run)
        finally:
            if held.record[name].starting:  # the API server failed us: the controller tries again
                held.record = held.record.change(name, starting=False)

    def _wants(self, held: PodSlot, container: Container) -> Run:
        own, rules = held.record[container.name], self._rules[held.pod.spec.node_name]
        image = find(container.image, rules.images) or Image()
        number = own.restarts + (own.run is not None)
        return Run(held.pod, container, image, number, held.record.ip, rules.capacity)

    def _put_off(self, held: PodSlot, name: str, unready: Unready) -> None:
        now, known = self._now(), held.record[name].refusal
        if known is None or known.message != str(unready):
            mounting = unready.reason == "ContainerCreating"
            self._tell(
                held,
                "Warning",
                "FailedMount" if mounting else "Failed",
                str(unready) if mounting else f"Error: {unready}",
            )
        held.record = on_refusal(held.record, name, unready.reason, str(unready), now, now + RETRY_UNREADY)

    def _started(self, held: PodSlot, container: Container, run: str) -> None:
        name = container.name
        held.record = on_start(held.record, name, run, self._now())
        held.processes[name].ended.add_done_callback(
            lambda end: self._ended(held, container, run, end.result())
        )
        image = f'Container image "{container.image}" already present on machine'
        self._tell(held, "Normal", "Pulled", image)
        self._tell(held, "Normal", "Created", f"Created container: {name}")
        self._tell(held, "Normal", "Started", f"Started container {name}")
        if (hook := (container.lifecycle or {}).get("postStart")) is not None:
            self._beside(self._post_start(held, container, hook))

    # ending

    def _stop(self, held: PodSlot, container: Container) -> None:
        """SIGTERM, after the preStop hook if there is one. `decide` sees to the deadline."""
        process, stopping = held.processes[container.name], held.record[container.name].stopping
        hook = (container.lifecycle or {}).get("preStop")
        if hook is None or stopping is None:
            process.signal(signal.SIGTERM)
        else:
            seconds = max((stopping.deadline - self._now()).total_seconds(), 0.1)
            self._beside(self._pre_stop(held, container, hook, seconds))

    def _ended(self, held: PodSlot, container: Container, run: str, end: End) -> None:
        """Called in the event loop when all processes of the container are gone."""
        reason = "OOMKilled" if end.oom else "Completed" if end.code == 0 else "Error"
        message = self._last_words(held, container, end)
        held.record = on_end(held.record, container.name, run, end.code, reason, message, self._now())
        self._wake(held.key)

    def _last_words(self, held: PodSlot, container: Container, end: End) -> str:
        """The termination message."""
        with contextlib.suppress(FileNotFoundError):
            written = self._at.place.last_words(held.pod, container.name).read_bytes()[:LONGEST_MESSAGE]
            fall_back = container.termination_message_policy == "FallbackToLogsOnError" and end.code != 0
            if written or not fall_back:
                return written.decode("utf-8", "replace")
            restarts = held.record[container.name].restarts
            return logs.last_words(logs.end_of(self._at.place.log(held.pod, container.name, restarts)))
        return ""

    # hooks and probes

    async def _post_start(self, held: PodSlot, container: Container, hook: Manifest) -> None:
        problem = await self._hook(held, container, hook, POST_START_SECONDS)
        if problem:
            self._tell(held, "Warning", "FailedPostStartHook", f"PostStartHook failed: {problem}")
            held.processes[container.name].kill()

    async def _pre_stop(self, held: PodSlot, container: Container, hook: Manifest, seconds: float) -> None:
        process = held.processes[container.name]
        problem = await self._hook(held, container, hook, seconds)
        if problem:
            self._tell(held, "Warning", "FailedPreStopHook", f"PreStopHook failed: {problem}")
        process.signal(signal.SIGTERM)

    async def _hook(self, held: PodSlot, container: Container, hook: Manifest, seconds: float) -> str:
        if (pause := hook.get("sleep")) is not None:
            await self._at.clock.sleep(min(float(pause.get("seconds", 0)), seconds))
            return ""
        return await checks.ask(hook, self._target(held, container), seconds)

    async def _probe(self, held: PodSlot, container: Container, run: str, check: Check) -> None:
        probe = probe_of(container, check)
        if probe is None:  # the spec dropped the probe after it was started
            return
        problem = await checks.ask(probe.handler, self._target(held, container), probe.timeout_seconds)
        if problem:
            self._tell(held, "Warning", "Unhealthy", f"{check.capitalize()} probe failed: {problem}")
        now = self._now()
        held.record = on_probe(
            held.record, container.name, run, check, lambda known: judge(probe, known, not problem, now)
        )
        self._wake(held.key)

    def _target(self, held: PodSlot, container: Container) -> checks.Target:
        async def execute(command: list[str], seconds: float) -> tuple[int, str]:
            return await self._execute(held, container, command, seconds)

        return checks.Target(container, held.record.ip, execute)

    async def _execute(
        self, held: PodSlot, container: Container, command: list[str], seconds: float
    ) -> tuple[int, str]:
        """Run a command with the container's environment and folder, and end it in time."""
        made = held.made[container.name]
        path = self._at.place.last_words(held.pod, container.name).with_name(f"exec-{uuid.uuid4().hex}.log")
        order = msgspec.structs.replace(
            made.order, argv=rewrite_all(command, made.mounts), log=str(path), memory=0
        )
        try:
            process = await self._at.nursery.start(order)
        except CannotStart as error:
            return 128, str(error)
        try:
            async with asyncio.timeout(seconds):
                end = await asyncio.shield(process.ended)
            return end.code, logs.last_words(logs.end_of(path))
        finally:
            process.close()
            path.unlink(missing_ok=True)

    # resizing and reporting

    async def _resize(self, held: PodSlot, container: Container) -> None:
        name, resources = container.name, container.resources
        if await held.processes[name].limit(memory_limit(resources.limits)):
            held.record = held.record.change(name, resources=resources, resize=None)
            return
        now = self._now()
        why = f"container {name!r} uses more memory than its new limit of {resources.limits.get('memory')}"
        self._tell(held, "Warning", "ResizeError", why)
        held.record = held.record.change(name, resize=Refusal("Error", why, now, now + RETRY_RESIZE))
        self._wake(held.key)

    async def _publish(self, held: PodSlot) -> None:
        """Write the status if it changed."""
        pod, rules = held.pod, self._rules[held.pod.spec.node_name]
        shown, held.record = status(pod, held.record, self._now(), rules, self._at.host)
        if shown == held.published:
            return
        patch = {"metadata": {"uid": pod.metadata.uid}, "status": shown}
        try:
            await self._at.client.merge_patch(
                POD, held.key.name, patch, held.key.namespace, subresource="status"
            )
        except NotFound:  # the cache will show it
            log.debug("the pod is gone", extra={"pod": str(held.key)})
        except Invalid as error:
            if not any(cause.get("field") == "metadata.uid" for cause in error.causes):
                raise
            log.debug("a namesake took the pod's place", extra={"pod": str(held.key)})
        held.published = shown

    def _tell(self, held: PodSlot, type_: EventType, reason: str, note: str) -> None:
        self._at.recorder.event(reference(POD, held.pod), type_, reason, note)

    def _now(self) -> datetime:
        return self._at.clock.now()
