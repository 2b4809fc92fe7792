"""Shared by the three kinds: API group, role names, size and resources of a role."""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated, Final

from pydantic import Field

from elasticjob.kube.crd.model import Part, Quantity

GROUP: Final = "elastic.iml.github.io"
VERSION: Final = "v1alpha1"

PARAMETER_SERVERS: Final = "ParameterServerStrategy"
"""The strategy of a job that names none and has parameter servers."""

RESTARTS_SPENT: Final = "RestartsSpent"
"""Reason of a failed job: nodes have spent their restarts, and too few are left."""


class FailureAction(StrEnum):
    """What follows from the failure of a node."""

    FAIL_JOB = "FailJob"
    IGNORE = "Ignore"
    COUNT = "Count"
    RELAUNCH_ELSEWHERE = "RelaunchElsewhere"


MASTER_SUFFIX, TOKEN_SUFFIX, STATE_SUFFIX = "-master", "-token", "-master-state"
"""Suffixes to the job's name: its master's ServiceAccount, token Secrets, and the snapshot's ConfigMap."""
KEYS_SUFFIX: Final = "-keys"
"""The suffix to the name of the operator's Lease, for the Secret with the keys of the installation."""
MANAGED_BY, OPERATOR = "app.kubernetes.io/managed-by", "elasticjob"
"""The label of what the operator has made, and its value."""
LABEL_JOB: Final = "elasticjob.dlrover/name"
LABEL_ROLE: Final = "elasticjob.dlrover/replica-type"
LABEL_INDEX: Final = "elasticjob.dlrover/replica-index"
LABEL_RANK: Final = "elasticjob.dlrover/rank-index"
LABEL_RELAUNCH: Final = "elasticjob.dlrover/relaunch-count"
LABEL_SCALE_TYPE: Final = "elasticjob.dlrover/scale-type"
MAIN_CONTAINER: Final = "elasticjob.dlrover/main-container"
"""On pods: the name of the main container, as the template has it; admission may put others before it."""
AGENT_IMAGE: Final = "elasticjob.dlrover/agent-image"
"""Annotation of a role's template: the image elasticjob/agent of one's registry."""
AGENT: Final = "elasticjob-agent"
"""The init container that copies the agent, and the volume that it is copied to."""
AGENT_PLACE: Final = "/elasticjob"
"""The place of that volume in the main container."""
OLDER_LABEL_SCALE_TYPE: Final = "scale-type"
"""The same in original manifests."""

MOST_ROLES: Final = 16
MOST_RESOURCES: Final = 32
MOST_NODES: Final = 4096

Count = Annotated[int, Field(ge=0, le=2_147_483_647, json_schema_extra={"format": "int32"})]
"""A number, 0 or more."""

MOST_REPLICAS: Final = 16_384
Replicas = Annotated[int, Field(ge=0, le=MOST_REPLICAS, json_schema_extra={"format": "int32"})]
"""Number of nodes of a role; bounded, so that a typo cannot create millions."""

Resource = Annotated[dict[str, Quantity], Field(max_length=MOST_RESOURCES)]
"""Resource name → quantity: `{cpu: "4", memory: 8Gi, nvidia.com/gpu: 1}`."""


class ReplicaResourceSpec(Part):
    """Number of nodes of a role, and the resources of each."""

    replicas: Replicas | None = None
    """Number of nodes; absent keeps the present number."""

    resource: Resource = {}
    """Resources of each node, as resource name to quantity; absent keeps those of the job's template."""


class NodeResource(Part):
    """A node whose resources differ from those of its role."""

    name: Annotated[str, Field(min_length=1, max_length=63)]
    """The node, <job>-<role>-<index>, or the current name of its pod."""

    resource: Resource = {}
    """Resources of this node; resources that are not listed keep the role's values."""
