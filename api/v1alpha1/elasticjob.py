"""ElasticJob: the training job as the user wants it, and its status. The spec is never written by an
autoscaler."""

from __future__ import annotations

import re
from collections.abc import Mapping
from enum import StrEnum
from typing import Annotated, Any, Final

from pydantic import Field, WithJsonSchema, model_validator

from elasticjob.api.core import POD_TEMPLATE_SPEC
from elasticjob.api.roles import CHIEF, MASTER, MASTER_ALIAS, WORKER, is_master
from elasticjob.api.sizes.facts import Mode
from elasticjob.api.sizes.role import Range
from elasticjob.api.v1alpha1.common import (
    GROUP,
    MOST_ROLES,
    PARAMETER_SERVERS,
    VERSION,
    Count,
    FailureAction,
    Replicas,
    Resource,
)
from elasticjob.api.v1alpha1.older import todays_job
from elasticjob.kube.crd.model import (
    ATOMIC,
    IMPLIED,
    NULLABLE,
    Column,
    CustomResource,
    Declaration,
    Embedded,
    OneCondition,
    Part,
    Rule,
    Scale,
    Time,
    list_map,
    ruled,
)
from elasticjob.kube.objects.kinds import Kind, Manifest


class DistributionStrategy(StrEnum):
    """How the nodes of a job work together."""

    ALLREDUCE = "AllreduceStrategy"
    PARAMETER_SERVER = PARAMETER_SERVERS
    CUSTOM = "CustomStrategy"
    LOCAL = "Local"

    @classmethod
    def _missing_(cls, value: object) -> DistributionStrategy | None:
        """Read the spellings of older manifests, such as parameter_server, ps and Allreduce."""
        word = _plain(value).removesuffix("strategy")
        found = {_plain(one).removesuffix("strategy"): one for one in cls} | {"ps": cls.PARAMETER_SERVER}
        return found.get(word)


OptimizeMode = Mode


def _any_spelling(words: str, told: str) -> dict[str, Any]:
    """The schema of a word in any of its spellings: readers know them, and what a user wrote is stored."""
    return {
        "type": "string",
        "maxLength": 64,
        **ruled(Rule(f"self.matches('(?i)^({words})$')", f"write {told}")),
    }


_STRATEGIES: Final = _any_spelling(
    "(all[-_ ]?reduce|parameter[-_ ]?server|ps|custom|local)([-_ ]?strategy)?",
    "AllreduceStrategy, ParameterServerStrategy, CustomStrategy or Local",
)
_MODES: Final = _any_spelling("manual|single[-_ ]?job|cluster", "manual, single-job or cluster")


def _plain(word: object) -> str:
    return re.sub("[-_ ]", "", str(word)).lower()


class NodeCheck(StrEnum):
    """Whether nodes are checked before they train, and which of them are excluded."""

    NONE = "None"
    FAULTS = "ExcludeFaults"
    STRAGGLERS = "ExcludeStragglers"


class RestartPolicy(StrEnum):
    """When a node that ended is replaced."""

    ALWAYS = "Always"
    ON_FAILURE = "OnFailure"
    NEVER = "Never"
    EXIT_CODE = "ExitCode"


class CleanPodPolicy(StrEnum):
    """Which pods are deleted when a job has ended."""

    RUNNING = "Running"
    ALL = "All"
    NONE = "None"


class SuccessPolicy(StrEnum):
    """Which nodes must succeed for the job to succeed."""

    ALL_WORKERS = "AllWorkers"
    CHIEF_OR_WORKER_0 = "ChiefOrWorker0"


class ExitCodeOperator(StrEnum):
    """How exit codes are compared with those of a rule."""

    IN = "In"
    NOT_IN = "NotIn"


class Gang(StrEnum):
    """The API by which a scheduler is told to place the pods of a job together, or not at all."""

    NONE = "none"
    VOLCANO = "volcano"  # scheduling.volcano.sh
    COSCHEDULING = "coscheduling"  # scheduling.x-k8s.io, of scheduler-plugins
    KUBERNETES = "kubernetes"  # scheduling.k8s.io, of Kubernetes itself
    REQUIRED = "required"  # whichever the cluster has
    PREFERRED = "preferred"  # the same; without any, pods are placed one by one


