"""From the body of a request to an object of a resource: recognised, pruned, in its stored version."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from elasticjob.devcluster.server import errors
from elasticjob.devcluster.server.defaulting import fill
from elasticjob.devcluster.server.normal import normalise
from elasticjob.devcluster.server.pruning import prune
from elasticjob.devcluster.server.registry import Resource
from elasticjob.devcluster.server.store import Manifest
from elasticjob.devcluster.server.validation import TYPE_INVALID, validate


def decode(
    resource: Resource,
    namespace: str,
    body: Any,
    field_validation: str,
    warnings: list[str],
    known: Manifest | None = None,
) -> Manifest:
    """The body of a request as an object of this resource, in its stored version, without unknown fields.

    Members that equal those of `known`, an object that was decoded before, are not looked at again.
    """
    new = _recognise(resource, body)
    metadata = new["metadata"]
    given = metadata.get("namespace") or ""
    if resource.namespaced and given not in ("", namespace):
        raise errors.bad_request(
            f"the namespace of the provided object does not match the namespace sent on the "
            f"request (object has {given!r}, request {namespace!r})"
        )
    if resource.namespaced:
        metadata["namespace"] = namespace
    else:
        metadata.pop("namespace", None)
    fresh = different(new, known)
    same = {name: value for name, value in new.items() if name not in fresh}
    unknown = prune(fresh, resource.schema)
    _check_unknown(resource, unknown, field_validation, warnings)
    if resource.custom:
        _check_types(resource, {name: fresh[name] for name in ("metadata",) if name in fresh})
    else:
        _check_types(resource, fresh)
        fresh = normalise(fresh, resource.schema)
    new = same | fresh
    if resource.warning:
        warnings.append(resource.warning)
    return resource.conversion.to_storage(new) if resource.conversion else new


def _recognise(resource: Resource, body: Any) -> Manifest:
    if not isinstance(body, dict):
        raise errors.bad_request("the body of the request is not a JSON object")
    for member in ("kind", "apiVersion") if resource.custom else ():
        if not body.get(member):
            raise errors.bad_request(f"the object must be of kind {resource.kind}: its {member} is missing")
    kind, version = body.get("kind") or resource.kind, body.get("apiVersion") or resource.api_version
    if (kind, version) != (resource.kind, resource.api_version):
        raise errors.bad_request(
            f"{kind} in version {version!r} cannot be handled as a {resource.kind} in version "
            f"{resource.api_version!r}: this path takes {resource.kind}, post to the path of {kind}"
        )
    metadata = body.get("metadata")
    if metadata is not None and not isinstance(metadata, dict):
        raise errors.bad_request(f"{resource.kind} cannot be handled: metadata must be an object")
    return body | {
        "kind": resource.kind,
        "apiVersion": resource.api_version,
        "metadata": dict(metadata or {}),
    }


def _check_unknown(
    resource: Resource, unknown: Sequence[str], field_validation: str, warnings: list[str]
) -> None:
    if not unknown or field_validation == "Ignore":
        return
    told = [f'unknown field "{path}"' for path in unknown]
    if field_validation == "Strict":
        raise errors.undecodable(resource.kind, resource.version, "strict decoding error: " + ", ".join(told))
    warnings += told


def _check_types(resource: Resource, new: Manifest) -> None:
    """A built-in object with a value of the wrong type does not even decode: 400, not 422."""
    for cause in validate(new, resource.schema):
        if cause.reason == TYPE_INVALID and '"null"' not in cause.message:
            raise errors.undecodable(
                resource.kind, resource.version, f"json: cannot unmarshal {cause.message}"
            )


def read_again(resource: Resource, stored: Manifest) -> None:
    """Bring a stored object into the shape of a schema that is younger: pruned, and with its defaults."""
    prune(stored, resource.schema)
    fill(stored, resource.schema)


def different(new: Manifest, old: Manifest | None) -> Manifest:
    """The top-level members of `new` that are not as in `old`."""
    if old is None:
        return new
    return {name: value for name, value in new.items() if name not in old or old[name] != value}
