"""Kubeflow's PyTorchJob: Master and Worker are the workers, the elastic policy is their range."""

from __future__ import annotations

from typing import Any, Final

from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE
from elasticjob.cli.convert import pods, training
from elasticjob.cli.convert.launchers.launch import MASTER, Launch
from elasticjob.cli.convert.runpolicy import manager, run_policy
from elasticjob.cli.convert.system import Fields, Marks, System, Unconvertible, kind
from elasticjob.cli.convert.training import Training, node_fields, role_of, within
from elasticjob.kube.objects.kinds import Manifest

GROUP: Final = "kubeflow.org"
OURS: Final = "kubeflow.org/training-operator"
BY_DEFAULT: Final = "that of roles without one"
WORKERS: Final = "spec.replicaSpecs.worker"
SIZED: Final = (
    "optimizeMode: single-job learns the number from the training speed; an HPA of your own may scale the job"
)

PREFIX: Final = r"(?:training\.kubeflow\.org/|kubeflow\.org/|(?:pytorch|tf|mpi|jax)[-_])?"
MARKS: Final = Marks(
    labels=(
        (rf"{PREFIX}job[-_]name", LABEL_JOB),
        (rf"{PREFIX}replica[-_]type", LABEL_ROLE),
        (rf"{PREFIX}replica[-_]index", LABEL_INDEX),
        (rf"{PREFIX}job[-_]role|group-name|controller-name|(?:training\.)?kubeflow\.org/.+", ""),
    ),
    variables=(
        (r"\$[({]?(?:PET_NODE_)?RANK", "NODE_RANK"),
        (r"PET_NNODES", "NODE_NUM"),
        (r"\$[({]?(?:MASTER_ADDR|MASTER_PORT|WORLD_SIZE|LOCAL_RANK)", ""),
        (r"(?:PET|OMPI|PMIX?)_\w+|COORDINATOR_ADDRESS|NUM_PROCESSES|PROCESS_ID", ""),
    ),
    hosts=r"{job}-(?:master|worker|launcher|ps|chief|evaluator)(?:-\d+)?",
)
"""What the training operator puts into pods."""


def _read(whole: Fields) -> list[Manifest]:
    """Return the job: one role of workers, each with elasticjob run."""
    spec = whole.below("spec")
    roles = training.members(spec, "pytorchReplicaSpecs", ("Master", "Worker"))
    if not roles:
        raise Unconvertible(
            "spec.pytorchReplicaSpecs has neither Master nor Worker: write Worker, with its template"
        )
    elastic = spec.below("elasticPolicy")
    defaults = launch_of(
        elastic,
        training.processes(spec, "nprocPerNode") or training.processes(elastic, "nProcPerNode") or "auto",
    )
    found = {
        name: training.training_template(role, ("pytorch",), defaults=defaults, plainly=True)
        for name, role in roles.items()
    }
    worker = found.get("Worker", found.get("Master", Training({})))
    sizes = {"replicas": count_workers(roles, elastic), **bounds(elastic)}
    if worker.launch is not None and not bounds(elastic) and len(roles) == 1:
        sizes |= {name: size for name, size in worker.launch.sizes().items() if name != "replicas"}
    if len(found) == 2:
        training.compare(roles["Master"], found["Master"].template, worker.template)
    sizes = within(roles.get("Worker", roles.get("Master", spec)), sizes, elastic)
    made: Manifest = {
        **general(spec.below("runPolicy")),
        **node_fields(worker.launch),
        "replicaSpecs": {"worker": role_of(worker, sizes, restartPolicy=restart_policy(roles))},
        "runPolicy": run_policy(spec.below("runPolicy")),
    }
    return [pods.job(whole, made)]


def general(policy: Fields) -> Manifest:
    """Return the fields of a run policy that are those of the spec here."""
    suspend = policy.flag("suspend", "as spec.suspend")
    return pods.without_empty({"suspend": suspend, "managedBy": manager(policy, OURS)})


def launch_of(elastic: Fields, each: str) -> Launch:
    """Return the launcher settings of an elastic policy."""
    elastic.leave("rdzvBackend rdzvHost rdzvPort rdzvId standalone", MASTER)
    elastic.drop("rdzvConf", f"{MASTER}; its times are settings of the master")
    elastic.drop("metrics", SIZED)
    restarts = elastic.number("maxRestarts", "as --max-restarts of elasticjob run: restarts within a pod")
    return Launch("", processes=each, flags=() if restarts is None else ("--max-restarts", str(restarts)))


def bounds(elastic: Fields) -> dict[str, Any]:
    """Return the range of an elastic policy."""
    named = {name: elastic.number(name, f"as {WORKERS}.{name}") for name in ("minReplicas", "maxReplicas")}
    return {name: size for name, size in named.items() if size is not None}


def count_workers(roles: dict[str, Fields], elastic: Fields) -> int:
    """Return how many workers there are: Master and Worker together; without a number, each has one."""
    if len(roles) == 1:
        [role] = roles.values()
        count = role.number("replicas", f"as {WORKERS}.replicas")
        return count if count is not None else bounds(elastic).get("minReplicas", 1)
    counts = [role.number("replicas", f"counted in {WORKERS}.replicas") for role in roles.values()]
    return sum(1 if each is None else each for each in counts)


def restart_policy(roles: dict[str, Fields]) -> str:
    """Return the policy of the workers: that of Worker, if there are both."""
    found = {name: role.text("restartPolicy") for name, role in roles.items()}
    policy = found.get("Worker", found.get("Master", ""))
    if found.get("Master", policy) != policy:
        roles["Master"].change("restartPolicy", f"is {policy or BY_DEFAULT} now, as that of Worker")
    return policy


PYTORCHJOB: Final = System("Kubeflow PyTorchJob", (kind(GROUP, "PyTorchJob"),), _read, MARKS)
