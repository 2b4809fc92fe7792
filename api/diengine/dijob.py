"""DIJob: a reinforcement learning job of DI-engine, as its manifests are written.

Its coordinator asks di-server for collectors and learners.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field, WithJsonSchema

from elasticjob.api.core import POD_TEMPLATE_SPEC
from elasticjob.api.diengine.names import GROUP, VERSION, Role
from elasticjob.kube.crd.model import (
    ATOMIC,
    Column,
    CustomResource,
    Declaration,
    Embedded,
    Part,
    Time,
    list_map,
)
from elasticjob.kube.objects.kinds import Kind, Manifest


class CleanPodPolicy(StrEnum):
    """Which pods are deleted when a job has ended. ALL is the spelling of the first release."""

    RUNNING = "Running"
    ALL = "All"
    ALL_IN_CAPITALS = "ALL"
    NONE = "None"

    @classmethod
    def _missing_(cls, value: object) -> CleanPodPolicy | None:
        """An empty word stands for the default."""
        return cls.RUNNING if value == "" else None


class DIJobPhase(StrEnum):
    """The phases of DI-engine; the coordinator alone moves them."""

    CREATED = "Created"
    RUNNING = "Running"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"
    UNKNOWN = "Unknown"

    @property
    def is_terminal(self) -> bool:
        """Whether the phase is terminal."""
        return self in (DIJobPhase.SUCCEEDED, DIJobPhase.FAILED)


class ReplicaTemplate(Part):
    """How pods of a role are made."""

    template: Annotated[Manifest, Embedded(POD_TEMPLATE_SPEC)] = {}
    """The pod; its container di-container is the one that is given ports and resources."""


class DIJobSpec(Part):
    """The job as the user wants it."""

    group: Annotated[str, Field(max_length=63)] = ""
    """A name for people and for selecting jobs."""

    priority_class_name: Annotated[str, Field(max_length=253)] = ""
    """The PriorityClass of all pods."""

    clean_pod_policy: Annotated[
        CleanPodPolicy, WithJsonSchema({"type": "string", "enum": [*map(str, CleanPodPolicy), ""]})
    ] = CleanPodPolicy.RUNNING
    """Which pods are deleted when the job has ended: Running (also where it is empty), All or None."""

    volumes: Annotated[list[Manifest], Field(max_length=256, json_schema_extra=ATOMIC)] = []
    """Volumes of coordinator, collectors and learners."""

    coordinator: ReplicaTemplate
    """The coordinator, made at once; the job ends with it."""

    collector: ReplicaTemplate | None = None
    """Collectors, made when the coordinator asks for them; absent for a job that has none."""

    learner: ReplicaTemplate | None = None
    """Learners, made when the coordinator asks for them; absent for a job that has none."""

    def template(self, role: Role) -> ReplicaTemplate | None:
        """Return how pods of a role are made; ddp learners are made as learners are."""
        templates = {
            Role.COORDINATOR: self.coordinator,
            Role.COLLECTOR: self.collector,
            Role.LEARNER: self.learner,
            Role.DDP_LEARNER: self.learner,
        }
        return templates.get(role)


class ReplicaStatus(Part):
    """Pods of a role."""

    active: int = 0
    """Pods that run."""

    succeeded: int = 0
    """Pods that have succeeded."""

    failed: int = 0
    """Pods that have failed."""


class DIJobCondition(Part):
    """A phase that the job has had, Admitted (what its queue says of it), or what kstatus is told."""

    type: Annotated[str, Field(max_length=316)]
    """The phase, Admitted, Ready, Reconciling or Stalled."""

    status: Annotated[str, Field(max_length=16)]
    """True, False or Unknown."""

    reason: Annotated[str, Field(max_length=1024)] = ""
    """Why, as one CamelCase word for programs."""

    message: Annotated[str, Field(max_length=32768)] = ""
    """Why, as a sentence for people."""

    last_update_time: Time | None = None
    """When status, reason or message changed last."""

    last_transition_time: Time | None = None
    """When status changed last."""

    observed_generation: Annotated[int, Field(json_schema_extra={"format": "int64"})] | None = None
    """The metadata.generation that this was said about."""


class DIJobStatus(Part):
    """Observed state of the job."""

    phase: DIJobPhase | None = None
    """Created, Running, Succeeded or Failed."""

    conditions: Annotated[list[DIJobCondition], Field(max_length=32, json_schema_extra=list_map("type"))] = []
    """The phases that the job has had; for one in a queue of Kueue, Admitted as well; for kstatus Ready,
    Reconciling and Stalled."""

    replica_status: Annotated[dict[str, ReplicaStatus], Field(max_length=16)] = {}
    """Pods by role: Coordinator, Collector, Learner, Aggregator, DDPLearner."""

    def condition(self, type_: str) -> DIJobCondition | None:
        """Return the condition of a type."""
        return next((each for each in self.conditions if each.type == type_), None)


class DIJob(CustomResource):
    """A reinforcement learning job of DI-engine."""

    spec: DIJobSpec
    """The job as the user wants it."""

    status: DIJobStatus = DIJobStatus()
    """Observed state of the job."""


DIJOB: Final = Kind(GROUP, VERSION, "DIJob", "dijobs", DIJob)

DECLARATION: Final = Declaration(
    DIJOB,
    categories=("training",),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Collectors", ".status.replicaStatus.Collector.active", "integer", "Collectors that run."),
        Column("Learners", ".status.replicaStatus.Learner.active", "integer", "Plain learners that run."),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column(
            "Aggregators", ".status.replicaStatus.Aggregator.active", "integer", "Aggregators that run.", True
        ),
        Column(
            "DDP",
            ".status.replicaStatus.DDPLearner.active",
            "integer",
            "Pods of ddp learners that run.",
            True,
        ),
        Column("Group", ".spec.group", wide=True),
        Column(
            "Queue",
            '.status.conditions[?(@.type=="Admitted")].reason',
            description="Why the job waits in its queue, or Admitted.",
            wide=True,
        ),
        Column("Clean-Up", ".spec.cleanPodPolicy", wide=True),
    ),
)
