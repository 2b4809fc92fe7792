"""ScalePlan: change a job once. Its spec never changes; it is kept as a record of what was done, and why."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema

from elasticjob.api.v1alpha1.common import (
    GROUP,
    LABEL_SCALE_TYPE,
    MOST_NODES,
    MOST_ROLES,
    VERSION,
    Count,
    NodeResource,
    ReplicaResourceSpec,
    Resource,
)
from elasticjob.kube.crd.model import (
    ATOMIC,
    OPAQUE,
    Column,
    CustomResource,
    Declaration,
    OneCondition,
    Part,
    Rule,
    Time,
    list_map,
)
from elasticjob.kube.kinds import Kind


class PlanPhase(StrEnum):
    """Where a plan is in its life; the last three are ends."""

    PENDING = "Pending"
    SCALING = "Scaling"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUPERSEDED = "Superseded"

    @property
    def finished(self) -> bool:
        """Whether nothing more will happen to the plan."""
        return self in (PlanPhase.SUCCEEDED, PlanPhase.FAILED, PlanPhase.SUPERSEDED)


class PodPlan(Part):
    """A pod to create."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The pod's name, <job>-<role>-<index>."""

    type: Annotated[str, Field(max_length=63)] = ""
    """The role; absent means the one in the name."""

    id: Count | None = None
    """The node's number in older manifests; the name says it."""

    rank_index: Count | None = None
    """The node's index in its role; absent means the one in the name."""

    service: Annotated[str, Field(max_length=253)] = ""
    """The pod's service in older manifests; a job has one service for all its pods."""

    resource: Resource = {}
    """What the pod gets; resources that are not named keep the role's values."""


class PodName(Part):
    """A pod to remove."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The pod's name, or its node's."""

    type: Annotated[str, Field(max_length=63)] = ""
    """The role, in older manifests; the name says it."""

    id: Count | None = None
    """The node's number in older manifests; the name says it."""


def _named(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class ScalePlanSpec(Part):
    """What to change."""

    RULES = (
        Rule(
            "self == oldSelf",
            "the spec of a ScalePlan cannot change: create another plan, which supersedes this one",
            reason="FieldValueForbidden",
        ),
    )

    owner_job: Annotated[str, Field(min_length=1, max_length=63)]
    """The ElasticJob to change, in the same namespace."""

    replica_resource_specs: Annotated[dict[str, ReplicaResourceSpec], Field(max_length=MOST_ROLES)] = {}
    """The new number and resources of nodes, by role; roles that are not named stay as they are."""

    create_pods: Annotated[
        list[PodPlan], Field(max_length=MOST_NODES, json_schema_extra=list_map("name"))
    ] = []
    """Single nodes to add."""

    remove_pods: Annotated[
        list[Annotated[PodName, BeforeValidator(_named), WithJsonSchema(OPAQUE)]],
        Field(max_length=MOST_NODES, json_schema_extra=ATOMIC),
    ] = []
    """Single nodes to take away: names of pods or nodes, or objects with a name."""

    migrate_pods: Annotated[
        list[NodeResource], Field(max_length=MOST_NODES, json_schema_extra=list_map("name"))
    ] = []
    """Nodes to give another resource, in place or by a replacement."""

    ps_hosts: Annotated[
        list[Annotated[str, Field(max_length=253)]], Field(max_length=MOST_NODES, json_schema_extra=ATOMIC)
    ] = []
    """The addresses host:port of the parameter servers after the change."""

    manual_scaling: bool = False
    """Whether a person asked for it; an automatic plan never supersedes a manual one."""

    reason: Annotated[str, Field(max_length=1024)] = ""
    """Why, as a sentence for people."""


class ScalePlanStatus(Part):
    """How far the change is."""

    phase: PlanPhase | None = None
    """Pending, Scaling, Succeeded, Failed or Superseded."""

    conditions: Annotated[list[OneCondition], Field(max_length=32, json_schema_extra=list_map("type"))] = []
    """What is true of the plan."""

    observed_generation: Annotated[int, Field(json_schema_extra={"format": "int64"})] | None = None
    """The metadata.generation that this status is about."""

    start_time: Time | None = None
    """When the change began."""

    finish_time: Time | None = None
    """When the plan succeeded, failed or was superseded."""

    changes: Annotated[
        list[Annotated[str, Field(max_length=1024)]], Field(max_length=256, json_schema_extra=ATOMIC)
    ] = []
    """What was changed, one sentence each, such as: worker replicas 2 to 3."""


class ScalePlan(CustomResource):
    """A command to change the size or the resources of a job, once."""

    spec: ScalePlanSpec
    """What to change."""

    status: ScalePlanStatus = ScalePlanStatus()
    """How far the change is."""

    @property
    def manual(self) -> bool:
        """Whether a person asked for it, by the field or by the label."""
        return self.spec.manual_scaling or self.metadata.labels.get(LABEL_SCALE_TYPE) == "manual"


SCALEPLAN: Final = Kind(GROUP, VERSION, "ScalePlan", "scaleplans", ScalePlan)

DECLARATION: Final = Declaration(
    SCALEPLAN,
    short_names=("sp",),
    categories=("training",),
    columns=(
        Column("Job", ".spec.ownerJob"),
        Column("Phase", ".status.phase"),
        Column(
            "Workers", ".spec.replicaResourceSpecs.worker.replicas", "integer", "Workers that it asks for."
        ),
        Column("Manual", ".spec.manualScaling", "boolean"),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Reason", ".spec.reason", wide=True),
        Column("Finished", ".status.finishTime", "date", wide=True),
    ),
)
