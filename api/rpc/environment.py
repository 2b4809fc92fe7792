"""Environment variables that the operator sets in pods, and that agent and master read.

The comments name DLRover's variable for the same value; both are set, ours takes precedence.
"""

from __future__ import annotations

from typing import Final

JOB: Final = "ELASTICJOB_NAME"  # ELASTIC_JOB_NAME
NAMESPACE: Final = "ELASTICJOB_NAMESPACE"
JOB_UID: Final = "ELASTICJOB_UID"  # JOB_UID
MASTER: Final = "ELASTICJOB_MASTER"  # DLROVER_MASTER_ADDR: host:port, an IP
TOKEN_FILE: Final = "ELASTICJOB_TOKEN_FILE"  # the job's bearer token, mounted from its Secret
NODE: Final = "ELASTICJOB_NODE"  # <job>-<role>-<index>, the same for every relaunch
ROLE: Final = "ELASTICJOB_ROLE"  # NODE_TYPE
INDEX: Final = "ELASTICJOB_INDEX"  # NODE_RANK, NODE_ID
POD_NAME: Final = "POD_NAME"
POD_IP: Final = "POD_IP"
ALLOW_MISSING: Final = "ELASTICJOB_ALLOW_MISSING"  # patterns: names that a checkpoint or a script has alone
ALLOW_UNSAVED: Final = "ELASTICJOB_ALLOW_UNSAVED"  # any text: the run succeeds without its last checkpoint
FORGIVE_AFTER: Final = "ELASTICJOB_FORGIVE_AFTER"  # seconds: runPolicy.forgiveRestartsAfterSeconds
GRACE: Final = "ELASTICJOB_GRACE"  # seconds: the pod's terminationGracePeriodSeconds
CPUS: Final = "ELASTICJOB_CPUS"  # cores: the container's CPU limit, else its request
MODULES: Final = "ELASTICJOB_MODULES"  # a,b: what the agent imports once, for all its workers; default: torch
CHECK: Final = "ELASTICJOB_NODE_CHECK"  # 1: nodes are checked before they train
CHECK_COMMAND: Final = "ELASTICJOB_NODE_CHECK_COMMAND"  # another payload than ours
LOG_FORMAT: Final = "ELASTICJOB_LOG_FORMAT"  # people or json: the lines of the log
TERMINATION_LOG: Final = "ELASTICJOB_TERMINATION_LOG"  # default: /dev/termination-log

MASTER_PORT: Final = 50001
TOKEN_PATH: Final = "/var/run/secrets/elasticjob/token"
BRAIN: Final = "ELASTICJOB_MASTER__BRAIN"  # host:port, in the pods of masters
BRAIN_TOKEN_FILE: Final = "ELASTICJOB_MASTER__BRAIN_TOKEN_FILE"
BRAIN_TOKEN: Final = "brain-token"
"""The name of the token for Brain in the Secret of a job; masters alone have it mounted."""