class Phase(StrEnum):
    """Summary of the state for `kubectl get`; programs read the conditions."""

    CREATED = "Created"
    PENDING = "Pending"
    RUNNING = "Running"
    SCALING = "Scaling"
    RESTARTING = "Restarting"
    SUSPENDED = "Suspended"
    SUCCEEDED = "Succeeded"
    FAILED = "Failed"


FINISHED: Final = frozenset({Phase.SUCCEEDED, Phase.FAILED})
"""Phases after which nothing makes a job run again."""


class EnvVar(Part):
    """The value of an environment variable; the key is its name."""

    name: str = ""
    """The name of the variable, equal to the key; optional."""

    value: str | None = None
    """The value; $(OTHER) is expanded to another variable of the container."""

    value_from: Manifest | None = None
    """Source of the value, as in a container's env: a field, a resource, a ConfigMap or a Secret."""


class Scheduling(Part):
    """How the pods of a job are placed."""

    gang: Gang = Gang.NONE
    """Whether no pod is placed before the least number fits, and by which API: none; required (whichever the
    cluster has); preferred (the same, and without any of them pods are placed one by one); or kubernetes,
    coscheduling or volcano. Where the API is absent, the job waits. Changes while the job is suspended."""

    min_available: Count | None = None
    """How many pods of the gang must fit before any is placed; absent means the minimum sizes of all
    roles."""

    queue: str = ""
    """The queue that admits the job: one of Volcano with gang: volcano; without a gang, Kueue's LocalQueue of
    this name, as with the label kueue.x-k8s.io/queue-name."""

    priority_class_name: str = ""
    """The PriorityClass of pods whose template has none."""

    low_priority_class_name: Annotated[str, Field(max_length=253)] = ""
    """The PriorityClass of nodes that have low priority by the priority of their role, whatever their
    template says."""

    timeout_seconds: Count | None = None
    """How long pods of the gang that fit wait for the others, before they give their places up and try
    again; coscheduling alone has it."""


class OnExitCodes(Part):
    """Which exit codes a rule is for."""

    operator: ExitCodeOperator
    """In: one of the values. NotIn: any other code but 0."""

    values: Annotated[
        list[Annotated[int, Field(ge=1, le=255, json_schema_extra={"format": "int32"})]],
        Field(min_length=1, max_length=255, json_schema_extra=ATOMIC),
    ]
    """Exit codes, from 1 to 255; a program that a signal ends has 128 and its number."""


class FailureRule(Part):
    """What follows from failures with certain exit codes, in certain roles."""

    action: FailureAction
    """FailJob: the job fails at once. Ignore: the node is replaced, and the failure does not count. Count:
    the node is replaced while restartCount lasts. RelaunchElsewhere: the same, on another machine."""

    on_exit_codes: OnExitCodes
    """Which exit codes of the main container the rule is for."""

    roles: Annotated[
        list[Annotated[str, Field(min_length=1, max_length=63)]],
        Field(max_length=MOST_ROLES, json_schema_extra=ATOMIC),
    ] = []
    """The roles that the rule is for; absent means all."""

    def applies(self, role: str, code: int) -> bool:
        """Whether the rule is for this exit code of a node of this role."""
        listed = code in self.on_exit_codes.values
        meant = listed is (self.on_exit_codes.operator is ExitCodeOperator.IN)
        return code != 0 and meant and (not self.roles or role in self.roles)


class FailurePolicy(Part):
    """What follows from failures of nodes, by exit code and role."""

    rules: Annotated[list[FailureRule], Field(max_length=20, json_schema_extra=ATOMIC)] = []
    """The first rule that applies decides, in place of restartPolicy. None is asked about pods that the
    cluster takes away, that were out of memory, or whose agent asks to be run again."""


