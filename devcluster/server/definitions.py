"""What a CustomResourceDefinition may say: a table of rules, in the order in which the real server tells."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any
from urllib.parse import urlsplit

from elasticjob.devcluster.server.costs import cost_problems
from elasticjob.devcluster.server.errors import Cause
from elasticjob.devcluster.server.internalform import Part, fields_of, parts, shown_schema, shown_versions
from elasticjob.devcluster.server.names import (
    forbidden,
    missing,
    plain,
    service_name_problem,
    subdomain_problem,
    unsupported,
    wrong,
)
from elasticjob.devcluster.server.rules import rule_problems
from elasticjob.devcluster.server.schemadefaults import default_problems
from elasticjob.devcluster.server.schemarules import inner_schemas, keyword_problems, unreadable
from elasticjob.devcluster.server.schemas import Schema
from elasticjob.devcluster.server.store import Manifest
from elasticjob.devcluster.server.strategy import immutable
from elasticjob.devcluster.server.structural import structural_problems

_COLUMN_TYPES = ("boolean", "date", "integer", "number", "string")
_COLUMN_FORMATS = ("byte", "date", "date-time", "double", "float", "int32", "int64", "password")
_APPROVED = "api-approved.kubernetes.io"
_WARNING_LENGTH = 256
_MOST_SELECTABLE = 8
_REVIEWS = ("v1", "v1beta1")
_AT_ROOT = (
    "Description",
    "Type",
    "Format",
    "Title",
    "Maximum",
    "ExclusiveMaximum",
    "Minimum",
    "ExclusiveMinimum",
    "MaxLength",
    "MinLength",
    "Pattern",
    "MaxItems",
    "MinItems",
    "UniqueItems",
    "MultipleOf",
    "Required",
    "Items",
    "Properties",
    "ExternalDocs",
    "Example",
    "XPreserveUnknownFields",
    "XValidations",
)


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
        yield from _warning_problems(each.said, f"{each.path}.deprecationWarning")
        has_status = _has_status(each if "subresources" in each.said else shared)
        yield from _schema_problems(each, has_status=has_status)
        yield from _rest_problems(each, each.schema)


def _has_status(part: Part) -> bool:
    return (part.said.get("subresources") or {}).get("status") is not None


def _warning_problems(version: Mapping[str, Any], path: str) -> Iterator[Cause]:
    text = version.get("deprecationWarning")
    if text is None:
        return
    for why in _warning_mistakes(text) if version.get("deprecated") else (_NOT_DEPRECATED,):
        yield Cause(path, f"Invalid value: {plain(text)}: {why}")


def _warning_mistakes(text: str) -> Iterator[str]:
    if len(text.encode()) > _WARNING_LENGTH:
        yield f"must be <= {_WARNING_LENGTH} characters long"
    if not text:
        yield "must not be an empty string"
    odd = next((index for index, letter in enumerate(text) if not letter.isprintable()), None)
    if odd is not None:
        where = len(text[:odd].encode())
        yield f"must only contain printable UTF-8 characters; non-printable character found at index {where}"


_NOT_DEPRECATED = "can only be set for deprecated versions"


def _schema_problems(part: Part, *, has_status: bool) -> Iterator[Cause]:
    """Of a schema: its root, its structure or its defaults, its words, and then its rules."""
    schema = part.schema
    if schema is None:
        return
    path = f"{part.at('schema')}.openAPIV3Schema"
    found = list(_root_problems(schema, path, has_status=has_status))
    word = unreadable(schema)
    if not word:
        found += structural_problems(schema, path) or default_problems(schema, path)
    found += keyword_problems(schema, path)
    if word and not found:
        found = [wrong(path, "", f"OpenAPIV3Schema '{word}' is not supported")]
    yield from found
    if not found:
        found = list(rule_problems(schema, path))
        yield from found or cost_problems(schema, path)


def _root_problems(schema: Schema, path: str, *, has_status: bool) -> Iterator[Cause]:
    for name, value in fields_of(schema) if has_status else ():
        if name == "Type" and value != "object":
            why = (
                'only "object" is allowed as the type at the root of the schema if the status '
                "subresource is enabled"
            )
            yield wrong(f"{path}.type", value, why)
            break
        if name not in _AT_ROOT:
            why = (
                f"only [{' '.join(_AT_ROOT)}] fields are allowed at the root of the schema if the status "
                "subresource is enabled"
            )
            yield wrong(path, shown_schema(schema), why)
            break
    if schema.get("nullable"):
        yield forbidden(f"{path}.nullable", "nullable cannot be true at the root")


def _rest_problems(part: Part, schema: Schema | None) -> Iterator[Cause]:
    """What a version says beside its schema."""
    scale = (part.said.get("subresources") or {}).get("scale")
    yield from _scale_problems(scale, f"{part.at('subresources')}.scale")
    yield from _column_problems(part.said.get("additionalPrinterColumns") or (), part)
    yield from _selectable_problems(part.said.get("selectableFields") or (), schema, part)


def _scale_problems(scale: Mapping[str, Any] | None, path: str) -> Iterator[Cause]:
    """Scale paths that are missing, or elsewhere than in spec and status."""
    for name, roots, told in _SCALE_PATHS if scale is not None else ():
        text = (scale or {}).get(name) or ""
        if not text and len(roots) == 1:
            yield missing(f"{path}.{name}")
        elif text and text[0] != ".":
            yield wrong(f"{path}.{name}", text, "must be a simple json path starting with .")
        elif text and not text.startswith(roots):
            yield wrong(f"{path}.{name}", text, f"should be a json path under {told}")


_SCALE_PATHS = (
    ("specReplicasPath", (".spec.",), ".spec"),
    ("statusReplicasPath", (".status.",), ".status"),
    ("labelSelectorPath", (".spec.", ".status."), "either .spec or .status"),
)


def _column_problems(columns: Any, part: Part) -> Iterator[Cause]:
    """Printer columns without name, type or path, or of unknown types and formats."""
    for index, column in enumerate(columns):
        where = f"{part.at('additionalPrinterColumns')}[{index}]"
        kind, form, text = (column.get(name) or "" for name in ("type", "format", "jsonPath"))
        kinds = f"must be one of {','.join(_COLUMN_TYPES)}"
        if not column.get("name"):
            yield missing(f"{where}.name")
        if kind not in _COLUMN_TYPES:
            yield wrong(f"{where}.type", kind, kinds) if kind else missing(f"{where}.type", kinds)
        if form and form not in _COLUMN_FORMATS:
            yield wrong(f"{where}.format", form, f"must be one of {','.join(_COLUMN_FORMATS)}")
        if not text:
            yield missing(f"{where}.JSONPath")
        elif text[0] != ".":
            yield wrong(f"{where}.JSONPath", text, "must be a simple json path starting with .")


def _selectable_problems(fields: Any, schema: Schema | None, part: Part) -> Iterator[Cause]:
    """Selectable fields that are no scalars of the object's own, or named twice, or too many."""
    path, seen = part.at("selectableFields"), set[str]()
    for index, field in enumerate(fields):
        text = field.get("jsonPath") or ""
        where = f"{path}[{index}].jsonPath"
        if not text:
            yield missing(where)
            continue
        problem, found = _looked_up(text, schema or {})
        if problem:
            yield wrong(where, text, f"is an invalid path: {problem}")
            continue
        if text.startswith(".metadata"):
            yield wrong(where, text, "must not point to fields in metadata")
        if found.get("type") not in ("string", "boolean", "integer"):
            yield wrong(where, text, _NO_SCALAR)
        if text in seen:
            yield Cause(where, f'Duplicate value: "{text}"', "FieldValueDuplicate")
        seen.add(text)
    if len(seen) > _MOST_SELECTABLE:
        yield Cause(path, f"Too many: {len(seen)}: must have at most 8 items", "FieldValueTooMany")


