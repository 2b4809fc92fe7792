"""TrainingJob of PaddlePaddle's EDL, as its manifests are written; convert.py makes an ElasticJob of it."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from elasticjob.api.v1alpha1.common import Count
from elasticjob.kube.crd.model import (
    ATOMIC,
    OPAQUE,
    Column,
    CustomResource,
    Declaration,
    OneCondition,
    Part,
    list_map,
)
from elasticjob.kube.objects.kinds import Kind, Manifest

GROUP: Final = "paddlepaddle.org"
VERSION: Final = "v1"

Instances = Annotated[int, Field(ge=1, le=10_000, json_schema_extra={"format": "int32"})]
Objects = Annotated[list[Manifest], Field(max_length=256, json_schema_extra=ATOMIC)]
Anything = Annotated[Manifest, Field(json_schema_extra=OPAQUE)]


class TrainingJobPhase(StrEnum):
    """The phases of EDL."""

    NONE = "none"
    CREATING = "creating"
    RUNNING = "running"
    SCALING = "scaling"
    SUCCEEDED = "succeeded"
    FAILED = "failed"

    @property
    def is_terminal(self) -> bool:
        """Whether the phase is terminal."""
        return self in (TrainingJobPhase.SUCCEEDED, TrainingJobPhase.FAILED)


class Instance(Part):
    """What the instances of a role have."""

    resources: Anything = {}
    """Requests and limits, as in a container; alpha.kubernetes.io/nvidia-gpu is read as nvidia.com/gpu."""


class Trainer(Instance):
    """The trainers: the elastic role."""

    entrypoint: Annotated[str, Field(max_length=65_536)] = ""
    """The command line, split into words without a shell; absent means that of the image."""

    workspace: Annotated[str, Field(max_length=4096)] = ""
    """The directory in which it runs."""

    passes: Count | None = None
    """The number of passes over the data, as EDL's own examples write it."""

    min_instance: Annotated[Instances, Field(alias="min-instance")]
    """The least number of trainers; the job starts with it."""

    max_instance: Annotated[Instances, Field(alias="max-instance")]
    """The largest number of trainers; more than min-instance makes the job elastic."""


class Pserver(Instance):
    """The parameter servers; their number stays min-instance."""

    entrypoint: Annotated[str, Field(max_length=65_536)] = ""
    """The command line, split into words without a shell; absent means that of the image."""

    min_instance: Annotated[Instances, Field(alias="min-instance")]
    """The number of parameter servers."""

    max_instance: Annotated[Instances, Field(alias="max-instance")]
    """Read, without effect: parameter servers are not scaled."""


class Master(Instance):
    """The job's master."""

    etcd_endpoint: Annotated[str, Field(max_length=2048, alias="etcd-endpoint")] = ""
    """Read, without effect: our master keeps its state in the cluster."""


class TrainingJobSpec(Part):
    """The training to run."""

    image: Annotated[str, Field(max_length=4096)] = ""
    """The image of trainers and parameter servers."""

    fault_tolerant: Annotated[bool | None, Field(alias="fault_tolerant")] = None
    """Whether lost trainers are replaced; false fails the job at the first, and forbids a range."""

    host_network: Annotated[bool | None, Field(alias="host_network")] = None
    """Whether pods use the network of their machine."""

    host_network_in_camel_case: Annotated[bool | None, Field(alias="hostNetwork")] = None
    """Another spelling of host_network."""

    port: Annotated[int, Field(ge=1, le=65_535, json_schema_extra={"format": "int32"})] = 7164
    """The first port of an instance; its ports are called jobport-<number>."""

    ports_num: Annotated[Count, Field(alias="ports_num")] = 1
    """How many ports an instance has."""

    ports_num_for_sparse: Annotated[Count, Field(alias="ports_num_for_sparse")] = 1
    """How many more it has for sparse parameters."""

    passes: Count = 1
    """The number of passes over the data, as PADDLE_INIT_NUM_PASSES; trainer.passes says the same."""

    volumes: Objects = []
    """Volumes of the pods."""

    volume_mounts: Annotated[Objects, Field(alias="VolumeMounts")] = []
    """Where the containers see them."""

    image_pull_secrets: Annotated[Objects, Field(alias="imagePullSecrets")] = []
    """Secrets with which the image is pulled."""

    node_selector: Annotated[dict[str, str], Field(alias="NodeSelector")] = {}
    """Labels of the machines that pods may run on."""

    mount_path: Annotated[str, Field(max_length=4096, alias="mountPath")] = ""
    """Read, without effect: VolumeMounts have paths of their own."""

    scheduler_name: Annotated[str, Field(max_length=253, alias="schedulerName")] = ""
    """Read, without effect: kube-batch, which it names in EDL's examples, is no longer there."""

    pod_group_name: Annotated[str, Field(max_length=253, alias="podGroupName")] = ""
    """Read, without effect, as schedulerName."""

    trainer: Trainer
    """The trainers."""

    pserver: Pserver | None = None
    """The parameter servers; absent: all-reduce."""

    master: Master | None = None
    """The master; the job has one anyway."""

    @property
    def elastic(self) -> bool:
        """Whether the number of trainers may change."""
        return self.trainer.min_instance < self.trainer.max_instance


class TrainingJobStatus(Part):
    """Observed state of the job."""

    phase: TrainingJobPhase | None = None
    """none, creating, running, scaling, succeeded or failed."""

    reason: Annotated[str, Field(max_length=1024)] = ""
    """Why it failed, or why it does not go on."""

    conditions: Annotated[list[OneCondition], Field(max_length=32, json_schema_extra=list_map("type"))] = []
    """Ready, Reconciling and Stalled, as those of the ElasticJob of this name."""

    trainers: str | None = None
    """Running and wanted trainers, such as 2/4; of the ElasticJob of this name."""

    observed_generation: Annotated[int, Field(json_schema_extra={"format": "int64"})] | None = None
    """The metadata.generation for which the ElasticJob was written."""


class TrainingJob(CustomResource):
    """A training job of PaddlePaddle's EDL; an ElasticJob of the same name runs it."""

    spec: TrainingJobSpec
    """The training to run."""

    status: TrainingJobStatus = TrainingJobStatus()
    """Observed state of the job."""


TRAININGJOB: Final = Kind(GROUP, VERSION, "TrainingJob", "trainingjobs", TrainingJob)

DECLARATION: Final = Declaration(
    TRAININGJOB,
    short_names=("tj",),
    categories=("training",),
    columns=(
        Column("Phase", ".status.phase"),
        Column("Trainers", ".status.trainers", description="Trainers that run, of those wanted."),
        Column("Min", ".spec.trainer.min-instance", "integer"),
        Column("Max", ".spec.trainer.max-instance", "integer"),
        Column("Reason", ".status.reason"),
        Column("Age", ".metadata.creationTimestamp", "date"),
    ),
)
