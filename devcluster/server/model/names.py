"""Names, labels and the other rules of `metadata`."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import msgspec

from elasticjob.devcluster.server.model.errors import Cause

_LABEL = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?")
_LABEL_1035 = re.compile(r"[a-z]([-a-z0-9]*[a-z0-9])?")
_SUBDOMAIN = re.compile(r"[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*")
_QUALIFIED = re.compile(r"([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]")

_SUBDOMAIN_RULE = (
    "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, '-' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'example.com', regex used "
    r"for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?(\.[a-z0-9]([-a-z0-9]*[a-z0-9])?)*')"
)
_LABEL_RULE = (
    "a lowercase RFC 1123 label must consist of lower case alphanumeric characters or '-', and "
    "must start and end with an alphanumeric character (e.g. 'my-name',  or '123-abc', regex used"
    " for validation is '[a-z0-9]([-a-z0-9]*[a-z0-9])?')"
)
_LABEL_1035_RULE = (
    "a DNS-1035 label must consist of lower case alphanumeric characters or '-', start with an "
    "alphabetic character, and end with an alphanumeric character (e.g. 'my-name',  or 'abc-123',"
    " regex used for validation is '[a-z]([-a-z0-9]*[a-z0-9])?')"
)
_VALUE_RULE = (
    "a valid label must be an empty string or consist of alphanumeric characters, '-', '_' or "
    "'.', and must start and end with an alphanumeric character (e.g. 'MyValue',  or 'my_value',"
    "  or '12345', regex used for validation is '(([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9])?')"
)
_KEY_RULE = (
    "name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end "
    "with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for "
    "validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"
)
_FILE_NAME = re.compile(r"[-._a-zA-Z0-9]+")
_FILE_NAME_RULE = (
    "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. 'key.name', "
    " or 'KEY_NAME',  or 'key-name', regex used for validation is '[-._a-zA-Z0-9]+')"
)
ANNOTATIONS_LIMIT = 256 * 1024


def wrong(field: str, value: Any, why: str) -> Cause:
    shown = quote(value) if isinstance(value, str) else plain(value)
    return Cause(field, f"Invalid value: {shown}: {why}")


def quote(text: str) -> str:
    """A text as Go quotes it."""
    return '"' + "".join(_ESCAPES.get(each) or _print(each) for each in text) + '"'


_ESCAPES = dict(zip('\a\b\f\n\r\t\v\\"', ("\\" + each for each in 'abfnrtv\\"'), strict=True))


def _print(letter: str) -> str:
    if letter.isprintable():
        return letter
    code = ord(letter)
    return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def missing(field: str, why: str = "") -> Cause:
    return Cause(field, f"Required value: {why}" if why else "Required value", "FieldValueRequired")


def forbidden(field: str, why: str) -> Cause:
    return Cause(field, f"Forbidden: {why}", "FieldValueForbidden")


def unsupported(field: str, value: Any, known: list[str]) -> Cause:
    listed = ", ".join(f'"{each}"' for each in known)
    return Cause(field, f'Unsupported value: "{value}": supported values: {listed}', "FieldValueNotSupported")


def plain(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def subdomain_problem(name: str) -> str:
    if len(name) > 253:
        return "must be no more than 253 characters"
    return "" if _SUBDOMAIN.fullmatch(name) else _SUBDOMAIN_RULE


def label_problem(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 characters"
    return "" if _LABEL.fullmatch(name) else _LABEL_RULE


def service_name_problem(name: str) -> str:
    if len(name) > 63:
        return "must be no more than 63 characters"
    return "" if _LABEL_1035.fullmatch(name) else _LABEL_1035_RULE


def path_segment_problem(name: str) -> str:
    """Rules of names that need only fit into a URL (RBAC)."""
    if name in (".", ".."):
        return f"may not be '{name}'"
    return next((f"may not contain '{bad}'" for bad in "/%" if bad in name), "")


_NAME_RULES = {
    ("", "Namespace"): label_problem,
    ("", "Service"): service_name_problem,
    **{
        ("rbac.authorization.k8s.io", kind): path_segment_problem
        for kind in ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
    },
}


def name_problem(group: str, kind: str, name: str) -> str:
    """Why an object of this kind cannot have this name; "" if it can."""
    return _NAME_RULES.get((group, kind), subdomain_problem)(name)


def metadata_problems(
    group: str,
    kind: str,
    metadata: Mapping[str, Any],
    *,
    custom: bool = False,
    of_name: Iterable[Cause] = (),
) -> Iterator[Cause]:
    """All problems of an object's metadata; `of_name` are its kind's problems with the name."""
    yield from _name_problems(group, kind, metadata)
    yield from of_name
    yield from _note_problems(metadata)
    yield from _finalizer_problems(metadata, short=custom or group == "apiextensions.k8s.io")


def metadata_update_problems(
    group: str, old: Mapping[str, Any], new: Mapping[str, Any], *, custom: bool
) -> Iterator[Cause]:
    """All problems of changed metadata, except those of `identity_problems`."""
    yield from _note_problems(new)
    yield from _finalizer_problems(new, short=custom or group == "apiextensions.k8s.io")
    yield from _finalizer_additions(old, new)


def _name_problems(group: str, kind: str, metadata: Mapping[str, Any]) -> Iterator[Cause]:
    prefix, name = metadata.get("generateName") or "", metadata.get("name") or ""
    if prefix and (problem := name_problem(group, kind, re.sub("-$", "a", prefix))):
        yield wrong("metadata.generateName", prefix, problem)
    if not name:
        yield missing("metadata.name", "name or generateName is required")
    elif problem := name_problem(group, kind, name):
        yield wrong("metadata.name", name, problem)


def _note_problems(metadata: Mapping[str, Any]) -> Iterator[Cause]:
    yield from label_problems(metadata.get("labels"), "metadata.labels")
    yield from _annotation_problems(metadata.get("annotations") or {})
    yield from _owner_problems(metadata.get("ownerReferences") or ())


def _finalizer_problems(metadata: Mapping[str, Any], *, short: bool) -> Iterator[Cause]:
    for index, finalizer in enumerate(metadata.get("finalizers") or ()):
        if problem := key_problem(finalizer):
            yield wrong("metadata.finalizers", finalizer, problem)
        elif problem := finalizer_problem(finalizer, short=short):
            yield wrong(f"metadata.finalizers[{index}]", finalizer, problem)


def _finalizer_additions(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Cause]:
    before = old.get("finalizers") or ()
    added = [each for each in new.get("finalizers") or () if each not in before]
    if added and new.get("deletionTimestamp"):
        named = ", ".join(f'"{each}"' for each in added)
        why = (
            "Forbidden: no new finalizers can be added if the object is being deleted, "
            f"found new finalizers []string{{{named}}}"
        )
        yield Cause("metadata.finalizers", why, "FieldValueForbidden")


def dedup_owners(metadata: dict[str, Any]) -> list[str]:
    """Remove duplicate owner references in place; returns the warning for the client."""
    owners = metadata.get("ownerReferences") or []
    kept = [owner for index, owner in enumerate(owners) if owner not in owners[:index]]
    if len(kept) == len(owners):
        return []
    metadata["ownerReferences"] = kept
    uids = dict.fromkeys(owner.get("uid", "") for owner in owners if owners.count(owner) > 1)
    return [
        ".metadata.ownerReferences contains duplicate entries; API server dedups owner references in 1.20+, "
        "and may reject such requests as early as 1.24; please fix your requests; duplicate UID(s) observed: "
        + ", ".join(uids)
    ]


def identity_problems(old: Mapping[str, Any], new: Mapping[str, Any]) -> Iterator[Cause]:
    """Problems of changed immutable metadata (identity, deletion timestamp); absent fields are fine."""
    for name in ("uid", "deletionTimestamp", "deletionGracePeriodSeconds"):
        if new.get(name) not in (None, "", old.get(name)):
            yield wrong(f"metadata.{name}", new[name], "field is immutable")


def finalizer_problem(name: str, *, short: bool) -> str:
    """Problems of a finalizer; custom kinds also allow ones without a domain (`short`)."""
    if not short and "/" not in name and name not in ("orphan", "foregroundDeletion", "kubernetes"):
        return "name is neither a standard finalizer name nor is it fully qualified"
    return ""


def label_problems(labels: Mapping[str, str] | None, field: str) -> Iterator[Cause]:
    for key, value in (labels or {}).items():
        if problem := key_problem(key):
            yield wrong(field, key, problem)
        if len(value) > 63:
            yield wrong(field, value, "must be no more than 63 bytes")
        elif value and not _QUALIFIED.fullmatch(value):
            yield wrong(field, value, _VALUE_RULE)


def file_name_problem(name: str) -> str:
    """Problems of a key of a ConfigMap or Secret, which becomes a file name."""
    if len(name) > 253:
        return "must be no more than 253 characters"
    if not _FILE_NAME.fullmatch(name):
        return _FILE_NAME_RULE
    if name in (".", ".."):
        return f"must not be '{name}'"
    return "must not start with '..'" if name.startswith("..") else ""


def path_problem(path: str) -> str:
    """Problems of a path that must stay below its base folder."""
    if path.startswith("/"):
        return "must be a relative path"
    return "must not contain '..'" if ".." in path.split("/") else ""


def key_problem(key: str) -> str:
    """Problems of a label or annotation key."""
    prefix, slash, name = key.rpartition("/")
    if slash and (not prefix or subdomain_problem(prefix)):
        return f"prefix part {_SUBDOMAIN_RULE}"
    if not name or len(name) > 63:
        return "name part must be non-empty" if not name else "name part must be no more than 63 characters"
    return "" if _QUALIFIED.fullmatch(name) else _KEY_RULE


def key_problems(key: str) -> Iterator[str]:
    """All messages of the real server for a malformed value."""
    if problem := key_problem(key):
        yield problem
    if not key:
        yield _KEY_RULE


def _annotation_problems(annotations: Mapping[str, str]) -> Iterator[Cause]:
    for key in annotations:
        if problem := key_problem(key.lower()):
            yield wrong("metadata.annotations", key, problem)
    size = sum(len(key.encode()) + len((value or "").encode()) for key, value in annotations.items())
    if size > ANNOTATIONS_LIMIT:
        message = f"Too long: may not be more than {ANNOTATIONS_LIMIT} bytes"
        yield Cause("metadata.annotations", message, "FieldValueTooLong")


def _owner_problems(owners: Any) -> Iterator[Cause]:
    field = "metadata.ownerReferences"
    for owner in owners:
        if not owner.get("apiVersion"):
            yield wrong(f"{field}.apiVersion", "", "version must not be empty")
        for name in ("kind", "name", "uid"):
            if not owner.get(name):
                yield wrong(f"{field}.{name}", "", "must not be empty")
    controllers = [owner for owner in owners if owner.get("controller")]
    if len(controllers) > 1:
        named = " and ".join(f"{owner.get('kind')}/{owner.get('name')}" for owner in controllers[:2])
        why = f'Only one reference can have Controller set to true. Found "true" in references for {named}'
        yield wrong(field, owners, why)
