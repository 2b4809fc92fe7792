"""The frame of every message: the type of the answer travels with the question.

A request class names its conversation and verb (`PATH`) and its answer (the type parameter), so a caller
writes `world = await master.call(Join(...))` and a type checker knows what `world` is.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Generic, TypeVar, get_args

import msgspec

Answer = TypeVar("Answer")

PREFIX = "/v1/"
PROBLEM = "application/problem+json"
JSON = "application/json"
MSGPACK = "application/msgpack"

Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A round or a version: far from what a number on the wire can hold, since more will follow."""
Wait = Annotated[float, msgspec.Meta(ge=0, le=3600)]
"""For how many seconds a question may wait for its answer."""


class Message(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A frozen value on the wire: what a newer peer adds is ignored, what is absent takes its default."""


class Request(Message, Generic[Answer], frozen=True, kw_only=True):
    """A question to the master whose answer has type `Answer`."""

    PATH: ClassVar[str]


class Empty(Message, frozen=True, kw_only=True):
    """The answer of a request that only reports."""


class Problem(Message, frozen=True, kw_only=True):
    """An error as RFC 9457 problem+json: what was wrong, and the next step, in `detail`.

    `code` is for programs:

    - `unauthenticated` (401), `unknown-verb` (404), `malformed` (400; 405: not by POST), `too-large` (413):
      the call is wrong;
    - `stale` (409): to Watch and Join: a newer incarnation of this node is at work, so end (exit code
      75); to any other request: its round is over, or the master does not know the sender (yet): drop it
      and go on watching;
    - `refused` (409): the job's state forbids it: do not repeat;
    - `stopping` (503): the job ends: the next Watch answers STOP.
    """

    title: str
    status: int
    detail: str
    code: str


def answer_type(request: type[Request[Answer]]) -> type[Answer]:
    """Return the type of the answer to `request`, read from its class declaration."""
    for base in getattr(request, "__orig_bases__", ()):
        for argument in get_args(base):
            return argument  # type: ignore[no-any-return]  # the one argument of Request[...]
    raise TypeError(f"{request.__name__} does not name the type of its answer: write class X(Request[Y])")
