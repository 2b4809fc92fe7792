"""Base types of all messages.

A request class names its conversation and verb (`PATH`) and its response (the type parameter), so a caller
writes `world = await master.call(Join(...))` and a type checker infers the type of `world`.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any, ClassVar, Final, Generic, TypeVar, get_args

import msgspec

Answer = TypeVar("Answer")
T = TypeVar("T")

PREFIX = "/v1/"
PROBLEM = "application/problem+json"
JSON = "application/json"
MSGPACK = "application/msgpack"


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A frozen value on the wire. Unknown fields are ignored, absent ones take their default."""


class Request(Message, Generic[Answer], frozen=True, kw_only=True):
    """A request to the master whose response has type `Answer`."""

    PATH: ClassVar[str]


class Empty(Message, frozen=True, kw_only=True):
    """The empty response."""


class Problem(Message, frozen=True, kw_only=True):
    """Errors as RFC 9457 problem+json: `detail` says what was wrong, and the next step.

    `code` is for programs:

    - `unauthenticated` (401), `unknown-verb` (404), `malformed` (400; 405: not by POST), `too-large` (413):
      the request is invalid;
    - `stale` (409): to Watch and Join: a newer incarnation of this node is active, so exit (code 75); to any
      other request: its round is over, or the master does not know the sender (yet): drop it and go on
      watching;
    - `refused` (409): the job's state forbids it: do not retry;
    - `stopping` (503): the job ends: the next Watch returns STOP.
    """

    title: str
    status: int
    detail: str
    code: str


_BUILDING: Final = threading.Lock()
_DECODERS: Final[dict[object, Callable[[bytes | str], Any]]] = {}


def decode_as(text: bytes | str, type_: type[T]) -> T:
    """Return JSON as a type. Raises msgspec.DecodeError or ValidationError, and what msgspec else raises.

    Threads may call it. msgspec looks at the fields of a type at its first use, and two threads that do so
    for one type at the same time crash the interpreter.
    """
    decode = _DECODERS.get(type_)
    if decode is None:
        with _BUILDING:
            decode = _DECODERS.setdefault(type_, msgspec.json.Decoder(type_).decode)
    found: T = decode(text)
    return found


def answer_type(request: type[Request[Answer]]) -> type[Answer]:
    """Return the response type of `request`, read from its class declaration."""
    for base in getattr(request, "__orig_bases__", ()):
        for argument in get_args(base):
            return argument  # type: ignore[no-any-return]  # the one argument of Request[...]
    raise TypeError(f"{request.__name__} does not name the type of its answer: write class X(Request[Y])")
