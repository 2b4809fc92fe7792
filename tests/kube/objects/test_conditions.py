"""Conditions of a status."""

from __future__ import annotations

from datetime import UTC, datetime

from elasticjob.kube.objects.conditions import LONGEST, set_condition
from elasticjob.kube.objects.views import Condition

NOW = datetime(2026, 1, 1, tzinfo=UTC)


def test_a_message_that_no_server_takes_is_cut() -> None:
    """Pods' messages are in ours, and a status that is refused as a whole would tell nothing."""
    for length in (0, LONGEST, LONGEST + 1, 10 * LONGEST):
        (found,) = set_condition([], Condition(type="Ready", status="False", message="é" * length), NOW)
        assert len(found.message) == min(length, LONGEST)