class RunPolicy(Part):
    """When a job ends, and which of its objects are kept."""

    backoff_limit: Count | None = None
    """How many times nodes may be replaced after failures, over the whole job; absent means that only
    restartCount limits it."""

    active_deadline_seconds: Annotated[int, Field(ge=1, json_schema_extra={"format": "int64"})] | None = None
    """How long the job may run before it fails with DeadlineExceeded, in seconds; suspended time does not
    count."""

    pending_timeout_seconds: Annotated[int, Field(ge=1, json_schema_extra={"format": "int64"})] | None = None
    """How long the pods of all nodes may be pending before the job fails with PendingTimeout, in seconds;
    absent means for ever."""

    forgive_restarts_after_seconds: (
        Annotated[int, Field(ge=1, json_schema_extra={"format": "int64"})] | None
    ) = None
    """How long a node must run without a failure for its earlier ones not to count any more, in seconds;
    absent means that they count for ever. Holds for restartCount, backoffLimit and the agent's own
    restarts."""

    ttl_seconds_after_finished: Count | None = None
    """How long after its end the job is deleted, in seconds; absent means never. Argo CD would create a
    deleted job again."""

    success_policy: SuccessPolicy = SuccessPolicy.ALL_WORKERS
    """When the job has succeeded: AllWorkers (when all nodes that train have), or ChiefOrWorker0 (when the
    chief has, or where there is none the worker with index 0)."""

    failure_policy: FailurePolicy = FailurePolicy()
    """What follows from failures of nodes, by exit code and role; what no rule is for, restartPolicy and
    restartCount decide."""

    scale_plan_deadline_seconds: Annotated[int, Field(ge=1, json_schema_extra={"format": "int64"})] = 600
    """How long the nodes that a ScalePlan changes may take until they are ready, in seconds; then the plan
    has failed, and says why. The job keeps the new size, and its nodes may still come."""

    scale_plan_history_limit: Annotated[int, Field(ge=0, le=1000, json_schema_extra={"format": "int32"})] = 10
    """How many finished ScalePlans of the job are kept."""

    clean_pod_policy: CleanPodPolicy = CleanPodPolicy.RUNNING
    """Which pods are deleted when the job has ended: Running (those in which any container still runs), All
    or None."""

    scheduling: Scheduling = Scheduling()
    """Gang scheduling, queue and priority."""


_SIZES = (
    Rule(
        "!has(self.minReplicas) || !has(self.maxReplicas) || self.minReplicas <= self.maxReplicas",
        "minReplicas is more than maxReplicas: lower minReplicas or raise maxReplicas",
        ".minReplicas",
    ),
    Rule(
        "!has(self.replicas) || self.replicas == 0 || !has(self.minReplicas) "
        "|| self.minReplicas <= self.replicas",
        "replicas is less than minReplicas: write a number from minReplicas to maxReplicas",
        ".replicas",
    ),
    Rule(
        "!has(self.replicas) || !has(self.maxReplicas) || self.replicas <= self.maxReplicas",
        "replicas is more than maxReplicas: write a number from minReplicas to maxReplicas",
        ".replicas",
    ),
)


