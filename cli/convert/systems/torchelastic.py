"""TorchElastic's ElasticJob of 2020 (elastic.pytorch.org): roles in capitals, a range beside them, etcd."""

from __future__ import annotations

from typing import Any, Final

from elasticjob.api.v1alpha1.common import GROUP as OURS
from elasticjob.cli.convert import pods
from elasticjob.cli.convert.runpolicy import run_policy
from elasticjob.cli.convert.system import Conversion, Fields, Source, Unconvertible
from elasticjob.cli.convert.training import node_fields, role_of, training_template, within
from elasticjob.kube.objects.kinds import Kind, Manifest

GROUP: Final = "elastic.pytorch.org"
CONTAINERS: Final = ("elasticjob-worker",)
ENTRYPOINT: Final = ("python", "-m", "torchelastic.distributed.launch")
WHERE: Final = "as spec.replicaSpecs.worker.{}"
NO_ETCD: Final = "the job's master takes the place of etcd: nothing to do"


class TorchElastic:
    """ElasticJobs of the controller in pytorch/elastic."""

    NAME = "TorchElastic ElasticJob"
    KINDS = (Kind(GROUP, "v1alpha1", "ElasticJob", "elasticjobs", dict),)

    def recognises(self, source: Source) -> bool:
        """Whether it is an ElasticJob of this group, or one with this operator's group."""
        if source.is_a(GROUP, "ElasticJob"):
            return True
        spec = source.manifest.get("spec")
        return source.is_a(OURS, "ElasticJob") and isinstance(spec, dict) and "rdzvEndpoint" in spec

    def convert(self, source: Source) -> Conversion:
        """Return the job: role Worker is worker, with the range of the spec."""
        whole = Fields(source)
        spec = whole.below("spec")
        spec.drop("rdzvEndpoint", NO_ETCD, harmless=True)
        roles = spec.below("replicaSpecs")
        if "Worker" not in roles:
            raise Unconvertible("spec.replicaSpecs has no Worker: write one, with its template")
        role = roles.below("Worker")
        found = training_template(role, CONTAINERS, prepared=with_launcher)
        sizes = _sizes(spec, role)
        if found.launch is not None and not {"minReplicas", "maxReplicas"} & sizes.keys():
            sizes = {**found.launch.sizes(), **sizes}
        sizes = within(role, sizes, spec)
        made: Manifest = {
            "distributionStrategy": "AllreduceStrategy",
            **node_fields(found.launch),
            "replicaSpecs": {"worker": role_of(found, sizes, restartPolicy=role.text("restartPolicy"))},
            "runPolicy": run_policy(spec.below("RunPolicy")),
        }
        return Conversion(pods.job(whole, made), whole.notes({"Etcd": NO_ETCD}))


def with_launcher(container: Manifest) -> Manifest:
    """Return a container with the launcher that TorchElastic's images have as entrypoint."""
    return container if container.get("command") else {**container, "command": [*ENTRYPOINT]}


def _sizes(spec: Fields, role: Fields) -> dict[str, Any]:
    found = {
        "replicas": role.number("replicas"),
        "minReplicas": spec.number("minReplicas", WHERE.format("minReplicas")),
        "maxReplicas": spec.number("maxReplicas", WHERE.format("maxReplicas")),
    }
    return {name: size for name, size in found.items() if size is not None}


TORCHELASTIC: Final = TorchElastic()
