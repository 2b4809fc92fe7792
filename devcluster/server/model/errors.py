"""Errors of requests, as the `Status` body that clients print.

StatusError          every refusal: HTTP code + reason + message + details
    (made by the functions below; nothing subclasses it: clients tell refusals apart by `reason`)
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec


@dataclass(frozen=True)
class Cause:
    """One thing that is wrong with one field."""

    field: str
    message: str
    reason: str = "FieldValueInvalid"

    def body(self) -> dict[str, str]:
        return {"reason": self.reason, "message": self.message, "field": self.field}


class StatusError(Exception):
    """A refusal. `body()` is the `Status` object that goes over the wire."""

    def __init__(
        self,
        code: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        headers: Mapping[str, str] | None = None,
        *,
        empty: bool = False,
    ) -> None:
        super().__init__(message)
        self.code = code
        self.reason = reason
        self.message = message
        self.details = dict(details or {})
        self.headers = dict(headers or {})
        self.metadata: dict[str, Any] = {}
        self._empty = empty  # the real server sends details although they are empty

    def body(self) -> dict[str, Any]:
        status: dict[str, Any] = {
            "kind": "Status",
            "apiVersion": "v1",
            "metadata": self.metadata,
            "status": "Failure",
            "message": self.message,
            **({"reason": self.reason} if self.reason else {}),
            "code": self.code,
        }
        if self.details or self._empty:
            status["details"] = self.details
        return status


def full_name(plural: str, group: str) -> str:
    return f"{plural}.{group}" if group else plural


def _details(group: str, kind: str, name: str = "") -> dict[str, Any]:
    pairs = {"name": name, "group": group, "kind": kind}
    return {key: value for key, value in pairs.items() if value}


class NoSuchPage(Exception):
    """A path below which nothing is served at all: plain text, no Status."""


def unknown_path() -> StatusError:
    return StatusError(404, "NotFound", "the server could not find the requested resource", empty=True)


def absent(subresource: str) -> StatusError:
    return StatusError(
        501, "NotImplemented", f"devcluster does not serve {subresource!r}, see docs/devcluster.md"
    )


def not_found(group: str, plural: str, name: str) -> StatusError:
    message = f'{full_name(plural, group)} "{name}" not found'
    return StatusError(404, "NotFound", message, _details(group, plural, name))


def already_exists(group: str, plural: str, name: str) -> StatusError:
    message = f'{full_name(plural, group)} "{name}" already exists'
    return StatusError(409, "AlreadyExists", message, _details(group, plural, name))


def conflict(group: str, plural: str, name: str, why: str) -> StatusError:
    message = f'Operation cannot be fulfilled on {full_name(plural, group)} "{name}": {why}'
    return StatusError(409, "Conflict", message, _details(group, plural, name))


STALE = "the object has been modified; please apply your changes to the latest version and try again"


def apply_conflict(conflicts: Iterable[tuple[str, str]]) -> StatusError:
    """`conflicts` are (manager, field) pairs, in the order of the message."""
    pairs = list(conflicts)
    managers = sorted({manager for manager, _ in pairs})
    fields = {manager: [field for owner, field in pairs if owner == manager] for manager in managers}
    noun = "1 conflict" if len(pairs) == 1 else f"{len(pairs)} conflicts"
    if len(managers) == 1 and len(pairs) == 1:
        message = f"conflict with {managers[0]}: {pairs[0][1]}"
    else:
        message = "\n".join(
            f"conflicts with {manager}:\n" + "\n".join(f"- {field}" for field in fields[manager])
            for manager in managers
        )
    causes = [
        {"reason": "FieldManagerConflict", "message": f"conflict with {manager}", "field": field}
        for manager, field in pairs
    ]
    return StatusError(409, "Conflict", f"Apply failed with {noun}: {message}", {"causes": causes})


def invalid(group: str, kind: str, name: str, causes: Iterable[Cause]) -> StatusError:
    found = list(causes)
    messages = list(dict.fromkeys(f"{cause.field}: {cause.message}" for cause in found))
    text = messages[0] if len(messages) == 1 else "[" + ", ".join(messages) + "]"
    details = _details(group, kind, name) | {"causes": [cause.body() for cause in found]}
    return StatusError(422, "Invalid", f'{full_name(kind, group)} "{name}" is invalid: {text}', details)


def bad_request(message: str) -> StatusError:
    return StatusError(400, "BadRequest", message)


def terminating(group: str, plural: str, name: str, namespace: str) -> StatusError:
    """Nothing new is made in a namespace that goes."""
    why = f"unable to create new content in namespace {namespace} because it is being terminated"
    error = forbidden(group, plural, name, why)
    message = f"namespace {namespace} is being terminated"
    cause = {"reason": "NamespaceTerminating", "message": message, "field": "metadata.namespace"}
    error.details["causes"] = [cause]
    return error


def bad_patch(why: str) -> StatusError:
    """A patch whose outcome is no object of its kind."""
    message = f'Invalid value: "{{…}}": {why}'
    causes = [Cause("patch", message).body()]
    return StatusError(422, "Invalid", f' "" is invalid: patch: {message}', {"causes": causes})


def wrong_name(found: str | None, asked: str) -> StatusError:
    if not found:
        why = "was undeterminable: name must be provided"
        return bad_request(f"the name of the object ({asked} based on URL) {why}")
    return bad_request(f"the name of the object ({found or ''}) does not match the name on the URL ({asked})")


def unreadable(kind: str, why: str, body: bytes) -> StatusError:
    """A body without a kind."""
    shown = body.decode(errors="replace") if body[:1] == b"{" else body.hex() or "<empty>"
    begins = f"the object provided is unrecognized (must be of type {kind})"
    return bad_request(f"{begins}: couldn't get version/kind; json parse error: {why} ({shown})")


def unknown_type(kind: str, body: Any) -> StatusError:
    found = {list: "array", str: "string", bool: "bool"}.get(type(body), "number")
    wanted = (
        'struct { APIVersion string "json:\\"apiVersion,omitempty\\""; '
        'Kind string "json:\\"kind,omitempty\\"" }'
    )
    why = f"json: cannot unmarshal {found} into Go value of type {wanted}"
    return unreadable(kind, why, msgspec.json.encode(body))


def undecodable(kind: str, version: str, why: str, wanted: str = "") -> StatusError:
    """A body that is no object of this kind at all, or not of the one that is `wanted`."""
    return bad_request(f'{kind} in version "{version}" cannot be handled as a {wanted or kind}: {why}')


def forbidden(group: str, plural: str, name: str, why: str) -> StatusError:
    """`plural` is "" where it is about a path and no resource."""
    named = f' "{name}"' if name else ""
    what = f"{full_name(plural, group)}{named} is forbidden" if plural else "forbidden"
    return StatusError(403, "Forbidden", f"{what}: {why}", _details(group, plural, name), empty=not plural)


def unauthorized() -> StatusError:
    return StatusError(401, "Unauthorized", "Unauthorized")


def expired(message: str) -> StatusError:
    return StatusError(410, "Expired", message)


def too_large_version(asked: int, current: int) -> StatusError:
    message = f"Too large resource version: {asked}, current: {current}"
    cause = {"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}
    details = {"causes": [cause], "retryAfterSeconds": 1}
    return StatusError(504, "Timeout", f"Timeout: {message}", details, {"Retry-After": "1"})


def not_a_number(text: str) -> str:
    """Go's message for a string that is not a number."""
    return f'strconv.ParseInt: parsing "{text}": invalid syntax'