class ReplicaSpec(Part):
    """The nodes of one role: their number, template, and restart policy."""

    RULES = _SIZES

    replicas: Replicas | None = None
    """Number of nodes; absent or 0 means that the optimizer decides. With minReplicas: 0, 0 means none.
    kubectl scale sets it for role worker."""

    min_replicas: Count | None = None
    """Minimum number of nodes; absent means replicas. Less than maxReplicas makes the role elastic."""

    max_replicas: Count | None = None
    """Maximum number of nodes; absent means replicas."""

    spares: Annotated[int, Field(ge=0, le=100)] = 0
    """Number of warm nodes of role worker beside replicas: they have joined, and take the place of a node
    that is lost at once. Their resources are held all the time."""

    restart_policy: RestartPolicy = RestartPolicy.ON_FAILURE
    """When a node that ended is replaced: OnFailure, Never, ExitCode (exit codes of 128 and more), or Always
    (also after exit code 0, until the job ends; not for nodes of which the job's master waits for the end,
    such as workers: they are done)."""

    restart_count: Annotated[int, Field(ge=0, le=100)] = 3
    """How many times each node may be replaced after a failure; evictions and preemptions do not count."""

    auto_scale: bool = True
    """Whether an optimizer may change the number and the resources of this role."""

    priority: Annotated[str, Field(max_length=16)] = ""
    """high, low, or the share of nodes with high priority, such as 0.5: the first ones. The others get
    runPolicy.scheduling.lowPriorityClassName, and are preempted first."""

    restart_timeout: Count | None = None
    """Accepted for older manifests, without effect: the master detects lost nodes by heartbeat."""

    template: Annotated[Manifest, Embedded(POD_TEMPLATE_SPEC)] = {}
    """The pod template of a node; container resources may be left out if a ScalePlan sets them. The container
    named main, else the first, is the main container: its end alone is the end of the node."""

    @property
    def bounds(self) -> Range:
        """The sizes of this role by itself; absent bounds default to `replicas`, else to 1 and unbounded."""
        least = self.min_replicas if self.min_replicas is not None else self.replicas
        most = self.max_replicas if self.max_replicas is not None else self.replicas
        return Range(least=least if least is not None else min(1, most if most is not None else 1), most=most)

    @property
    def initial(self) -> int:
        """The number of nodes at first: replicas, else the minimum."""
        return self.replicas if self.replicas is not None else self.bounds.least

    @property
    def elastic(self) -> bool:
        """Whether the role has more than one allowed size."""
        return self.bounds.most is None or self.bounds.least < self.bounds.most

    @property
    def pod(self) -> Manifest:
        """The template's pod spec, empty if the template has none. Shared: do not modify."""
        return self.template.get("spec") or {}

    @property
    def labels(self) -> dict[str, str]:
        """The labels of the template, which its pods have. Shared: do not modify."""
        return (self.template.get("metadata") or {}).get("labels") or {}

    @property
    def annotations(self) -> dict[str, str]:
        """The annotations of the template, which its pods have. Shared: do not modify."""
        return (self.template.get("metadata") or {}).get("annotations") or {}

    @property
    def main_container(self) -> Manifest | None:
        """The main container: the one named `main`, else the first. Shared: do not modify."""
        containers: list[Manifest] = self.pod.get("containers") or []
        return next((c for c in containers if c.get("name") == "main"), containers[0] if containers else None)


class OlderRole(Part):
    """A role in the EasyDL form."""

    image: Annotated[str, Field(json_schema_extra=NULLABLE)] | None = None
    """The image of the role's container."""

    command: Annotated[str, Field(json_schema_extra=NULLABLE)] | None = None
    """The command line of the role's container."""


def _immutable(field: str, meaning: str) -> Rule:
    """A CEL rule: what `field` means is immutable; `meaning` is an expression over SELF."""
    now, before = (meaning.replace("SELF", word) for word in ("self", "oldSelf"))
    message = f"{field} cannot change while a job exists: delete the job and create it again"
    return Rule(f"({now}) == ({before})", message, f".{field}", "FieldValueForbidden")


_MANAGER: Final = "has(SELF.managedBy) ? SELF.managedBy : ''"
_HAS_SERVERS: Final = (
    "has(SELF.parameter_server) || has(SELF.parameterServer)"
    + " || (has(SELF.replicaSpecs) && 'ps' in SELF.replicaSpecs)"
)
_FIRST_LETTER: Final = (
    "has(SELF.distributionStrategy) ? SELF.distributionStrategy.lowerAscii().substring(0, 1) : "
    f"({_HAS_SERVERS}) ? 'p' : 'a'"
)
"""Of the strategy: enough to tell them apart, however they are spelled."""


