"""Kubeflow's TFJob: PS, Worker, Chief and Evaluator are roles of a job with parameter servers."""

from __future__ import annotations

from typing import Final

from elasticjob.api.roles import CHIEF, EVALUATOR, PS, WORKER
from elasticjob.api.v1alpha1.elasticjob import DistributionStrategy, SuccessPolicy
from elasticjob.cli.convert import pods, training
from elasticjob.cli.convert.runpolicy import run_policy
from elasticjob.cli.convert.system import Fields, System, Unconvertible, Verdict, kind
from elasticjob.cli.convert.systems.pytorchjob import GROUP, MARKS, general
from elasticjob.cli.convert.training import Training, members, node_fields, role_of, training_template
from elasticjob.kube.objects.kinds import Manifest

ROLES: Final = {"Ps": PS, "Worker": WORKER, "Chief": CHIEF, "Master": CHIEF, "Evaluator": EVALUATOR}
OLDER: Final = ("cleanPodPolicy", "ttlSecondsAfterFinished", "activeDeadlineSeconds", "backoffLimit")
"""Fields of a run policy that older versions have in the spec."""
RANGED: Final = "write minReplicas and maxReplicas of the roles whose number may change"
AMONG_WORKERS: Final = (
    "without parameter servers the first worker is the chief: counted in spec.replicaSpecs.worker"
)
FRAMEWORK: Final = "tensorflow"


def _read(whole: Fields) -> list[Manifest]:
    """Return the job, whose nodes get TF_CONFIG from the operator."""
    spec = whole.below("spec")
    roles = {ROLES[name]: role for name, role in members(spec, "tfReplicaSpecs", ROLES).items()}
    if WORKER not in roles and CHIEF not in roles:
        raise Unconvertible("spec.tfReplicaSpecs has no Worker: write one, with its template")
    found = {name: training_template(role, ("tensorflow",)) for name, role in roles.items()}
    specs = {name: _role(role, found[name]) for name, role in roles.items()}
    if PS not in specs and CHIEF in specs:
        specs = _without_chief(roles, specs)
    strategy = DistributionStrategy.PARAMETER_SERVER if PS in specs else DistributionStrategy.ALLREDUCE
    policy = spec.below("runPolicy")
    older = Fields(
        whole.source, {name: spec.peek(name) for name in OLDER if name in spec}, spec.path, spec.log
    )
    spec.drop("enableDynamicWorker", RANGED, harmless=spec.peek("enableDynamicWorker") is False)
    all_of_them = spec.text("successPolicy", "as runPolicy.successPolicy") == "AllWorkers"
    success = SuccessPolicy.ALL_WORKERS if all_of_them else SuccessPolicy.CHIEF_OR_WORKER_0
    made: Manifest = {
        "distributionStrategy": strategy.value,
        **general(policy),
        **node_fields(next((each.launch for each in found.values() if each.launch), None)),
        "replicaSpecs": specs,
        "runPolicy": {**run_policy(older), **run_policy(policy), "successPolicy": success.value},
    }
    return [pods.job(whole, made, framework=FRAMEWORK)]


def _role(role: Fields, found: Training) -> Manifest:
    where = role.path.rpartition(".")[2]
    sizes = {"replicas": role.number("replicas")}
    policy = role.text("restartPolicy", "")
    role.keep("template", f"as spec.replicaSpecs.{ROLES.get(where.capitalize(), where)}.template")
    return role_of(found, sizes, restartPolicy=policy)


def _without_chief(roles: dict[str, Fields], specs: dict[str, Manifest]) -> dict[str, Manifest]:
    """Return the roles with the chief as one more worker: all-reduce has no chief."""
    chief, others = specs[CHIEF], {name: spec for name, spec in specs.items() if name != CHIEF}
    roles[CHIEF].note(f"{roles[CHIEF].path}.replicas", Verdict.KEPT, AMONG_WORKERS)
    if WORKER in others:
        roles[WORKER].keep("replicas", "counted in spec.replicaSpecs.worker.replicas, with the chief")
    else:
        return {WORKER: chief, **others}
    training.compare(roles[CHIEF], chief.get("template", {}), others[WORKER].get("template", {}))
    count = chief.get("replicas", 1) + others[WORKER].get("replicas", 1)
    return {**others, WORKER: {**others[WORKER], "replicas": count}}


TFJOB: Final = System("Kubeflow TFJob", (kind(GROUP, "TFJob"),), _read, MARKS)
