"""et-operator's TrainingJob, ScaleIn and ScaleOut (kai.alibabacloud.com): Horovod with a launcher."""

from __future__ import annotations

from typing import Final

from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN
from elasticjob.cli.convert import pods
from elasticjob.cli.convert.launchers.launch import Launch
from elasticjob.cli.convert.runpolicy import clean_pod_policy
from elasticjob.cli.convert.system import Fields, Marks, System, Unconvertible, Verdict, child, kind
from elasticjob.cli.convert.systems.mpijob import launcher_container, under
from elasticjob.cli.convert.training import Training, processes, role_of, within
from elasticjob.kube.objects.kinds import Manifest

GROUP: Final = "kai.alibabacloud.com"
NO_LAUNCHER: Final = "workers find each other by the job's master: there is no launcher"
NO_SCRIPT: Final = "no script runs at a change of size: agents hear of it from the job's master"

MARKS: Final = Marks(
    labels=(
        (r"(?:training-)?job-name", LABEL_JOB),
        (r"replica-type|training-job-role", LABEL_ROLE),
        (r"replica-index", LABEL_INDEX),
        (r"group-name|job-role", ""),
    ),
    variables=((r"(?:OMPI|HOROVOD_GLOO|HOROVOD_ELASTIC)_\w+", ""),),
    hosts=r"{job}-(?:worker-\d+|launcher)",
    objects=(r"/etc/edl[/\w]*", r"{job}-(?:config|secret)"),
)
"""What et-operator puts into pods."""


def _read(whole: Fields) -> list[Manifest]:
    """Return the job, or a ScalePlan for the nodes that a ScaleIn names."""
    if whole.source.manifest["kind"] == "TrainingJob":
        return [pods.job(whole, _job(whole.below("spec")))]
    return [pods.build(whole, SCALEPLAN, _plan(whole.below("spec")))]


def _job(spec: Fields) -> Manifest:
    roles = spec.below("etReplicaSpecs")
    if "worker" not in roles:
        raise Unconvertible("spec.etReplicaSpecs has no worker: write one, with its template")
    spec.drop("launcherAttachMode", NO_LAUNCHER, harmless=True)
    policy = {"cleanPodPolicy": clean_pod_policy(spec), "backoffLimit": spec.number("backoffLimit")}
    return {
        "distributionStrategy": "AllreduceStrategy",
        "replicaSpecs": {"worker": _worker(spec, roles)},
        "runPolicy": pods.without_empty(policy),
    }


def _worker(spec: Fields, roles: Fields) -> Manifest:
    role, launcher = roles.below("worker"), roles.below("launcher")
    launcher.leave("replicas restartPolicy", NO_LAUNCHER)
    sizes = {name: role.number(name) for name in ("replicas", "minReplicas", "maxReplicas")}
    policy = role.text("restartPolicy") or spec.text("restartPolicy")
    template, slots = pods.template(role), processes(spec, "slotsPerWorker")
    if pods.containers(pods.template(launcher)):
        count = sizes["replicas"] or 1
        starter = launcher_container(launcher, Launch("", slots=slots, nodes=(count, count)))
        template = under(role, template, starter.container, launcher)
    return role_of(Training(template), within(role, sizes), restartPolicy=policy)


def _plan(spec: Fields) -> Manifest:
    job = spec.below("selector").text("name", "as spec.ownerJob")
    for name in ("script", "timeout", "env", "backoffLimit"):
        spec.drop(name, NO_SCRIPT, harmless=name != "script")
    names = spec.below("toDelete").peek("podNames")
    if not isinstance(names, list) or not names:
        field = "toDelete" if spec.source.manifest["kind"] == "ScaleIn" else "toAdd"
        raise Unconvertible(
            f"spec.{field}.count is relative, and a plan says how many there are then: write "
            f"kubectl scale elasticjob {job or 'NAME'} --replicas=N"
        )
    spec.below("toDelete").keep("podNames", "as spec.removePods")
    if "count" in spec.below("toDelete"):
        spec.note(child(f"{spec.path}.toDelete", "count"), Verdict.KEPT, "the names say it")
    return {"ownerJob": job, "removePods": [{"name": str(name)} for name in names], "manualScaling": True}


ETOPERATOR: Final = System(
    "et-operator TrainingJob, ScaleIn, ScaleOut",
    tuple(kind(GROUP, name, "v1alpha1") for name in ("TrainingJob", "ScaleIn", "ScaleOut")),
    _read,
    MARKS,
)
