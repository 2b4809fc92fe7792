"""Encoding of requests and responses: JSON or MessagePack by header, checked against the message type."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

import msgspec

from elasticjob.api.rpc.message import JSON, MSGPACK, PREFIX, PROBLEM, Problem, Request
from elasticjob.api.rpc.rendezvous import World
from elasticjob.master.dispatch import VERBS

LIMIT = 1024 * 1024  # bytes of a body

_DECODERS = {
    mime: {path: decoder(request) for path, request in VERBS.items()}
    for mime, decoder in ((JSON, msgspec.json.Decoder), (MSGPACK, msgspec.msgpack.Decoder))
}
_ENCODERS = {JSON: msgspec.json.Encoder().encode, MSGPACK: msgspec.msgpack.Encoder().encode}


class Rejected(Exception):
    """An HTTP request that was refused before it reached the job."""

    def __init__(
        self, status: int, code: str, title: str, detail: str, headers: Mapping[str, str] | None = None
    ) -> None:
        super().__init__(detail)
        self.problem = Problem(title=title, status=status, detail=detail, code=code)
        self.headers = headers or {}


def verb(method: str, path: str) -> str:
    """Return the conversation and verb in `path`; Rejected if unknown, or if the method is not POST."""
    name = path.removeprefix(PREFIX)
    if name not in VERBS:
        known = ", ".join(sorted(VERBS))
        raise Rejected(404, "unknown-verb", "No such verb", f"{name} is not one of {known}")
    if method != "POST":
        detail = f"{method} {path}: verbs are called by POST"
        raise Rejected(405, "malformed", "Wrong method", detail, {"Allow": "POST"})
    return name


def authorize(header: str, token: str) -> None:
    """Reject a request without the job's token, by a comparison in constant time."""
    expected = f"Bearer {token}"
    sent = header.encode(errors="surrogateescape")  # headers are decoded with surrogateescape
    if not token or not hmac.compare_digest(sent, expected.encode()):
        detail = "send the job's token as `Authorization: Bearer <token>`; it is in the Secret <job>-token"
        challenge = {"WWW-Authenticate": "Bearer"}
        raise Rejected(401, "unauthenticated", "Wrong or missing token", detail, challenge)


def decode(name: str, mime: str, body: bytes) -> Request[Any]:
    """Return the request in `body`; Rejected names the path of an invalid field."""
    try:
        return _DECODERS[mime][name].decode(body)  # type: ignore[no-any-return]
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise Rejected(400, "malformed", "Malformed body", f"{name}: {error}") from error
    except RecursionError:
        detail = f"{name}: the body is nested deeper than it can be read"
        raise Rejected(400, "malformed", "Malformed body", detail) from None


class Encoder:
    """Encodes responses, and each world once: its thousand members wait for the same 170 KB."""

    def __init__(self) -> None:
        self._world: World | None = None
        self._bodies: dict[str, bytes] = {}

    def encode(self, answer: Any, mime: str) -> bytes:
        """Return `answer` encoded as that media type."""
        if not isinstance(answer, World):
            return _ENCODERS[mime](answer)
        if answer is not self._world:
            self._world, self._bodies = answer, {}
        if mime not in self._bodies:
            self._bodies[mime] = _ENCODERS[mime](answer)
        return self._bodies[mime]


def media_type(content_type: str, default: str = JSON) -> str:
    """Return the media type that a header names; `default` for any other."""
    for mime in (MSGPACK, JSON):
        if mime in content_type:
            return mime
    return default


def too_large(size: int | None) -> Rejected:
    """Return the error for a body beyond the limit."""
    seen = f"{size} bytes" if size else "the body"
    return Rejected(413, "too-large", "Body too large", f"{seen}: at most {LIMIT} are taken")


def problem_body(problem: Problem) -> tuple[bytes, str]:
    """Return body and content type of an error: always JSON."""
    return _ENCODERS[JSON](problem), PROBLEM