class ElasticJobSpec(Part):
    """The training to run: its nodes, policies and limits."""

    RULES = (_immutable("distributionStrategy", _FIRST_LETTER), _immutable("managedBy", _MANAGER))

    @model_validator(mode="before")
    @classmethod
    def _read_older_forms(cls, given: Any) -> Any:
        """What is stored is what the user wrote; what it means is found whenever it is read."""
        return todays_job(given) if isinstance(given, dict) else given

    distribution_strategy: Annotated[DistributionStrategy, WithJsonSchema({**_STRATEGIES, **IMPLIED})] = (
        DistributionStrategy.ALLREDUCE
    )
    """How the nodes work together: AllreduceStrategy (the default, unless there are parameter servers),
    ParameterServerStrategy, CustomStrategy (your own roles), or Local (no master; the pods decide the end).
    Immutable."""

    optimize_mode: Annotated[OptimizeMode, WithJsonSchema(_MODES)] = OptimizeMode.SINGLE_JOB
    """Source of sizes and resources: manual (you), single-job (the job's master), cluster (Brain)."""

    brain_service: str = ""
    """The address host:port of the Brain service; empty means the operator's own."""

    suspend: bool = False
    """Whether the job is suspended: its pods are deleted; false makes new ones, which go on from the newest
    checkpoint. A job without one begins again."""

    managed_by: Annotated[str, Field(max_length=253)] = ""
    """The controller that runs this job; empty means this operator, which ignores jobs with any other name.
    Immutable."""

    envs: Annotated[dict[str, EnvVar], Field(max_length=512)] = {}
    """Environment variables of all containers, by name."""

    resource_limits: Resource = {}
    """Limits of the whole job, such as {cpu: 64, memory: 256Gi}; no plan exceeds them."""

    node_unit: Annotated[int, Field(ge=1, le=10_000)] = 1
    """The number of workers that train is a multiple of this."""

    node_check: NodeCheck = NodeCheck.NONE
    """Whether each node runs a payload alone and with others before it trains: None; ExcludeFaults, which
    replaces nodes that fail by nodes on other machines and names slow ones in the status; or
    ExcludeStragglers, which replaces slow ones too."""

    run_policy: RunPolicy = RunPolicy()
    """When the job ends, and which of its objects are kept."""

    network_policy: bool = True
    """Whether only the job's own pods may connect to the job's pods."""

    replica_specs: Annotated[dict[str, ReplicaSpec], Field(max_length=MOST_ROLES)] = {}
    """The roles by name: worker, ps, chief, evaluator, dlrover-master (or master), or custom names."""

    enable_elastic_scheduling: bool | None = None
    """Accepted for older manifests, without effect: use minReplicas and maxReplicas."""

    enable_dynamic_sharding: bool | None = None
    """Accepted for older manifests, without effect: configure it in the training script."""

    command: Annotated[str, Field(json_schema_extra=NULLABLE)] | None = None
    """Older (EasyDL) form: the command line of roles without one, split into words without a shell; write
    replicaSpecs instead."""

    image: Annotated[str, Field(json_schema_extra=NULLABLE)] | None = None
    """Older (EasyDL) form: the image of roles without one; write replicaSpecs instead."""

    parameter_server: Annotated[OlderRole | None, Field(alias="parameter_server")] = None
    """Older (EasyDL) form of replicaSpecs.ps."""

    parameter_server_in_camel_case: Annotated[OlderRole | None, Field(alias="parameterServer")] = None
    """Another spelling of parameter_server."""

    worker: OlderRole | None = None
    """Older (EasyDL) form of replicaSpecs.worker."""

    evaluator: OlderRole | None = None
    """Older (EasyDL) form of replicaSpecs.evaluator."""

    @property
    def roles(self) -> Mapping[str, ReplicaSpec]:
        """The roles that train, by name: all but the master."""
        return {role: spec for role, spec in self.replica_specs.items() if not is_master(role)}

    @property
    def training_roles(self) -> tuple[str, ...]:
        """The roles that train together: chief and worker if there are any, else all."""
        return tuple(role for role in (CHIEF, WORKER) if role in self.roles) or tuple(self.roles)

    def range_of(self, role: str) -> Range:
        """The allowed sizes of a role: with chiefs, workers train in multiples of nodeUnit."""
        roles = self.roles
        bounds = roles[role].bounds
        if role != WORKER or self.node_unit == 1:
            return bounds
        chiefs = roles[CHIEF].initial if CHIEF in roles else 0
        return bounds.but(unit=self.node_unit, beside=chiefs)

    def spares_of(self, role: str) -> int:
        """The nodes beside those of a role: workers alone have them, in jobs whose master knows them."""
        return self.roles[role].spares if role == WORKER and self.needs_master else 0

    @property
    def world(self) -> Range:
        """The allowed numbers of nodes that train together; no bound where a role has none."""
        roles = self.roles
        bounds = [roles[role].bounds for role in self.training_roles]
        known = [each.most for each in bounds if each.most is not None]
        most = max(1, sum(known)) if len(known) == len(bounds) else None
        return Range(least=max(1, sum(each.least for each in bounds)), most=most, unit=self.node_unit)

    @property
    def leader(self) -> tuple[str, int] | None:
        """The role and index of the node whose success is the job's; None where all nodes must succeed."""
        if self.run_policy.success_policy is SuccessPolicy.ALL_WORKERS:
            return None
        return next(((role, 0) for role in (CHIEF, WORKER) if role in self.roles), None)

    @property
    def master(self) -> ReplicaSpec | None:
        """The user's spec of the master, under either name; None if absent."""
        return self.replica_specs.get(MASTER, self.replica_specs.get(MASTER_ALIAS))

    @property
    def is_ours(self) -> bool:
        """Whether our operator may touch the job."""
        return self.managed_by in ("", "elasticjob")

    @property
    def needs_master(self) -> bool:
        """Whether the job has a master: not with Local, and with CustomStrategy only if the role is given."""
        if self.distribution_strategy is DistributionStrategy.CUSTOM:
            return self.master is not None
        return self.distribution_strategy is not DistributionStrategy.LOCAL


