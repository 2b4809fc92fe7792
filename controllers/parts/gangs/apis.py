"""The APIs of gang schedulers, one row each: what is made for a job, and what its pods carry.

Which of them a cluster has is found by discovery. The first row that the cluster has, and that offers what
the job asks for, is taken. What an API calls immutable stays as it was when the gang was made.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final

from elasticjob.api.readings import decode
from elasticjob.api.v1alpha1.checks.common import is_label
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB, ElasticJob
from elasticjob.api.v1alpha1.elasticjob import Gang as Word
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.gangs.gang import Gang
from elasticjob.controllers.parts.owners import controlled_by, manifest_of
from elasticjob.kube.json import JsonReader
from elasticjob.kube.objects.kinds import Kind, Manifest
from elasticjob.kube.objects.views import Object

TEMPLATE: Final = "nodes"
"""The name of the only group in a Workload."""


@dataclass(frozen=True)
class PodFields:
    """What a pod of a gang carries."""

    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    spec: Mapping[str, Any] = field(default_factory=dict)
    scheduler: str = ""


Spec = Callable[[ElasticJob, Gang], Manifest]


@dataclass(frozen=True)
class Api:
    """An API of a gang scheduler; its objects are made in this order, and the last one follows the job.

    `fixed` are the fields of a Gang that are immutable once its objects are made.
    """

    word: Word
    objects: tuple[tuple[Kind[Object], Spec], ...]
    carried: Callable[[Gang, str], PodFields]
    fixed: frozenset[str] = frozenset()

    @property
    def name(self) -> str:
        """Group and version."""
        return self.objects[-1][0].api_version

    @property
    def kinds(self) -> tuple[Kind[Object], ...]:
        """The kinds that the cluster must serve."""
        return tuple(kind for kind, _ in self.objects)

    def manifests(self, job: ElasticJob, gang: Gang) -> tuple[tuple[Kind[Object], Manifest], ...]:
        """Return the objects of a job's gang, in the order in which they are made."""
        metadata = {
            "name": gang.name,
            "namespace": job.metadata.namespace,
            "labels": names.job_labels(job.metadata.name, "job"),
            "ownerReferences": [controlled_by(job)],
        }
        return tuple((kind, manifest_of(kind, metadata, spec=spec(job, gang))) for kind, spec in self.objects)


def _kind(group: str, version: str, name: str, plural: str) -> Kind[Object]:
    return Kind(group, version, name, plural, Object)


def _policy(gang: Gang) -> Manifest:
    return {"gang": {"minCount": gang.least}}


def _controller(job: ElasticJob) -> Manifest:
    return {"apiGroup": ELASTICJOB.group, "kind": ELASTICJOB.name, "name": job.metadata.name}


def _priority(gang: Gang) -> Manifest:
    """The PriorityClass, which must be that of the pods."""
    return {"priorityClassName": gang.priority_class_name} if gang.priority_class_name else {}


def _workload(job: ElasticJob, gang: Gang) -> Manifest:
    template = {
        "name": TEMPLATE,
        "schedulingPolicy": _policy(gang),
        "disruptionMode": {"single": {}},
        **_priority(gang),
    }
    return {"controllerRef": _controller(job), "podGroupTemplates": [template]}


def _pod_group(job: ElasticJob, gang: Gang) -> Manifest:
    return {
        "workloadRef": {"workloadName": gang.name, "templateName": TEMPLATE},
        "schedulingPolicy": _policy(gang),
        "disruptionMode": {"single": {}},
        **_priority(gang),
    }


def _workload_of_1_36(job: ElasticJob, gang: Gang) -> Manifest:
    """Priority and disruptionMode have a feature gate of their own there, without which they are refused."""
    template = {"name": TEMPLATE, "schedulingPolicy": _policy(gang)}
    return {"controllerRef": _controller(job), "podGroupTemplates": [template]}


