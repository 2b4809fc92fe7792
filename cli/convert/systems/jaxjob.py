"""Kubeflow's JAXJob, and the kinds of the training operator that cannot be converted."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from elasticjob.cli.convert import pods
from elasticjob.cli.convert.runpolicy import run_policy
from elasticjob.cli.convert.system import Conversion, Fields, Source, Unconvertible, Verdict, child
from elasticjob.cli.convert.systems.pytorchjob import GROUP, WORKERS, general
from elasticjob.cli.convert.training import members, node_fields, note_near, role_of, training_template
from elasticjob.controllers.parts import names
from elasticjob.kube.objects.kinds import Kind, Manifest

FRAMEWORK: Final = "jax"
PLACE: Final = (
    "COORDINATOR_ADDRESS, NUM_PROCESSES and PROCESS_ID are not set: read MASTER_ADDR:MASTER_PORT, WORLD_SIZE "
    "and RANK, or write the loop with elasticjob.trainer.jax"
)


class JAXJob:
    """JAXJobs of the training operator."""

    NAME = "Kubeflow JAXJob"
    KINDS = (Kind(GROUP, "v1", "JAXJob", "jaxjobs", dict),)

    def recognises(self, source: Source) -> bool:
        """Whether it is a JAXJob."""
        return source.is_a(GROUP, "JAXJob")

    def convert(self, source: Source) -> Conversion:
        """Return the job of the workers."""
        whole = Fields(source)
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
        job = pods.job(whole, made)
        about = job["metadata"]
        about["annotations"] = {**about.get("annotations", {}), names.FRAMEWORK: FRAMEWORK}
        return Conversion(job, whole.notes())


WHY: Final[Mapping[str, str]] = {
    "XGBoostJob": "XGBoost's workers meet at a tracker in the Master, which no ElasticJob has: "
    "keep the XGBoostJob",
    "PaddleJob": (
        "Paddle's collective training is started by paddle.distributed.launch, which knows no "
        "elasticjob: keep the "
        "PaddleJob. TrainingJobs of EDL are converted"
    ),
    "MXJob": "MXNet is no longer maintained, and its scheduler has no counterpart: keep the MXJob",
}


class Others:
    """Kinds of the training operator that cannot be converted."""

    NAME = "Kubeflow XGBoostJob, PaddleJob, MXJob"
    KINDS = tuple(Kind(GROUP, "v1", kind, f"{kind.lower()}s", dict) for kind in WHY)

    def recognises(self, source: Source) -> bool:
        """Whether it is one of them."""
        return source.is_a(GROUP, *WHY)

    def convert(self, source: Source) -> Conversion:
        """Raise Unconvertible, with the reason."""
        raise Unconvertible(WHY[source.manifest["kind"]])


JAXJOB: Final = JAXJob()
OTHERS: Final = Others()
