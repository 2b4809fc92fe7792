"""All reads of an examination. What the reader may not see is noted and leaves its question open."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from elasticjob.api.troubles.facts import ClusterFacts, JobFacts, Trial, difference, running_master
from elasticjob.api.v1alpha1.common import GROUP, LABEL_JOB
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, FINISHED
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.kube.client.client import Client
from elasticjob.kube.errors import ApiError, KubeError, NotFound, Unreachable
from elasticjob.kube.objects.kinds import Key, Kind, Manifest
from elasticjob.kube.objects.views import (
    CRD,
    EVENT,
    LEASE,
    MUTATING_WEBHOOKS,
    NODE,
    POD,
    VALIDATING_WEBHOOKS,
    Pod,
)
from elasticjob.page.masters import CannotAsk, Masters

T = TypeVar("T")

PATIENCE: Final = 3.0
"""Seconds for each source: one that does not answer is told, and holds nothing up."""
AGAIN: Final = 2.0
"""Seconds until a status that differs from its pods is looked at again."""
LEASE_NAME: Final = "elasticjob-operator"
PROGRAMS: Final = (
    "app.kubernetes.io/component in (operator,brain,di-server),app.kubernetes.io/name=elasticjob"
)
REFUSED_BY_WEBHOOKS: Final[Manifest] = {
    "metadata": {"name": "elasticjob-doctor"},
    "spec": {"replicaSpecs": {"worker": {"replicas": 1, "template": {"spec": {"containers": []}}}}},
}
"""A job that the schema accepts and the webhooks refuse: its worker has no container."""


@dataclass
class Reader:
    """Reads each source within PATIENCE, and keeps what could not be read."""

    client: Client
    unread: dict[str, str] = field(default_factory=dict)

    async def all(self, kind: Kind[T], namespace: str = "", labels: str = "", fields: str = "") -> list[T]:
        """Return all objects of a kind; none where they cannot be listed, or the kind is not known."""
        read = self.client.list(kind, namespace, labels=labels, fields=fields)
        return await self.within(kind.plural, read) or []

    async def within(self, what: str, read: Awaitable[T]) -> T | None:
        """Return what is read, None where it is not there, or could not be read, which is noted."""
        try:
            return await _answer(read)
        except NotFound:
            pass
        except ApiError as error:
            self.unread[what] = error.message
        except KubeError as error:
            self.unread[what] = str(error)
        return None


async def cluster(client: Client, namespace: str, expected: Iterable[Manifest]) -> ClusterFacts:
    """Read an installation; `expected` are this version's definitions. KubeError: no server answers."""
    told = await _answer(client.raw("GET", "/version"), client.config.server)
    version = json.loads(told).get("gitVersion", "")
    reader = Reader(client)
    async with asyncio.TaskGroup() as tasks:
        definitions = tasks.create_task(reader.all(CRD.untyped()))
        leases = tasks.create_task(reader.all(LEASE, fields=f"metadata.name={LEASE_NAME}"))
        programs = tasks.create_task(reader.all(POD, labels=PROGRAMS))
        mutating = tasks.create_task(reader.all(MUTATING_WEBHOOKS))
        validating = tasks.create_task(reader.all(VALIDATING_WEBHOOKS))
        nodes = tasks.create_task(reader.all(NODE))
        jobs = tasks.create_task(reader.all(ELASTICJOB))
        trial = tasks.create_task(_trial(client, namespace))
    there = {each["metadata"]["name"]: each for each in definitions.result()}
    known = CRD.plural not in reader.unread
    wanted = {each["metadata"]["name"]: each for each in expected}
    lacks = ((name, lacking(each, there[name])) for name, each in wanted.items() if name in there)
    found = (*mutating.result(), *validating.result())
    return ClusterFacts(
        version=version,
        missing=tuple(name for name in wanted if name not in there) if known else (),
        older={name: lack for name, lack in lacks if lack},
        leases=tuple(leases.result()),
        programs=tuple(programs.result()),
        webhooks=tuple(each for each in found if GROUP in json.dumps(each.webhooks)),
        trial=trial.result(),
        nodes=tuple(nodes.result()),
        jobs=tuple(jobs.result()),
        unread=reader.unread,
    )


