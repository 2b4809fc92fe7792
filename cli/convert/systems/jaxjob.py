"""Kubeflow's JAXJob: its workers."""

from __future__ import annotations

from typing import Final

from elasticjob.cli.convert import pods
from elasticjob.cli.convert.runpolicy import run_policy
from elasticjob.cli.convert.system import Fields, System, Unconvertible, Verdict, child, kind
from elasticjob.cli.convert.systems.pytorchjob import GROUP, MARKS, WORKERS, general
from elasticjob.cli.convert.training import members, node_fields, note_near, role_of, training_template
from elasticjob.kube.objects.kinds import Manifest

FRAMEWORK: Final = "jax"
PLACE: Final = (
    "COORDINATOR_ADDRESS, NUM_PROCESSES and PROCESS_ID are not set: read MASTER_ADDR:MASTER_PORT, WORLD_SIZE "
    "and RANK, or write the loop with elasticjob.trainer.jax"
)


def _read(whole: Fields) -> list[Manifest]:
    """Return the job of the workers."""
    spec = whole.below("spec")
    roles = members(spec, "jaxReplicaSpecs", ("Worker",))
    if "Worker" not in roles:
        raise Unconvertible("spec.jaxReplicaSpecs has no Worker: write one, with its template")
    worker = roles["Worker"]
    found = training_template(worker, (FRAMEWORK,), plainly=True)
    path = f"{child(worker.path, 'template')}.spec.containers[0].env"
    note_near(worker, path, Verdict.CHANGED, PLACE)
    count = worker.number("replicas", f"as {WORKERS}.replicas")
    sizes = {"replicas": 1 if count is None else count}
    policy = spec.below("runPolicy")
    made: Manifest = {
        **general(policy),
        **node_fields(found.launch),
        "replicaSpecs": {"worker": role_of(found, sizes, restartPolicy=worker.text("restartPolicy"))},
        "runPolicy": run_policy(policy),
    }
    return [pods.job(whole, made, framework=FRAMEWORK)]


JAXJOB: Final = System("Kubeflow JAXJob", (kind(GROUP, "JAXJob"),), _read, MARKS)