def _pod_group_of_1_36(job: ElasticJob, gang: Gang) -> Manifest:
    reference = {"workloadName": gang.name, "podGroupTemplateName": TEMPLATE}
    return {"podGroupTemplateRef": {"workload": reference}, "schedulingPolicy": _policy(gang)}


def _workload_of_1_35(job: ElasticJob, gang: Gang) -> Manifest:
    return {"controllerRef": _controller(job), "podGroups": [{"name": TEMPLATE, "policy": _policy(gang)}]}


def _pod_group_of_plugins(job: ElasticJob, gang: Gang) -> Manifest:
    timeout = {} if gang.timeout_seconds is None else {"scheduleTimeoutSeconds": gang.timeout_seconds}
    return {"minMember": gang.least, **timeout}


def _pod_group_of_volcano(job: ElasticJob, gang: Gang) -> Manifest:
    roles = {"minTaskMember": gang.roles} if gang.roles else {}
    queue = {"queue": gang.queue} if gang.queue else {}
    return {"minMember": gang.least, **roles, **queue, **_priority(gang)}


def _in_group(gang: Gang, role: str) -> PodFields:
    return PodFields(spec={"schedulingGroup": {"podGroupName": gang.name}})


def _in_workload(gang: Gang, role: str) -> PodFields:
    return PodFields(spec={"workloadRef": {"name": gang.name, "podGroup": TEMPLATE}})


def _labels(gang: Gang, role: str) -> PodFields:
    return PodFields(labels={"scheduling.x-k8s.io/pod-group": gang.name}, scheduler=gang.scheduler)


def _annotations(gang: Gang, role: str) -> PodFields:
    annotations = {"scheduling.k8s.io/group-name": gang.name, "volcano.sh/task-spec": role}
    return PodFields(annotations=annotations, scheduler=gang.scheduler or "volcano")


_KUBERNETES: Final = "scheduling.k8s.io"

APIS: Final[tuple[Api, ...]] = (
    Api(
        Word.KUBERNETES,
        (
            (_kind(_KUBERNETES, "v1beta1", "Workload", "workloads"), _workload),
            (_kind(_KUBERNETES, "v1beta1", "PodGroup", "podgroups"), _pod_group),
        ),
        _in_group,
        fixed=frozenset({"priority_class_name"}),
    ),
    Api(
        Word.KUBERNETES,
        (
            (_kind(_KUBERNETES, "v1alpha2", "Workload", "workloads"), _workload_of_1_36),
            (_kind(_KUBERNETES, "v1alpha2", "PodGroup", "podgroups"), _pod_group_of_1_36),
        ),
        _in_group,
        fixed=frozenset({"least"}),
    ),
    Api(
        Word.KUBERNETES,
        ((_kind(_KUBERNETES, "v1alpha1", "Workload", "workloads"), _workload_of_1_35),),
        _in_workload,
        fixed=frozenset({"least"}),
    ),
    Api(
        Word.COSCHEDULING,
        ((_kind("scheduling.x-k8s.io", "v1alpha1", "PodGroup", "podgroups"), _pod_group_of_plugins),),
        _labels,
    ),
    Api(
        Word.VOLCANO,
        ((_kind("scheduling.volcano.sh", "v1beta1", "PodGroup", "podgroups"), _pod_group_of_volcano),),
        _annotations,
    ),
)


def api_of(gang: Gang) -> Api:
    """Return the API by which a gang was made."""
    return next(api for api in APIS if api.name == gang.api)


_GANG: Final = JsonReader(Gang)


def gang_from(annotations: Mapping[str, str]) -> Gang | None:
    """Return the gang that was made for a JobResource with these annotations; None without one of ours."""
    gang = decode(annotations.get(names.GANG), _GANG)
    known = gang is not None and gang.least > 0 and is_label(gang.name)
    return gang if known and any(gang and api.name == gang.api for api in APIS) else None
