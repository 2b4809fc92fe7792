"""Kubeflow's PyTorchJob: Master and Worker are the workers, the elastic policy is their range."""

from __future__ import annotations

from typing import Any, Final

from elasticjob.cli.convert import pods
from elasticjob.cli.convert.launchers.launch import MASTER, Launch
from elasticjob.cli.convert.runpolicy import run_policy
from elasticjob.cli.convert.system import Conversion, Fields, Source, Unconvertible, Verdict
from elasticjob.cli.convert.training import Training, members, node_fields, role_of, training_template, within
from elasticjob.kube.objects.kinds import Kind, Manifest

GROUP: Final = "kubeflow.org"
OURS: Final = ("", "kubeflow.org/training-operator")
"""Values of managedBy that name the operator itself."""
WORKERS: Final = "spec.replicaSpecs.worker"
THE_OTHERS: Final = "the first worker has the template of Worker: there is no special first pod"
SIZED: Final = (
    "optimizeMode: single-job learns the number from the training speed; an HPA of your own may scale the job"
)


class PyTorchJob:
    """PyTorchJobs of the training operator, in any version."""

    NAME = "Kubeflow PyTorchJob"
    KINDS = (Kind(GROUP, "v1", "PyTorchJob", "pytorchjobs", dict),)

    def recognises(self, source: Source) -> bool:
        """Whether it is a PyTorchJob."""
        return source.is_a(GROUP, "PyTorchJob")

    def convert(self, source: Source) -> Conversion:
        """Return the job: one role of workers, each with elasticjob run."""
        whole = Fields(source)
        spec = whole.below("spec")
        roles = members(spec, "pytorchReplicaSpecs", ("Master", "Worker"))
        if not roles:
            raise Unconvertible(
                "spec.pytorchReplicaSpecs has neither Master nor Worker: write Worker, with its template"
            )
        elastic = spec.below("elasticPolicy")
        defaults = launch_of(elastic, processes(spec, elastic))
        found = {
            name: training_template(role, ("pytorch",), defaults=defaults, plainly=True)
            for name, role in roles.items()
        }
        worker = found.get("Worker", found.get("Master", Training({})))
        sizes = {"replicas": count_workers(roles, elastic), **bounds(elastic)}
        if worker.launch is not None and not bounds(elastic) and len(roles) == 1:
            sizes |= {name: size for name, size in worker.launch.sizes().items() if name != "replicas"}
        compare(roles, found)
        sizes = within(roles.get("Worker", roles.get("Master", spec)), sizes, elastic)
        made: Manifest = {
            **general(spec.below("runPolicy")),
            **node_fields(worker.launch),
            "replicaSpecs": {"worker": role_of(worker, sizes, restartPolicy=restart_policy(roles))},
            "runPolicy": run_policy(spec.below("runPolicy")),
        }
        return Conversion(pods.job(whole, made), whole.notes())


def general(policy: Fields) -> Manifest:
    """Return the fields of a run policy that are those of the spec here."""
    suspend = policy.flag("suspend", "as spec.suspend")
    manager = policy.peek("managedBy")
    if manager in OURS:
        policy.drop("managedBy", "is the operator itself", harmless=True)
        manager = ""
    else:
        policy.keep("managedBy", "as spec.managedBy")
    return pods.without_empty({"suspend": suspend, "managedBy": manager})


def processes(spec: Fields, elastic: Fields) -> str:
    """Return the processes of each node: a number, auto, cpu or gpu; auto by default."""
    told = "as --nproc-per-node of elasticjob run, where the command calls a launcher"
    found = spec.keep("nprocPerNode", told) or elastic.keep("nProcPerNode", told)
    return str(found or "auto")


def launch_of(elastic: Fields, each: str) -> Launch:
    """Return the launcher settings of an elastic policy."""
    for name in ("rdzvBackend", "rdzvHost", "rdzvPort", "rdzvId", "standalone"):
        elastic.drop(name, MASTER, harmless=True)
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
    """Return the policy of the workers."""
    found = {name: role.text("restartPolicy", "") for name, role in roles.items()}
    return found.get("Worker") or found.get("Master") or ""


def compare(roles: dict[str, Fields], found: dict[str, Training]) -> None:
    """Add a note if the template of Master differs from that of Worker."""
    if len(found) < 2 or found["Master"].template == found["Worker"].template:
        return
    roles["Master"].note(f"{roles['Master'].path}.template", Verdict.CHANGED, THE_OTHERS)


PYTORCHJOB: Final = PyTorchJob()
