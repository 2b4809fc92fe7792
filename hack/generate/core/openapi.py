"""Write api/core/openapi.json: the built-in kinds we touch, cut from what Kubernetes publishes.

    python -m hack.generate.core.openapi PATH-OR-URL-OF/swagger.json

The document is `api/openapi-spec/swagger.json` in the Kubernetes source tree, of the version named in
VERSION. Texts are left out; types, references, required fields, group-version-kinds and the keys of maps,
lists and merges stay, because devcluster serves and merges by them, and `make generate` makes models and pod
template schemas of them.
"""

from __future__ import annotations

import json
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lab.paths import ROOT

VERSION = "v1.35.4"
TARGET = ROOT / "api" / "core" / "openapi.json"
KINDS = {
    "v1": "Pod PodTemplate Service Endpoints ConfigMap Secret Node Namespace ServiceAccount Event "
    "PersistentVolume PersistentVolumeClaim Binding LimitRange ResourceQuota Status DeleteOptions "
    "APIGroupList APIResourceList",
    "admissionregistration.k8s.io/v1": "MutatingWebhookConfiguration ValidatingWebhookConfiguration",
    "apiextensions.k8s.io/v1": "CustomResourceDefinition",
    "apps/v1": "Deployment ReplicaSet StatefulSet DaemonSet",
    "authentication.k8s.io/v1": "TokenReview TokenRequest SelfSubjectReview",
    "authorization.k8s.io/v1": "SubjectAccessReview LocalSubjectAccessReview SelfSubjectAccessReview "
    "SelfSubjectRulesReview",
    "autoscaling/v1": "Scale",
    "batch/v1": "Job CronJob",
    "coordination.k8s.io/v1": "Lease",
    "discovery.k8s.io/v1": "EndpointSlice",
    "events.k8s.io/v1": "Event",
    "networking.k8s.io/v1": "Ingress NetworkPolicy",
    "policy/v1": "PodDisruptionBudget Eviction",
    "rbac.authorization.k8s.io/v1": "Role RoleBinding ClusterRole ClusterRoleBinding",
    "scheduling.k8s.io/v1": "PriorityClass",
    "storage.k8s.io/v1": "StorageClass",
}
ALSO = ("meta.v1.Condition", "meta.v1.WatchEvent", "meta.v1.Patch", "version.Info")
TEXTS = frozenset({"description", "title", "externalDocs", "example"})
REFERENCE = "#/definitions/"

Schema = dict[str, Any]


def trim(published: dict[str, Schema]) -> dict[str, Schema]:
    """Return the definitions of KINDS, their lists, ALSO, and all references, without descriptions."""
    names = closure(published, roots(published))
    return {name: without_texts(own_kinds_only(published[name])) for name in sorted(names)}


def roots(published: dict[str, Schema]) -> Iterator[str]:
    """Yield the names of the definitions to start from; KeyError names a kind that is not published."""
    by_kind = {
        kind: name
        for name, schema in published.items()
        for kind in kinds(schema)
        if "DeleteOptions" not in name
    }
    by_kind["v1", "DeleteOptions"] = "io.k8s.apimachinery.pkg.apis.meta.v1.DeleteOptions"
    for version, words in KINDS.items():
        for word in words.split():
            yield by_kind[version, word]
            if (version, f"{word}List") in by_kind:
                yield by_kind[version, f"{word}List"]
    for suffix in ALSO:
        yield next(name for name in published if name.endswith(suffix))


def kinds(schema: Schema) -> list[tuple[str, str]]:
    """Return the (apiVersion, kind) pairs that a definition serves."""
    entries = schema.get("x-kubernetes-group-version-kind", [])
    return [("/".join(filter(None, (entry["group"], entry["version"]))), entry["kind"]) for entry in entries]


def closure(published: dict[str, Schema], start: Iterator[str]) -> set[str]:
    """Return the names that are reachable from `start` by references."""
    seen: set[str] = set()
    waiting = list(start)
    while waiting:
        name = waiting.pop()
        if name not in seen:
            seen.add(name)
            waiting.extend(references(published[name]))
    return seen


def references(node: Any) -> Iterator[str]:
    """Yield the names that a schema refers to."""
    if isinstance(node, dict):
        if isinstance(node.get("$ref"), str):
            yield node["$ref"].removeprefix(REFERENCE)
        for value in node.values():
            yield from references(value)
    elif isinstance(node, list):
        for value in node:
            yield from references(value)


def own_kinds_only(schema: Schema) -> Schema:
    """Drop the group-version-kinds of API groups that KINDS does not name (DeleteOptions and WatchEvent
    list them all)."""
    entries = schema.get("x-kubernetes-group-version-kind")
    if entries is None:
        return schema
    known = [entry for entry, (version, _) in zip(entries, kinds(schema), strict=True) if version in KINDS]
    return {**schema, "x-kubernetes-group-version-kind": known}


def without_texts(schema: Schema) -> Schema:
    """Return a schema without descriptions, at every depth; properties of that name are kept."""
    cut = {key: value for key, value in schema.items() if key not in TEXTS}
    if "properties" in cut:
        cut["properties"] = {name: without_texts(value) for name, value in cut["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(cut.get(key), dict):
            cut[key] = without_texts(cut[key])
    return cut


def rendered(definitions: dict[str, Schema]) -> str:
    """Return the file's text: one definition a line, so that a difference is a list of changed types."""
    lines = ",\n".join(f"{json.dumps(name)}: {compact(schema)}" for name, schema in definitions.items())
    return f'{{"version": {json.dumps(VERSION)}, "definitions": {{\n{lines}\n}}}}\n'


def compact(schema: Schema) -> str:
    """Return a schema as JSON in one line, keys sorted."""
    return json.dumps(schema, sort_keys=True, separators=(", ", ": "))


def main(source: str) -> None:
    """Read the published document and write ours."""
    if "://" in source:
        with urllib.request.urlopen(source) as answer:
            document = json.load(answer)
    else:
        document = json.loads(Path(source).read_text())
    TARGET.write_text(rendered(trim(document["definitions"])))


if __name__ == "__main__":
    if len(sys.argv) != 2:
        sys.exit(__doc__)
    main(sys.argv[1])