_NO_SCALAR = (
    "must point to a field of type string, boolean or integer. Enum string fields and strings with formats "
    "are allowed."
)


def _looked_up(text: str, schema: Schema) -> tuple[str, Schema]:
    """Why a dotted path leads nowhere, or ("" and) the schema at its end."""
    tokens = re.findall(r"[.\[\]]|[^.\[\]]+", text)
    for index, token in enumerate(tokens):
        if index % 2 == 0 and token == "[":
            return "array notation is not allowed", {}
        if index % 2 == 0 and token != ".":
            return f"expected [ or . but got: {token}", {}
        if index % 2:
            found = (schema.get("properties") or {}).get(token, schema.get("additionalProperties"))
            if not isinstance(found, dict):
                return "does not refer to a valid field", {}
            schema = found
    return ("unexpected end of JSON path", {}) if len(tokens) % 2 else ("", schema)


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
    has_status = any(_has_status(each) for each in [*single, shared])
    yield from _schema_problems(shared, has_status=has_status)
    yield from _rest_problems(shared, shared.schema)


def _converts_in_a_way_there_is(it: Definition) -> Iterator[Cause]:
    conversion, path = it.spec.get("conversion") or {}, "spec.conversion"
    yield from _choice(f"{path}.strategy", conversion.get("strategy"), ["None", "Webhook"])
    webhook = conversion.get("webhook") or {}
    client, versions = webhook.get("clientConfig"), webhook.get("conversionReviewVersions") or []
    if conversion.get("strategy") == "Webhook":
        yield from _client_problems(client, f"{path}.webhookClientConfig")
        yield from _review_problems(versions, f"{path}.conversionReviewVersions")
        return
    for name, value in (("webhookClientConfig", client), ("conversionReviewVersions", versions)):
        if value:
            yield forbidden(f"{path}.{name}", "should not be set when strategy is not set to Webhook")


