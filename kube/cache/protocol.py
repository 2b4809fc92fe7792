"""The protocol of list and watch as a state machine: `step(state, given) -> Turn`, no I/O, no clock.

    Empty ──initial event──► Streaming ──bookmark──► Watching
    Empty ──page──► Paging ──last page──► Watching
- Empty knows nothing: it asks for the initial events as a stream (`sendInitialEvents`), or, where the server
  refuses that, for the first page of a list.
- Watching knows a resourceVersion and survives every end of its stream with it. Only a server that no longer
  has that version (410), or does not have it yet (restored storage), sends it back to Empty.
- A watch that falls silent is doubted: the server is asked whether it knows the version before it is resumed.
- A list that fails in the middle asks for the same page again; one whose token is refused starts over.
- Nothing reaches the store before the initial set is complete, so a broken list deletes nothing.
"""

from __future__ import annotations

from enum import Enum

import msgspec

from elasticjob.kube.cache.wire import Bookmark, Changed, ChangeType, Failed, Item
from elasticjob.kube.errors import (
    BadRequest,
    Gone,
    Invalid,
    KubeError,
    MethodNotAllowed,
    ServerError,
    TooManyRequests,
    Unreachable,
    is_too_large_resource_version,
)


class Empty(msgspec.Struct, frozen=True):
    """Nothing is known. `streaming`: ask for the initial events; else for pages."""

    streaming: bool = True


class Streaming(msgspec.Struct, frozen=True):
    """The initial events are coming in."""


class Paging(msgspec.Struct, frozen=True):
    """Some pages of a list are in; `token` asks for the next."""

    token: str


class Watching(msgspec.Struct, frozen=True):
    """All changes up to `version` are known."""

    version: str


class Doubting(msgspec.Struct, frozen=True):
    """The watch at `version` fell silent: is it known to the server at all?

    A server whose storage was restored lets a watch at a version from its future wait, without a word.
    """

    version: str


State = Empty | Streaming | Paging | Watching | Doubting


class Listing(msgspec.Struct, frozen=True):
    """Given: one page."""

    items: tuple[Item, ...]
    version: str
    token: str = ""


class Ended(msgspec.Struct, frozen=True):
    """Given: the server closed the stream in an orderly way."""


class Silent(msgspec.Struct, frozen=True):
    """Given: nothing came for so long that the connection counts as dead."""


class Confirmed(msgspec.Struct, frozen=True):
    """Given: the server has reached the version in doubt."""


Given = Listing | Changed | Bookmark | Failed | Ended | Silent | Confirmed


class Restarted(msgspec.Struct, frozen=True):
    """A new initial set begins; what was collected of an unfinished one is void."""


class Listed(msgspec.Struct, frozen=True):
    """Part of the initial set."""

    items: tuple[Item, ...]


class Unlisted(msgspec.Struct, frozen=True):
    """Deleted while the initial set was still coming in."""

    item: Item


class Synced(msgspec.Struct, frozen=True):
    """The initial set is complete: it is the state at `version`."""

    version: str


class Upserted(msgspec.Struct, frozen=True):
    """An object is as `item` says."""

    item: Item


class Removed(msgspec.Struct, frozen=True):
    """An object is gone; `item` is what it was last."""

    item: Item


class Advanced(msgspec.Struct, frozen=True):
    """Nothing happened up to `version`."""

    version: str


Event = Restarted | Listed | Unlisted | Synced | Upserted | Removed | Advanced


class Then(Enum):
    """The result of a step: the next state, and what to request."""

    READ_ON = "go on with this answer"
    ASK_AGAIN = "send the next request at once"
    BACK_OFF = "send the next request after a pause"


class Turn(msgspec.Struct, frozen=True):
    """The outcome of a step."""

    state: State
    events: tuple[Event, ...] = ()
    then: Then = Then.READ_ON


def step(state: State, given: Given) -> Turn:
    """The turn that `given` causes in `state`."""
    match state:
        case Empty():
            return _begin(state, given)
        case Streaming():
            return _stream(given)
        case Paging():
            return _page(state, given)
        case Watching():
            return _watch(state, given)
        case Doubting():
            return _doubt(state, given)


def _begin(state: Empty, given: Given) -> Turn:
    match given:
        case Listing():
            return _listed(given, (Restarted(),))
        case Changed() | Bookmark():
            turn = _stream(given)
            return Turn(turn.state, (Restarted(), *turn.events), turn.then)
        case Failed(error) if state.streaming and _refuses_streaming(error):
            return Turn(Empty(streaming=False), then=Then.ASK_AGAIN)
        case Failed():
            return Turn(state, then=Then.BACK_OFF)
        case Ended() | Silent() | Confirmed():
            return Turn(Empty(streaming=False), then=Then.BACK_OFF)


def _stream(given: Given) -> Turn:
    match given:
        case Changed(ChangeType.DELETED, item):
            return Turn(Streaming(), (Unlisted(item),))
        case Changed(_, item):
            return Turn(Streaming(), (Listed((item,)),))
        case Bookmark(version, True):
            return Turn(Watching(version), (Synced(version),))
        case Bookmark():
            return Turn(Streaming())
        case Failed():
            return Turn(Empty(), then=Then.BACK_OFF)
        case (
            Listing() | Ended() | Silent() | Confirmed()
        ):  # a server that does not know sendInitialEvents never says where they end
            return Turn(Empty(streaming=False), then=Then.BACK_OFF)


def _page(state: Paging, given: Given) -> Turn:
    match given:
        case Listing():
            return _listed(given, ())
        case Failed(error) if isinstance(error, BadRequest | Invalid) or _has_lost_the_version(error):
            return Turn(Empty(streaming=False), then=Then.BACK_OFF)
        case _:
            return Turn(state, then=Then.BACK_OFF)


def _listed(page: Listing, before: tuple[Event, ...]) -> Turn:
    events = (*before, Listed(page.items))
    if page.token:
        return Turn(Paging(page.token), events, Then.ASK_AGAIN)
    return Turn(Watching(page.version), (*events, Synced(page.version)), Then.ASK_AGAIN)


def _watch(state: Watching, given: Given) -> Turn:
    match given:
        case Changed(ChangeType.DELETED, item):
            return Turn(Watching(item.meta.resource_version), (Removed(item),))
        case Changed(_, item):
            return Turn(Watching(item.meta.resource_version), (Upserted(item),))
        case Bookmark(version):
            return Turn(Watching(version), (Advanced(version),))
        case Failed(error) if _has_lost_the_version(error):
            return Turn(Empty(), then=Then.BACK_OFF)
        case Failed():
            return Turn(state, then=Then.BACK_OFF)
        case Silent():
            return Turn(Doubting(state.version), then=Then.ASK_AGAIN)
        case Ended() | Listing() | Confirmed():
            return Turn(state, then=Then.ASK_AGAIN)


def _doubt(state: Doubting, given: Given) -> Turn:
    match given:
        case Failed(error) if _has_lost_the_version(error):
            return Turn(Empty(), then=Then.BACK_OFF)
        case Failed(Unreachable() | ServerError() | TooManyRequests()):
            return Turn(state, then=Then.BACK_OFF)
        case Failed():  # we may watch, but not ask: then the watch alone must do
            return Turn(Watching(state.version), then=Then.BACK_OFF)
        case _:
            return Turn(Watching(state.version), then=Then.ASK_AGAIN)


def _refuses_streaming(error: KubeError) -> bool:
    return isinstance(error, BadRequest | Invalid | MethodNotAllowed)


def _has_lost_the_version(error: KubeError) -> bool:
    return isinstance(error, Gone) or is_too_large_resource_version(error)
