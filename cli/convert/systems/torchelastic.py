"""TorchElastic's ElasticJob of 2020 (elastic.pytorch.org): roles in capitals, a range beside them, etcd."""

from __future__ import annotations

from typing import Final

from elasticjob.api.v1alpha1.common import GROUP as OURS
from elasticjob.cli.convert import pods
from elasticjob.cli.convert.runpolicy import run_policy
from elasticjob.cli.convert.system import Converted, Fields, Source, Unconvertible
from elasticjob.kube.objects.kinds import Kind, Manifest

GROUP: Final = "elastic.pytorch.org"
CONTAINERS: Final = ("elasticjob-worker",)
NO_ETCD: Final = "the job's master takes the place of etcd: nothing to do"


class TorchElastic:
    """ElasticJobs of the controller in pytorch/elastic."""

    NAME = "TorchElastic ElasticJob"
    KINDS = (Kind(GROUP, "v1alpha1", "ElasticJob", "elasticjobs", dict),)

    def recognises(self, source: Source) -> bool:
        """Whether it is an ElasticJob of this group, or one of which somebody has changed the group alone."""
        if source.is_a(GROUP, "ElasticJob"):
            return True
        spec = source.manifest.get("spec")
        return source.is_a(OURS, "ElasticJob") and isinstance(spec, dict) and "rdzvEndpoint" in spec

    def convert(self, source: Source) -> Converted:
        """Return the job: role Worker is worker, with the range of the spec."""
        whole = Fields(source)
        spec = whole.below("spec")
        spec.drop("rdzvEndpoint", NO_ETCD, harmless=True)
        roles = spec.below("replicaSpecs")
        if "Worker" not in roles:
            raise Unconvertible("spec.replicaSpecs has no Worker: write one, with its template")
        made: Manifest = {
            "distributionStrategy": "AllreduceStrategy",
            "replicaSpecs": {"worker": _worker(spec, roles.below("Worker"))},
            "runPolicy": run_policy(spec.below("RunPolicy")),
        }
        return Converted(pods.job(whole, made), whole.notes({"Etcd": NO_ETCD}))


def _worker(spec: Fields, role: Fields) -> Manifest:
    where = "as spec.replicaSpecs.worker.{}"
    found: Manifest = {
        "replicas": role.number("replicas"),
        "minReplicas": spec.number("minReplicas", where.format("minReplicas")),
        "maxReplicas": spec.number("maxReplicas", where.format("maxReplicas")),
        "restartPolicy": role.text("restartPolicy"),
        "template": pods.main_first(pods.template(role), CONTAINERS),
    }
    return pods.without_empty(found)


TORCHELASTIC: Final = TorchElastic()
