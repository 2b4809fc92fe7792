"""Findings about the health of a job: open while they are so."""

from __future__ import annotations

from datetime import timedelta

from elasticjob.master.state.condition import KEPT, Health, Kind
from lab.virtual.master import START

LATER = START + timedelta(seconds=9)


def said(health: Health) -> list[tuple[str, bool]]:
    """The sentences, and whether each is open."""
    return [(finding.message, finding.until is None) for finding in health.findings]


def test_finding_stands_in_the_place_of_the_last_one_about_the_same_and_is_closed() -> None:
    health = Health().add(Kind.LATE, "a is late", START, "a").add(Kind.STRAGGLER, "a is slow", START, "a")
    health = health.add(Kind.LATE, "b is late", START, "b").add(Kind.LOSS, "nan", START)
    assert health.close(Kind.LATE, LATER, {"a", "b"}) is health
    health = health.close(Kind.LATE, LATER, {"b"})
    assert said(health) == [("a is late", False), ("a is slow", True), ("b is late", True), ("nan", True)]
    assert health.findings[0].seconds == 9
    health = health.add(Kind.LATE, "a is late again", LATER, "a").close(Kind.LOSS, LATER)
    assert said(health)[1:] == [("b is late", True), ("nan", True), ("a is late again", True)]
    assert health.counts == {Kind.LATE: 3, Kind.STRAGGLER: 1, Kind.LOSS: 1}


def test_each_hang_is_kept_and_findings_that_are_closed_go_first() -> None:
    health = Health().add(Kind.FAULT_NODE, "first", START, "n")
    for number in range(KEPT + 3):
        health = health.add(Kind.HANG, f"hang {number}", START, "a").close(Kind.HANG, LATER)
    assert len(health.findings) == KEPT
    assert [message for message, _ in said(health)[:2]] == ["first", "hang 4"]
