"""The webhook of an ElasticJob's scale: no workers, or again a size that a plan has changed since.

`replicas: 0` in a spec leaves the number to the optimizer, unless minReplicas is 0. `kubectl scale` to 0
means none, so that is refused with what to write instead. So is a size for a job without the role worker: the
server would make the role, without a template, and asks no webhook of ElasticJobs.

`kubectl scale` to the number that the spec has already stores nothing, so no watch tells it. The API server
asks webhooks even so: the size becomes a manual ScalePlan, as a change of the spec would. It asks twice where
the job changes meanwhile; the second time finds the same plan, or a JobResource that follows it already.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.common import GROUP, VERSION
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResource
from elasticjob.api.v1alpha1.keeping import outlook
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, plan_manifest
from elasticjob.kube.errors import AlreadyExists, KubeError
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.owner import owner_reference
from elasticjob.kube.objects.problem import Problem
from elasticjob.kube.webhook.review import Reader, Review, Terms, Webhook

PLAIN: Final = SCALEPLAN.untyped()


class Size(msgspec.Struct, frozen=True):
    """The size that is asked for; 0 is left out by the server."""

    replicas: int = 0


class Scale(msgspec.Struct, frozen=True):
    """What the scale subresource is sent."""

    spec: Size = Size()


SCALE: Final = Kind(GROUP, VERSION, "Scale", f"{ELASTICJOB.plural}/scale", Scale)


class Writer(Protocol):
    """Creates objects; a Client does."""

    async def create(self, kind: Kind[Any], manifest: Manifest) -> Any: ...


def asked_again(review: Review[Scale]) -> int | None:
    """Return the size that is asked for although the spec has it already; None for any other request."""
    new, old = review.new, review.old
    if new is None or old is None or new.spec != old.spec or not new.spec.replicas or review.dry_run:
        return None
    return new.spec.replicas


def refusals(job: ElasticJob, replicas: int) -> Sequence[Problem]:
    """Return why a job cannot be scaled to so many workers."""
    spec = job.spec.roles.get(WORKER)
    if spec is None:
        known = ", ".join(job.spec.roles)
        return [Problem("spec.replicas", f"there is no role {WORKER}: write a ScalePlan for one of {known}")]
    if replicas or spec.min_replicas == 0:
        return ()
    why = "0 workers: set suspend: true to stop the job, or minReplicas: 0 first"
    return [Problem("spec.replicas", "; ".join(filter(None, (why, outlook(job)))))]


def plan(job: ElasticJob, resource: JobResource, replicas: int) -> Manifest:
    """Return the ScalePlan; asking again before the JobResource has changed gives the same name."""
    about = job.metadata
    spec = {
        "replicaResourceSpecs": {WORKER: {"replicas": replicas}},
        "manualScaling": True,
        "reason": f"the user asks for {WORKER} {replicas} again",
    }
    owner = owner_reference(job, ELASTICJOB, controller=False)
    name = f"{about.name}-user-{about.generation}-{resource.metadata.generation}"
    return plan_manifest(name, job.key, spec, owner, manual=True)


def webhook(writer: Writer) -> Webhook[Scale]:
    """Return the webhook, which writes plans with `writer`."""

    async def carry_out(review: Review[Scale], reader: Reader) -> Sequence[Problem]:
        job = await reader.find(ELASTICJOB, review.name, review.namespace)
        if job is None or review.new is None:
            return ()
        found, replicas = refusals(job, review.new.spec.replicas), asked_again(review)
        if found or replicas is None:
            return found
        resource = await reader.find(JOBRESOURCE, review.name, review.namespace)
        if resource is None:
            return ()
        placed = resource.spec.replica_resource_specs.get(WORKER)
        if placed is not None and placed.replicas == replicas:
            return ()
        try:
            await writer.create(PLAIN, plan(job, resource, replicas))
        except AlreadyExists:
            return ()
        except KubeError as error:
            return [Problem("spec.replicas", f"no ScalePlan could ask for {replicas} again: {error}")]
        return ()

    terms = Terms(failure_policy="Ignore", side_effects=True)
    return Webhook(SCALE, validate=carry_out, operations=("UPDATE",), terms=terms)
