"""What the three kinds share: the group, the roles' words, and a role's size and resources."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field

from elasticjob.kube.crd.model import Part, Quantity

GROUP: Final = "elastic.iml.github.io"
VERSION: Final = "v1alpha1"

WORKER: Final = "worker"
PS: Final = "ps"
CHIEF: Final = "chief"
EVALUATOR: Final = "evaluator"
MASTER: Final = "dlrover-master"
"""The role of the job's master; users may write `master` instead."""
MASTER_ALIAS: Final = "master"

RESTARTS_SPENT: Final = "RestartsSpent"
"""Why a job failed, whoever says so: nodes failed for good, and too few are left."""

LABEL_JOB: Final = "elasticjob.dlrover/name"
LABEL_ROLE: Final = "elasticjob.dlrover/replica-type"
LABEL_INDEX: Final = "elasticjob.dlrover/replica-index"
LABEL_RANK: Final = "elasticjob.dlrover/rank-index"
LABEL_RELAUNCH: Final = "elasticjob.dlrover/relaunch-count"
LABEL_SCALE_TYPE: Final = "elasticjob.dlrover/scale-type"

MOST_ROLES: Final = 16
MOST_RESOURCES: Final = 32
MOST_NODES: Final = 4096

Count = Annotated[int, Field(ge=0, le=2_147_483_647, json_schema_extra={"format": "int32"})]
"""A number of things: 0 or more."""

MOST_REPLICAS: Final = 16_384
Replicas = Annotated[int, Field(ge=0, le=MOST_REPLICAS, json_schema_extra={"format": "int32"})]
"""How many nodes of a role there are: a slip of the hand must not make millions."""

Resource = Annotated[dict[str, Quantity], Field(max_length=MOST_RESOURCES)]
"""Resource name → quantity: `{cpu: "4", memory: 8Gi, nvidia.com/gpu: 1}`."""


class ReplicaResourceSpec(Part):
    """How many nodes of a role there are, and what each gets."""

    replicas: Replicas | None = None
    """How many nodes; absent leaves the number as it is."""

    resource: Resource = {}
    """What each node gets, as resource name to quantity; absent leaves it as the job's template says."""


class NodeResource(Part):
    """One node that differs from the others of its role."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The node, <job>-<role>-<index>, or the current name of its pod."""

    resource: Resource = {}
    """What this node gets; resources that are not named keep the role's values."""
