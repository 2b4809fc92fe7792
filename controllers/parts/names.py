"""Names, labels and annotations of the objects of a job."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Final

from elasticjob.api.roles import PS, WORKER
from elasticjob.api.v1alpha1.common import (
    LABEL_INDEX,
    LABEL_JOB,
    LABEL_RANK,
    LABEL_RELAUNCH,
    LABEL_ROLE,
    MASTER_SUFFIX,
    STATE_SUFFIX,
    TOKEN_SUFFIX,
)
from elasticjob.api.v1alpha1.order import asked_in

RESTARTS: Final = "elasticjob.dlrover/restarts"
"""On pods: how many restarts of its node used the budget before it."""
MOVES: Final = "elasticjob.dlrover/moves"
"""On pods: how many of its node, itself included, follow one that still ran or was told to end."""
FORGIVEN: Final = "elasticjob.dlrover/restarts-forgiven"
"""On pods: how many of those count no more (runPolicy.forgiveRestartsAfterSeconds)."""
REPEATS: Final = "elasticjob.dlrover/repeats"
"""On pods: how many pods of its node before it were over within a minute in a row, and did not count."""
RELEASED: Final = "elasticjob.dlrover/released"
"""On pods, by the master: the training no longer uses it."""
RESIZE: Final = "elasticjob.dlrover/resize"
"""On pods: `refused` where the server would not resize it in place, so that it is replaced."""
RESOURCE: Final = "elasticjob.dlrover/resource"
"""On pods: the resource that its node was to have when it was made, or resized, as JSON name → amount.

Admission may have made another of it."""
STANDS_IN: Final = "elasticjob.dlrover/stands-in"
"""On pods: the index of the node whose machine is about to leave, for which the pod was made beforehand."""
ASKED: Final = "elasticjob.dlrover/asked"
"""On JobResources: the replicas that the user last asked for, as JSON role → count."""
ASKED_AT: Final = "elasticjob.dlrover/asked-at"
"""On JobResources: the generation of the ElasticJob that asked so."""
TEMPLATES: Final = "elasticjob.dlrover/template-resources"
"""On JobResources: the amounts in the templates that were seen last, as JSON role → name → amount."""
MADE_FROM: Final = "elasticjob.dlrover/made-from"
"""On JobResources: the hash of the templates, envs, nodeUnit and gang that the job's nodes are made from."""
TOKEN: Final = "elasticjob.dlrover/token"
"""On JobResources: the hash of the token that the job's pods have."""
NETWORK: Final = "elasticjob.dlrover/network-policy"
"""On JobResources: `true` or `false`, as the job's NetworkPolicy was made or deleted last."""
FOLDED: Final = "elasticjob.dlrover/folded-plan"
"""On JobResources: `<name>/<uid>` of the ScalePlan that was folded in last."""
CHANGES: Final = "elasticjob.dlrover/folded-changes"
"""On JobResources: what that plan has changed, as a JSON list of sentences."""
GANG: Final = "elasticjob.dlrover/gang"
"""On JobResources: the gang that was made for the job's pods, as JSON; empty without one."""
WANTED: Final = "elasticjob.dlrover/wanted"
"""On JobResources of jobs in a queue: the sizes that were asked for last, as JSON role → count."""
SIZES: Final = "elasticjob.dlrover/sizes"
"""On JobResources: the sizes that the operator wrote; others are another manager's."""
REQUEST: Final = "elasticjob.dlrover/requested-by"
"""On ScalePlans: the JobResource of a user or tool that asked for it."""
FRAMEWORK: Final = "elasticjob.dlrover/framework"
"""On ElasticJobs: a name in FRAMEWORKS of controllers/parts/frameworks."""

MASTER: Final = "master"


def written(amounts: Mapping[str, int] | Mapping[str, str]) -> str:
    """Return sizes, or a resource, as they are kept in an annotation."""
    return json.dumps(dict(amounts), sort_keys=True)


def job_labels(job: str, component: str) -> dict[str, str]:
    """Return the labels of every object of a job; never Argo's tracking label."""
    return {
        "app.kubernetes.io/name": "elasticjob",
        "app.kubernetes.io/component": component,
        "app.kubernetes.io/managed-by": "elasticjob",
        LABEL_JOB: job,
    }


def pod_labels(job: str, role: str, index: int, relaunch: int) -> dict[str, str]:
    """Return the labels of one pod of a job."""
    return job_labels(job, role) | {
        LABEL_ROLE: role,
        LABEL_INDEX: str(index),
        LABEL_RANK: str(index),
        LABEL_RELAUNCH: str(relaunch),
    }


def node(job: str, role: str, index: int) -> str:
    """Return the name of a place in the job, inherited by every relaunch."""
    return f"{job}-{role}-{index}"


def pod(job: str, role: str, index: int, relaunch: int) -> str:
    """Return the name of a pod: the node's, and the number of the relaunch unless it is the first life."""
    return f"{node(job, role, index)}-{relaunch}" if relaunch else node(job, role, index)


def hostname(job: str, role: str, index: int, relaunch: int) -> str:
    """Return the host name of a pod: its own, but a parameter server keeps that of its node.

    So `<job>-ps-0.<job>` is the present pod, however often it was made again. While one migrates, two pods
    have the name.
    """
    return node(job, role, index) if role == PS else pod(job, role, index, relaunch)


def workers(job: str) -> str:
    """Return the label selector of a job's worker pods."""
    return f"{LABEL_JOB}={job},{LABEL_ROLE}={WORKER}"


def bounds_plan(job: str, generation: int, nodes: int) -> str:
    """Return the name of the ScalePlan that brings a JobResource of generation `nodes` within the bounds of
    this generation of the job.
    """
    return f"{job}-bounds-{generation}-{nodes}"


def template_plan(job: str, generation: int) -> str:
    """Return the name of the ScalePlan for what the templates say in this generation of the job."""
    return f"{job}-template-{generation}"


def generation_of(job: str, plan: str) -> int:
    """Return the generation in the name of a user's plan, -1 for other plans."""
    generations = asked_in(job, plan)
    return generations[0] if len(generations) == 1 else -1


def token(job: str) -> str:
    """Return the name of the Secret that holds the job's bearer token."""
    return job + TOKEN_SUFFIX


def brain_token(job: str) -> str:
    """Return the name of the Secret with the token for Brain: a job may be older than Brain is."""
    return f"{job}-brain{TOKEN_SUFFIX}"


def master(job: str) -> str:
    """Return the name of the master's Service, ServiceAccount, Role and RoleBinding."""
    return job + MASTER_SUFFIX


def master_state(job: str) -> str:
    """Return the name of the ConfigMap with the master's snapshot."""
    return job + STATE_SUFFIX
