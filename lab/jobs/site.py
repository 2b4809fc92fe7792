"""A cluster with the operator in it, seen from one namespace."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any, TypeVar

from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, PlanPhase, ScalePlan
from elasticjob.controllers.main import compose
from elasticjob.controllers.settings import Settings
from elasticjob.kube.client.client import Client
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import EVENT, POD, SERVICE, Pod
from elasticjob.kube.operator.operator import Operator
from lab.clusters.accounts import Place, shipped_account
from lab.clusters.namespaces import new_namespace
from lab.clusters.rights import Noting
from lab.clusters.webhooks import heeded
from lab.running import running
from lab.waiting import PATIENCE, until

T = TypeVar("T")

KINDS: tuple[Any, ...] = (ELASTICJOB, JOBRESOURCE, SCALEPLAN, POD, SERVICE)


class Site:
    """A cluster with an operator at work, seen from one namespace."""

    def __init__(self, client: Client, operator: Operator, namespace: str) -> None:
        self.client = client
        self.operator = operator
        self.namespace = namespace

    async def apply(self, spec: Manifest, name: str = "digits", metadata: Manifest | None = None) -> None:
        """What `kubectl apply --server-side` does with an ElasticJob."""
        await self.client.apply(ELASTICJOB, self._manifest(spec, name, metadata), manager="kubectl")

    async def create(self, spec: Manifest, name: str = "digits") -> None:
        """What the first `kubectl apply` does."""
        await self.client.create(ELASTICJOB.untyped(), self._manifest(spec, name, None))

    def _manifest(self, spec: Manifest, name: str, metadata: Manifest | None) -> Manifest:
        return {
            "apiVersion": ELASTICJOB.api_version,
            "kind": "ElasticJob",
            "metadata": {"name": name, "namespace": self.namespace, **(metadata or {})},
            "spec": spec,
        }

    async def patch(self, spec: Manifest, name: str = "digits") -> None:
        await self.client.merge_patch(ELASTICJOB, name, {"spec": spec}, self.namespace)

    async def scale(self, replicas: int, name: str = "digits") -> None:
        """What `kubectl scale` does."""
        patch = {"spec": {"replicas": replicas}}
        await self.client.merge_patch(ELASTICJOB.untyped(), name, patch, self.namespace, subresource="scale")

    async def plan(self, name: str, end: PlanPhase = PlanPhase.SUCCEEDED, **changes: Any) -> None:
        """Do what a user does with a plan of their own for `digits`, and wait until it has ended so."""
        spec = {"ownerJob": "digits", "manualScaling": True, **changes}
        await self.client.create(
            SCALEPLAN.untyped(), {"metadata": {"name": name}, "spec": spec}, self.namespace
        )
        await self.until(lambda: (phase := self.plans()[name].status.phase) and phase.is_terminal)
        ended = self.plans()[name].status
        assert ended.phase is end, ended

    async def scale_of_nodes(self, replicas: int | None = None) -> tuple[int, int, str]:
        """What an autoscaler reads of the JobResource, after asking for `replicas` if they are given."""
        patch = {} if replicas is None else {"spec": {"replicas": replicas}}
        found = await self.client.merge_patch(
            JOBRESOURCE.untyped(), "digits", patch, self.namespace, subresource="scale"
        )
        return found["spec"]["replicas"], found["status"]["replicas"], found["status"]["selector"]

    def job(self, name: str = "digits") -> ElasticJob:
        """The job as the operator's cache has it."""
        found = self.operator.cache(ELASTICJOB).get(Key(self.namespace, name))
        assert found is not None, f"job {name} is not there"
        return found

    def pods(self) -> dict[str, Pod]:
        return {pod.metadata.name: pod for pod in self.operator.cache(POD).list(self.namespace)}

    def services(self) -> dict[str, bool]:
        """Whether each Service selects pods."""
        found = self.operator.cache(SERVICE).list(self.namespace)
        return {service.metadata.name: bool(service.spec.selector) for service in found}

    def running(self) -> set[str]:
        """Pods that run and are not on their way out."""
        return {
            name
            for name, pod in self.pods().items()
            if pod.status.phase == "Running" and not pod.metadata.deletion_timestamp
        }

    def plans(self) -> dict[str, ScalePlan]:
        return {plan.metadata.name: plan for plan in self.operator.cache(SCALEPLAN).list(self.namespace)}

    def condition(self, type_: str, name: str = "digits") -> tuple[str, str, str]:
        """Status, reason and message of a condition."""
        for condition in self.job(name).status.conditions:
            if condition.type == type_:
                return condition.status, condition.reason, condition.message
        return "", "", ""

    async def until(self, holds: Callable[[], T], within: float = PATIENCE) -> T:
        """Wait until `holds` returns something true; looks whenever a cache of the operator changes."""
        changed = asyncio.Event()
        for kind in KINDS:
            self.operator.cache(kind).subscribe(lambda _: changed.set())
        try:
            async with asyncio.timeout(within):
                while not (found := _asked(holds)):
                    changed.clear()
                    await changed.wait()
                return found
        except TimeoutError:
            raise AssertionError(f"it did not come to pass in {within} s; {self._picture()}") from None

    async def event(self, sentence: str, reason: str = "", name: str = "digits") -> None:
        """Wait for an Event with it, and if a reason is named for one with that about the job.

        A condition may say it for less time than any status is written in.
        """

        async def is_there() -> bool:
            events = [
                event for event in await self.client.list(EVENT, self.namespace) if sentence in event.message
            ]
            about = ((each.reason, each.involved_object.kind, each.involved_object.name) for each in events)
            return (reason, ELASTICJOB.name, name) in about if reason else bool(events)

        await until(is_there, f"an Event of {name} says {reason}: {sentence!r}")

    async def has_only(self, kind: Kind[Any], *names: str) -> None:
        """Wait until no others of a kind are left: what has lost its owner is collected, in any order."""

        async def is_so() -> bool:
            found = await self.client.list(kind, self.namespace)
            return {each.metadata.name for each in found} == {*names}

        await until(is_so, f"{self.namespace} has no {kind.name} but {names}")

    def _picture(self) -> str:
        pods = {name: pod.status.phase for name, pod in self.pods().items()}
        jobs = [job.status.manifest() for job in self.operator.cache(ELASTICJOB).list(self.namespace)]
        return f"pods {pods}, status {jobs}"


