"""JobResource: the nodes that should run now. One per ElasticJob, with its name; written by the controller,
and through its scale subresource by autoscalers, since nothing else writes the spec of the ElasticJob.

A JobResource of another name is a request from a user or a tool, in this form or the older one of EasyDL.
"""

from __future__ import annotations

from itertools import count, islice
from typing import Annotated, Final

from pydantic import Field

from elasticjob.api.roles import WORKER
from elasticjob.api.v1alpha1.common import (
    GROUP,
    MOST_NODES,
    MOST_ROLES,
    VERSION,
    Count,
    NodeResource,
    ReplicaResourceSpec,
    Replicas,
    Resource,
)
from elasticjob.kube.crd.model import (
    ATOMIC,
    Column,
    CustomResource,
    Declaration,
    OneCondition,
    Part,
    Rule,
    Scale,
    list_map,
)
from elasticjob.kube.objects.kinds import Kind


class Selector(Part):
    """A reference to the job."""

    RULES = (
        Rule(
            "self == oldSelf",
            "the job cannot change: create another JobResource",
            ".name",
            "FieldValueForbidden",
        ),
    )

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The ElasticJob, in the same namespace."""


class Places(ReplicaResourceSpec):
    """Number of nodes of a role, the resources of each, and the indices that no node has."""

    vacant: Annotated[list[Count], Field(max_length=MOST_NODES, json_schema_extra=ATOMIC)] = []
    """Indices of nodes that were removed by name: no node has them until the role grows."""

    @property
    def indices(self) -> tuple[int, ...]:
        """The indices of the nodes: the first that are not vacant."""
        vacant = frozenset(self.vacant)
        return tuple(islice((index for index in count() if index not in vacant), self.replicas or 0))


class OlderReplicas(Part):
    """A role in the EasyDL form."""

    replicas: Replicas | None = None
    """Number of nodes."""

    resource: Resource = {}
    """Resources of each node: cpu in cores, memory and disk in MiB or as quantities, gpu as an integer."""


class JobResourceSpec(Part):
    """The nodes that should run, and their resources."""

    selector: Selector
    """The job of these nodes."""

    suspend: bool = False
    """Whether all pods of the job are stopped for now."""

    replicas: Replicas | None = None
    """Number of workers that `kubectl scale`, an autoscaler or a plan asks for. Those that should run are in
    replicaResourceSpecs: no more than the job and its queue allow."""

    replica_resource_specs: Annotated[dict[str, Places], Field(max_length=MOST_ROLES)] = {}
    """Number and resources of nodes, by role."""

    nodes: Annotated[
        list[NodeResource], Field(max_length=MOST_NODES, json_schema_extra=list_map("name"))
    ] = []
    """Nodes whose resources differ from those of their role, by in-place resize or by replacement."""

    parameter_server: Annotated[OlderReplicas | None, Field(alias="parameter_server")] = None
    """Older (EasyDL) form of replicaResourceSpecs.ps."""

    worker: OlderReplicas | None = None
    """Older (EasyDL) form of replicaResourceSpecs.worker."""

    evaluator: OlderReplicas | None = None
    """Older (EasyDL) form of replicaResourceSpecs.evaluator."""

    resource_updation: Annotated[
        list[NodeResource],
        Field(alias="resource_updation", max_length=MOST_NODES, json_schema_extra=list_map("name")),
    ] = []
    """Older (EasyDL) form of nodes."""


class RoleStatus(Part):
    """Node counts of a role."""

    desired: int = 0
    """Number of nodes wanted."""

    current: int = 0
    """Number of pods, without those that are being deleted."""

    ready: int = 0
    """Number of pods that are ready."""


class JobResourceStatus(Part):
    """Observed state of the nodes."""

    replica_statuses: Annotated[dict[str, RoleStatus], Field(max_length=MOST_ROLES)] = {}
    """Nodes by role."""

    restarts: Annotated[dict[str, dict[str, int]], Field(max_length=MOST_ROLES)] = {}
    """Number of failures that count against restartCount, by role and index; nodes that never failed are left
    out."""

    relaunches: Annotated[dict[str, dict[str, int]], Field(max_length=MOST_ROLES)] = {}
    """The number of the next pod of nodes that had to have another one, by role and index."""

    completed_indexes: Annotated[dict[str, str], Field(max_length=MOST_ROLES)] = {}
    """Indices of nodes that have succeeded, by role, as a Job's: `0-3,7`. They do not run again, whatever
    becomes of their pods."""

    failed_indexes: Annotated[dict[str, str], Field(max_length=MOST_ROLES)] = {}
    """Indices of nodes that failed for good, by role."""

    room: Annotated[dict[str, int], Field(max_length=MOST_ROLES)] = {}
    """How many more nodes of each role would find a machine, while an optimizer may let the job grow."""

    quota: Annotated[dict[str, int], Field(max_length=MOST_ROLES)] = {}
    """The number of nodes of each role for which quota is idle, of a job in a queue of Kueue."""

    machine: Resource = {}
    """The most cores and memory that a machine has left for a node of the job, then."""

    min_available: int | None = None
    """The workers that evictions leave running, as the job's PodDisruptionBudget was told last."""

    selector: str | None = None
    """The label selector of the worker pods; read by autoscalers."""

    conditions: Annotated[list[OneCondition], Field(max_length=32, json_schema_extra=list_map("type"))] = []
    """Conditions of the nodes: Ready, and ResourcesAltered where admission changes what pods ask for."""

    observed_generation: Annotated[int, Field(json_schema_extra={"format": "int64"})] | None = None
    """The metadata.generation for which this status was computed."""


class JobResource(CustomResource):
    """The nodes of a job that should run now: for an ElasticJob what a ReplicaSet is for a Deployment."""

    spec: JobResourceSpec
    """The nodes that should run, and their resources."""

    status: JobResourceStatus = JobResourceStatus()
    """Observed state of the nodes."""


JOBRESOURCE: Final = Kind(GROUP, VERSION, "JobResource", "jobresources", JobResource)

DECLARATION: Final = Declaration(
    JOBRESOURCE,
    short_names=("jr",),
    categories=("training",),
    scale=Scale(
        ".spec.replicas",
        f".status.replicaStatuses.{WORKER}.current",
        ".status.selector",
    ),
    columns=(
        Column("Job", ".spec.selector.name"),
        Column(
            "Workers", ".spec.replicaResourceSpecs.worker.replicas", "integer", "Workers that should run."
        ),
        Column("Ready", ".status.replicaStatuses.worker.ready", "integer", "Workers that are ready."),
        Column("Suspended", ".spec.suspend", "boolean"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("PS", ".spec.replicaResourceSpecs.ps.replicas", "integer", wide=True),
        Column("PS-Ready", ".status.replicaStatuses.ps.ready", "integer", wide=True),
        Column("Reason", '.status.conditions[?(@.type=="Ready")].reason', wide=True),
    ),
)
