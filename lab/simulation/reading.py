"""Fields of objects as the API server stores them, which truths compare."""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_ROLE, LABEL_SCALE_TYPE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, Places
from elasticjob.api.v1alpha1.kueue import QUEUE_NAME
from elasticjob.controllers.parts.names import STANDS_IN
from elasticjob.kube.objects.kinds import Manifest
from elasticjob.kube.objects.views import NODE, POD
from lab.truths.quota import ENDED, is_true

if TYPE_CHECKING:
    from lab.simulation.world import World

UNBOUNDED: Final = 1 << 30
LAST: Final = "9999"
"""Later than each time."""


# any object


def name_of(found: Manifest) -> str:
    return str(found["metadata"]["name"])


def uid_of(found: Manifest | None) -> str:
    """The uid of an object, "" without one."""
    return str(found["metadata"]["uid"]) if found else ""


def labels_of(found: Manifest) -> dict[str, str]:
    return found["metadata"].get("labels") or {}


def phase_of(found: Manifest) -> str:
    return str((found.get("status") or {}).get("phase") or "")


def owner_of(found: Manifest) -> str:
    """The uid of the controller of an object, "" without one."""
    owners = found["metadata"].get("ownerReferences", ())
    return next((str(each["uid"]) for each in owners if each.get("controller")), "")


def belongs_to(found: Manifest | None, uid: str) -> bool:
    """Whether an object is there, and one of its owners has a uid."""
    owners = found["metadata"].get("ownerReferences", ()) if found else ()
    return any(each["uid"] == uid for each in owners)


# jobs and plans


def is_over(job: Manifest) -> bool:
    return is_true(job, "Complete") or is_true(job, "Failed")


def end_of(job: Manifest) -> str:
    return "Complete" if is_true(job, "Complete") else "Failed" if is_true(job, "Failed") else "running"


def is_queued(job: Manifest) -> bool:
    return QUEUE_NAME in labels_of(job)


def has_unplaced(world: World, job: Manifest) -> bool:
    """Whether a pod of a job waits for a machine."""
    return any(pod["status"]["phase"] == "Pending" for pod in world.of_job(POD, name_of(job)))


def bounds_of(role: Manifest) -> tuple[int, int]:
    """The least and the most replicas that the spec of a role allows."""
    size = role.get("replicas") or 0
    return int(role.get("minReplicas") or 0), int(role.get("maxReplicas") or size or UNBOUNDED)


def job_of(plan: Manifest) -> str:
    return str(plan["spec"].get("ownerJob", ""))


def is_manual(plan: Manifest) -> bool:
    return (
        bool(plan["spec"].get("manualScaling"))
        or plan["metadata"].get("labels", {}).get(LABEL_SCALE_TYPE) == "manual"
    )


# JobResources


def spec_of_role(world: World, resource: Manifest, role: str) -> Manifest:
    """The spec of a role in the job of a JobResource, {} without one."""
    job = world.there(ELASTICJOB, name_of(resource))
    found: Manifest = job["spec"]["replicaSpecs"].get(role, {}) if job else {}
    return found


def forgives(world: World, resource: Manifest) -> bool:
    """Whether the job of a JobResource forgets restarts after a time."""
    job = world.there(ELASTICJOB, name_of(resource))
    return bool(job and job["spec"].get("runPolicy", {}).get("forgiveRestartsAfterSeconds"))


def indices_of(resource: Manifest, role: str) -> set[int]:
    """The indices of the nodes of a role that should run."""
    asked = resource["spec"].get("replicaResourceSpecs", {}).get(role, {})
    return set() if resource["spec"].get("suspend") else {*Places.model_validate(asked).indices}


def told_indexes(resource: Manifest, field: str, role: str) -> set[int]:
    """The indices of a role in `completedIndexes` or `failedIndexes` of a status."""
    return indexes(resource.get("status", {}).get(field, {}).get(role, ""))


def indexes(text: str) -> set[int]:
    """Return the indices of a text such as `0-3,7`."""
    ends = (part.partition("-") for part in text.split(",") if part)
    return {index for first, _, last in ends for index in range(int(first), int(last or first) + 1)}


# pods


def place_of(pod: Manifest) -> tuple[str, str, str] | None:
    """The uid of the owner, the role and the index of the node that a pod is."""
    labels = pod.get("metadata", {}).get("labels", {})
    if LABEL_INDEX not in labels or LABEL_ROLE not in labels:
        return None
    return owner_of(pod), labels[LABEL_ROLE], labels[LABEL_INDEX]


def role_of(pod: Manifest) -> str:
    return labels_of(pod).get(LABEL_ROLE, "")


def resource_of(world: World, pod: Manifest) -> Manifest | None:
    """The JobResource that controls a pod."""
    found = world.there(JOBRESOURCE, labels_of(pod).get(LABEL_JOB, ""))
    return found if found and found["metadata"]["uid"] == owner_of(pod) else None


def lives(world: World, pod: Manifest) -> bool:
    """Whether the program of a pod runs or may run: on a machine that is there, or on none yet.

    A machine that came back has none of the programs that it had.
    """
    if pod["status"]["phase"] in ENDED:
        return False
    if not (name := pod["spec"].get("nodeName")):
        return True
    machine, containers = world.there(NODE, name), pod["status"].get("containerStatuses") or [{}]
    started = containers[0].get("state", {}).get("running", {}).get("startedAt", LAST)
    return machine is not None and machine["metadata"].get("creationTimestamp", "") <= started


def stands_in(pod: Manifest, asked: Collection[int]) -> bool:
    """Whether a pod is of a spare, or stands in for another: a growth may take in its index."""
    about = pod["metadata"]
    return STANDS_IN in about.get("annotations", {}) and int(about["labels"][LABEL_INDEX]) not in asked
