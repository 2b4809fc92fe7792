"""EasyDL's ElasticJob and JobResource (elastic.easydl.org): roles are fields of the spec, amounts in MiB."""

from __future__ import annotations

import re
from typing import Any, Final

from elasticjob.api.v1alpha1.jobresource import JOBRESOURCE
from elasticjob.api.v1alpha1.requests import amounts
from elasticjob.cli.convert import pods
from elasticjob.cli.convert.system import Fields, System, Verdict, child, kind
from elasticjob.cli.convert.todays import job
from elasticjob.kube.objects.kinds import Manifest

GROUP: Final = "elastic.easydl.org"
ROLES: Final = {"parameter_server": "ps", "worker": "worker", "evaluator": "evaluator"}
COMMENT: Final = re.compile(r"\s*//.*")


def _read(whole: Fields) -> list[Manifest]:
    """Return the job, or the request for sizes."""
    spec = whole.below("spec")
    if whole.source.manifest["kind"] == "ElasticJob":
        return [job(whole)]
    return [pods.build(whole, JOBRESOURCE, _sizes(spec))]


def _sizes(spec: Fields) -> Manifest:
    roles = {ROLES[field]: _role(spec.below(field), ROLES[field]) for field in ROLES if field in spec}
    nodes = [_node(each) for each in spec.each("resource_updation")]
    found = {"selector": _selector(spec.below("selector")), "replicaResourceSpecs": roles, "nodes": nodes}
    return pods.without_empty(found)


def _selector(fields: Fields) -> Manifest:
    given = fields.text("name")
    name = COMMENT.sub("", given)
    if name != given:
        fields.note(
            child(fields.path, "name"), Verdict.CHANGED, f"is {name} now: YAML's comments begin with #"
        )
    return {"name": name}


def _role(fields: Fields, role: str) -> Manifest:
    where = f"as spec.replicaResourceSpecs.{role}"
    return pods.without_empty(
        {
            "replicas": fields.number("replicas", f"{where}.replicas"),
            "resource": _amounts(fields.below("resource")),
        }
    )


def _node(fields: Fields) -> Manifest:
    return {"name": fields.text("name", "as spec.nodes"), "resource": _amounts(fields.below("resource"))}


def _amounts(fields: Fields) -> Manifest:
    found: dict[str, Any] = {}
    for name in fields.value:
        [(now, amount)] = amounts({name: fields.peek(name)}).items()
        found[now] = amount
        fields.keep(name, "" if (now, amount) == (name, fields.peek(name)) else f"as {now}: {amount}")
    return found


EASYDL: Final = System(
    "EasyDL ElasticJob, JobResource",
    (kind(GROUP, "ElasticJob", "v1alpha1"), kind(GROUP, "JobResource", "v1alpha1")),
    _read,
)
