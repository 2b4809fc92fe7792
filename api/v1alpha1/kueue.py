"""Names of Kueue on jobs and pods."""

from __future__ import annotations

from typing import Final

QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
"""On jobs: the LocalQueue that admits them."""
PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
"""On jobs: the WorkloadPriorityClass with which they wait there."""
FLAVORS: Final = "elasticjob.dlrover/flavors"
"""On jobs: `any` where nodes of a role may have different flavours; otherwise all have that of the first."""
ANY: Final = "any"
WORKLOAD_OF: Final = "kueue.x-k8s.io/workload"
"""On pods: the Workload whose quota they use."""
POD_SET: Final = "kueue.x-k8s.io/podset"
"""On pods: the pod set of it that they are of."""
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
"""The scheduling gate of pods until Kueue has chosen their machine."""
QUOTA_GATE: Final = "elasticjob.dlrover/quota"
"""Our own, of pods of a queued DIJob until they have a place in its quota."""
