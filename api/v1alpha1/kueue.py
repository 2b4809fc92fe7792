"""Names of Kueue on jobs and pods."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

QUEUE_NAME: Final = "kueue.x-k8s.io/queue-name"
"""On jobs: the LocalQueue that admits them."""
PRIORITY_CLASS: Final = "kueue.x-k8s.io/priority-class"
"""On jobs: the WorkloadPriorityClass with which they wait there."""
MAX_EXEC_TIME: Final = "kueue.x-k8s.io/max-exec-time-seconds"
"""On jobs: how many seconds they may run in all, after which Kueue deactivates them."""
WORKLOAD_OF: Final = "kueue.x-k8s.io/workload"
"""On pods: the Workload whose quota they use."""
POD_SET: Final = "kueue.x-k8s.io/podset"
"""On pods: the pod set of it that they are of."""
TOPOLOGY_GATE: Final = "kueue.x-k8s.io/topology"
"""The scheduling gate of pods until Kueue has chosen their machine."""
QUOTA_GATE: Final = "elasticjob.dlrover/quota"
"""Our own, of pods of a queued DIJob until they have a place in its quota."""


def longest_run(labels: Mapping[str, str]) -> int | None:
    """Return how many seconds a job with these labels may run; None for one without a limit."""
    written = labels.get(MAX_EXEC_TIME, "")
    return int(written) if re.fullmatch("0*[1-9][0-9]{0,8}", written) else None
