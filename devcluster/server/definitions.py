"""What a CustomResourceDefinition may say: a table of rules, in the order in which the real server tells."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from elasticjob.devcluster.server.conversionrules import conversion_problems
from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.internalform import Part, parts, shown_versions
from elasticjob.devcluster.server.names import (
    forbidden,
    missing,
    service_name_problem,
    subdomain_problem,
    unsupported,
    wrong,
)
from elasticjob.devcluster.server.schemarules import inner_schemas
from elasticjob.devcluster.server.schemas import Schema
from elasticjob.devcluster.server.store import Manifest
from elasticjob.devcluster.server.strategy import immutable
from elasticjob.devcluster.server.versionrules import (
    has_status,
    rest_problems,
    schema_problems,
    warning_problems,
)

NO_WEBHOOK = (
    "devcluster calls no conversion webhooks: serve only the storage version, or use the strategy None"
)
_APPROVED = "api-approved.kubernetes.io"


@dataclass(frozen=True)
class Definition:
    """A definition to judge; `old` is what it was, where it changes."""

    crd: Manifest
    old: Manifest | None = None

    @property
    def spec(self) -> Mapping[str, Any]:
        found: Mapping[str, Any] = self.crd["spec"]
        return found

    @property
    def names(self) -> Mapping[str, Any]:
        return self.spec.get("names") or {}

    @property
    def group(self) -> str:
        return self.spec.get("group") or ""

    @cached_property
    def parts(self) -> tuple[list[Part], Part]:
        """What each version says, and what all say."""
        return parts(self.spec.get("versions") or ())

    @property
    def stored(self) -> list[str] | None:
        found: list[str] | None = (self.crd.get("status") or {}).get("storedVersions")
        return found


def definition_problems(crd: Manifest, old: Manifest | None = None) -> Iterator[Cause]:
    """Everything that is wrong with a definition, but for what holds for the metadata of all kinds."""
    judged = Definition(crd, old)
    for rule in _RULES:
        yield from rule(judged)


def name_problems(crd: Manifest) -> Iterator[Cause]:
    """A definition is named after what it defines."""
    spec, name = crd["spec"], crd["metadata"].get("name", "")
    if name and name != f"{(spec.get('names') or {}).get('plural') or ''}.{spec.get('group') or ''}":
        yield wrong("metadata.name", name, 'must be spec.names.plural+"."+spec.group')


def is_true(crd: Mapping[str, Any], condition: str) -> bool:
    """Whether a definition has this condition."""
    conditions = (crd.get("status") or {}).get("conditions") or ()
    return any(each.get("type") == condition and each.get("status") == "True" for each in conditions)


def _has_a_domain(it: Definition) -> Iterator[Cause]:
    if not it.group:
        yield missing("spec.group")
    elif problem := subdomain_problem(it.group):
        yield wrong("spec.group", it.group, problem)
    elif "." not in it.group:
        yield wrong("spec.group", it.group, "should be a domain with at least one dot")


def _has_a_scope(it: Definition) -> Iterator[Cause]:
    yield from _choice("spec.scope", it.spec.get("scope"), ["Cluster", "Namespaced"])


def _choice(path: str, found: str | None, known: list[str]) -> Iterator[Cause]:
    if not found:
        yield missing(path)
    elif found not in known:
        yield unsupported(path, found, known)


def _has_schemas(it: Definition) -> Iterator[Cause]:
    single, shared = it.parts
    if shared.schema is None:
        for each in single:
            if each.schema is None:
                yield missing(f"{each.path}.schema.openAPIV3Schema")


def _prunes_where_it_defaults(it: Definition) -> Iterator[Cause]:
    single, shared = it.parts
    if it.spec.get("preserveUnknownFields") and any(_has_defaults(each.schema) for each in [*single, shared]):
        yield wrong(
            "spec.preserveUnknownFields", True, "must be false in order to use defaults in the schema"
        )


def _has_defaults(schema: Schema | None) -> bool:
    if schema is None or schema.get("default") is not None:
        return schema is not None
    return any(_has_defaults(child) for child in inner_schemas(schema))


def _has_right_versions(it: Definition) -> Iterator[Cause]:
    single, shared = it.parts
    for each in single:
        name = each.said.get("name") or ""
        if problem := service_name_problem(name):
            yield wrong(f"{each.path}.name", name, problem)
        yield from warning_problems(each.said, f"{each.path}.deprecationWarning")
        with_status = has_status(each if "subresources" in each.said else shared)
        yield from schema_problems(each, with_status=with_status)
        yield from rest_problems(each, each.schema)


def _says_apart_what_differs(it: Definition) -> Iterator[Cause]:
    """Version names are different; one version is stored."""
    single, _ = it.parts
    names = [each.said.get("name") or "" for each in single]
    shown = None if it.spec.get("versions") is None else shown_versions(single)
    if len(set(names)) < len(names):
        yield wrong("spec.versions", shown, "must contain unique version names")
    if sum(bool(each.said.get("storage")) for each in single) != 1:
        yield wrong("spec.versions", shown, "must have exactly one version marked as storage version")
    if single and names[0] and (problem := service_name_problem(names[0])):
        yield wrong("spec.version", names[0], problem)


def _has_names(it: Definition) -> Iterator[Cause]:
    for name in ("plural", "singular", "kind", "listKind"):
        if not it.names.get(name):
            yield missing(f"spec.names.{name}")
    yield from _label_problems(it.names, "spec.names")


def _label_problems(names: Mapping[str, Any], path: str) -> Iterator[Cause]:
    for name in ("plural", "singular", "kind", "listKind"):
        text = names.get(name) or ""
        is_kind = name.endswith("ind")
        if text and (problem := service_name_problem(text.lower() if is_kind else text)):
            mixed = "may have mixed case, but should otherwise match: " if is_kind else ""
            yield wrong(f"{path}.{name}", text, mixed + problem)
    yield from _list_of_labels(names, "shortNames", path)
    if names.get("kind") and names["kind"] == names.get("listKind"):
        yield wrong(f"{path}.listKind", names["listKind"], "kind and listKind may not be the same")
    yield from _list_of_labels(names, "categories", path)


def _list_of_labels(names: Mapping[str, Any], word: str, path: str) -> Iterator[Cause]:
    for index, text in enumerate(names.get(word) or ()):
        if problem := service_name_problem(text):
            yield wrong(f"{path}.{word}[{index}]", text, problem)


def _shares_what_is_right(it: Definition) -> Iterator[Cause]:
    """What all versions say alike, or the only one says."""
    single, shared = it.parts
    with_status = any(has_status(each) for each in [*single, shared])
    yield from schema_problems(shared, with_status=with_status)
    yield from rest_problems(shared, shared.schema)


def _converts_in_a_way_there_is(it: Definition) -> Iterator[Cause]:
    conversion, path = it.spec.get("conversion") or {}, "spec.conversion"
    yield from _choice(f"{path}.strategy", conversion.get("strategy"), ["None", "Webhook"])
    yield from conversion_problems(conversion, path)
    others = [
        each for each in it.spec.get("versions") or () if each.get("served") and not each.get("storage")
    ]
    if conversion.get("strategy") == "Webhook" and others:
        yield forbidden(f"{path}.strategy", NO_WEBHOOK)


def _stays_what_it_is(it: Definition) -> Iterator[Cause]:
    if it.old is None:
        return
    old = it.old["spec"]
    if is_true(it.old, "Established"):
        yield from immutable(old.get("scope"), it.spec.get("scope"), "spec.scope")
        yield from immutable(old["names"].get("kind"), it.names.get("kind"), "spec.names.kind")
    yield from immutable(old.get("group"), it.group, "spec.group")
    yield from immutable(old["names"].get("plural"), it.names.get("plural"), "spec.names.plural")


def _has_accepted_names_that_fit(it: Definition) -> Iterator[Cause]:
    accepted = (it.crd.get("status") or {}).get("acceptedNames") or {}
    yield from _label_problems(accepted, "status.acceptedNames")


def _keeps_versions_that_are_stored(it: Definition) -> Iterator[Cause]:
    """Versions in which objects may be stored stay, served or not."""
    path, stored = "status.storedVersions", it.stored
    if not stored:
        yield wrong(path, stored, "must have at least one stored version")
        return
    versions = it.spec.get("versions") or ()
    for version in versions:
        if version.get("storage") and version.get("name") not in stored:
            yield wrong(path, stored, f"must have the storage version {version.get('name')}")
    names = {version.get("name") for version in versions}
    for index, name in enumerate(stored):
        if name not in names:
            why = (
                f"missing from spec.versions; {name} was previously a storage version, and must remain in "
                "spec.versions until a storage migration ensures no data remains persisted in "
                f"{name} and removes {name} from status.storedVersions"
            )
            yield wrong(f"{path}[{index}]", name, why)


def _is_approved_where_it_must_be(it: Definition) -> Iterator[Cause]:
    if not re.search(r"(^|\.)(k8s|kubernetes)\.io$", it.group):
        return
    state = _approval(it.crd)
    if state in ("approved", "bypassed") or (it.old is not None and state == _approval(it.old)):
        return
    path, text = f"metadata.annotations[{_APPROVED}]", _annotation(it.crd)
    why = f'protected groups must have approval annotation "{_APPROVED}"'
    link = ", see https://github.com/kubernetes/enhancements/pull/1111"
    if state == "missing":
        yield missing(path, why + link)
    else:
        more = ' with either a URL or a reason starting with "unapproved"'
        yield wrong(path, text, why + more + link)


def _annotation(crd: Manifest) -> str:
    return (crd["metadata"].get("annotations") or {}).get(_APPROVED) or ""


def _approval(crd: Manifest) -> str:
    text = _annotation(crd)
    if not text:
        return "missing"
    if text.startswith("unapproved"):
        return "bypassed"
    url = urlsplit(text)
    return "approved" if url.scheme and url.netloc else "invalid"


def _prunes(it: Definition) -> Iterator[Cause]:
    if it.spec.get("preserveUnknownFields") and not (it.old or {}).get("spec", {}).get(
        "preserveUnknownFields"
    ):
        why = (
            "cannot set to true, set x-kubernetes-preserve-unknown-fields to true in "
            "spec.versions[*].schema instead"
        )
        yield wrong("spec.preserveUnknownFields", True, why)


_RULES: tuple[Callable[[Definition], Iterator[Cause]], ...] = (
    _has_a_domain,
    _has_a_scope,
    _has_schemas,
    _prunes_where_it_defaults,
    _has_right_versions,
    _says_apart_what_differs,
    _has_names,
    _shares_what_is_right,
    _converts_in_a_way_there_is,
    _stays_what_it_is,
    _has_accepted_names_that_fit,
    _keeps_versions_that_are_stored,
    _is_approved_where_it_must_be,
    _prunes,
)
