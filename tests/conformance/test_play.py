"""What a comparison must not miss."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.conformance import golden
from tests.conformance.compare import differences
from tests.conformance.objects import config_map
from tests.conformance.play import NeverReached
from tests.conformance.probe import MAPS, get, post, probe
from tests.conformance.probes import SUBJECTS
from tests.conformance.running import seen_by
from tests.conformance.servers import embedded


def flipped(value: Any) -> Iterator[Any]:
    """The value with one leaf changed, leaf by leaf."""
    if isinstance(value, dict):
        for name, each in value.items():
            yield from (value | {name: other} for other in flipped(each))
    elif isinstance(value, list):
        for index, each in enumerate(value):
            yield from ([*value[:index], other, *value[index + 1 :]] for other in flipped(each))
    else:
        yield f"not {value}"


def test_a_changed_leaf_of_what_is_recorded_is_a_difference() -> None:
    recorded = golden.read("crud")["a new config map"]
    changes = list(flipped(recorded))
    assert len(changes) > 5
    assert [each for each in changes if len(list(differences(recorded, each))) != 1] == []


@pytest.mark.parametrize("subject", SUBJECTS)
def test_what_is_recorded_answers_every_step(subject: str) -> None:
    asked = {each.name: len(each.steps) for each in SUBJECTS[subject]}
    short = [name for name, seen in golden.read(subject).items() if len(seen) < asked[name]]
    assert short == []


async def test_a_step_that_waits_in_vain_is_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.conformance.play.PATIENCE", 0.2)
    vain = probe("in vain", post(MAPS, config_map("a")), get(f"{MAPS}/a", until=404))
    async with embedded() as server:
        with pytest.raises(NeverReached, match="in vain: after steps with"):
            await seen_by(server, [vain])
