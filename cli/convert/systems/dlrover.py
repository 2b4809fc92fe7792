"""DLRover's ElasticJob and ScalePlan: the group and most fields are ours.

A field that our models have is kept, in today's spelling; a manifest of ours comes out as it went in.
"""

from __future__ import annotations

from typing import Final

from elasticjob.api.v1alpha1.common import LABEL_INDEX, LABEL_JOB, LABEL_RANK, LABEL_ROLE
from elasticjob.api.v1alpha1.elasticjob import ELASTICJOB
from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE, JobResourceSpec
from elasticjob.api.v1alpha1.older import todays_plan
from elasticjob.api.v1alpha1.scaleplan import SCALEPLAN, ScalePlanSpec
from elasticjob.cli.convert import pods
from elasticjob.cli.convert.system import Fields, Marks, System, Unconvertible, Verdict, child
from elasticjob.cli.convert.todays import fields_of, job
from elasticjob.cli.convert.training import note_near
from elasticjob.kube.objects.kinds import Manifest

NAMES_OF_JOBS: Final = ("elasticjob.dlrover/name", "elasticjob-name")
"""Labels of plans."""

MARKS: Final = Marks(
    labels=(
        (r"elasticjob-name", LABEL_JOB),
        (r"replica-type", LABEL_ROLE),
        (r"replica-index", LABEL_INDEX),
        (r"rank-index", LABEL_RANK),
    ),
    hosts=r"elasticjob-{job}-dlrover-master|{job}-edljob-[a-z]+-\d+",
)
"""What DLRover puts into pods, beside labels that are ours, too."""


def _read(whole: Fields) -> list[Manifest]:
    """Return the same object in today's fields."""
    match whole.source.manifest["kind"]:
        case ELASTICJOB.name:
            made = job(whole)
        case SCALEPLAN.name:
            made = pods.build(whole, SCALEPLAN, _plan(whole), name=whole.source.name)
        case _:
            spec = fields_of(whole.below("spec"), JobResourceSpec)
            made = pods.build(whole, JOBRESOURCE, spec, name=whole.source.name)
    return [made]


def _plan(whole: Fields) -> Manifest:
    """Return the spec of a ScalePlan in today's fields."""
    spec = whole.below("spec")
    given = fields_of(spec, ScalePlanSpec)
    if not given.get("ownerJob"):
        given = {"ownerJob": _job_by_label(whole)} | given
    found = todays_plan(given)
    found.pop("replicaResourceSpec", None)
    for field in ("createPods", "removePods", "migratePods"):
        made = found.get(field)
        objects = [one for one in made if isinstance(one, dict)] if isinstance(made, list) else []
        for before, now in zip(spec.each(field), objects, strict=False):
            if now.get("name") != before.peek("name"):
                before.keep("name", f"as {now.get('name')}")
    return found


def _job_by_label(whole: Fields) -> str:
    """Return the job that a label names, as early plans do it."""
    labels = whole.below("metadata").below("labels")
    name = next((label for label in NAMES_OF_JOBS if isinstance(labels.peek(label), str)), "")
    if not name:
        raise Unconvertible("spec.ownerJob is absent: write the name of the job")
    path = child(child(whole.path, "spec"), "ownerJob")
    note_near(whole, path, Verdict.CHANGED, f"is absent: {labels.peek(name)}, as the label {name} says")
    return str(labels.peek(name))


DLROVER: Final = System(
    "DLRover ElasticJob, ScalePlan",
    (ELASTICJOB.untyped(), SCALEPLAN.untyped(), JOBRESOURCE.untyped()),
    _read,
    MARKS,
)
