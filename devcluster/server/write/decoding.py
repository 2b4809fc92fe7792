"""Decoding of request bodies: checked against the resource, pruned, converted to the stored version."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from elasticjob.devcluster.server.model import errors
from elasticjob.devcluster.server.model.errors import StatusError
from elasticjob.devcluster.server.model.names import wrong
from elasticjob.devcluster.server.model.registry import Resource
from elasticjob.devcluster.server.model.schemas import builtin_kind
from elasticjob.devcluster.server.model.store import Manifest, encode
from elasticjob.devcluster.server.schema.defaulting import fill
from elasticjob.devcluster.server.schema.normal import normalise
from elasticjob.devcluster.server.schema.pruning import prune
from elasticjob.devcluster.server.schema.validation import type_problem
from elasticjob.devcluster.server.write.jsonbody import Repeating


def decode(
    resource: Resource,
    namespace: str,
    body: Any,
    field_validation: str,
    warnings: list[str],
    known: Manifest | None = None,
    strategic: Any = None,
) -> Manifest:
    """The body of a request as an object of this resource, in its stored version, without unknown fields.

    `known` is the object that a patch was made to: members that equal its own are not looked at again, and
    what is wrong is the patch's fault. `strategic` is that patch, if it was one of those.
    """
    refuse = _refusal(resource, patched=known is not None)
    if strategic is not None:  # it cannot change the kind
        body = body | {"kind": resource.kind, "apiVersion": resource.api_version}
    new = _recognise(resource, body, refuse, patched=known is not None)
    _place(resource, namespace, new["metadata"])
    fresh = different(new, known)
    same = {name: value for name, value in new.items() if name not in fresh}
    _check_types(resource, fresh, refuse)
    unknown = [*_repeats(body), *prune(fresh, resource.schema)]
    _check_unknown(unknown, field_validation, warnings, refuse)
    if not resource.custom:
        fresh = normalise(fresh, resource.schema)
    new = same | fresh
    if resource.warning:
        warnings.append(resource.warning)
    return resource.conversion.to_storage(new) if resource.conversion else new


Refuse = Callable[[str], StatusError]


def _refusal(resource: Resource, *, patched: bool) -> Refuse:
    if patched:
        return errors.bad_patch
    return lambda why: errors.undecodable(resource.kind, resource.version, why)


def _place(resource: Resource, namespace: str, metadata: Manifest) -> None:
    given = metadata.get("namespace") or ""
    if not resource.namespaced:
        metadata.pop("namespace", None)
        return
    if given not in ("", namespace):
        raise errors.bad_request(
            "the namespace of the provided object does not match the namespace sent on the request"
        )
    metadata["namespace"] = namespace


def _recognise(resource: Resource, body: Any, refuse: Refuse, *, patched: bool) -> Manifest:
    if not isinstance(body, dict):
        raise errors.unknown_type(resource.kind, body)
    if resource.custom:
        _check_custom_kind(resource, body)
    kind, version = body.get("kind") or resource.kind, body.get("apiVersion") or resource.api_version
    if (kind, version) != (resource.kind, resource.api_version):
        why, short = _wrong_kind(resource, kind, version), str(version).rpartition("/")[2]
        raise refuse(why) if patched else errors.undecodable(kind, short, why, resource.kind)
    metadata = body.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise refuse("metadata must be of type object")
    return body | {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": dict(metadata or {}),
    }


def _check_custom_kind(resource: Resource, body: Manifest) -> None:
    kind, version = body.get("kind"), body.get("apiVersion") or ""
    if not kind:
        text = encode(body).decode()
        begins = f"the object provided is unrecognized (must be of type {resource.kind})"
        raise errors.bad_request(f"{begins}: Object 'Kind' is missing in '{text}' ({text[:22]} ...)")
    if version != resource.api_version:
        raise errors.bad_request(
            f"the API version in the data ({version}) does not match the expected API version "
            f"({resource.api_version})"
        )
    if kind != resource.kind:
        metadata = body.get("metadata")
        name = metadata.get("name") or "" if isinstance(metadata, dict) else ""
        raise errors.invalid(
            resource.group, str(kind), str(name), [wrong("kind", kind, f"must be {resource.kind}")]
        )


def _wrong_kind(resource: Resource, kind: Any, version: Any) -> str:
    """Why an object of another kind is refused."""
    if builtin_kind(str(version), str(kind)) is None:
        return f'no kind "{kind}" is registered for version "{version}" in scheme'
    short, group = str(version).rpartition("/")[2], (resource.group or "core").partition(".")[0]
    return f"converting ({short}.{kind}) to ({group}.{resource.kind}): unknown conversion"


def _check_unknown(
    unknown: Sequence[str], field_validation: str, warnings: list[str], refuse: Refuse
) -> None:
    if not unknown or field_validation == "Ignore":
        return
    messages = [each if each.startswith("duplicate") else f'unknown field "{each}"' for each in unknown]
    if field_validation == "Strict":
        raise refuse("strict decoding error: " + ", ".join(messages))
    warnings += messages


def _repeats(body: Any) -> list[str]:
    return list(body.repeated) if isinstance(body, Repeating) else []


def _check_types(resource: Resource, new: Manifest, refuse: Refuse) -> None:
    """Refuse values of the wrong type; of custom resources only in metadata, their schema is asked later."""
    looked_at = {name: new[name] for name in ("metadata",) if name in new} if resource.custom else new
    problem = type_problem(looked_at, resource.schema)
    if problem:
        raise refuse(problem)


def read_again(resource: Resource, stored: Manifest) -> None:
    """Bring a stored object into its kind's new schema: renamed to the stored version, pruned, defaulted."""
    stored["apiVersion"] = resource.api_version
    prune(stored, resource.schema)
    fill(stored, resource.schema)


def different(new: Manifest, old: Manifest | None) -> Manifest:
    """The top-level members of `new` that are not as in `old`."""
    if old is None:
        return new
    return {name: value for name, value in new.items() if name not in old or not _is_same(value, old[name])}


def _is_same(value: Any, other: Any) -> bool:
    """Whether two values are the same in JSON, too: to Python, true is 1."""
    return bool(value == other) and (value is other or _sorted(value) == _sorted(other))


_sorted = msgspec.json.Encoder(order="sorted").encode
