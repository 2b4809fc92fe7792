"""A few random requests to each listener; `make fuzz` sends 100,000."""

from __future__ import annotations

import pytest

from lab.fuzz import store
from lab.fuzz.listeners import LISTENERS, Listener
from lab.fuzz.play import play


@pytest.mark.parametrize("listener", LISTENERS, ids=lambda listener: listener.name)
async def test_random_requests_bring_no_fault(listener: Listener) -> None:
    found = await play(listener, range(300), first=2.0)  # a busy machine answers late
    assert found.wrong == []
    assert found.answers.total() > 200


def test_random_frames_bring_no_fault_to_the_store() -> None:
    found = store.play(range(300))
    assert found.wrong == []
    assert found.answers["Rows"] > 0
    assert found.answers["Refused"] > 0
