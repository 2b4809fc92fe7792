"""Encoding of requests and responses: JSON or MessagePack by header, checked against the message type."""

from __future__ import annotations

import hmac
from collections.abc import Callable, Mapping
from itertools import accumulate, count
from typing import Any

import msgspec

from elasticjob.api.rpc.message import JSON, MSGPACK, PREFIX, PROBLEM, Problem, Request
from elasticjob.api.rpc.rendezvous import Join, World
from elasticjob.api.rpc.unreadable import UNREADABLE
from elasticjob.master.handlers.dispatch import VERBS

LIMIT = 1024 * 1024  # bytes of a body
FIRST = 8
"""Members of a world that every node is told; of a larger one, a node is told these and itself."""

_DECODERS = {
    mime: {path: decoder(request) for path, request in VERBS.items()}
    for mime, decoder in ((JSON, msgspec.json.Decoder), (MSGPACK, msgspec.msgpack.Decoder))
}
_ENCODERS = {JSON: msgspec.json.Encoder().encode, MSGPACK: msgspec.msgpack.Encoder().encode}


class BadRequest(Exception):
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
        raise BadRequest(404, "unknown-verb", "No such verb", f"{name} is not one of {known}")
    if method != "POST":
        detail = f"{method} {path}: verbs are called by POST"
        raise BadRequest(405, "malformed", "Wrong method", detail, {"Allow": "POST"})
    return name


def authorize(header: str, token: str) -> None:
    """Reject a request without the job's token, by a comparison in constant time."""
    expected = f"Bearer {token}"
    sent = header.encode(errors="surrogateescape")  # headers are decoded with surrogateescape
    if not token or not hmac.compare_digest(sent, expected.encode()):
        detail = "send the job's token as `Authorization: Bearer <token>`; it is in the Secret <job>-token"
        challenge = {"WWW-Authenticate": "Bearer"}
        raise BadRequest(401, "unauthenticated", "Wrong or missing token", detail, challenge)


def decode(name: str, decoded: Callable[[bytes], Request[Any]], body: bytes) -> Request[Any]:
    """Return the request in `body`, by its verb's decoder; Rejected names the path of an invalid field."""
    try:
        return decoded(body)
    except RecursionError:
        detail = f"{name}: the body is nested deeper than it can be read"
        raise BadRequest(400, "malformed", "Malformed body", detail) from None
    except UNREADABLE as error:
        raise BadRequest(400, "malformed", "Malformed body", f"{name}: {error}") from error


class Encoder:
    """Encodes responses: a small world once for all of its members; of a large one, each gets its part."""

    def __init__(self) -> None:
        self._world: World | None = None
        self._bodies: dict[str, bytes] = {}
        self._ranks: dict[str, tuple[int, int]] = {}
        self._workers = 0

    def answer(self, question: Any, reply: Any, mime: str) -> bytes:
        """Return the reply to a question: a brief Join is told its part of a world."""
        brief = isinstance(question, Join) and question.brief
        return self.encode(reply, mime, question.node if brief else "")

    def encode(self, answer: Any, mime: str, node: str = "") -> bytes:
        """Return `answer`, encoded as that media type; for `node` alone, if that is given."""
        if not isinstance(answer, World):
            return _ENCODERS[mime](answer)
        if answer is not self._world:
            self._world, self._bodies, self._ranks = answer, {}, {}
        if node and len(answer.members) > FIRST:
            return _ENCODERS[mime](self._part(answer, node))
        if mime not in self._bodies:
            self._bodies[mime] = _ENCODERS[mime](answer)
        return self._bodies[mime]

    def _part(self, world: World, node: str) -> World:
        """Return what `node` needs to know of a large world."""
        if not self._ranks:
            firsts = accumulate((member.slots for member in world.members), initial=0)
            ranks = zip(count(), firsts, strict=False)
            self._workers = world.size
            self._ranks = {each.node: place for each, place in zip(world.members, ranks, strict=False)}
        mine, first = self._ranks.get(node, (0, 0))
        rank, first = (mine, first) if mine >= FIRST else self._ranks[world.members[FIRST - 1].node]
        return World(
            round=world.round,
            members=(*world.members[:FIRST], *((world.members[rank],) if rank >= FIRST else ())),
            batch_slots=world.batch_slots,
            nodes=len(world.members),
            workers=self._workers,
            rank=rank,
            first=first,
            next=world.members[(mine + 1) % len(world.members)],
        )


def media_type(content_type: str, default: str = JSON) -> str:
    """Return the media type that a header names; `default` for any other."""
    named = content_type.lower()
    for mime in (MSGPACK, JSON):
        if mime in named:
            return mime
    return default


def too_large(size: int | None) -> BadRequest:
    """Return the error for a body beyond the limit."""
    seen = f"{size} bytes" if size else "the body"
    return BadRequest(413, "too-large", "Body too large", f"{seen}: at most {LIMIT} are taken")


def decoder(name: str, mime: str) -> Callable[[bytes], Request[Any]]:
    """Return what decodes the bodies of a verb; it raises what `decode` explains."""
    return _DECODERS[mime][name].decode


def problem_body(problem: Problem) -> tuple[bytes, str]:
    """Return body and content type of an error: always JSON."""
    return _ENCODERS[JSON](problem), PROBLEM
