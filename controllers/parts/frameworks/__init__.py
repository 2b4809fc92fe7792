"""Training frameworks: one module each, listed here; nothing else in the operator names one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Final, Protocol

from elasticjob.api.v1alpha1.elasticjob import ElasticJob, ElasticJobSpec
from elasticjob.controllers.parts import names
from elasticjob.controllers.parts.frameworks import jax, pytorch, tensorflow
from elasticjob.kube.objects.problem import Problem


class Framework(Protocol):
    """The interface of a training framework."""

    def environment(self, job: ElasticJob, role: str, index: int) -> Mapping[str, str]:
        """Return variables for one node's containers; the user's own win."""
        ...

    def check(self, spec: ElasticJobSpec) -> Sequence[Problem]:
        """Return what this framework cannot run."""
        ...


FRAMEWORKS: Final[Mapping[str, Framework]] = MappingProxyType(
    {"jax": jax, "pytorch": pytorch, "tensorflow": tensorflow}
)
DEFAULT: Final = "pytorch"
OTHER: Final = "other"


def framework_of(job: ElasticJob) -> Framework | None:
    """Return the framework that a job's annotation names, PyTorch without one, None for an unknown name."""
    return FRAMEWORKS.get(name_of(job))


def name_of(job: ElasticJob) -> str:
    """Return the name of a job's framework, known or not."""
    return job.metadata.annotations.get(names.FRAMEWORK, DEFAULT)


def label_of(job: ElasticJob) -> str:
    """Return the name of a job's framework as a label of metrics: a user's annotation makes no series."""
    name = name_of(job)
    return name if name in FRAMEWORKS else OTHER
