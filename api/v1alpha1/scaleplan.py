"""ScalePlan: a one-time change of a job. Its spec is immutable; it is kept as a record of the change and its
reason."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import BeforeValidator, Field, WithJsonSchema, model_validator

from elasticjob.api.v1alpha1.common import (
    GROUP,
    LABEL_JOB,
    LABEL_SCALE_TYPE,
    MOST_NODES,
    MOST_ROLES,
    OLDER_LABEL_SCALE_TYPE,
    VERSION,
    Count,
    NodeResource,
    ReplicaResourceSpec,
    Resource,
)
from elasticjob.api.v1alpha1.older import todays_plan
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
from elasticjob.kube.objects.kinds import Key, Kind, Manifest


class PlanPhase(StrEnum):
    """The phase of a plan; the last three are terminal."""

    PENDING = "Pending"
    SCALING = "Scaling"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    SUPERSEDED = "Superseded"

    @property
    def is_terminal(self) -> bool:
        """Whether the phase is terminal."""
        return self in (PlanPhase.SUCCEEDED, PlanPhase.FAILED, PlanPhase.SUPERSEDED)


class PodPlan(Part):
    """A pod to create."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The pod's name, <job>-<role>-<index>."""

    type: Annotated[str, Field(max_length=63)] = ""
    """The role; absent means the role in the name."""

    id: Count | None = None
    """The node's number in older manifests, without effect; the name contains it."""

    rank_index: Count | None = None
    """The node's index in its role; absent means the index in the name."""

    service: Annotated[str, Field(max_length=253)] = ""
    """The pod's service in older manifests, without effect; a job has one service for all its pods."""

    resource: Resource = {}
    """Resources of the pod; resources that are not listed keep the role's values."""


class PodName(Part):
    """A pod to remove."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The name of the pod, or of its node."""

    type: Annotated[str, Field(max_length=63)] = ""
    """The role, in older manifests; the name contains it."""

    id: Count | None = None
    """The node's number in older manifests, without effect; the name contains it."""


def _names(value: Any) -> Any:
    return {"name": value} if isinstance(value, str) else value


class ScalePlanSpec(Part):
    """The changes to make."""

    RULES = (
        Rule(
            "self == oldSelf",
            "the spec of a ScalePlan cannot change: create another plan, which supersedes this one",
            reason="FieldValueForbidden",
        ),
    )

    @model_validator(mode="before")
    @classmethod
    def _read_older_forms(cls, given: Any) -> Any:
        """What is stored is what the user wrote; what it means is found whenever it is read."""
        return todays_plan(given) if isinstance(given, dict) else given

    owner_job: Annotated[str, Field(min_length=1, max_length=63)]
    """The ElasticJob to change, in the same namespace."""

    replica_resource_specs: Annotated[dict[str, ReplicaResourceSpec], Field(max_length=MOST_ROLES)] = {}
    """The new number and resources of nodes, by role; roles that are not listed stay unchanged."""

    replica_resource_spec: Annotated[dict[str, ReplicaResourceSpec], Field(max_length=MOST_ROLES)] | None = (
        None
    )
    """Older spelling of replicaResourceSpecs."""

    create_pods: Annotated[
        list[PodPlan], Field(max_length=MOST_NODES, json_schema_extra=list_map("name"))
    ] = []
    """Single nodes to add."""

    remove_pods: Annotated[
        list[Annotated[PodName, BeforeValidator(_names), WithJsonSchema(OPAQUE)]],
        Field(max_length=MOST_NODES, json_schema_extra=ATOMIC),
    ] = []
    """Single nodes to remove: names of pods or nodes, or objects with a name."""

    migrate_pods: Annotated[
        list[NodeResource], Field(max_length=MOST_NODES, json_schema_extra=list_map("name"))
    ] = []
    """Nodes whose resources change, in place or by replacement."""

    ps_hosts: Annotated[
        list[Annotated[str, Field(max_length=253)]], Field(max_length=MOST_NODES, json_schema_extra=ATOMIC)
    ] = []
    """Accepted for older manifests, without effect: the master tells workers where the servers are."""

    manual_scaling: bool = False
    """Whether a user requested it; an automatic plan never supersedes a manual one."""

    reason: Annotated[str, Field(max_length=1024)] = ""
    """The reason, as a sentence."""


class ScalePlanStatus(Part):
    """Observed state of the change."""

    phase: PlanPhase | None = None
    """Pending, Scaling, Succeeded, Failed or Superseded."""

    conditions: Annotated[list[OneCondition], Field(max_length=32, json_schema_extra=list_map("type"))] = []
    """Conditions of the plan: Complete, Failed or Superseded; for kstatus Ready, Reconciling and Stalled."""

    observed_generation: Annotated[int, Field(json_schema_extra={"format": "int64"})] | None = None
    """The metadata.generation for which this status was computed."""

    start_time: Time | None = None
    """When the change began."""

    finish_time: Time | None = None
    """When the plan succeeded, failed or was superseded."""

    changes: Annotated[
        list[Annotated[str, Field(max_length=1024)]], Field(max_length=256, json_schema_extra=ATOMIC)
    ] = []
    """The changes that were made, one sentence each, such as: worker replicas 2 to 3."""


class ScalePlan(CustomResource):
    """A command to change the size or the resources of a job, once."""

    spec: ScalePlanSpec
    """The changes to make."""

    status: ScalePlanStatus = ScalePlanStatus()
    """Observed state of the change."""

    @property
    def manual(self) -> bool:
        """Whether a user requested it, by the field or by a label."""
        labels = self.metadata.labels
        named = labels.get(LABEL_SCALE_TYPE, labels.get(OLDER_LABEL_SCALE_TYPE))
        return self.spec.manual_scaling or named == "manual"


SCALEPLAN: Final = Kind(GROUP, VERSION, "ScalePlan", "scaleplans", ScalePlan)


def plan_manifest(name: str, job: Key, spec: Manifest, owner: Manifest | None, *, manual: bool) -> Manifest:
    """Return a plan of a job to create, without the empty parts of its spec; `owner` refers to the job."""
    labels = {LABEL_JOB: job.name, LABEL_SCALE_TYPE: "manual" if manual else "auto"}
    metadata: Manifest = {"name": name, "namespace": job.namespace, "labels": labels}
    return {
        "apiVersion": SCALEPLAN.api_version,
        "kind": SCALEPLAN.name,
        "metadata": metadata | ({"ownerReferences": [owner]} if owner else {}),
        "spec": {"ownerJob": job.name, **{field: value for field, value in spec.items() if value}},
    }


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
