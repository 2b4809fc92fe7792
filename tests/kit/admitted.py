"""What a cluster would say of an object of ours: its definition, the rules in it, and our admission."""

from __future__ import annotations

from copy import deepcopy
from functools import cache
from typing import Any, Final

from elasticjob.api.crds import DECLARATIONS, manifest
from elasticjob.cli.convert.conversion import problems
from elasticjob.devcluster.server.schema.evaluation import broken_rules, rules_of
from elasticjob.devcluster.server.schema.pruning import prune
from elasticjob.devcluster.server.schema.validation import validate
from elasticjob.kube.objects.kinds import Manifest

KINDS: Final = {one.kind.name: one for one in DECLARATIONS}


def refusals(given: Manifest) -> list[str]:
    """Return why an object would be refused, or lose a field; empty where it is admitted as it is."""
    declaration = KINDS[given["kind"]]
    if given["apiVersion"] != declaration.kind.api_version:
        return [f"apiVersion {given['apiVersion']}"]
    whole = deepcopy({name: value for name, value in given.items() if name != "metadata"})
    return by_definition(whole) or [str(problem) for problem in problems(given)]


def by_definition(whole: Manifest) -> list[str]:
    """Return what the definition of its kind, and the rules in that, say of an object, which is pruned."""
    schema, rules = _schema(whole["kind"])
    found = [f"unknown field {path}" for path in prune(whole, schema)]
    return found + [str(cause) for cause in (*validate(whole, schema), *broken_rules(rules, whole, None))]


@cache
def _schema(kind: str) -> Any:
    schema = manifest(KINDS[kind])["spec"]["versions"][0]["schema"]["openAPIV3Schema"]
    return schema, rules_of(schema)