def _client_problems(client: Mapping[str, Any] | None, path: str) -> Iterator[Cause]:
    if client is None:
        yield missing(path, "required when strategy is set to Webhook")
    elif (client.get("url") is None) == (client.get("service") is None):
        yield missing(path, "exactly one of url or service is required")
    elif client.get("url") is not None:
        yield from _url_problems(client["url"], f"{path}.url")
    else:
        yield from _service_problems(client["service"], f"{path}.service")


def _url_problems(text: str, path: str) -> Iterator[Cause]:
    form = "; desired format: https://host[/path]"
    url = urlsplit(text)
    if url.scheme != "https":
        yield wrong(path, url.scheme, f"'https' is the only allowed URL scheme{form}")
    if not url.netloc:
        yield wrong(path, "", f"host must be specified{form}")
    if url.username:
        told = f"{url.username}:{url.password}" if url.password is not None else url.username
        yield wrong(path, told, "user information is not permitted in the URL")
    if url.fragment:
        yield wrong(path, url.fragment, "fragments are not permitted in the URL")
    if url.query:
        yield wrong(path, url.query, "query parameters are not permitted in the URL")


def _service_problems(service: Mapping[str, Any], path: str) -> Iterator[Cause]:
    """The real server takes the two names for each other when one is missing; so does this."""
    for told, name in (("name", "namespace"), ("namespace", "name")):
        if not service.get(name):
            yield missing(f"{path}.{told}")
    port = service.get("port", 443)
    if not 0 < port < 65536:
        why = "port is not valid: must be between 1 and 65535, inclusive"
        yield wrong(f"{path}.port", port, why)
    yield from _path_problems(service.get("path") or "/", f"{path}.path")


def _path_problems(text: str, path: str) -> Iterator[Cause]:
    if text == "/":
        return
    if not text.startswith("/"):
        yield wrong(path, text, "must start with a '/'")
    for index, step in enumerate(text[1:].removesuffix("/").split("/")):
        problem = subdomain_problem(step) if step else ""
        if not step or problem:
            yield wrong(
                path, text, f"segment[{index}]: {problem}" if step else f"segment[{index}] may not be empty"
            )


def _review_problems(versions: list[str], path: str) -> Iterator[Cause]:
    if not versions:
        yield missing(path)
        return
    for index, version in enumerate(versions):
        if version in versions[:index]:
            yield wrong(f"{path}[{index}]", version, "duplicate version")
        elif problem := service_name_problem(version):
            yield wrong(f"{path}[{index}]", version, problem)
    if not set(versions) & set(_REVIEWS):
        yield wrong(path, versions, f"must include at least one of {', '.join(_REVIEWS)}")


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