class ReplicaStatus(Part):
    """Number of nodes of a role, by state."""

    desired: int = 0
    """Number wanted."""

    pending: int = 0
    """Created, but not running yet."""

    active: int = 0
    """Running."""

    succeeded: int = 0
    """Ended with success."""

    failed: int = 0
    """Ended with an error, and not replaced."""


class Finding(Part):
    """A verdict of the master about workers or nodes."""

    time: Time
    """When it was found."""

    reason: str
    """Hang, Late, Straggler, FaultNode, LossAlarm, CheckpointTrouble, CutOff,
    Unfinished, HeldBack, FailsAtStart or WorkerFailed."""

    message: str
    """The verdict in a sentence."""

    until: Time | None = None
    """Until when it was so. Absent while it is, and where it happened once."""

    count: int | None = None
    """How often it was so, where it was more than once: the message is that of the first time."""

    last_time: Time | None = None
    """When it was so last, where it was more than once."""

    @property
    def times(self) -> str:
        """` (22 times)`, empty for once."""
        return f" ({self.count} times)" if self.count else ""


class Training(Part):
    """Progress of the training, as the master reports it."""

    step: int | None = None
    """Optimizer steps so far, over all restarts."""

    checkpoint_step: int | None = None
    """Step of the newest checkpoint that is known to be in storage; absent: none is known."""

    checkpoint_memory_step: int | None = None
    """Step of the newest checkpoint in the memory of nodes, which is written when the
    job is suspended; absent where checkpoints are kept in memory alone."""

    lost_steps: int | None = None
    """Steps that were made again, since neither a checkpoint nor a worker had them."""

    steps_per_second: float | None = None
    """Steps per second over the last window."""

    samples_per_second: float | None = None
    """Records per second over the last window."""

    epoch: float | None = None
    """Passes over the data so far."""

    progress: float | None = None
    """Completed share of the work, from 0 to 1."""

    eta: Time | None = None
    """Estimated time of the end, at the present speed."""

    world_size: int | None = None
    """Number of worker processes that train together now."""

    round: int | None = None
    """How many times the workers have regrouped."""

    restarts: int | None = None
    """How often agents started the workers of their nodes again after failures, in the same pods."""

    node_check: str | None = None
    """What the check of the nodes found: nodes that fail, and nodes that are slow."""

    goodput: float | None = None
    """Share of the time of all workers that was productive, from 0 to 1."""

    badput_seconds: Annotated[dict[str, int], Field(max_length=16)] = {}
    """Seconds of workers that were lost, by cause (docs/training.md), to two digits."""

    released: Annotated[list[str], Field(max_length=64)] = []
    """Pods of parameter servers that the training does not use any more: the operator deletes them."""

    findings: Annotated[list[Finding], Field(max_length=16)] = []
    """The last verdicts about workers and nodes, oldest first."""