@asynccontextmanager
async def lent(client: Client, operator: Operator, test: str) -> AsyncIterator[Site]:
    """Make a namespace that is named after a test; its jobs are gone afterwards."""
    words = test.removeprefix("test_").partition("[")[0].replace("_", "-")
    namespace = await new_namespace(client, f"{words[:40].strip('-')}-{secrets.token_hex(4)}")
    site = Site(client, operator, namespace)
    yield site
    for job in await client.list(ELASTICJOB, namespace):
        await client.delete(ELASTICJOB, job.metadata.name, namespace)
    await site.until(lambda: not site.pods())


def _asked(holds: Callable[[], T]) -> T | None:
    try:
        return holds()
    except (AssertionError, LookupError):  # not there yet
        return None


class Stage:
    """The cluster, and operators that can be started and stopped. They run under their own account, with the
    shipped rights and no other; `client` is an administrator's.
    """

    def __init__(self, client: Client, noting: Noting, place: Place) -> None:
        self.client = client
        self.noting = noting
        self.place = place
        self._ends = AsyncExitStack()

    async def start(self) -> None:
        settings = Settings(probes="127.0.0.1:0", webhook_port=0, webhooks=True)
        operator = compose(self.noting, settings, signals=False)
        self.operator = await self._ends.enter_async_context(running(operator))
        await heeded(self.client)

    async def stop(self) -> None:
        await self._ends.aclose()


@asynccontextmanager
async def at_work(place: Place, client: Client) -> AsyncIterator[Stage]:
    """Run an operator on a cluster that knows our kinds, until the end of the block."""
    async with Noting(await shipped_account(place, client)) as noting:
        stage = Stage(client, noting, place)
        await stage.start()
        try:
            yield stage
        finally:
            await stage.stop()
