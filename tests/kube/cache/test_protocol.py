"""The watch protocol: each state, each input."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from elasticjob.kube.cache.protocol import (
    Advanced,
    Confirmed,
    Doubting,
    Empty,
    Ended,
    Event,
    Given,
    Listed,
    Listing,
    Paging,
    Removed,
    Restarted,
    Silent,
    State,
    Streaming,
    Synced,
    Then,
    Turn,
    Unlisted,
    Upserted,
    Watching,
    step,
)
from elasticjob.kube.cache.store import Store
from elasticjob.kube.cache.wire import Bookmark, Changed, ChangeType, Failed
from elasticjob.kube.errors import KubeError, Unreachable, api_error
from lab.build.objects import item

A, B = item("a", 5), item("b", 6)
CAUSES = {"causes": [{"reason": "ResourceVersionTooLarge"}]}
GONE, CUT = api_error(410, "Expired", "too old"), Unreachable("cut")
INVALID, BUSY = api_error(422, "Invalid", "sendInitialEvents"), api_error(429, "TooManyRequests", "later")
FORBIDDEN, BAD = api_error(403, "Forbidden", "no"), api_error(400, "BadRequest", "continue key is not valid")
FUTURE = api_error(504, "Timeout", "Too large resource version", CAUSES)
ADDED, DELETED = ChangeType.ADDED, ChangeType.DELETED
ON, ASK, WAIT = Then.READ_ON, Then.ASK_AGAIN, Then.BACK_OFF

ROWS: dict[str, tuple[State, Given, Turn]] = {
    "a stream begins": (Empty(), Changed(ADDED, A), Turn(Streaming(), (Restarted(), Listed((A,))), ON)),
    "a stream of nothing": (Empty(), Bookmark("9", initial_done=True),
     Turn(Watching("9"), (Restarted(), Synced("9")), ON)),
    "a stream goes on": (Streaming(), Changed(ADDED, B), Turn(Streaming(), (Listed((B,)),), ON)),
    "gone while streaming": (Streaming(), Changed(DELETED, B), Turn(Streaming(), (Unlisted(B),), ON)),
    "a bookmark in between": (Streaming(), Bookmark("7"), Turn(Streaming(), (), ON)),
    "all initial events are in": (Streaming(), Bookmark("9", initial_done=True),
     Turn(Watching("9"), (Synced("9"),), ON)),
    "streaming is refused": (Empty(), Failed(INVALID), Turn(Empty(streaming=False), (), ASK)),
    "streaming is not understood": (Streaming(), Silent(), Turn(Empty(streaming=False), (), WAIT)),
    "the stream ends too early": (Streaming(), Ended(), Turn(Empty(streaming=False), (), WAIT)),
    "the stream is cut": (Streaming(), Failed(CUT), Turn(Empty(), (), WAIT)),
    "the server is away": (Empty(), Failed(CUT), Turn(Empty(), (), WAIT)),
    "one page": (Empty(streaming=False), Listing((A, B), "9"),
     Turn(Watching("9"), (Restarted(), Listed((A, B)), Synced("9")), ASK)),
    "the first of pages": (Empty(streaming=False), Listing((A,), "9", "t"),
     Turn(Paging("t"), (Restarted(), Listed((A,))), ASK)),
    "the last of pages": (Paging("t"), Listing((B,), "9"),
     Turn(Watching("9"), (Listed((B,)), Synced("9")), ASK)),
    "a page is too old": (Paging("t"), Failed(GONE), Turn(Empty(streaming=False), (), WAIT)),
    "a page is unknown": (Paging("t"), Failed(BAD), Turn(Empty(streaming=False), (), WAIT)),
    "a page of the future": (Paging("t"), Failed(FUTURE), Turn(Empty(streaming=False), (), WAIT)),
    "a page fails": (Paging("t"), Failed(CUT), Turn(Paging("t"), (), WAIT)),
    "a change": (Watching("4"), Changed(ADDED, A), Turn(Watching("5"), (Upserted(A),), ON)),
    "a deletion": (Watching("4"), Changed(DELETED, B), Turn(Watching("6"), (Removed(B),), ON)),
    "a bookmark": (Watching("4"), Bookmark("8"), Turn(Watching("8"), (Advanced("8"),), ON)),
    "the watch ends": (Watching("4"), Ended(), Turn(Watching("4"), (), ASK)),
    "the watch is cut": (Watching("4"), Failed(CUT), Turn(Watching("4"), (), WAIT)),
    "the server is busy": (Watching("4"), Failed(BUSY), Turn(Watching("4"), (), WAIT)),
    "the version is too old": (Watching("4"), Failed(GONE), Turn(Empty(), (), WAIT)),
    "the version is of the future": (Watching("4"), Failed(FUTURE), Turn(Empty(), (), WAIT)),
    "silence": (Watching("4"), Silent(), Turn(Doubting("4"), (), ASK)),
    "the version is known": (Doubting("4"), Confirmed(), Turn(Watching("4"), (), ASK)),
    "the storage was restored": (Doubting("4"), Failed(FUTURE), Turn(Empty(), (), WAIT)),
    "nobody answers": (Doubting("4"), Failed(CUT), Turn(Doubting("4"), (), WAIT)),
    "we may not ask": (Doubting("4"), Failed(FORBIDDEN), Turn(Watching("4"), (), WAIT)),
}  # fmt: skip


@pytest.mark.parametrize(("state", "given_", "turn"), ROWS.values(), ids=ROWS)
def test_step(state: State, given_: Given, turn: Turn) -> None:
    assert step(state, given_) == turn


ERRORS: list[KubeError] = [GONE, CUT, INVALID, BUSY, FUTURE]
GIVEN = st.one_of(
    st.builds(Changed, st.sampled_from(list(ChangeType)), st.sampled_from([A, B])),
    st.builds(Bookmark, st.sampled_from(["7", "8"]), st.booleans()),
    st.builds(Listing, st.sampled_from([(), (A,), (A, B)]), st.just("9"), st.sampled_from(["", "t"])),
    st.builds(Failed, st.sampled_from(ERRORS)),
    st.sampled_from([Ended(), Silent(), Confirmed()]),
)


@given(st.lists(GIVEN, max_size=40))
def test_no_input_breaks_the_protocol(inputs: list[Given]) -> None:
    """An incomplete list never reaches the store; a failure always leads to a pause or another way to ask."""
    state: State = Empty()
    store, events = Store(), list[Event]()
    for given_ in inputs:
        turn = step(state, given_)
        for event in turn.events:
            before = len(store)
            changes = store.apply(event)
            if not isinstance(event, Synced | Upserted | Removed):
                assert (len(store), changes) == (before, [])
        if isinstance(given_, Failed):
            assert turn.then is not Then.READ_ON
        if isinstance(turn.state, Watching) and not isinstance(state, Watching | Doubting):
            assert isinstance(turn.events[-1], Synced)
        events += turn.events
        state = turn.state