async def one_job(client: Client, key: Key, masters: Masters | None = None) -> JobFacts:
    """Read a job and what stands around it. Raises KubeError where the job itself cannot be read."""
    seen = await _look(client, key, masters)
    behind = difference(seen.job, seen.pods)
    if not behind or "pods" in seen.unread or seen.job.status.phase in FINISHED:
        return seen
    await asyncio.sleep(AGAIN)  # an operator that works has seen it by then
    seen = replace(await _look(client, key, None), master=seen.master)
    return replace(seen, behind=behind if difference(seen.job, seen.pods) == behind else "")


async def _look(client: Client, key: Key, masters: Masters | None) -> JobFacts:
    job = await _answer(client.get(ELASTICJOB, key.name, key.namespace), client.config.server)
    reader = Reader(client)
    pods, plans, events, nodes = await asyncio.gather(
        reader.all(POD, key.namespace, labels=f"{LABEL_JOB}={key.name}"),
        reader.all(SCALEPLAN, key.namespace),
        reader.all(EVENT, key.namespace),
        reader.all(NODE),
    )
    mine = tuple(plan for plan in plans if plan.spec.owner_job == key.name)
    names = {key.name, *(pod.metadata.name for pod in pods), *(plan.metadata.name for plan in mine)}
    about = tuple(event for event in events if event.involved_object.name in names)
    master = await _master(masters, pods) if masters and job.status.phase not in FINISHED else None
    return JobFacts(job, tuple(pods), mine, about, tuple(nodes), master, reader.unread)


async def _answer(read: Awaitable[T], who: str = "") -> T:
    """Return what is read. Raises KubeError, also where nothing comes within PATIENCE."""
    try:
        async with asyncio.timeout(PATIENCE):
            return await read
    except TimeoutError as error:
        late = f"within {PATIENCE:g} s"
        raise Unreachable(f"{who} does not answer {late}" if who else f"no answer {late}") from error


async def _master(masters: Masters, pods: Iterable[Pod]) -> str | None:
    """Return why the master does not answer, "" if it does; None where it cannot be asked from here."""
    if (pod := running_master(pods)) is None:
        return None
    try:
        await _answer(masters.status(pod), pod.metadata.name)
    except CannotAsk:
        return None
    except KubeError as error:
        return str(error)
    return ""


def lacking(expected: Manifest, there: Manifest) -> str:
    """Return the path of a field that a definition of this version has and the cluster's has not, else ""."""
    ours, theirs = _schema(expected), _schema(there)
    return _lacking(ours, theirs, "") if ours and theirs else ""


def _lacking(ours: Mapping[str, Any], theirs: Mapping[str, Any], path: str) -> str:
    if theirs.get("x-kubernetes-preserve-unknown-fields"):
        return ""
    for name, schema in (ours.get("properties") or {}).items():
        found = (theirs.get("properties") or {}).get(name)
        if found is None:
            return f"{path}.{name}".lstrip(".")
        if deeper := _lacking(schema, found, f"{path}.{name}"):
            return deeper
    inner = (name for name in ("items", "additionalProperties") if isinstance(ours.get(name), Mapping))
    pairs = ((ours[name], theirs.get(name)) for name in inner)
    return next(
        (lack for one, other in pairs if isinstance(other, Mapping) and (lack := _lacking(one, other, path))),
        "",
    )


def _schema(definition: Manifest) -> Mapping[str, Any]:
    versions = definition.get("spec", {}).get("versions") or [{}]
    found: Mapping[str, Any] = versions[0].get("schema", {}).get("openAPIV3Schema") or {}
    return found


async def _trial(client: Client, namespace: str) -> Trial | None:
    """Send a job that must be refused as a dry run; None where that tells nothing about webhooks."""
    try:
        async with asyncio.timeout(PATIENCE):
            await client.create(ELASTICJOB.untyped(), REFUSED_BY_WEBHOOKS, namespace, dry_run=True)
    except TimeoutError:
        return Trial(failed=f"no answer within {PATIENCE:g} s")
    except ApiError as error:
        if "failed calling webhook" in error.message:
            return Trial(failed=error.message)
        return Trial(refused=True) if "admission webhook" in error.message else None
    except KubeError:
        return None
    return Trial()
