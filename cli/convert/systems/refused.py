"""Kinds that cannot be converted, and the sentences that say why and what to do."""

from __future__ import annotations

from typing import Final

from elasticjob.api.diengine.names import GROUP as DI_ENGINE
from elasticjob.api.diengine.names import VERSION
from elasticjob.api.v1alpha1.common import GROUP as OURS
from elasticjob.cli.convert.system import Fields, Source, System, Unconvertible, kind
from elasticjob.cli.convert.systems.pytorchjob import GROUP as KUBEFLOW
from elasticjob.kube.objects.kinds import Manifest

TORCHELASTIC: Final = kind("elastic.pytorch.org", "ElasticJob", "v1alpha1")
WHY: Final = {
    "XGBoostJob": "XGBoost's workers meet at a tracker in the Master, which no ElasticJob has: "
    "keep the XGBoostJob",
    "PaddleJob": "Paddle's collective training is started by paddle.distributed.launch, which knows no "
    "elasticjob: keep the PaddleJob. TrainingJobs of EDL are converted",
    "MXJob": "MXNet is no longer maintained, and its scheduler has no counterpart: keep the MXJob",
    "ElasticJob": "an ElasticJob of TorchElastic, and pytorch/elastic is archived since 2023: convert "
    "the command of its Worker, elasticjob convert -- torchrun --nnodes MIN:MAX SCRIPT, and write the image",
    "DIJob": f"a DIJob of another version than {VERSION}: write coordinator, collector and learner "
    "in place of tasks: docs/dijob.md",
}
OF_KUBEFLOW: Final = tuple(kind(KUBEFLOW, each) for each in ("XGBoostJob", "PaddleJob", "MXJob"))


def _is_of_torchelastic(source: Source) -> bool:
    """Whether it is an ElasticJob as TorchElastic has it, with this operator's group."""
    spec = source.manifest.get("spec")
    return source.is_a(OURS, "ElasticJob") and isinstance(spec, dict) and "rdzvEndpoint" in spec


def _is_newer(source: Source) -> bool:
    return source.is_a(DI_ENGINE, "DIJob") and source.manifest["apiVersion"] != f"{DI_ENGINE}/{VERSION}"


def _refuse(whole: Fields) -> list[Manifest]:
    raise Unconvertible(WHY[whole.source.manifest["kind"]])


REFUSED: Final = (
    System("TorchElastic ElasticJob", (TORCHELASTIC,), _refuse, knows=_is_of_torchelastic),
    System("Kubeflow XGBoostJob, PaddleJob, MXJob", OF_KUBEFLOW, _refuse),
    System("DI-engine DIJob of another version", (), _refuse, knows=_is_newer),
)
"""They come first: two share a group and a kind with others."""
