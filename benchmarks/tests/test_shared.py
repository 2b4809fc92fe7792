"""What `make bench-shared` asks of each system, what it counts, and how it tells refusals."""

from __future__ import annotations

import json
from collections import Counter
from datetime import UTC, datetime

import pytest

from benchmarks.clients.plane import AGENT
from benchmarks.shared.scene import Taken, writes_in
from benchmarks.shared.sheet import Runs, as_json, sheet
from benchmarks.shared.systems import OURS, QUEUE, TRAINER, Asked, System
from lab.clusters.plane.audit import Audited

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize("system", [OURS, TRAINER])
@pytest.mark.parametrize("brief", [False, True])
def test_both_ask_for_the_same_in_the_same_queue(system: System, brief: bool) -> None:
    made = system.manifest(Asked("job", 4, 2, "one", brief))
    assert made["metadata"]["labels"] == {QUEUE: "one"}
    text = str(made)
    assert "{'cpu': '100m', 'nvidia.com/gpu': '1'}" in text
    assert ("'brief'" in text) is brief


def test_writes_are_counted_by_program_without_our_own_and_without_leases() -> None:
    def write(agent: str, resource: str) -> Audited:
        return Audited(NOW, NOW, "u", agent, "", "update", "", resource, "", "bench", "n", 200, "/")

    found = writes_in(
        [
            write("kueue/v1", "workloads"),
            write("kueue/v1", "workloads"),
            write("kwok/v0", "leases"),
            write(f"{AGENT}/1", "pods"),
        ]
    )
    assert found == Counter({"kueue": 2})


def test_a_refusal_is_a_cell_and_its_words_a_note() -> None:
    good = Runs([Taken({"seconds": 2.0}, 1, {"kueue": 3}), Taken({"seconds": 4.0}, 1, {"kueue": 5})])
    bad = Runs(refusals=["resized-0: field is immutable", "resized-1: field is immutable"])
    found = {"resize": {"ours": good, "theirs": bad}}
    made = sheet(found, ["ours", "theirs"])
    assert made.rows == [
        ["resize", "", "refused 2 of 2"],
        ["  seconds", "3.00 (2.00–4.00)", "–"],
        ["  pods made", "1.00 (1.00–1.00)", "–"],
        ["  writes to the API server", "4.00 (3.00–5.00)", "–"],
    ]
    assert made.notes == ["theirs, resize: resized-0: field is immutable"]
    assert json.loads(json.dumps(as_json(found)))["resize"]["ours"]["taken"][0]["writes"] == {"kueue": 3}
