"""CAUSES: what each cause is, in a sentence that never changes, what a person does, and which commands help.

The key is the word in `status.reason` (REASON of `kubectl get`), in events, in doctor and on the dashboard.
A new reason is a row here; docs/troubles.md and the tables of the runbooks are written from the rows.
In commands and acts stand {job} (`digits -n team`), {object} (`elasticjob/digits -n team`), {name},
{namespace} and {pods} (options that select them); a rule fills in {pod} and {install}.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from types import MappingProxyType
from typing import Any, Final

from elasticjob.api.troubles.trouble import Grade, Trouble
from elasticjob.api.v1alpha1.elasticjob import ElasticJob


@dataclass(frozen=True)
class Cause:
    """A cause: its title, its usual grade, what a person does, and the commands that mend it or show more."""

    title: str
    act: str = ""
    commands: tuple[str, ...] = ()
    grade: Grade = Grade.WRONG

    def sentence(self, detail: str) -> str:
        """Return the title with what is known of one instance; a detail that has it already, as it is."""
        return detail if self.title in detail else ": ".join(filter(None, (self.title, detail)))

    def trouble(
        self,
        cause: str,
        about: ElasticJob | None,
        detail: str = "",
        *,
        grade: Grade | None = None,
        since: datetime | None = None,
        last: datetime | None = None,
        count: int = 1,
        **words: Any,
    ) -> Trouble:
        """Return a trouble of this cause; `detail` is what is known of this one."""
        filled = {**_names(about), **words}
        return Trouble(
            cause,
            f"{cause}: {self.sentence(detail)}",
            grade or self.grade,
            self.act.format(**filled),
            tuple(command.format(**filled) for command in self.commands),
            since,
            last,
            count,
        )


def title_of(cause: str) -> str:
    """Return what a cause is, "" where it has no row."""
    return CAUSES[cause].title if cause in CAUSES else ""


def sentence_of(cause: str, detail: str = "") -> str:
    """Return the sentence for a condition, an event or a log line."""
    return CAUSES[cause].sentence(detail) if cause in CAUSES else detail


def cause_of(reason: str, message: str) -> str:
    """Return the cause behind a reason of the scheduler, a kubelet or the API server, and its message."""
    found = (cause for of, pattern, cause in REFINED if reason == of and re.search(pattern, message, re.I))
    return next(found, reason)


def trouble_of(cause: str, about: ElasticJob | None, detail: str = "", **more: Any) -> Trouble:
    """Return a trouble; a cause that has no row, such as one of a later release, says what it knows."""
    return CAUSES.get(cause, UNKNOWN).trouble(cause, about, detail, **more)


def _names(job: ElasticJob | None) -> dict[str, str]:
    if job is None:
        return {}
    name, namespace = job.metadata.name, job.metadata.namespace
    return {
        "name": name,
        "namespace": namespace,
        "job": f"{name} -n {namespace}",
        "object": f"elasticjob/{name} -n {namespace}",
        "pods": f"-n {namespace} -l elasticjob.dlrover/name={name}",
    }


REFINED: Final = (
    ("Unschedulable", r"persistentvolumeclaim \S+ not found", "VolumeMissing"),
    ("Unschedulable", "unbound immediate PersistentVolumeClaims", "ClaimUnbound"),
    ("ContainerCreating", "there is no ", "VolumeMissing"),
    ("ErrImagePull", "", "ImagePullBackOff"),  # the kubelet tells the one and the other at each attempt
    ("Refused", "exceeded quota", "QuotaExceeded"),
    ("Refused", "is more than the job's resourceLimits", "Impossible"),
    ("Refused", "failed calling webhook", "WebhookFails"),
    ("Refused", r"service ?account \S+ not found", "ServiceAccountMissing"),
    ("Refused", "no PriorityClass with name", "PriorityClassMissing"),
    ("Refused", r"RuntimeClass \S+ not found", "RuntimeClassMissing"),
)
"""The reason, a pattern of its message, and the cause: one reason of Kubernetes may have several."""
_DESCRIBE: Final = ("kubectl describe {object}",)
_EDIT: Final = ("elasticjob suspend {job}", "kubectl edit {object}", "elasticjob resume {job}")
"""A template changes while its job has no pods."""
_EVENTS: Final = ("kubectl describe pods {pods}",)
_LOGS: Final = ("elasticjob logs {job} --tail 50",)
_AGAIN: Final = "; then kubectl replace --force -f the job's file, which starts it again"
UNKNOWN: Final = Cause("", commands=_DESCRIBE)


# fmt: off
CAUSES: Final[Mapping[str, Cause]] = MappingProxyType({
    # before a pod is there
    "ManagedElsewhere": Cause(
        "spec.managedBy names another controller, and this operator leaves the job alone",
        "start that controller, or make the job again without spec.managedBy", _DESCRIBE),
    "NotReconciled": Cause("no operator has looked at the last change of the job",
        "start the operator, or read why it does not go on", ("elasticjob doctor",)),
    "NameTaken": Cause("an object of another owner has a name that the job needs",
        "delete or rename the object that is named: it is not this job's", _DESCRIBE),
    "QuotaExceeded": Cause("a ResourceQuota of the namespace refuses the pods",
        "free what others use, lower the requests, or raise the quota",
        ("kubectl describe resourcequota -n {namespace}",)),
    "ServiceAccountMissing": Cause("the ServiceAccount of the template does not exist",
        "create it, or correct template.spec.serviceAccountName",
        ("kubectl get serviceaccounts -n {namespace}",)),
    "PriorityClassMissing": Cause("the PriorityClass of the template does not exist",
        "create it, or correct the name", ("kubectl get priorityclasses",)),
    "RuntimeClassMissing": Cause("the RuntimeClass of the template does not exist",
        "create it, or correct template.spec.runtimeClassName", ("kubectl get runtimeclasses",)),
    "WebhookFails": Cause("an admission webhook of others does not answer, and with it no pod can be made",
        "mend the webhook's server, or exempt the namespace in its configuration",
        ("kubectl get mutatingwebhookconfigurations,validatingwebhookconfigurations",)),
    "Refused": Cause("the API server, or a policy of the cluster, refuses the pods",
        "correct what the policy names in the template", _DESCRIBE),
    "GangUnavailable": Cause("the job asks for a gang, and the cluster has no scheduler for it",
        "install the gang's scheduler, or write gang: preferred", _EDIT),
    "Impossible": Cause("the sizes that are asked for are outside of the job's limits",
        "choose sizes within minReplicas, maxReplicas and resourceLimits", ("kubectl edit {object}",)),
    # queues
    "Queued": Cause("the job waits in its queue for quota", "wait, or ask for less",
        ("kubectl get localqueues -n {namespace}", "kubectl get workloads -n {namespace}"), Grade.DOUBTFUL),
    "QueueUnavailable": Cause("the queue of the job does not exist or is stopped",
        "create or start the LocalQueue, or correct the label kueue.x-k8s.io/queue-name",
        ("kubectl get localqueues -n {namespace}",)),
    "Deactivated": Cause("the job's Workload is deactivated",
        "set its spec.active to true to queue the job again", ("kubectl get workloads -n {namespace}",)),
    "AdmissionChecks": Cause("quota is reserved, and an admission check of the queue is open",
        "wait for the check", ("kubectl get workloads -n {namespace}",), Grade.DOUBTFUL),
    "KueueAbsent": Cause("the job names a queue, and the cluster has no Kueue",
        "install Kueue, or take the label kueue.x-k8s.io/queue-name away", ("kubectl edit {object}",),
        Grade.DOUBTFUL),
    "WaitingForQuota": Cause("nodes wait for a place in the quota of their queue", "wait, or ask for less",
        ("kubectl get workloads -n {namespace}",), Grade.DOUBTFUL),
    # a pod that does not start
    "VolumeMissing": Cause("an object of the pods' volumes does not exist",
        "create the object that is named, or correct the volume in the template",
        ("kubectl get persistentvolumeclaims,configmaps,secrets -n {namespace}",)),
    "ClaimUnbound": Cause("a PersistentVolumeClaim of the pods is not bound to a volume",
        "look at its StorageClass, or make a volume that fits",
        ("kubectl describe persistentvolumeclaims -n {namespace}",)),
    "MountFails": Cause("a machine cannot mount a volume of the pods",
        "look at the volume's server and options", _EVENTS),
    "Unscheduled": Cause("no scheduler has placed the pods",
        "correct template.spec.schedulerName, or start that scheduler", ("kubectl get pods -n kube-system",)),
    "Unschedulable": Cause("no machine fits the pods",
        "make room, begin smaller, or correct a selector that no machine meets", ("kubectl describe nodes",)),
    "NeverFits": Cause("no machine could hold one of the pods, even if it were empty",
        "lower resources.requests in the role's template, or add machines that have as much",
        ("kubectl describe nodes",)),
    "SchedulingGated": Cause("another controller holds the pods back by scheduling gates",
        "look at template.spec.schedulingGates, and at the controller that is to take them away", _EVENTS),
    "ImagePullBackOff": Cause("the image cannot be pulled",
        "correct its name, or template.spec.imagePullSecrets", _EDIT),
    "InvalidImageName": Cause("the name of the image is not valid", "correct it", _EDIT),
    "ErrImageNeverPull": Cause("the image is not on the machine, and imagePullPolicy is Never",
        "load the image, or change the policy", _EDIT),
    "CreateContainerConfigError": Cause("a ConfigMap or Secret of the pods' environment is missing",
        "create the object or the key that is named, or correct the template",
        ("kubectl get configmaps,secrets -n {namespace}",)),
    "CreateContainerError": Cause("a container cannot be made", "correct the container's command or mounts",
        _EDIT),
    "RunContainerError": Cause("a container cannot be started", "correct the container's command or mounts",
        _EDIT),
    "CrashLoopBackOff": Cause("a container beside the main one ends again and again", "read its log",
        _EVENTS),
    "PodInitializing": Cause("an init container has not ended", "read its log", _EVENTS, Grade.DOUBTFUL),
    "ContainerCreating": Cause("a machine has not started the pods", "look at the pods' events", _EVENTS),
    "InitContainerFailed": Cause("an init container has failed", "read its log", _EVENTS),
    "RefusedByMachine": Cause("machines refuse the pods again and again",
        "look at the machine's device plugin and topology policy", _EVENTS),
    # a pod that runs
    "MasterUnreachable": Cause("the job's master does not answer, so no lost node is replaced",
        "delete the pod: its state is kept, the training goes on, and a new master takes over",
        ("kubectl delete pod {name}-master-0 -n {namespace}",)),
    "Terminating": Cause("a pod is on its way out, and its successor waits for it", "wait", _EVENTS,
        Grade.DOUBTFUL),
    "TakenAway": Cause("the cluster took a pod away", "wait: its node is made again", _EVENTS,
        Grade.DOUBTFUL),
    "Killed": Cause("a node was killed from outside", "read why", _EVENTS, Grade.DOUBTFUL),
    "Crashed": Cause("a node crashed, and is made again", "read why", _LOGS, Grade.DOUBTFUL),
    "FatalError": Cause("a node failed, and is made again", "read why", _LOGS, Grade.DOUBTFUL),
    "HardwareError": Cause("a device of a machine failed, and the node is made again elsewhere",
        "look at the machine", _EVENTS, Grade.DOUBTFUL),
    "RunAgain": Cause("a node asked to be run again", grade=Grade.DOUBTFUL),
    "Succeeded": Cause("a node has succeeded, and restartPolicy Always starts it again",
        grade=Grade.DOUBTFUL),
    "MachineGone": Cause("a machine of the job is gone", "wait: its pods are made again on others",
        ("kubectl get nodes",), Grade.DOUBTFUL),
    "EvictionWaits": Cause("a machine is to be emptied, and minReplicas keeps a worker there",
        "wait until another worker is ready, or lower minReplicas", ("kubectl get pods {pods} -o wide",),
        Grade.DOUBTFUL),
    "Resizing": Cause("pods have not got their new resources yet",
        "look whether the machine has room for the larger pod", ("kubectl describe nodes",), Grade.DOUBTFUL),
    "OOMKilled": Cause("a node was killed for lack of memory",
        "wait: the operator raises its memory, up to resourceLimits",
        ("kubectl get scaleplans -n {namespace}",), Grade.DOUBTFUL),
    "PodFailed": Cause("nodes have failed", "mend the error" + _AGAIN, _LOGS),
    "WorkersRestart": Cause("nodes end and are made again", "read why they ended", _LOGS, Grade.DOUBTFUL),
    "PlanFailed": Cause("the newest change of the job's size has failed", "look at the ScalePlan",
        ("kubectl describe scaleplans -n {namespace}",), Grade.DOUBTFUL),
    "NoStepYet": Cause(
        "nodes run, and no step has been made: the script loads data, waits for peers, or does not report "
        "its steps", "read what the script does", (*_LOGS, "elasticjob logs {job} master --tail 20"),
        Grade.DOUBTFUL),
    "LowGoodput": Cause("much of the workers' time is not productive", "look where it goes",
        ("elasticjob explain {job}",), Grade.DOUBTFUL),
    "DeletionHeld": Cause("the job is being deleted, and something keeps it",
        "mend the controller of the finalizer, or take the finalizer away", ("kubectl get pods {pods}",)),
    "Deleting": Cause("the job is being deleted", grade=Grade.DOUBTFUL),
    "PodHeld": Cause("a pod has been told to end, and stays", "look at its machine and its finalizers",
        _EVENTS),
    "Suspended": Cause("the job is suspended", "resume it", ("elasticjob resume {job}",), Grade.DOUBTFUL),
    # what a master finds
    "Hang": Cause("workers make no step", "wait: they are restarted; their stacks are in the log", _LOGS),
    "Late": Cause("a worker keeps the others waiting", "read what it does", _LOGS, Grade.DOUBTFUL),
    "Straggler": Cause("a worker is slower than the others", "look at its machine",
        ("kubectl get pods {pods} -o wide",), Grade.DOUBTFUL),
    "FaultNode": Cause("a node does not take part any more", "look at its machine",
        ("kubectl get pods {pods} -o wide",)),
    "LossAlarm": Cause("the loss is not as before",
        "look at the data, the learning rate and the last checkpoint", _LOGS, Grade.DOUBTFUL),
    "CheckpointTrouble": Cause("checkpoints do not reach storage",
        "make the folder writable, or make room in it: the next save goes there", _LOGS),
    "CutOff": Cause("a worker was killed when its grace was over, and what it saved last may be missing",
        "give the pods a longer terminationGracePeriodSeconds", _LOGS),
    "Unfinished": Cause("a node was lost after the last step, before it had finished",
        "wait: it does that again", _LOGS, Grade.DOUBTFUL),
    "HeldBack": Cause("a node is held back, since worlds with it fail", "look at its machine", _LOGS,
        Grade.DOUBTFUL),
    "FailsAtStart": Cause("worlds of this size fail at their start", "read why", _LOGS),
    "WorkerFailed": Cause("workers end again and again", "mend the error in the script" + _AGAIN, _LOGS),
    # a job that has failed
    "RestartsSpent": Cause("a node has spent its restarts",
        "mend the error, or raise restartCount or backoffLimit" + _AGAIN, _LOGS),
    "PodFailurePolicy": Cause("a rule of runPolicy.failurePolicy ended the job",
        "mend the error, or the rule" + _AGAIN, _LOGS),
    "CannotStart": Cause(
        "the program of a node cannot be started, or fails alike at each start before any step",
        "mend the error in the script, its environment, the command or the image" + _AGAIN, _LOGS),
    "OutOfMemory": Cause("a node needs more memory than it may get",
        "raise resourceLimits.memory, or the memory of the role's template" + _AGAIN, _LOGS),
    "OverLimit": Cause("a node exceeded a limit of its own template: storage, or time",
        "raise the limit" + _AGAIN, _EVENTS),
    "ProbeFailed": Cause("a probe of the template ended a node", "correct the probe" + _AGAIN, _EVENTS),
    "DeadlineExceeded": Cause("the job ran for runPolicy.activeDeadlineSeconds", "raise it" + _AGAIN,
        _DESCRIBE),
    "PendingTimeout": Cause("the job waited for runPolicy.pendingTimeoutSeconds",
        "make room, or raise it" + _AGAIN, ("kubectl describe nodes",)),
    "NotSaved": Cause("the last state of the training could not be saved", "mend the storage" + _AGAIN,
        _LOGS),
    "NodeCheckFailed": Cause("too few nodes passed the check", "look at the machines that failed",
        ("kubectl get pods {pods} -o wide",)),
    "InvalidNodeGroups": Cause("the groups of nodes do not fit the job", "correct them" + _AGAIN, _DESCRIBE),
    "TooFewNodes": Cause("fewer nodes than minReplicas are left", "mend why nodes do not come" + _AGAIN,
        _DESCRIBE),
    "NothingComputed": Cause("no node computed anything for long", "read what the script does" + _AGAIN,
        _LOGS),
    # clusters
    "OldKubernetes": Cause("the API server is older than elasticjob needs",
        "upgrade to Kubernetes 1.29 or newer"),
    "DefinitionsMissing": Cause("the API server does not know kinds of elasticjob", "install the definitions",
        ("elasticjob crds --apply",)),
    "DefinitionsOld": Cause("a definition lacks a field of this version, which is dropped from objects",
        "renew the definitions", ("elasticjob crds --apply",)),
    "OperatorMissing": Cause("no operator runs", "install it", ("{install}",)),
    "OperatorUnseen": Cause("no operator is seen: it may run outside of the cluster, or not at all",
        "install one, if none runs", ("{install}",), Grade.DOUBTFUL),
    "OperatorSilent": Cause("the operator does not do its work", "read its log, and restart it",
        ("kubectl logs -n {namespace} -l app.kubernetes.io/component=operator --tail 50", "kubectl rollout "
        "restart deployment -n {namespace} -l app.kubernetes.io/component=operator")),
    "ProgramNotReady": Cause("a program of elasticjob is not ready", "look at its events and its log",
        ("kubectl describe pod {pod} -n {namespace}", "kubectl logs {pod} -n {namespace} --tail 50")),
    "WebhooksFail": Cause("our webhooks do not answer, and jobs cannot be created or changed",
        "look at the operator's Service and pods",
        ("kubectl get endpoints -A -l app.kubernetes.io/name=elasticjob", "kubectl get "
        "validatingwebhookconfigurations")),
    "WebhooksAbsent": Cause("webhooks do not check jobs: those that cannot work are accepted, and fail later",
        "look at their configurations", ("kubectl get validatingwebhookconfigurations",), Grade.DOUBTFUL),
    "BrainMissing": Cause("jobs ask Brain for sizes, and none is seen: their masters decide alone",
        "install Brain",
        ("helm upgrade elasticjob charts/elasticjob -n elasticjob-system --reset-then-reuse-values --set "
        "brain.enabled=true",), Grade.DOUBTFUL),
    "NoMachines": Cause("no machine takes pods", "uncordon or mend machines", ("kubectl get nodes",)),
    "MachinesAway": Cause("machines are not ready", "look at them", ("kubectl describe nodes",),
        Grade.DOUBTFUL),
    "JobInTrouble": Cause("a job is in trouble", "ask about it", ("elasticjob doctor {job}",),
        Grade.DOUBTFUL),
    # reading
    "NotRead": Cause("this was not read", grade=Grade.UNKNOWN),
})
# fmt: on
