"""Errors between a controller and the API server.

KubeError
├── ApiError(status, reason, message, details)    the server answered with a Status
│   ├── BadRequest 400          Unauthorized 401      Forbidden 403
│   ├── NotFound 404            MethodNotAllowed 405
│   ├── Conflict 409            └── AlreadyExists 409
│   ├── Gone 410                PayloadTooLarge 413   Invalid 422
│   ├── TooManyRequests 429
│   └── ServerError 5xx
├── Unreachable                 no usable answer: refused, cut, timed out, or not a Kubernetes answer at all
├── Undecodable                 an object that does not fit its model
├── ConfigError                 no cluster, or credentials that cannot be read
├── Fenced                      a write that was not sent: this process does not lead (any more)
├── LeadershipLost              ends an operator: another may lead now
└── Terminal                    raised by reconcilers: trying again cannot help
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from elasticjob.kube.asked import ApiRequest
from elasticjob.kube.json import JsonReader


class KubeError(Exception):
    """The root of all errors of this package."""


class ConfigError(KubeError):
    """There is no cluster to talk to, or its credentials cannot be read."""


class Unreachable(KubeError):
    """No usable answer came: connection refused or cut, a timeout, or a body that no API server sends.

    `never_sent`: the request reached no server (no connection, or a proxy's 502 or 503): retrying is free.
    """

    def __init__(self, message: str, *, never_sent: bool = False) -> None:
        super().__init__(message)
        self.never_sent = never_sent


class Undecodable(KubeError):
    """An object does not fit the model of its kind; the message names object and field. It fails alone."""


class Fenced(KubeError):
    """A write was not sent: only the leader may make it, and this process does not lead, or not any more."""


class LeadershipLost(KubeError):
    """The lease could not be renewed in time, or is another's: the process is to end at once."""


class Terminal(KubeError):
    """Raised by a reconciler: the object cannot be brought to its spec, and trying again cannot help.

    The key is not retried; the next change of the object runs it again.
    """


class ApiError(KubeError):
    """The server refused, with a Status: its code, machine reason, sentence and details.

    `asked` is the request, where it is known.
    """

    asked: ApiRequest | None = None

    def __init__(
        self,
        status: int,
        reason: str,
        message: str,
        details: Mapping[str, Any] | None = None,
        *,
        retry_after: float | None = None,
    ) -> None:
        super().__init__(status, reason, message)
        self.status = status
        self.reason = reason
        self.message = message
        self.details: Mapping[str, Any] = details or {}
        self.retry_after = retry_after

    def __str__(self) -> str:
        return f"{self.message} ({self.status} {self.reason})"

    @property
    def stay_away(self) -> float | None:
        """Seconds to wait before a retry: the Retry-After of a 429; a 5xx's is capped at EXPECTED.

        A busy server must be heeded. A starting one says 5 s and needs a fraction of a second.
        """
        if self.retry_after is None or self.status == 429:
            return self.retry_after
        return min(self.retry_after, EXPECTED)

    @property
    def causes(self) -> list[Mapping[str, str]]:
        """The Status' causes: `{"reason", "message", "field"}` each."""
        return list(self.details.get("causes") or ())


class BadRequest(ApiError):
    """400: the request itself is malformed (also: unknown fields under strict validation)."""


class Unauthorized(ApiError):
    """401: the credentials are not accepted, even after they were read again."""


class Forbidden(ApiError):
    """403: RBAC, quota, or an admission webhook says no."""


class NotFound(ApiError):
    """404: no such object, or no such resource type."""


class MethodNotAllowed(ApiError):
    """405: the resource does not support this verb."""


class Conflict(ApiError):
    """409: another client wrote in between (or owns the field): read again, recompute."""


class AlreadyExists(Conflict):
    """409: an object of this name exists."""


class Gone(ApiError):
    """410: the resourceVersion or continue token is too old; list again."""


class PayloadTooLarge(ApiError):
    """413: the object exceeds what the server stores."""


class Invalid(ApiError):
    """422: validation failed; `causes` name the fields."""


class TooManyRequests(ApiError):
    """429: come back later; `retry_after` says when."""


class ServerError(ApiError):
    """5xx: the server's own trouble."""


_BY_STATUS: Mapping[int, type[ApiError]] = {
    400: BadRequest,
    401: Unauthorized,
    403: Forbidden,
    404: NotFound,
    405: MethodNotAllowed,
    409: Conflict,
    410: Gone,
    413: PayloadTooLarge,
    422: Invalid,
    429: TooManyRequests,
}


_TOO_LARGE = ("etcdserver: request is too large", "trying to send message larger than max")
"""How etcd's refusal of a large object shows through: as a 500, though no repetition can help."""


_NO_SUCH_PATH = "404 page not found"


EXPECTED = 1.0
"""The cap on the Retry-After of a 5xx, in seconds."""
LONGEST_BELIEVED = 600.0
"""The cap on any Retry-After, in seconds: a proxy's mistake must not stop a controller."""


class _Status(msgspec.Struct):
    kind: str = ""
    status: str = ""
    message: str | None = None
    reason: str | None = None
    details: dict[str, Any] | None = None
    code: int = 0


_STATUS = JsonReader(_Status)


def api_error(
    status: int,
    reason: str,
    message: str,
    details: Mapping[str, Any] | None = None,
    retry_after: float | None = None,
) -> ApiError:
    """The error of a status code; two kinds are told by reason or message alone."""
    if reason == "AlreadyExists":
        found: type[ApiError] = AlreadyExists
    elif any(sign in message for sign in _TOO_LARGE):
        found = PayloadTooLarge
    elif status >= 500:
        found = ServerError
    else:
        found = _BY_STATUS.get(status, ApiError)
    return found(status, reason, message, details, retry_after=retry_after)


def error_of(status: int, body: bytes, what: str, retry_after: float | None = None) -> KubeError:
    """The error that an answer with a failing `status` stands for; `what` is the request in words.

    A body that is not a Status (a proxy's HTML page, an empty one) is Unreachable, except for the codes whose
    meaning needs no body, 401 and 429, and for the API server's own plain 404: a path that it does not serve,
    as that of a CRD which is not established yet. A proxy's 404 must not pass for "the object is gone".
    """
    try:
        found = _STATUS.decode(body)
    except msgspec.DecodeError:
        found = _Status()
    if found.kind == "Status":
        after = _plausible(retry_after if retry_after is not None else _seconds(found.details))
        return api_error(status, found.reason or str(status), found.message or what, found.details, after)
    text = body[:200].decode(errors="replace").strip() or "an empty body"
    if status in (401, 429) or (status == 404 and text == _NO_SUCH_PATH):
        return api_error(status, str(status), f"{what}: {text}", retry_after=_plausible(retry_after))
    return Unreachable(
        f"{what}: {status} and not a Kubernetes answer: {text}", never_sent=status in (502, 503)
    )


def _plausible(seconds: float | None) -> float | None:
    return None if seconds is None else min(seconds, LONGEST_BELIEVED)


def _seconds(details: Mapping[str, Any] | None) -> float | None:
    """`retryAfterSeconds`, which the API server says also where no header can, as on a watch."""
    seconds = (details or {}).get("retryAfterSeconds")
    return float(seconds) if isinstance(seconds, int | float) and seconds > 0 else None


def is_too_large_resource_version(error: KubeError) -> bool:
    """Whether a resourceVersion is from the server's future: its storage was emptied or restored."""
    if not isinstance(error, ApiError):
        return False
    causes = {cause.get("reason") for cause in error.causes}
    return "ResourceVersionTooLarge" in causes or "Too large resource version" in error.message