def bad_version(text: str) -> StatusError:
    """A malformed resourceVersion."""
    why = f'resourceVersion: Invalid value: "{text}": strconv.ParseUint: parsing "{text}": invalid syntax'
    return StatusError(500, "", why)


def too_large(size: int, limit: int) -> StatusError:
    message = f"request is too large: the object has {size} bytes, the limit is {limit}"
    return StatusError(413, "RequestEntityTooLarge", message)


def too_many_operations(count: int, limit: int) -> StatusError:
    message = f"The allowed maximum operations in a JSON patch is {limit}, got {count}"
    return StatusError(413, "RequestEntityTooLarge", message)


def method_not_allowed() -> StatusError:
    message = "the server does not allow this method on the requested resource"
    return StatusError(405, "MethodNotAllowed", message, empty=True)


def unsupported_media(supported: Iterable[str]) -> StatusError:
    known = ", ".join(supported)
    message = f"the body of the request was in an unknown format - accepted media types include: {known}"
    return StatusError(415, "UnsupportedMediaType", message)


def unsupported_patch() -> StatusError:
    return StatusError(415, "UnsupportedMediaType", "415: Unsupported Media Type", empty=True)


def not_acceptable() -> StatusError:
    kinds = ", ".join(
        f"{kind}{more}"
        for more in ("", ";stream=watch")
        for kind in _OFFERED
        if not (more and "yaml" in kind)
    )
    message = f"406: Not Acceptable\n\nAvailable representations: {kinds}"
    return StatusError(406, "NotAcceptable", message, empty=True)


_OFFERED = ("application/json", "application/yaml", "application/vnd.kubernetes.protobuf")


def cannot_apply() -> StatusError:
    """A JSON patch that cannot be applied; like the real server's, the message gives no reason."""
    message = "the server rejected our request due to an error in our request"
    return StatusError(422, "Invalid", message, empty=True)


def internal(message: str) -> StatusError:
    details = {"causes": [{"message": message}]}
    return StatusError(500, "InternalError", f"Internal error occurred: {message}", details)