class ElasticJobStatus(Part):
    """Observed state of the job. Written by the operator; `training` by the job's master."""

    phase: Phase | None = None
    """Created, Pending, Running, Scaling, Restarting, Suspended, Succeeded or Failed."""

    reason: str | None = None
    """Why the job failed, or why nodes of it do not run, in one word such as Unschedulable; the conditions
    have the sentence."""

    conditions: Annotated[list[OneCondition], Field(max_length=32, json_schema_extra=list_map("type"))] = []
    """Conditions of the job: Created, Gang (of jobs that ask for one), Running (pods run), Training (steps
    are made), Scaling, Restarting, Suspended, Complete (and Succeeded), Failed. For kstatus: Ready (it runs
    with as many nodes as it needs, has succeeded, or is suspended), Reconciling, Stalled (it has failed)."""

    strategy: DistributionStrategy | None = None
    """How the nodes work together: spec.distributionStrategy, or its default."""

    observed_generation: Annotated[int, Field(json_schema_extra={"format": "int64"})] | None = None
    """The metadata.generation for which this status was computed."""

    replicas: int | None = None
    """Number of worker pods; read by kubectl scale and autoscalers."""

    selector: str | None = None
    """The label selector of the worker pods; read by autoscalers."""

    workers: str | None = None
    """Running and wanted workers, such as 2/4; when the job is over, those that succeeded. Jobs without the
    role worker count all roles."""

    replica_statuses: Annotated[dict[str, ReplicaStatus], Field(max_length=MOST_ROLES)] = {}
    """Nodes by role and state."""

    restarts: int | None = None
    """How many pods were made to replace one that failed or was killed, and how often agents started workers
    again in the same pods after failures."""

    start_time: Time | None = None
    """When the first pod of the job was created."""

    completion_time: Time | None = None
    """When the job succeeded or failed."""

    last_scale_plan: str | None = None
    """The ScalePlan that was applied last."""

    training: Training | None = None
    """Progress and speed, written by the job's master."""


class ElasticJob(CustomResource):
    """A distributed training job that grows, shrinks and heals while it trains."""

    spec: ElasticJobSpec
    """The training to run: its nodes, policies and limits."""

    status: ElasticJobStatus = ElasticJobStatus()
    """Observed state of the job."""


ELASTICJOB: Final = Kind(GROUP, VERSION, "ElasticJob", "elasticjobs", ElasticJob)

DECLARATION: Final = Declaration(
    ELASTICJOB,
    short_names=("ej",),
    categories=("all", "training"),
    scale=Scale(f".spec.replicaSpecs.{WORKER}.replicas", ".status.replicas", ".status.selector"),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Workers", ".status.workers", description="Workers that run, or succeeded, of those wanted."),
        Column("Restarts", ".status.restarts", "integer"),
        Column("Speed", ".status.training.stepsPerSecond", "number", "Steps per second."),
        Column("Reason", ".status.reason", description="Why it failed, or why nodes do not run."),
        Column("Age", ".metadata.creationTimestamp", "date"),
        Column("Strategy", ".status.strategy", wide=True),
        Column("Mode", ".spec.optimizeMode", wide=True),
        Column("World", ".status.training.worldSize", "integer", "Processes that train together.", wide=True),
        Column(
            "Goodput", ".status.training.goodput", "number", "Share of productive worker time.", wide=True
        ),
    ),
)
